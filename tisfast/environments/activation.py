"""The variables that activating an environment sets, for processes that are started without a shell.  Layer 3
(environments).

As Triton does for its stubs, which it starts after the environment's `activate`: PATH, LD_LIBRARY_PATH, and what the
environment's own activation scripts set (conda's etc/conda/activate.d: GDAL_DATA, PROJ_LIB and the like).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.run_program import foreign_environ

_SCRIPTS: Final = "etc/conda/activate.d"
_ASK: Final = '. "$0"/bin/activate >/dev/null 2>&1; exec env -0'
_NOISE: Final = frozenset({"_", "PS1", "PWD", "OLDPWD", "SHLVL", "CONDA_PROMPT_MODIFIER"})


def variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for processes of the environment in `folder`, given those of the server."""
    if not (folder / "bin").is_dir():
        return {}
    found = {"PATH": _before(folder / "bin", environ.get("PATH", os.defpath))}
    if (folder / "pyvenv.cfg").exists():
        return {**found, "VIRTUAL_ENV": str(folder)}
    if (folder / "conda-meta").is_dir():
        found["CONDA_PREFIX"] = str(folder)
    return {**found, **library_path(folder, environ)}


def library_path(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment's own libraries, before the server's."""
    if not any((folder / "lib").glob("*.so*")):
        return {}
    return {"LD_LIBRARY_PATH": _before(folder / "lib", environ.get("LD_LIBRARY_PATH", ""))}


def scripted(folder: Path) -> dict[str, str]:
    """The variables that the environment's conda activation scripts set, {} without any.  Runs them, in bash.

    Raises EnvironmentFailed.
    """
    scripts = folder / _SCRIPTS
    if not (folder / "bin" / "activate").is_file() or not scripts.is_dir() or not any(scripts.glob("*.sh")):
        return {}
    before = foreign_environ(os.environ)
    try:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", _ASK, str(folder)], env=before, capture_output=True, check=True,
            stdin=subprocess.DEVNULL, timeout=limits.INTERPRETER_CHECK_SECONDS_MAX,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentFailed(f"the activation scripts in {scripts} cannot be run with bash: {error}") from error
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0") if b"=" in entry)
    after = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return {
        name: value
        for name, value in after.items()
        if before.get(name) != value and name not in _NOISE and name not in ("PATH", "LD_LIBRARY_PATH")
    }


def _before(folder: Path, rest: str) -> str:
    return f"{folder}{os.pathsep}{rest}" if rest else str(folder)
