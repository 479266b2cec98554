"""Unpack archives into the cache: regular files only, never outside, never without a bound.  Layer 3 (storage)."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from tisfast import limits
from tisfast.environments.archive_reader import UNREADABLE, tar_entries
from tisfast.errors import Cancelled, ConfigError
from tisfast.storage.blobs import Blob, Blobs

BROKEN: Final[tuple[type[Exception], ...]] = (*UNREADABLE, gzip.BadGzipFile, NotImplementedError, RuntimeError)
"""Exceptions of the standard library for archives that are damaged, encrypted or of a kind that it does not know."""


def unpack(archive: Path, name: str, blobs: Blobs, stop: threading.Event) -> dict[str, Blob]:
    """Its files by path, as blobs.  name: of the archive in messages and to tell its kind.

    Raises ConfigError for an archive that cannot be read, that has links or special files, or more or larger files than
    the limits allow.
    """
    found: dict[str, Blob] = {}
    total = 0
    try:
        for number, (path, size, file) in enumerate(_members(archive, name), 1):
            total += size
            if number > limits.STORAGE_FILES_MAX or total > limits.STORAGE_ARCHIVE_BYTES_MAX:
                raise ConfigError(f"{name} has more than {limits.STORAGE_FILES_MAX} files and folders, or "
                                  f"{limits.STORAGE_ARCHIVE_BYTES_MAX} bytes", hint="use an object store")  # fmt: skip
            if file is None:
                continue
            if path in found:
                raise ConfigError(f"{name}: '{path}' is in the archive twice", hint="pack it again")
            found[path] = _keep(file, size, f"{name}: '{path}'", blobs, stop)
    except BROKEN as error:
        raise ConfigError(f"{name} is no archive that can be read: {error}", hint="pack it again") from error
    return found


def _members(archive: Path, name: str) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """Path, size and content; of a folder none."""
    return _zipped(archive, name) if name.lower().endswith(".zip") else _tarred(archive, name)


def _tarred(archive: Path, name: str) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    """gzip itself and to its end, since tarfile's own does not look at the checksum there."""
    compressed = name.lower().endswith("gz")
    with gzip.open(archive) if compressed else open(archive, "rb") as stream:
        for member, content in tar_entries(cast(IO[bytes], stream)):
            if not member.isreg() and not member.isdir():
                raise _special(name, member.name)
            yield _clean(member.name), member.size, content() if member.isreg() else None
        if len(stream.read(limits.STORAGE_PADDING_BYTES_MAX + 1)) > limits.STORAGE_PADDING_BYTES_MAX:
            raise ConfigError(f"{name} goes on after its end", hint="pack it again")


def _zipped(archive: Path, name: str) -> Iterator[tuple[str, int, IO[bytes] | None]]:
    with _damage_told(name):
        zipped = zipfile.ZipFile(archive)
    with zipped:
        for member in zipped.infolist():
            if member.is_dir():
                yield _clean(member.filename), 0, None
                continue
            kind = member.external_attr >> 28  # the file type of Unix's st_mode; 0 when made elsewhere
            if kind not in (0, 0o10):
                raise _special(name, member.filename)
            with _damage_told(f"{name}: '{member.filename}'"):
                file = zipped.open(member)
            with file:
                yield _clean(member.filename), member.file_size, file


def _special(name: str, member: str) -> ConfigError:
    return ConfigError(f"{name}: '{member}' is a link or a special file, which are not unpacked",
                       hint="pack it with what links point to: tar --dereference")  # fmt: skip


def _clean(path: str) -> str:
    return path.removeprefix("./")


@contextmanager
def _damage_told(called: str) -> Iterator[None]:
    """For reading alone: an OSError is the archive's fault where it is not the disk's.

    What unpacks raises some without a number, as bzip2's; and a damaged table leads to before the file's start.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):
            raise
        raise ConfigError(f"{called} is damaged: {error}", hint="pack it again") from error


def _read(file: IO[bytes], called: str) -> bytes:
    with _damage_told(called):
        return file.read(limits.STORAGE_CHUNK_BYTES)


def _keep(file: IO[bytes], size: int, called: str, blobs: Blobs, stop: threading.Event) -> Blob:
    digest, copied = hashlib.sha256(), 0
    descriptor, path = tempfile.mkstemp(dir=blobs.root / "partial")
    try:
        with open(descriptor, "wb") as target:
            while chunk := _read(file, called):
                copied += len(chunk)
                if stop.is_set():
                    raise Cancelled("the server is stopping: an archive is not unpacked")
                if copied > size:
                    break
                digest.update(chunk)
                target.write(chunk)
        if copied != size:
            raise ConfigError(f"{called} has not the {size} bytes that the archive says", hint="pack it again")
        return blobs.adopt(Path(path), digest.hexdigest())
    except BaseException:
        if os.path.exists(path):
            os.unlink(path)
        raise
