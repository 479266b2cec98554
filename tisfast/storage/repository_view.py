"""Local folders that look like the repositories: links to blobs, switched a model at a time.  Layer 3 (storage).

A run's folder, locked while its server lives, in the cache so that links into it are possible:

    runs/PID-RANDOM/KEY/models/NAME -> ../trees/7/NAME     what the server loads from
    runs/PID-RANDOM/KEY/trees/7/NAME/...                   hard links to blobs

Hard links and not symbolic ones: a model that resolves its own path finds its files beside it, runtimes that refuse
links out of a model's folder see none, and what a server serves survives that the cache is swept.

A tree is kept while it is shown, and while anything is loaded from it (leases.py): workers that are started again, and
models that wake, read it long after the store has something else.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from tisfast import leases, limits
from tisfast.storage.blobs import Blob, Blobs

UNLINKABLE: Final = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Why a file system has no hard link for us: then files are copied."""
NOT_FETCHED: Final = "0"


class RunFolder:
    """This server's folder in a cache, gone with it."""

    def __init__(self, root: Path) -> None:
        sweep(root / "runs")
        self.path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root / "runs"))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(folder: Path) -> None:
    """Remove the folders of servers that are gone."""
    old = time.time() - limits.STORAGE_ORPHAN_SECONDS
    for path in folder.iterdir():
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_mtime < old:  # a younger one may just be in the making
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


class RepositoryView:
    """The folder of one repository.  One thread at a time for each model."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder = folder / "models"
        self._trees = folder / "trees"
        self._blobs = blobs
        self._shown: dict[str, dict[str, str]] = {}
        self._current: dict[str, Path] = {}
        self._replaced: list[Path] = []
        self._numbers = itertools.count(1)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._trees.mkdir(exist_ok=True)

    @property
    def names(self) -> list[str]:
        """The models that are to be seen with their files."""
        return list(self._shown)

    def shows(self, name: str, files: Mapping[str, Blob]) -> bool:
        """Whether these files of a model are to be seen already."""
        return self._shown.get(name) == {path: blob.sha256 for path, blob in files.items()}

    def show(self, name: str, files: Mapping[str, Blob]) -> None:
        """Let a model be seen with these files, all of them, from one moment to the next."""
        number = str(next(self._numbers))
        tree = self._trees / number / name
        try:
            self._fill(tree, files)
            link = self._trees / number / ".link"
            link.symlink_to(os.path.join("..", "trees", number, name))
            os.replace(link, self.folder / name)
        except BaseException:
            shutil.rmtree(tree.parent, ignore_errors=True)
            raise
        self._shown[name] = {path: blob.sha256 for path, blob in files.items()}
        self._replace(name, tree)

    def _fill(self, tree: Path, files: Mapping[str, Blob]) -> None:
        tree.mkdir(parents=True)
        leases.allow(tree)
        for path, blob in files.items():
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(self._blobs.path(blob.sha256), target)

    def _replace(self, name: str, tree: Path | None) -> None:
        old = self._current.pop(name, None)
        if old is not None:
            self._replaced.append(old)
        if tree is not None:
            self._current[name] = tree

    def tidy(self) -> None:
        """Remove folders that are not shown any more and not in use.  Not while anything is shown."""
        self._replaced = [tree for tree in self._replaced if not leases.remove(tree)]

    def announce(self, names: Collection[str]) -> None:
        """Show models that are not fetched as empty folders, so that it is known that they could be: these,
        and none that were announced before.
        """
        for path in self.folder.iterdir():
            if path.name not in self._shown and path.name not in names:
                path.unlink()
        for name in names:
            if not os.path.lexists(self.folder / name):
                (self._trees / NOT_FETCHED / name).mkdir(parents=True, exist_ok=True)
                (self.folder / name).symlink_to(os.path.join("..", "trees", NOT_FETCHED, name))

    def hide(self, name: str) -> None:
        """Let a model be seen no more; its files stay while anything is loaded from them."""
        (self.folder / name).unlink(missing_ok=True)
        self._shown.pop(name, None)
        self._replace(name, None)


def _link(blob: Path, target: Path) -> None:
    try:
        os.link(blob, target)
    except OSError as error:
        if error.errno not in UNLINKABLE:
            raise
        shutil.copy2(blob, target)
