"""The environment that a model's parameters name.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import PARAMETER, PYTHON_PARAMETER, recognise
from tisfast.errors import ConfigError
from tisfast.repo import layout

MODEL_FOLDER: Final = "$$TRITON_MODEL_DIRECTORY"
STUB: Final = "triton_python_backend_stub"


def read_environment(parameters: Mapping[str, str], folder: Path) -> Environment | None:
    """The environment that a model's parameters name, None for the server's own.

    folder: the model's.  Starts and prepares nothing.  Raises ConfigError, with the parameter as its key.
    """
    value, python = parameters.get(PARAMETER, ""), parameters.get(PYTHON_PARAMETER, "")
    if value:
        return recognise(Path(expanded(value, folder)), value, expanded(python, folder))
    if python:
        raise ConfigError(f"{PYTHON_PARAMETER} '{python}' is for requirements, and there are none",
                          key=PYTHON_PARAMETER, hint=f"name a requirements.txt with parameter {PARAMETER}")  # fmt: skip
    _refuse_stub(folder)
    return None


def expanded(value: str, folder: Path) -> str:
    """A parameter's value with the model's folder in it."""
    return value.replace(MODEL_FOLDER, str(folder))


def _refuse_stub(folder: Path) -> None:
    """A stub alone is how Triton's models choose another Python; running them under ours would surprise.

    Beside EXECUTION_ENV_PATH, which names that Python, it is harmless: Triton needs it there, and tisfast does not run
    it.
    """
    if layout.exists(folder / STUB):
        raise ConfigError(f"{STUB} in the model folder chooses a Python version, which tisfast does not read from it",
                          hint=f"name the environment with parameter {PARAMETER}, or remove the stub")  # fmt: skip
