"""What the Makefile installs is what pyproject.toml lists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_extra_is_printed_as_it_is_listed():
    tomllib = pytest.importorskip("tomllib", reason="CPython 3.10 has no tomllib")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, wanted in extras.items():
        command = [sys.executable, str(ROOT / ".ci/requirements.py"), name]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (printed.stderr, printed.stdout.splitlines()) == ("", [each.replace('"', "'") for each in wanted])
