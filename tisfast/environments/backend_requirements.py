"""The packages that a backend needs, for models whose own environment lacks them.  Layer 3 (environments).

Of each backend of ours it is a file beside this module, with all that it installs pinned; of one in --backend-directory
it is the requirements.txt beside its file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tisfast.config.backends import BackendInfo, Backends
from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import recognise
from tisfast.errors import ConfigError

PINNED: Final = Path(__file__).resolve().parent / "backends"
REQUIREMENTS: Final = "requirements.txt"


def environment_of(backend: BackendInfo, python: str = "") -> Environment | None:
    """Shared by all models of the backend; None where it says of nothing that it needs it.  Prepares nothing.

    python: as EXECUTION_ENV_PYTHON.  Raises ConfigError for a file that cannot be read.
    """
    path = _file_of(backend)
    return recognise(path, str(path), python) if path.is_file() else None


def environment_named(name: str, backends: Backends, python: str = "") -> Environment:
    """The environment by the backend's name.  Raises ConfigError where there is none."""
    backend = backends.named(name)
    found = None if backend is None else environment_of(backend, python)
    if found is None:
        having = [each.name for each in backends.all if _file_of(each).is_file()]
        what = f"there is no backend '{name}'" if backend is None else f"backend '{name}' has no requirements"
        raise ConfigError(what, key="backend", hint=f"those that have some: {', '.join(having)}")
    return found


def _file_of(backend: BackendInfo) -> Path:
    return Path(backend.module).with_name(REQUIREMENTS) if backend.module else PINNED / f"{backend.name}.txt"
