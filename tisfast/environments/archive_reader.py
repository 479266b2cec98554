"""Read archives of any of the served kinds, entry by entry, front to back.  Layer 3 (environments).

The kind is told by the first bytes, not by the name.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed
from tisfast.environments.extraction import Item, ItemKind

_TAR_MAGIC: Final = b"ustar"
_TAR_MAGIC_AT: Final = 257
_ZIP_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_BUFFER_BYTES: Final = 1 << 20
_TAR_KINDS: Final[dict[bytes, ItemKind]] = {
    tarfile.DIRTYPE: "folder", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link",
}  # fmt: skip
_OTHER_KINDS: Final = {tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe"}


class Compression(NamedTuple):
    """One way of packing a tar file.  programs: what unpacks it, the best first; module: of Python, does so as well.

    extension: what that module is made of; a CPython that was compiled without the library lacks it.
    """

    magic: bytes
    name: str
    programs: tuple[tuple[str, ...], ...]
    module: str
    extension: str


# 847 MB out of gzip: igzip 1.4 s, pigz 3.1 s, Python's module 3.8 s, the program gzip 5.2 s.
COMPRESSIONS: Final = (
    Compression(b"\x1f\x8b", "gzip", (("igzip", "-dc"), ("pigz", "-dc")), "gzip", "zlib"),
    Compression(b"BZh", "bzip2", (("lbzip2", "-dc"),), "bz2", "_bz2"),
    Compression(b"\xfd7zXZ\0", "xz", (("xz", "-dc", "-T0"),), "lzma", "_lzma"),
    Compression(b"\x28\xb5\x2f\xfd", "zstd", (("zstd", "-dcq"),), "compression.zstd", "_zstd"),  # the module is 3.14's
)
# A zip file may have LZMA in it; of a CPython without it no such error comes.
_LZMA_ERRORS: tuple[type[Exception], ...] = ()
with suppress(ModuleNotFoundError):
    from lzma import LZMAError

    _LZMA_ERRORS = (LZMAError,)
UNREADABLE: Final[tuple[type[Exception], ...]] = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    *_LZMA_ERRORS,
)
"""Exceptions of the standard library for archives that are damaged."""
_MODULE: Final = """
import importlib, shutil, sys
module = importlib.import_module(sys.argv[1])
shutil.copyfileobj(module.open(sys.stdin.buffer), sys.stdout.buffer, 1 << 20)
"""


class ArchiveReader(NamedTuple):
    """An open archive.  items: its entries, each to be used before the next; position: bytes read of the file."""

    items: Iterator[Item]
    position: Callable[[], int]


@contextmanager
def opened(path: Path) -> Iterator[ArchiveReader]:
    """Open the archive at `path`.  Raises EnvironmentFailed for what is none, or is damaged."""
    with open(path, "rb", buffering=0) as file:
        start = file.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
        file.seek(0)
        with _damage_told(path):
            if start.startswith(_ZIP_MAGICS):
                with zipfile.ZipFile(file) as zipped:
                    yield ArchiveReader(_zip_items(path, zipped), file.tell)
                return
            kind = next((each for each in COMPRESSIONS if start.startswith(each.magic)), None)
            if kind is None and start[_TAR_MAGIC_AT:] != _TAR_MAGIC:
                raise EnvironmentFailed(
                    f"{path} is no archive: it begins with {start[:8]!r}",
                    "served are tar, plain or packed with gzip, bzip2, xz or zstd, and zip",
                )
            with _unpacked(path, file, kind) as stream:
                # The descriptor's place is shared with the program that reads it.
                yield ArchiveReader(_tar_items(stream), lambda: os.lseek(file.fileno(), 0, os.SEEK_CUR))


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        if error.errno is not None:  # the disk's; bzip2's, of damaged data, have no number
            raise
        raise _damaged(path, str(error)) from error
    except NotImplementedError as error:
        raise _unreadable(path, error) from error


def _damaged(path: Path, why: str) -> EnvironmentFailed:
    return EnvironmentFailed(f"{path} is damaged, or not whole: {why}", "copy it again, and compare sizes")


def _unreadable(path: Path, error: RuntimeError) -> EnvironmentFailed:
    return EnvironmentFailed(f"{path} is packed in a way that is not read here: {error}", "pack it as .tar.gz")


@contextmanager
def _unpacked(path: Path, file: IO[bytes], kind: Compression | None) -> Iterator[IO[bytes]]:
    """The tar file in it, from a process of its own: two cores work instead of one."""
    if kind is None:
        yield io.BufferedReader(cast(io.RawIOBase, file), _BUFFER_BYTES)
        return
    pipe = subprocess.PIPE
    process = subprocess.Popen(_unpacker(path, kind), stdin=file, stdout=pipe, stderr=pipe, bufsize=_BUFFER_BYTES)
    assert process.stdout is not None and process.stderr is not None
    with process:
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
        while process.stdout.read(_BUFFER_BYTES):
            pass  # what follows the tar file counts for the checksum
        said = process.stderr.read(_BUFFER_BYTES).decode("utf-8", "backslashreplace").strip().splitlines()
        if process.wait():
            raise _damaged(path, said[-1] if said else f"{kind.name} ended with code {process.returncode}")


def _unpacker(path: Path, kind: Compression) -> list[str]:
    program = next((each for each in kind.programs if shutil.which(each[0])), None)
    if program is not None:
        return list(program)
    if find_spec(kind.extension) is None:
        raise EnvironmentFailed(f"{path} is packed with {kind.name}, which this Python cannot unpack",
                                f"install the program {kind.programs[0][0]}")  # fmt: skip
    return [sys.executable, "-I", "-S", "-c", _MODULE, kind.module]


class _Forward:
    """A stream that can be moved forward, which is as much as tarfile asks for.

    tarfile keeps a long name or a table of attributes whole, as large as the archive says it is.  It is read at once,
    and since the summer of 2026 in pieces.
    last: what was read last; where tarfile finds no further entry, the block in which it looked for one.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._at = 0
        self._header_left = sys.maxsize
        self.last = b""

    @contextmanager
    def header(self) -> Iterator[None]:
        """Bound all that is read inside this context: it is one entry's header."""
        self._header_left = limits.ENVIRONMENT_HEADER_BYTES_MAX
        try:
            yield
        finally:
            self._header_left = sys.maxsize

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        while self._at < position and self._take(min(position - self._at, _BUFFER_BYTES)):
            pass

    def read(self, size: int) -> bytes:
        self._header_left -= size
        if self._header_left < 0:
            raise tarfile.ReadError(f"a header of more than {limits.ENVIRONMENT_HEADER_BYTES_MAX} bytes")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = self.last = self._stream.read(size)
        self._at += len(data)
        return data


