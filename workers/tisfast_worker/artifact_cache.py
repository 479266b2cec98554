"""Files that frameworks make of models' files, kept for the next load: a folder for each, of a bounded size.

    FOLDER/KEY/          the files; its time is that of the last use
    FOLDER/.locks/KEY    held shared by processes that use them, exclusively by the process that makes or removes them

KEY says all that the files depend on.  They are made beside and renamed, so a folder that is there is whole.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile

from tisfast_worker import limits


class ArtifactCache:
    """The artifacts in one folder.  Any number of processes may use it at one time."""

    def __init__(self, folder, bytes_max=limits.MADE_FILES_BYTES_MAX):
        """`folder`: it need not be there yet."""
        self._folder, self._bytes_max = folder, bytes_max

    def find(self, key, make):
        """(folder of the files, what holds them: to be closed when they are not used any more).

        make(folder): fills an empty folder, if it must be.  Raises OSError, and what `make` raises.
        """
        home = os.path.join(self._folder, key)
        lock = self._lock(key)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if not os.path.isdir(home):
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not os.path.isdir(home):
                    self._make(home, make)
                fcntl.flock(lock, fcntl.LOCK_SH)
            with contextlib.suppress(OSError):  # a folder that others own: they note the use
                os.utime(home)
        except BaseException:
            os.close(lock)
            raise
        return home, ArtifactHold(lock)

    def _make(self, home, make):
        beside = tempfile.mkdtemp(prefix=".making-", dir=self._folder)
        try:
            make(beside)
            os.chmod(beside, 0o755)
            os.rename(beside, home)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        self._prune(os.path.basename(home))

    def _prune(self, kept):
        """Remove what was not used for longest, until the rest has its size.  What is in use stays."""
        found = []
        for entry in os.scandir(self._folder):
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):  # another process removes, too
                found.append((entry.stat().st_mtime, entry.name, _size(entry.path)))
        total = sum(size for _, _, size in found)
        for _, name, size in sorted(found):
            if total <= self._bytes_max:
                return
            if name != kept and self._remove(name):
                total -= size

    def _remove(self, key):
        lock = self._lock(key)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.join(self._folder, key), ignore_errors=True)
        except OSError:
            return False  # in use
        finally:
            os.close(lock)
        return True

    def _lock(self, key):
        locks = os.path.join(self._folder, ".locks")
        os.makedirs(locks, exist_ok=True)
        return os.open(os.path.join(locks, key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


class ArtifactHold:
    """Files that are in use stay."""

    def __init__(self, lock):
        """`lock`: the descriptor."""
        self._lock = lock

    def close(self):
        """They are not used any more.  Once is enough; twice does nothing."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def digest(facts, files=(), beside=()):
    """A key: of text that says something, of the contents of files, and of names, sizes and times of those beside."""
    found = hashlib.sha256()
    for text in facts:
        found.update(text.encode() + b"\0")
    for path in files:
        with open(path, "rb") as file:
            while True:
                chunk = file.read(limits.DIGEST_CHUNK_BYTES)
                if not chunk:
                    break
                found.update(chunk)
    for path in beside:
        seen = os.stat(path)
        found.update(f"{os.path.basename(path)}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode())
    return found.hexdigest()[:32]


def _size(folder):
    return sum(entry.stat().st_size for entry in os.scandir(folder))
