"""Files that frameworks make of models' files, kept for the next load: a folder for each, of a bounded size.

    FOLDER/KEY/                the files; its time is that of the last use
    FOLDER/.locks/KEY          held shared by processes that use them, exclusively by the process that removes them
    FOLDER/.locks/KEY.making   held by the process that makes or removes them

Nobody waits for the first one exclusively: files are in use for as long as a model serves.

KEY says all that the files depend on.  They are made in FOLDER/.making-KEY-... and renamed, so a folder that is there
is whole.  What a killed process was making goes when the next one makes something.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile

from tisfast_worker import limits

_MAKING = ".making-"


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
                fcntl.flock(lock, fcntl.LOCK_UN)
                with self._making(key):
                    if not os.path.isdir(home):
                        self._make(home, make)
                    fcntl.flock(lock, fcntl.LOCK_SH)
            with contextlib.suppress(OSError):  # a folder that others own: they note the use
                os.utime(home)
        except BaseException:
            os.close(lock)
            raise
        return home, ArtifactHold(lock)

    @contextlib.contextmanager
    def _making(self, key, wait=True):
        """Be the one process that makes or removes these files.  Raises OSError where another is and `wait` is not."""
        lock = self._lock(f"{key}.making")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield
        finally:
            os.close(lock)

    def _make(self, home, make):
        key = os.path.basename(home)
        self._sweep(key)
        beside = tempfile.mkdtemp(prefix=f"{_MAKING}{key}-", dir=self._folder)
        try:
            make(beside)
            os.chmod(beside, 0o755)
            os.rename(beside, home)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        self._prune(key)

    def _sweep(self, own):
        """Remove what processes that were killed had begun to make.  own: the key of what is made now."""
        for entry in os.scandir(self._folder):
            key = entry.name[len(_MAKING) :].rpartition("-")[0] if entry.name.startswith(_MAKING) else ""
            if key == own:
                shutil.rmtree(entry.path, ignore_errors=True)
            elif key:
                self._remove(key, entry.name)

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
            if name != kept and self._remove(name, name):
                total -= size

    def _remove(self, key, name):
        """Remove a folder that belongs to a key, unless it is in use; whether it is gone.

        Under another name first: who is killed meanwhile leaves no half of the files.
        """
        lock = self._lock(key)
        try:
            with self._making(key, wait=False):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                gone = os.path.join(self._folder, f"{_MAKING}{key}-gone")
                shutil.rmtree(gone, ignore_errors=True)
                os.rename(os.path.join(self._folder, name), gone)
                shutil.rmtree(gone, ignore_errors=True)
        except OSError:
            return False  # in use, or removed by another process
        finally:
            os.close(lock)
        return True

    def _lock(self, name):
        locks = os.path.join(self._folder, ".locks")
        os.makedirs(locks, exist_ok=True)
        return os.open(os.path.join(locks, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


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


def digest(facts, files=(), beside=(), folder=""):
    """A key: of text that says something, of the contents of files, and of names, sizes and times of those beside.

    folder: those beside lie in it, perhaps in folders of their own.
    """
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
        found.update(f"{os.path.relpath(path, folder or None)}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode())
    return found.hexdigest()[:32]


def _size(folder):
    return sum(entry.stat().st_size for entry in os.scandir(folder))
