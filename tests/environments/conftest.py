"""A small environment to pack, a cache, and what counts as told."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from tests.environments.packing import add_link, add_text
from tisfast.environments.build import BuildContext
from tisfast.environments.cache import EnvironmentCache

OUR_PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


@pytest.fixture
def context(tmp_path):
    return BuildContext(EnvironmentCache(tmp_path / "cache"))


@pytest.fixture
def pack(tmp_path):
    """pack(NAME=TEXT...): an archive whose interpreter is a script that runs ours, which is quicker than a real one."""

    def packed(files: dict[str, str] | None = None, name: str = "env.tar.gz") -> Path:
        path = tmp_path / name
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for file, text in {"bin/python3.x": OUR_PYTHON, **(files or {})}.items():
                add_text(tar, file, text)
            add_link(tar, "bin/python", "python3.x")
        return path

    return packed


@pytest.fixture
def told():
    """Collects what is told."""

    class Told(list):
        def __call__(self, text: str) -> None:
            self.append(text)

    return Told()
