"""Which Python interpreter a model runs under (EXECUTION_ENV_PATH).  Layer 4 (supervise)."""

from __future__ import annotations

import os
from pathlib import Path

from tisfast.errors import ConfigError, Unsupported

KEY = "EXECUTION_ENV_PATH"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def interpreter_of(value: str, model_directory: str, own: str) -> str:
    """The interpreter that parameter EXECUTION_ENV_PATH names: `own` when it is "".

    A virtual environment or an unpacked one (folder with bin/python), or an interpreter itself.  Not resolved through
    links: a virtual environment's interpreter is one, and means its packages.  Raises ConfigError, Unsupported.
    """
    if not value:
        return own
    path = Path(os.path.abspath(value.replace(MODEL_DIRECTORY, model_directory)))
    if path.name.endswith(ARCHIVES):
        raise Unsupported(
            f"{KEY} {value!r} names an archive, which tisfast does not unpack yet; unpack it "
            f"(mkdir env && tar xf {path.name} -C env && env/bin/conda-unpack) and name the folder"
        )
    if path.is_file() and os.access(path, os.X_OK):
        return str(path)
    for name in ("python3", "python"):
        if os.access(path / "bin" / name, os.X_OK):
            return str(path / "bin" / name)
    what = "has no bin/python3 or bin/python that can be executed" if path.is_dir() else "does not exist"
    raise ConfigError(f"{KEY} {value!r} {what}", key=f"parameters[{KEY}]", hint=f"looked at {path}")
