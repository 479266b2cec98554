"""Make a virtual environment of requirements: with uv where there is one, else with venv and pip.

Layer 3 (environments).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.interpreters import PythonFacts
from tisfast.environments.requirements import Requirements
from tisfast.environments.run_program import ProgramFailed, run

_QUIET: Final = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_REQUIRE_VIRTUALENV": "0",
                 "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}  # fmt: skip


def find_uv() -> str | None:
    """The uv on PATH, or the one installed beside our own interpreter."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def install(
    requirements: Requirements, python: PythonFacts, home: Path, uv: str | None, heard: Callable[[str], None]
) -> None:
    """Build the environment in the empty folder `home`.  Raises EnvironmentFailed with the end of what was printed."""
    file = requirements.files[0]
    if requirements.locked and uv is None:
        raise EnvironmentFailed(f"{file.name} is installed by uv, which was not found", "pip install uv")
    for command in _commands(requirements, python, home, uv):
        try:
            run(command, file.parent, heard, _QUIET)
        except ProgramFailed as error:
            said = f"; it printed:\n{error.said}" if error.said else ""
            raise EnvironmentFailed(
                f"the environment of {file} could not be built for Python {python.number}: {error}{said}"
            ) from error


def _commands(requirements: Requirements, python: PythonFacts, home: Path, uv: str | None) -> list[list[str]]:
    inside = str(home / "bin" / "python")
    hashes = ["--require-hashes"] if requirements.hashed else []
    file = ["--requirement", str(requirements.files[0])]
    if uv is None:
        return [
            [python.path, "-I", "-m", "venv", str(home)],
            [inside, "-I", "-m", "pip", "install", *hashes, *file],
        ]
    return [
        [uv, "venv", "--no-project", "--allow-existing", "--python", python.path, str(home)],
        [uv, "pip", "install", "--compile-bytecode", "--python", inside, *hashes, *file],
    ]
