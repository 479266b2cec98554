"""The face of a store: a list of files and a way to read each from an offset.  Layer 3 (storage)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tisfast.errors import ConfigError, Unavailable

_MD5 = re.compile(r'"?([0-9a-f]{32})"?')


class Unreachable(Unavailable):
    """The store did not answer, or not to the end: the same call may succeed later."""


class Changed(Unavailable):
    """The object is no longer what the list said: list again."""


class Corrupt(Unavailable):
    """The received bytes are not those that the store says it sent."""


class Refused(ConfigError):
    """The store answered, and said no: credentials, names or rights are wrong."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a store.

    path: below the URL, with "/"; key: what the store calls it; tag: changes with the content ("" when the store has
    nothing like it).  sha256, md5, git_sha1: in hexadecimal, "" when not known before the download.
    """

    path: str
    key: str
    size: int
    tag: str
    sha256: str = ""
    md5: str = ""
    git_sha1: str = ""


class Source(Protocol):
    """One opened URL.  Any thread; calls block, bounded by timeouts."""

    def files(self) -> list[RemoteFile]:
        """All files now.  Raises Unreachable or Refused."""

    def read(self, file: RemoteFile, offset: int) -> tuple[int, Iterator[bytes]]:
        """Bytes from `offset`, or from 0 where the store cannot do that: the offset they begin at, and them.

        Raises Changed when the object is not the listed one any more, Unreachable, Refused.
        """

    def with_digests(self, file: RemoteFile) -> RemoteFile:
        """The file with digests that only asking for it tells; may ask the store, and raises nothing."""

    def is_certain(self, file: RemoteFile, md5: str) -> bool:
        """Whether a mismatch of MD5 proves damage: with some encryptions the tag is none.  May ask the store."""


def md5_of_tag(tag: str) -> str:
    """The MD5 that an ETag of S3 and GCS is, where it looks like one; else ""."""
    matched = _MD5.fullmatch(tag)
    return matched[1] if matched else ""
