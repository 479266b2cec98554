"""One file from a store into the cache: resumed, verified, retried.  Blocking; runs in threads.  Layer 3 (storage)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tisfast import leases, limits
from tisfast.errors import Cancelled, TisError
from tisfast.storage.blobs import Blob, Blobs, unusable
from tisfast.storage.manifest import key_of
from tisfast.storage.source import Corrupt, RemoteFile, Source, Unreachable


@dataclass(frozen=True)
class Download:
    """Parameters of downloads.  shown: the URL in messages; advanced: told of bytes, negative if lost."""

    blobs: Blobs
    source: Source
    shown: str
    stop: threading.Event
    advanced: Callable[[int], None]


def fetch(errand: Download, file: RemoteFile) -> Blob:
    """The whole, verified file as a blob.

    Raises Changed when it is not what was listed any more, Corrupt when what comes stays wrong, Unreachable when it
    does not come, Cancelled when told to stop.
    """
    key = key_for(errand.shown, file)
    before = errand.blobs.noted(key) if _told_apart(file) else None
    if before is not None:
        blob = errand.blobs.intact(before, thorough=False, stopped=errand.stop.is_set)
        if blob is not None:
            errand.advanced(file.size)
            return blob
    file = errand.source.with_digests(file)
    partial = _Partial(errand, file, key)
    try:
        wrong = 0
        while True:
            _complete(errand, file, partial)
            fault = partial.fault()
            if not fault:
                blob = errand.blobs.adopt(partial.path, partial.sha256)
                errand.blobs.note(key, blob)
                return blob
            partial.restart()
            wrong += 1
            if wrong >= limits.STORAGE_CORRUPT_MAX:
                raise Corrupt(f"{errand.shown}: {file.path} was damaged on its way {wrong} times: {fault}")
    finally:
        partial.close()


def key_for(shown: str, file: RemoteFile) -> str:
    """The name in the cache of a download of one content of one file."""
    return key_of(f"{shown}\n{file.key}\n{file.size}\n{file.tag}\n{file.sha256}")


def _told_apart(file: RemoteFile) -> bool:
    """Whether its content has a name: without one, nothing tells whether what came earlier is of the same."""
    return bool(file.tag or file.sha256)


def _complete(errand: Download, file: RemoteFile, partial: _Partial) -> None:
    """Read until all bytes are there; every attempt goes on where the last one ended."""
    failures = 0
    while partial.size < file.size:
        before = partial.size
        try:
            _receive(errand, file, partial)
            if partial.size < file.size:
                raise Unreachable(f"the connection ended after {partial.size} of {file.size} bytes")
        except Unreachable as error:
            failures = 1 if partial.size > before else failures + 1
            partial.cuts += 1
            if failures >= limits.STORAGE_ATTEMPTS_MAX or partial.cuts >= limits.STORAGE_CUTS_MAX:
                raise Unreachable(
                    f"{errand.shown}: {file.path} could not be downloaded in {partial.cuts} attempts: {error.message}"
                ) from error
            pause(errand.stop, failures)


def pause(stop: threading.Event, failures: int) -> None:
    """Wait before the next attempt, twice as long each time.  Raises Cancelled when told to stop."""
    seconds = min(limits.STORAGE_DELAY_SECONDS_FIRST * 2 ** (failures - 1), limits.STORAGE_DELAY_SECONDS_MAX)
    if stop.wait(seconds):
        raise Cancelled("the server is stopping: a download is given up")


def _receive(errand: Download, file: RemoteFile, partial: _Partial) -> None:
    begin, chunks = errand.source.read(file, partial.size)
    if begin != partial.size:
        partial.restart()
    try:
        for chunk in chunks:
            if errand.stop.is_set():
                raise Cancelled("the server is stopping: a download is given up")
            if partial.size + len(chunk) > file.size:
                partial.restart()
                raise Unreachable(f"more than its {file.size} bytes came")
            partial.write(chunk)
    except TisError:
        raise
    except OSError as error:
        if partial.broken is error:
            raise unusable(errand.blobs.root, error) from error
        raise Unreachable(str(error)) from error
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


class _Partial:
    """A file that grows, and its digests.  What an earlier attempt or server left of the same content is taken up."""

    def __init__(self, errand: Download, file: RemoteFile, key: str) -> None:
        self._errand = errand
        self._file = file
        folder = errand.blobs.root / "partial"
        self.path = folder / key
        self._handle = locked(self.path)
        if self._handle is None:  # another server downloads the same: do not wait for it, do not disturb it
            self.path = folder / f"{self.path.name}-{os.getpid()}-{threading.get_ident()}"
            self._handle = locked(self.path)
        assert self._handle is not None
        self.size = 0
        self.cuts = 0
        self.broken: OSError | None = None
        self._digests: dict[str, Any] = {}
        self._begin()
        if _told_apart(file):
            self._take_up()
        else:
            os.ftruncate(self._handle, 0)

    @property
    def sha256(self) -> str:
        """The digest of the bytes that are there."""
        return str(self._digests["sha256"].hexdigest())

    def _begin(self) -> None:
        self.size = 0
        self._digests = {"sha256": hashlib.sha256()}
        if self._file.md5:
            self._digests["md5"] = hashlib.md5(usedforsecurity=False)
        if self._file.git_sha1:
            self._digests["git_sha1"] = hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)

    def _take_up(self) -> None:
        assert self._handle is not None
        while chunk := os.pread(self._handle, limits.STORAGE_CHUNK_BYTES, self.size):
            self._count(chunk)
        if self.size > self._file.size:
            self.restart()

    def _count(self, chunk: bytes) -> None:
        for digest in self._digests.values():
            digest.update(chunk)
        self.size += len(chunk)
        self._errand.advanced(len(chunk))

    def write(self, chunk: bytes) -> None:
        """Add bytes.  An OSError of it is remembered: it is the disk's, not the network's."""
        assert self._handle is not None
        data = memoryview(chunk)
        at = self.size
        try:
            while data:
                written = os.pwrite(self._handle, data, at)
                at, data = at + written, data[written:]
        except OSError as error:
            self.broken = error
            raise
        self._count(chunk)

    def restart(self) -> None:
        """Forget everything."""
        assert self._handle is not None
        self._errand.advanced(-self.size)
        os.ftruncate(self._handle, 0)
        self._begin()

    def fault(self) -> str:
        """The error of the complete file; "" when there is none."""
        for name, known in (("sha256", self._file.sha256), ("git_sha1", self._file.git_sha1), ("md5", self._file.md5)):
            found = str(self._digests[name].hexdigest()) if known else ""
            if found != known and (name != "md5" or self._errand.source.is_certain(self._file, found)):
                return f"its {name} is {found}, the store says {known}"
        return ""

    def close(self) -> None:
        """Let go of the file; what is there stays for the next attempt."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self.size == 0 or "-" in self.path.name:
            self.path.unlink(missing_ok=True)


def locked(path: Path) -> int | None:
    """Open and lock a file; None when another process has it locked.

    Who had it may have made a blob of it since we opened it, and that must never be written to.
    """
    for _ in range(limits.LEASE_ATTEMPTS_MAX):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if leases.lies_at(handle, path):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        os.close(handle)
    return None
