"""The interpreter behind EXECUTION_ENV_PATH (row 16.23).  Layer 3 (repo)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tisfast.errors import ConfigError

PARAMETER: Final = "EXECUTION_ENV_PATH"
MODEL_FOLDER: Final = "$$TRITON_MODEL_DIRECTORY"
ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2", ".zip")
STUB: Final = "triton_python_backend_stub"


def interpreter(value: str, folder: Path) -> Path | None:
    """The interpreter of a virtual environment, an unpacked environment or an interpreter itself; None for value "".

    value: the parameter as written; folder: the model's.  Links are kept, because a virtual environment's interpreter
    is one.  Raises ConfigError saying what is wrong with the path.
    """
    if not value:
        _refuse_stub(folder)
        return None
    path = Path(os.path.abspath(value.replace(MODEL_FOLDER, str(folder))))
    if path.name.endswith(ARCHIVES):
        raise ConfigError(
            f"{PARAMETER} '{value}' is an archive; unpacking archives is not served yet",
            hint=f"unpack it (mkdir env && tar xf {path.name} -C env && env/bin/conda-unpack) and name the folder",
        )
    if path.is_dir():
        return _in_folder(path, value)
    if not path.exists():
        raise ConfigError(f"Failed to get the canonical path for {value}.", hint=f"there is no {path}")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"{PARAMETER} '{value}' is neither a folder nor an interpreter",
                          hint="name the folder that holds bin/python")  # fmt: skip
    return path


def _in_folder(path: Path, value: str) -> Path:
    for name in ("python3", "python"):
        candidate = path / "bin" / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise ConfigError(f"{PARAMETER} '{value}' holds no bin/python3 or bin/python that can be run",
                      hint=f"make one: python3 -m venv {path}")  # fmt: skip


def _refuse_stub(folder: Path) -> None:
    """A stub of its own is how Triton's models choose another Python; running them under ours would surprise."""
    if (folder / STUB).exists():
        raise ConfigError(f"{STUB} in the model folder chooses a Python version, which tisfast does not read from it",
                          hint=f"name the environment with parameter {PARAMETER}, and remove the stub")  # fmt: skip
