"""The folder in which prepared environments lie, by what they are made of.  Layer 3 (environments).

    FOLDER/KEY/env/          the environment
    FOLDER/KEY/ready.json    that it is whole, and facts about it; its time is that of the last use
    FOLDER/.locks/KEY        held shared by servers that use it, exclusively by whoever makes or removes it
    FOLDER/.known/HASH.json  the digest of an archive, by path, size and times

An environment is made in the folder where it will stay, because it remembers that folder's name (scripts' first lines,
what conda-unpack writes): what makes it usable is `ready.json`, which is written last, beside, and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tisfast import leases
from tisfast.environments.build_errors import no_room
from tisfast.environments.environment import PYTHONS, Stamp

READY: Final = "ready.json"
KEY: Final = re.compile(r"(?:archive|requirements)-[0-9a-f]{32}")
"""The form of the name of an environment's folder.  In a cache's folder that holds other things too, all else is
others'."""
FORM: Final = 1
"""The version of the folder's layout; another layout is another key."""


@dataclass(frozen=True)
class CacheEntry:
    """A prepared environment.

    source: what it was made of; python: its interpreter's version, "" when it was not asked; size_bytes, files: as it
    was written; seconds: that took; variables: what its processes get.
    """

    key: str
    kind: str
    source: str
    python: str
    size_bytes: int
    files: int
    seconds: float
    variables: tuple[tuple[str, str], ...] = ()


class Lock:
    """A lock that is held until `release`, or until the last reference to it is dropped.

    The latter for a lock that is taken in a thread whose waiter is cancelled meanwhile: nothing is left to release it.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        """Give it back."""
        self.release()

    def release(self) -> None:
        """Give it back.  Once is enough; twice does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class EnvironmentCache:
    """The environments in one folder.  Any number of processes may use it at one time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def home(self, key: str) -> Path:
        """Where the environment `key` lies, or will."""
        return self.folder / key / "env"

    def find(self, key: str) -> CacheEntry | None:
        """The environment, when it is whole."""
        try:
            facts = _read_json(self.folder / key / READY)
            entry = CacheEntry(**{**facts, "variables": tuple((name, value) for name, value in facts["variables"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return entry if self.interpreter(key) is not None else None

    def interpreter(self, key: str) -> Path | None:
        """The interpreter of a complete environment; None where its file, or what that is a link to, is not there."""
        candidates = [self.home(key) / "bin" / name for name in PYTHONS]
        return next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)

    def used(self, key: str) -> None:
        """Note that it is used now."""
        with contextlib.suppress(OSError):  # a folder that others own: they note it
            os.utime(self.folder / key / READY)

    def keep(self, entry: CacheEntry) -> None:
        """It is whole, also when the power fails from now on.  Under the exclusive lock."""
        with no_room(self.folder):
            _synchronise(self.folder / entry.key)
        values = {**asdict(entry), "variables": [list(pair) for pair in entry.variables]}
        _write_json(self.folder / entry.key / READY, values)

    def begin(self, key: str) -> Path:
        """An empty folder to make the environment in, whatever an earlier attempt left.  Under the exclusive lock."""
        self.discard(key)
        home = self.home(key)
        home.mkdir(parents=True)
        return home

    def discard(self, key: str) -> None:
        """Remove it; first of all, that it is whole.  Under the exclusive lock."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / key / READY).unlink()
        if (self.folder / key).exists():
            shutil.rmtree(self.folder / key)

    def lock(self, key: str, *, exclusive: bool, wait: bool = False) -> Lock | None:
        """The lock of one environment; None where another holds it and `wait` is False."""
        path = self._own(".locks") / key
        kind = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB)
        while True:  # until the file that was locked is the one that others will find: prune removes them
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, kind)
                if leases.lies_at(fd, path):
                    return Lock(fd)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def digest(self, path: Path, stamp: Stamp) -> str | None:
        """The digest that was noted for an archive, if it is still the same file."""
        try:
            known = _read_json(self._known(path))
        except (OSError, ValueError):
            return None
        return str(known["digest"]) if known.get("stamp") == list(stamp) else None

    def remember(self, path: Path, stamp: Stamp, digest: str) -> None:
        """Note the digest of an archive."""
        self._own(".known")
        _write_json(self._known(path), {"path": str(path), "stamp": list(stamp), "digest": digest})

    def entries(self) -> Iterator[tuple[str, CacheEntry | None, float]]:
        """Key, environment (None: not whole), and seconds since it was last used, of everything that is there."""
        for path in sorted(self.folder.glob("*-*")) if self.folder.is_dir() else []:
            if not KEY.fullmatch(path.name) or not path.is_dir():
                continue
            entry = self.find(path.name)
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                last = (path if entry is None else path / READY).stat().st_mtime
                yield path.name, entry, max(0.0, time.time() - last)

    def prune(self, seconds: float, *, dry_run: bool = False) -> Iterator[tuple[str, CacheEntry | None, bool]]:
        """Remove what was not used for so long; key, environment, and whether it could be removed: not while in use.

        dry_run: remove nothing.
        """
        for key, entry, age in self.entries():
            if age < seconds:
                continue
            lock = self.lock(key, exclusive=True)
            if lock is None:
                yield key, entry, False
                continue
            if not dry_run:
                self.discard(key)
                (self.folder / ".locks" / key).unlink()
            lock.release()
            yield key, entry, True
        if not dry_run:
            self._forget_the_gone()

    def _forget_the_gone(self) -> None:
        for path in (self.folder / ".known").glob("*"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                if path.suffix != ".json" or not Path(_read_json(path)["path"]).exists():
                    path.unlink()  # the former: of somebody who was killed while writing
        for path in (self.folder / ".locks").glob("*"):
            lock = None if (self.folder / path.name).exists() else self.lock(path.name, exclusive=True)
            if lock is not None:
                path.unlink()
                lock.release()

    def _own(self, name: str) -> Path:
        """A folder beside the environments; the cache itself is made for its owner alone: what lies in it is run."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def _known(self, path: Path) -> Path:
        """By path; by inode where there are several, as of what comes from a store, in another folder at each start."""
        name = str(path)
        with contextlib.suppress(OSError):
            about = path.stat()
            name = name if about.st_nlink == 1 else f"inode {about.st_ino}"
        return self.folder / ".known" / (hashlib.sha256(os.fsencode(name)).hexdigest()[:32] + ".json")


def _synchronise(folder: Path) -> None:
    """Wait until all that was written to this file system is on it."""
    import ctypes  # noqa: PLC0415 - only who prepares an environment needs it

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def _read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    with no_room(path):
        with open(beside, "w", encoding="ascii") as file:
            file.write(json.dumps(value))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
