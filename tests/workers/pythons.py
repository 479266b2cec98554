"""Interpreters to run the workers under."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def interpreters() -> list[str]:
    """This one and every one that pyenv has, the newest of each minor version, oldest first."""
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found: dict[tuple[int, ...], str] = {}
    for python in sorted(root.glob("3.*/bin/python")):
        numbers = tuple(int(part) for part in python.parts[-3].split(".") if part.isdigit())
        if (3, 8) <= numbers[:2] <= (3, 14):
            found[numbers[:2]] = str(python)
    found[sys.version_info[:2]] = sys.executable
    return [found[version] for version in sorted(found)]


def has_numpy(python: str) -> bool:
    return subprocess.run([python, "-I", "-c", "import numpy"], capture_output=True, check=False).returncode == 0
