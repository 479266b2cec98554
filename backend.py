"""How pip builds tisfast (PEP 517): as setuptools does, with a protobuf compiler only where one is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all that a backend may be asked for; some is replaced below
from setuptools.config.pyprojecttoml import load_file

PROTO = Path("tisfast/wire/proto")
DESCRIPTOR_SET = PROTO / "triton.desc"


def is_described() -> bool:
    """Whether the descriptor set is there and is made of the .proto files that are there."""
    if not DESCRIPTOR_SET.exists():
        return False
    if Path("PKG-INFO").exists():  # a source archive, in which times say nothing
        return True
    made = DESCRIPTOR_SET.stat().st_mtime
    return all(path.stat().st_mtime <= made for path in PROTO.glob("*.proto"))


def protobuf_compiler() -> list[str]:
    """The requirements that bring one."""
    stated: list[str] = load_file("pyproject.toml")["project"]["optional-dependencies"]["protoc"]
    return stated


def _compiler_if_needed() -> list[str]:
    return [] if is_described() else protobuf_compiler()


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What to install before a wheel is built."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_if_needed()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """The same for `pip install -e`."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler_if_needed()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """The same for a source archive."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_compiler_if_needed()]
