"""Folders that are replaced by other ones beside them, and removed when they are not read any more.  Layer 1.

A tree is TREES/NUMBER/NAME, reached through a link that is pointed at the next one in one step, with a lock file beside
it: shared by readers of the tree, exclusive for the process that removes it.  The locks are the kernel's, so they hold
among processes and end with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.errors import ConfigError, Unavailable

LOCK: Final = ".tisfast-lease"
"""No name that anybody else would have: a lock of others beside a model's folder is none of ours."""


class FolderLease:
    """A tree that stays as it is.  folder: the tree, no link; the last reference to the lease gives it back."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def __del__(self) -> None:
        """Give it back."""
        os.close(self._descriptor)


def allow(tree: Path) -> None:
    """Make a tree one that can be leased.  Before the link is pointed at it."""
    (tree.parent / LOCK).touch()


def lease(folder: Path) -> FolderLease | None:
    """Lease the tree that the link `folder` leads to now; None for a folder that is no tree.  Blocks while one is
    removed.

    Raises ConfigError when trees come and go more quickly than that.
    """
    for _ in range(limits.LEASE_ATTEMPTS_MAX):
        tree = folder.resolve()
        try:
            descriptor = os.open(tree.parent / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if folder.resolve() == tree:
                return None
            continue
        found = FolderLease(tree, descriptor)
        lock(descriptor, fcntl.LOCK_SH, f"removing {tree}")
        if os.fstat(descriptor).st_nlink:
            return found
    raise ConfigError(f"{folder} is replaced as often as it is looked at", hint="load the model again")


def lock(descriptor: int, kind: int, busy: str) -> None:
    """Wait for a lock of a cache (`fcntl.LOCK_SH`, `LOCK_EX`), which others keep while they remove or write files.

    Raises Unavailable for one that is kept longer.  busy: what they are doing, for the error.
    """
    end = time.monotonic() + limits.STORAGE_SWEEP_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                seconds = limits.STORAGE_SWEEP_SECONDS_MAX
                raise Unavailable(f"another server has been {busy} for more than {seconds} s; is it stopped?") from None
            time.sleep(limits.STORAGE_SWEEP_LOOK_SECONDS)  # locks of files give no event with a time limit


def lies_at(descriptor: int, path: Path) -> bool:
    """Whether an opened file is still the one of that path.  Check it after locking a file by its path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def remove(tree: Path) -> bool:
    """Remove a tree that no link leads to, unless it is leased; returns whether it is gone."""
    path = tree.parent / LOCK
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()  # first: who waits for it sees that it is gone, and looks again
            shutil.rmtree(tree.parent, ignore_errors=True)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return True
