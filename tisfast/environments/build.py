"""Prepare an environment in the cache, unless it is there.  Runs where waiting does no harm: in a process of its own.

Layer 3 (environments).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments import activation, interpreters
from tisfast.environments.build_errors import EnvironmentFailed, no_room, size_text
from tisfast.environments.cache import FORM, CacheEntry, EnvironmentCache
from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import stamp_of
from tisfast.environments.install import find_uv, install
from tisfast.environments.requirements import read_requirements
from tisfast.environments.unpack import unpack

_DIGEST_BYTES: Final = 1 << 20
_KEY_CHARS: Final = 32
Told = Callable[[str], None]
"""Called with a line about what is going on."""


@dataclass(frozen=True)
class BuildContext:
    """The settings of every build.  index: variables that say where packages come from, (name, value) sorted."""

    cache: EnvironmentCache
    pyenv_root: str = ""
    index: tuple[tuple[str, str], ...] = ()


def known_key(context: BuildContext, environment: Environment) -> str | None:
    """Where the environment would lie; None when that takes reading an archive.

    Raises ConfigError, EnvironmentFailed.
    """
    if environment.kind == "archive":
        digest = context.cache.digest(environment.path, stamp_of(environment.path))
        return None if digest is None else _key("archive", digest)
    python = interpreters.find(environment.python, context.pyenv_root, find_uv())
    facts = [read_requirements(environment.path).digest, python.number, python.machine, python.base_prefix]
    return _key("requirements", *facts, *(f"{name}={value}" for name, value in context.index))


def build(context: BuildContext, environment: Environment, tell: Told) -> CacheEntry:
    """The environment, prepared now or before.  Raises ConfigError, EnvironmentFailed, NoRoom."""
    with no_room(context.cache.folder):
        key = known_key(context, environment)
        if key is None:
            key = _key("archive", _read(context.cache, environment, tell))
        return _found_or_made(context, environment, key, tell)


def _key(kind: str, *facts: str) -> str:
    text = "\0".join((str(FORM), *facts))
    return f"{kind}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:_KEY_CHARS]}"


def _read(cache: EnvironmentCache, environment: Environment, tell: Told) -> str:
    """The digest of an archive that was not seen before, or has changed."""
    path = environment.path
    before = stamp_of(path)
    tell(f"reading {path} ({size_text(before[0])})")
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(_DIGEST_BYTES)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])
    if stamp_of(path) != before:
        raise _changed(environment)
    cache.remember(path, before, digest.hexdigest())
    return digest.hexdigest()


def _changed(environment: Environment) -> EnvironmentFailed:
    return EnvironmentFailed(f"{environment} changed while it was read", "load the model again when it is complete")


def _found_or_made(context: BuildContext, environment: Environment, key: str, tell: Told) -> CacheEntry:
    """The process that gets the exclusive lock makes the environment.  The others wait for the shared one, which its
    users hold for long.
    """
    for _ in range(limits.ENVIRONMENT_TURNS_MAX):
        found = _whole(context.cache, key, environment, tell)
        if found is not None:
            return found
        lock = context.cache.lock(key, exclusive=True)
        if lock is None:
            continue  # another one was quicker
        try:
            found = context.cache.find(key)  # made since we looked
            return _made(context, environment, key, tell) if found is None else found
        finally:
            lock.release()
    raise EnvironmentFailed(
        f"{environment} lies damaged in {context.cache.folder / key}, and a running server uses it",
        "end that server, or name another folder with --environment-cache-dir",
    )


def _whole(cache: EnvironmentCache, key: str, environment: Environment, tell: Told) -> CacheEntry | None:
    """The environment, if it is there; the process that makes it is waited for."""
    lock = cache.lock(key, exclusive=False)
    if lock is None:
        tell(f"waiting for another process that prepares {environment}")
        lock = cache.lock(key, exclusive=False, wait=True)
        assert lock is not None
    found = cache.find(key)
    lock.release()
    return found


def _made(context: BuildContext, environment: Environment, key: str, tell: Told) -> CacheEntry:
    began = time.monotonic()
    home = context.cache.begin(key)
    try:
        size_bytes, files = _FILLED[environment.kind](environment, home, context, tell)
        if known_key(context, environment) != key:
            raise _changed(environment)
        python = _proved(environment, context.cache.interpreter(key), home)
        entry = CacheEntry(
            key, environment.kind, str(environment.path), python, size_bytes, files, time.monotonic() - began,
            tuple(sorted(activation.scripted(home).items())),
        )  # fmt: skip
        context.cache.keep(entry)
    except BaseException:
        context.cache.discard(key)
        raise
    return entry


def _filled_from_archive(environment: Environment, home: Path, context: BuildContext, tell: Told) -> tuple[int, int]:
    return unpack(environment.path, home, tell)


def _filled_from_requirements(
    environment: Environment, home: Path, context: BuildContext, tell: Told
) -> tuple[int, int]:
    uv = find_uv()
    python = interpreters.find(environment.python, context.pyenv_root, uv)
    tell(f"installing {environment} for Python {python.number} with {'uv' if uv else 'pip'}")
    install(read_requirements(environment.path), python, home, uv, tell)
    return measured(home)


_FILLED: Final = {"archive": _filled_from_archive, "requirements": _filled_from_requirements}


def measured(folder: Path) -> tuple[int, int]:
    """Bytes and number of the files below a folder."""
    size_bytes = files = 0
    for where, _, names in os.walk(folder):
        files += len(names)
        size_bytes += sum(os.lstat(os.path.join(where, name)).st_size for name in names)
    return size_bytes, files


def _proved(environment: Environment, python: Path | None, home: Path) -> str:
    """The version of the interpreter that was prepared, which is started for it."""
    if python is None:
        raise EnvironmentFailed(f"{environment} holds no bin/python3 or bin/python that can be run", _astray(home))
    try:
        facts = interpreters.ask(str(python), activation.variables(home, os.environ))
    except EnvironmentFailed as error:
        raise EnvironmentFailed(
            f"the interpreter of {environment} does not run on this machine: {error}",
            "pack it on a machine of the same kind, with a system that is not newer",
        ) from error
    return interpreters.served(facts).number


def _astray(home: Path) -> str:
    """The hint for an archive that has the environment in a folder of its own."""
    inner = next(home.glob("*/bin/python*"), None)
    if inner is None:
        return "pack the environment with conda-pack"
    return f"pack what is in {inner.relative_to(home).parts[0]}, not the folder itself (conda-pack does)"
