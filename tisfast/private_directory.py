"""Temporary folders that are private to the user, locked while somebody needs them, and swept after that.  Layer 0.

`<tmp>/tisfast-<pid>-<random>`, mode 0700.  The folder itself is locked (flock), so that a sweep never takes one that is
needed, not even by a process of another pid namespace that shares the temporary folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tisfast import limits
from tisfast.errors import Internal

PREFIX = "tisfast-"


class PrivateDirectory:
    """A new one, locked until `remove`.  Sweeps those that nobody needs any more."""

    def __init__(self) -> None:
        base = _temporary_folder()
        sweep(Path(base))
        self.path, self._lock = _locked(base)

    def remove(self) -> None:
        """Delete the directory and let go of its lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()

    def let_go(self) -> None:
        """Let go of the lock alone: of a copy of it, in a forked child."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(base: Path | None = None) -> list[Path]:
    """Delete the directories in `base`, by default the temporary folder, that nobody locks; returns them."""
    return [path for path in _ours(base or Path(_temporary_folder())) if _swept(path)]


def _temporary_folder() -> str:
    """Where temporary files go.  Raises Internal where this user may write nowhere."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise Internal(
            f"there is no folder for the control socket: {error.strerror}; make one of them writable for this user, or "
            "set TMPDIR to a folder that is (a few KB are enough)"
        ) from error


def _locked(base: str) -> tuple[Path, int]:
    """A new directory and its lock.  A server that starts may sweep it before it is locked: then the next one."""
    for _ in range(limits.CONTROL_DIRECTORY_TRIES_MAX):
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return path, lock
            except OSError:
                os.close(lock)
                raise
            os.close(lock)
    raise Internal(
        f"no directory in {base} can be locked: {limits.CONTROL_DIRECTORY_TRIES_MAX} tries were in vain; set TMPDIR "
        "to a folder of a file system with locks (flock)"
    )


def _ours(base: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
                if private and status.st_uid == os.getuid():
                    yield Path(entry.path)


def _swept(path: Path) -> bool:
    """Whether it is deleted: nobody locks it.  A pid tells nothing: the next server of a container has the same."""
    if not path.name.removeprefix(PREFIX).split("-")[0].isdecimal():
        return False
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return False  # who needs it lives, perhaps in a pid namespace that is not ours
    finally:
        os.close(lock)
    return not path.exists()
