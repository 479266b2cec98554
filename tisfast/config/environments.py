"""Settings of the cache of Python environments.  Layer 2 (config)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tisfast.errors import ConfigError

FLAG: Final = "environment-cache-dir"
MADE_FILES: Final = "models"
INDEX_VARIABLES: Final = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONSTRAINT", "PIP_PRE",
    "PIP_CONFIG_FILE", "PIP_NO_BINARY", "PIP_ONLY_BINARY",
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX",
    "UV_CONSTRAINT", "UV_PRERELEASE", "UV_CONFIG_FILE", "UV_INDEX_STRATEGY", "UV_RESOLUTION", "UV_EXCLUDE_NEWER",
    "UV_NO_BINARY", "UV_TORCH_BACKEND",
)  # fmt: skip
"""Variables of pip and uv that decide which packages come from where: other values, another environment."""


@dataclass(frozen=True)
class EnvironmentSettings:
    """Where prepared environments lie, and what decides what is in them.

    cache: a folder, "" when none is named and there is no home folder to have one in.  pyenv_root: where pyenv keeps
    Pythons.  index: the INDEX_VARIABLES that are set, by name.  for_backends: a model whose environment lacks what its
    backend needs is served from one that has it (environments/backend_requirements.py).
    """

    cache: str = ""
    pyenv_root: str = ""
    index: tuple[tuple[str, str], ...] = ()
    for_backends: bool = False

    @property
    def made_files(self) -> str:
        """The folder where backends keep files that they make of models' files, "" for none."""
        return os.path.join(self.cache, MADE_FILES) if self.cache else ""

    def folder(self) -> str:
        """The cache's folder.  Raises ConfigError when there is none."""
        if not self.cache:
            raise ConfigError(f"environments have no folder: --{FLAG}, XDG_CACHE_HOME and HOME are empty",
                              key=FLAG, hint="name one")  # fmt: skip
        return self.cache


def read_environment_settings(
    cache: str, environ: Mapping[str, str], *, for_backends: bool = False
) -> EnvironmentSettings:
    """cache: the flag; "" for $XDG_CACHE_HOME/tisfast/environments, or ~/.cache/tisfast/environments."""
    home = environ.get("HOME", "")
    caches = environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    folder = cache or (caches and f"{caches}/tisfast/environments")
    return EnvironmentSettings(
        cache=os.path.abspath(folder) if folder else "",
        pyenv_root=environ.get("PYENV_ROOT") or (home and f"{home}/.pyenv"),
        index=tuple((name, environ[name]) for name in sorted(INDEX_VARIABLES) if environ.get(name)),
        for_backends=for_backends,
    )
