"""Recognises the kind of environment that a path names.  Looks at names and at the file system, starts nothing.

Layer 3 (environments).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tisfast.environments.environment import PYTHONS, Environment, Stamp
from tisfast.environments.requirements import files_of
from tisfast.errors import ConfigError

PARAMETER: Final = "EXECUTION_ENV_PATH"
PYTHON_PARAMETER: Final = "EXECUTION_ENV_PYTHON"
ARCHIVES: Final = (
    ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst", ".zip",
)  # fmt: skip
REQUIREMENTS: Final = re.compile(r".*\.txt|pylock(\.[^.]+)?\.toml", re.IGNORECASE)
_PYTHON: Final = re.compile(r"3(\.\d{1,3}){0,2}|/.*")
REFUSED: Final = {
    "uv.lock": "uv export --frozen --no-emit-project --output-file requirements.txt",
    "pyproject.toml": "uv pip compile pyproject.toml --output-file requirements.txt",
    "poetry.lock": "poetry export --output requirements.txt",
    "pdm.lock": "pdm export --output requirements.txt",
    "Pipfile": "pipenv requirements > requirements.txt",
    "Pipfile.lock": "pipenv requirements --hash > requirements.txt",
    "setup.py": "write what it needs into a requirements.txt",
    "environment.yml": "conda env create --file environment.yml, then pack it: conda pack",
    "environment.yaml": "conda env create --file environment.yaml, then pack it: conda pack",
    "conda-lock.yml": "conda-lock install conda-lock.yml, then pack it: conda pack",
}
"""Files that describe environments and are not read here, with what makes one that is."""


def recognise(path: Path, shown: str, python: str = "") -> Environment:
    """The environment that `path` names.  shown: as it was written, for messages; python: of EXECUTION_ENV_PYTHON.

    Raises ConfigError saying what is wrong with it.
    """
    path = Path(os.path.abspath(path))
    found = _of_kind(path, shown)
    if not python:
        return found
    if found.kind != "requirements":
        raise ConfigError(f"{PYTHON_PARAMETER} '{python}' asks for a Python, and {found} has its own",
                          key=PYTHON_PARAMETER, hint=f"remove {PYTHON_PARAMETER}; it is for requirements")  # fmt: skip
    if not _PYTHON.fullmatch(python):
        raise ConfigError(f"{PYTHON_PARAMETER} '{python}' is neither a version nor the path of an interpreter",
                          key=PYTHON_PARAMETER, hint="write 3.11, or 3.11.7, or /usr/bin/python3.11")  # fmt: skip
    return Environment(found.kind, path, python=python, stamp=found.stamp)


def _of_kind(path: Path, shown: str) -> Environment:
    if path.is_dir():
        return Environment("folder", path, interpreter=_in_folder(path, shown))
    try:
        stamp = stamp_of(path)
    except OSError as error:
        raise ConfigError(f"Failed to get the canonical path for {shown}.",
                          hint=f"{path}: {error.strerror}") from error  # fmt: skip
    if path.name in REFUSED:
        raise ConfigError(f"{PARAMETER} '{shown}': {path.name} is not served", hint=REFUSED[path.name])
    if path.name.lower().endswith(ARCHIVES):
        return Environment("archive", path, stamp=stamp)
    if REQUIREMENTS.fullmatch(path.name):
        return Environment("requirements", path, stamp=_stamp_of_all(path))
    if not os.access(path, os.X_OK):
        raise ConfigError(f"{PARAMETER} '{shown}' is neither environment, interpreter, archive nor requirements",
                          hint="name the folder that holds bin/python, a requirements.txt, or an archive: "
                               + ", ".join(ARCHIVES))  # fmt: skip
    return Environment("interpreter", path, interpreter=path)


def stamp_of(path: Path) -> Stamp:
    """A stamp that changes when the file does, without reading it.  Raises OSError.

    The time of change is no sign where a file has several names, as those have that come from a store: it is also that
    of when the last name came or went.
    """
    about = path.stat()
    changed_ns = about.st_ctime_ns if about.st_nlink == 1 else 0
    return (about.st_size, about.st_mtime_ns, changed_ns, about.st_ino)


def _stamp_of_all(path: Path) -> Stamp:
    return tuple(figure for file in files_of(path) for figure in stamp_of(file))


def _in_folder(path: Path, shown: str) -> Path:
    for name in PYTHONS:
        candidate = path / "bin" / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise ConfigError(f"{PARAMETER} '{shown}' holds no bin/python3 or bin/python that can be run",
                      hint=f"make one: python3 -m venv {path}")  # fmt: skip
