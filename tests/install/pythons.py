"""The CPythons of this machine that can run the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 10)
MINORS_TRIED: Final = range(10, 20)
_FACTS: Final = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


def interpreters() -> list[str]:
    """One path for each version from OLDEST on, oldest first: this interpreter, those on PATH, and pyenv's."""
    found: dict[tuple[int, int], str] = {}
    for path in _candidates():
        version = _version(path)
        if version is not None and version >= OLDEST:
            found.setdefault(version, path)
    return [found[version] for version in sorted(found)]


def _candidates() -> list[str]:
    on_path = (shutil.which(f"python3.{minor}") for minor in MINORS_TRIED)
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    return [sys.executable, *filter(None, on_path), *map(str, sorted(pyenv.glob("3.*/bin/python")))]


def _version(path: str) -> tuple[int, int] | None:
    """Of a CPython that runs (a pyenv shim may be there for nothing), else None."""
    done = subprocess.run([path, "-I", "-c", _FACTS], capture_output=True, text=True, check=False, timeout=60)
    words = done.stdout.split()
    return (int(words[1]), int(words[2])) if done.returncode == 0 and words[0] == "cpython" else None
