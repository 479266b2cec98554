"""--backend-directory and --backend-config: which backends there are, and what they are told.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tisfast.config.backends import BUILT_IN, GLOBAL, PYTHON, TRITONS_DIRECTORY, Backends
from tisfast.config.whole_numbers import whole_number
from tisfast.errors import ConfigError

FLAG: Final = "backend-config"
STUB_SECONDS: Final = "stub-timeout-seconds"
DEFAULT_MAX_BATCH_SIZE: Final = "default-max-batch-size"
NO_POOL: Final = ("shm-default-byte-size", "shm-growth-byte-size", "shm-region-prefix-name")
COUNT_MAX: Final = 2**31 - 1
FORM: Final = "--backend-config option format is '<backend name>,<setting>=<value>' or '<setting>=<value>'"


def read_backends(
    directory: str, notices: list[str], told: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Backends:
    """Those that there are.  directory: --backend-directory, "" for none; told: of read_backend_config.

    Raises ConfigError.
    """
    backends = BUILT_IN.told(told) if told else BUILT_IN
    if directory == TRITONS_DIRECTORY and not Path(directory).exists():
        notices.append(f"--backend-directory={directory} has no effect here, because there is no such folder")
    elif directory:
        backends = backends.beside(Path(directory))
    for backend, settings in told.items():
        for name, value in settings.items():
            if why := _why_idle(backend, name, backends):
                entry = f"{backend},{name}={value}" if backend else f"{name}={value}"
                notices.append(f"--{FLAG}={entry} has no effect here, because {why}")
    return backends


def read_backend_config(entries: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings by backend, GLOBAL for all; the last value of one counts.  Raises ConfigError."""
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        backend, comma, setting = entry.partition(",")
        if not comma:
            backend, setting = GLOBAL, entry
        name, _, value = setting.partition("=")
        if not name or not value or (comma and not backend):
            raise ConfigError(f"{FORM}. Got {entry}", key=FLAG)
        counts = name == DEFAULT_MAX_BATCH_SIZE or (backend == PYTHON and name == STUB_SECONDS)
        if counts and whole_number(value, COUNT_MAX) is None:
            raise ConfigError(
                f"--{FLAG}={entry:.200}: {value!r:.60} is not a whole number from 0 to {COUNT_MAX}", key=FLAG
            )
        found.setdefault(backend, {})[name] = value
    return found


def number(told: Mapping[str, Mapping[str, str]], backend: str, setting: str, name: str) -> dict[str, int]:
    """A setting as the keyword argument `name`; nothing where it is not given."""
    value = told.get(backend, {}).get(setting)
    return {} if value is None else {name: int(value)}


def _why_idle(backend: str, name: str, backends: Backends) -> str:
    """Why a setting is not read by any backend, "" where one reads it."""
    known = backends.named(backend)
    if backend not in (GLOBAL, PYTHON) and (known is None or not known.served):
        return f"there is no backend '{backend}' here"
    if name == DEFAULT_MAX_BATCH_SIZE or (backend == PYTHON and name == STUB_SECONDS):
        return ""
    readers = backends.all if known is None else (known,)
    if any(each.module or name in each.settings for each in readers):
        return ""
    if name in NO_POOL:
        return "shared memory has no fixed pool and no name"
    if backend not in (GLOBAL, PYTHON):
        return f"backend '{backend}' has no such setting"
    return f"the settings served are {PYTHON},{STUB_SECONDS}=SECONDS and {DEFAULT_MAX_BATCH_SIZE}=N"