def tar_entries(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, Callable[[], IO[bytes]]]]:
    """The entries of a tar file, front to back, in bounded memory: each entry, and what opens its content.

    Raises tarfile.ReadError, at its end too: tarfile itself takes a damaged header, or none, for the end.
    """
    forward = _Forward(stream)
    with forward.header():  # it reads the first one at once
        tar = tarfile.TarFile(fileobj=cast(IO[bytes], forward), mode="r", errorlevel=2)
    with tar:
        while True:
            with forward.header():
                entry = tar.next()
            if entry is None:
                break
            cast(Any, tar).members.clear()  # it would keep them all
            yield entry, partial(cast(Callable[[tarfile.TarInfo], IO[bytes]], tar.extractfile), entry)
    if forward.last != bytes(tarfile.BLOCKSIZE):  # the standard wants two such blocks; some programs write one
        raise tarfile.ReadError("it ends without its end mark, or a header is damaged")


def _tar_items(stream: IO[bytes]) -> Iterator[Item]:
    for entry, content in tar_entries(stream):
        kind: ItemKind = "file" if entry.isreg() else _TAR_KINDS.get(entry.type, "other")
        about = _OTHER_KINDS.get(entry.type, f"of tar's type {entry.type!r}")
        yield Item(entry.name, kind, entry.mode, entry.mtime, entry.linkname, content, about)


def _opened_entry(path: Path, zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return zipped.open(entry)
    except RuntimeError as error:  # it does not know the kind, or this Python lacks the library
        raise _unreadable(path, error) from error


def _zip_items(path: Path, zipped: zipfile.ZipFile) -> Iterator[Item]:
    for entry in zipped.infolist():
        if entry.flag_bits & 1:
            raise EnvironmentFailed(f"{path} is encrypted: '{entry.filename}'", "pack it without a password")
        mode = entry.external_attr >> 16
        mtime = time.mktime((*entry.date_time, 0, 0, -1))
        content = partial(_opened_entry, path, zipped, entry)
        if entry.is_dir():
            yield Item(entry.filename, "folder")
        elif stat.S_ISLNK(mode):
            target = content().read(limits.ENVIRONMENT_LINK_BYTES_MAX).decode("utf-8", "surrogateescape")
            yield Item(entry.filename, "link", target=target)
        elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
            yield Item(entry.filename, "file", mode or 0o644, mtime, content=content)
        else:
            yield Item(entry.filename, "other", about=f"of mode {mode:o}")
