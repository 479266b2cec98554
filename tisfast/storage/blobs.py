"""The content-addressed cache: files named by the SHA-256 of what is in them, written once.  Layer 3 (storage).

A folder of the cache:

    blobs/ab/ab12...      whole, verified files, read-only
    partial/KEY           downloads that are not complete; locked while it is written
    partial/KEY.done      which blob a download became, until its model is complete
    manifests/KEY.json    for each URL: which file of which model is which blob
    runs/PID-RANDOM/      folders of a living server (repository_view.py)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tisfast import leases, limits
from tisfast.errors import Cancelled, ConfigError

READ_ONLY = 0o444
DONE = ".done"
RESUMABLE = re.compile(rf"[0-9a-f]{{32}}({re.escape(DONE)})?")
"""The form of the name of a download that can be resumed; other files in its folder are not shared."""


@dataclass(frozen=True)
class Blob:
    """A verified file.  seen: inode and time of change in ns when its content was last hashed."""

    sha256: str
    size: int
    seen: tuple[int, int]


class Blobs:
    """The files of one cache folder.  Any thread, and several servers at a time."""

    def __init__(self, root: Path) -> None:
        """Raises ConfigError when the folder cannot be made or written."""
        self.root = root
        try:
            for name in ("blobs", "partial", "manifests", "runs"):
                (root / name).mkdir(parents=True, exist_ok=True)
            self._lock = self._open_lock()
        except OSError as error:
            raise unusable(root, error) from error
        self._holders = 0
        self._counting = threading.Lock()

    def _open_lock(self) -> int:
        return os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._lock)

    def path(self, sha256: str) -> Path:
        """Where a blob lies, if it is there."""
        return self.root / "blobs" / sha256[:2] / sha256

    def adopt(self, partial: Path, sha256: str) -> Blob:
        """Make a blob of a complete, verified file, which moves.  Its content has that digest: the caller hashed it."""
        target = self.path(sha256)
        target.parent.mkdir(exist_ok=True)
        with open(partial, "rb") as written:
            os.fchmod(written.fileno(), READ_ONLY)
            os.fsync(written.fileno())
        os.replace(partial, target)
        return self._blob(sha256, target)

    def _blob(self, sha256: str, target: Path) -> Blob:
        status = target.stat()
        return Blob(sha256, status.st_size, (status.st_ino, status.st_mtime_ns))

    def intact(self, blob: Blob, *, thorough: bool, stopped: Callable[[], bool]) -> Blob | None:
        """The blob as it lies there now; None when it is gone or damaged (and then it is removed).

        It is hashed when it is not the very file that was hashed last, or when `thorough`.
        """
        target = self.path(blob.sha256)
        try:
            now = self._blob(blob.sha256, target)
            if now == blob and not thorough:
                return now
            if now.size == blob.size and digest_of(target, stopped) == blob.sha256:
                return now
        except FileNotFoundError:
            return None
        target.unlink(missing_ok=True)
        return None

    def note(self, key: str, blob: Blob) -> None:
        """Remember what a download became: its model may not be complete before this server is gone."""
        path = self.root / "partial" / f"{key}{DONE}"
        path.write_text(json.dumps([blob.sha256, blob.size, *blob.seen]), encoding="ascii")

    def noted(self, key: str) -> Blob | None:
        """The blob that a download became, if that was noted."""
        try:
            sha256, size, inode, changed = json.loads((self.root / "partial" / f"{key}{DONE}").read_bytes())
            return Blob(str(sha256), int(size), (int(inode), int(changed)))
        except (OSError, ValueError, TypeError):
            return None

    def begun(self, key: str) -> int:
        """Bytes that are there of a download that broke off."""
        try:
            return (self.root / "partial" / key).stat().st_size
        except OSError:
            return 0

    def forget(self, key: str) -> None:
        """Its model is complete, and noted as a whole."""
        (self.root / "partial" / f"{key}{DONE}").unlink(missing_ok=True)

    def hold(self) -> None:
        """Until `release`, no server sweeps: blobs that no manifest names yet stay.  Waits for a sweep to end.

        Raises Unavailable for one that does not.
        """
        with self._counting:
            if not self._holders:
                busy = f"sweeping the storage cache {self.root} ({self.root / 'lock'} is locked)"
                leases.lock(self._lock, fcntl.LOCK_SH, busy)
            self._holders += 1

    def release(self) -> None:
        """Once for each `hold`."""
        with self._counting:
            self._holders -= 1
            if not self._holders:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def sweep(self, named: Callable[[], set[str]]) -> int:
        """Remove blobs that nothing names and abandoned partial downloads; returns how many.

        Skipped while anybody is syncing.  Running servers keep what they serve: their folders have links of their own.
        """
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        else:
            old = time.time() - limits.STORAGE_PARTIAL_SECONDS_MAX
            partial = list(self.root.glob("partial/*"))
            noted = [self.noted(path.name.removesuffix(DONE)) for path in partial if path.name.endswith(DONE)]
            keep = named() | {blob.sha256 for blob in noted if blob is not None}
            gone = [path for path in self.root.glob("blobs/??/*") if path.name not in keep]
            gone += [path for path in partial if _changed(path) < old or not RESUMABLE.fullmatch(path.name)]
            for path in gone:
                path.unlink(missing_ok=True)
            return len(gone)
        finally:
            os.close(lock)


def unusable(root: Path, error: OSError) -> ConfigError:
    """The error for a cache that cannot be read or written."""
    hint = "make room, or name another folder with --storage-cache-dir"
    return ConfigError(f"the storage cache {root} cannot be used: {error}", key="storage-cache-dir", hint=hint)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def digest_of(path: Path, stopped: Callable[[], bool]) -> str:
    """SHA-256 of a file, in hexadecimal.  Raises Cancelled when `stopped` meanwhile."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(limits.STORAGE_CHUNK_BYTES):
            if stopped():
                raise Cancelled("the server is stopping: a file is not looked at to its end")
            digest.update(chunk)
    return digest.hexdigest()
