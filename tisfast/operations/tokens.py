"""Bearer tokens in a file (--model-control-token-file), read again when the file changes.  Layer 4 (operations)."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from typing import Final

from tisfast import limits
from tisfast.errors import ConfigError

log = logging.getLogger("tisfast.http")
FLAG: Final = "model-control-token-file"
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
Fingerprint = tuple[int, int, int, int]
ABSENT: Final[Fingerprint] = (0, 0, 0, 0)


class TokenFile:
    """One token a line; empty lines, and lines that start with '#', are none.

    When the file cannot be used any more, all callers are refused until it can: a token that was taken out must not go
    on.
    """

    def __init__(self, path: str) -> None:
        """Raises ConfigError, naming the flag, when the file cannot be used."""
        self._path = path
        self._seen = self._look()
        self._digests = self._read()

    def holds(self, token: str) -> bool:
        """Whether this is one of them, told in a time that says nothing about which."""
        self._refresh()
        digest = _digest(token)
        return sum(hmac.compare_digest(digest, each) for each in self._digests) > 0

    def _refresh(self) -> None:
        """Looks at the file, which costs microseconds; reads it when it is another one."""
        before, self._seen = self._seen, ABSENT  # a file that is away now may come back as it was
        try:
            self._seen = self._look()
            if self._seen == before:
                return
            self._digests = self._read()
            log.info("--%s=%s has changed: %d tokens are read", FLAG, self._path, len(self._digests))
        except ConfigError as error:
            if self._digests:
                log.error("%s; until it can be used again, no model is loaded or unloaded by a call", error)
            self._digests = ()

    def _look(self) -> Fingerprint:
        try:
            stat = os.stat(self._path)
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from error
        return stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_dev

    def _read(self) -> tuple[bytes, ...]:
        try:
            with open(self._path, "rb") as file:
                data = file.read(limits.CONTROL_TOKENS_BYTES_MAX + 1)
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from error
        if len(data) > limits.CONTROL_TOKENS_BYTES_MAX:
            raise self._error(f"has more than {limits.CONTROL_TOKENS_BYTES_MAX} bytes")
        digests = []
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            token = line.strip()
            if not token or token.startswith("#"):
                continue
            if not TOKEN.fullmatch(token):  # which may be a secret all the same, so it is not shown
                raise self._error(f"line {number} is no token: letters, digits and . _ ~ + / - make one, one a line")
            digests.append(_digest(token))
        if not digests:
            raise self._error("holds no token; write one a line")
        if len(digests) > limits.CONTROL_TOKENS_MAX:
            raise self._error(f"holds {len(digests)} tokens, {limits.CONTROL_TOKENS_MAX} are the limit")
        return tuple(digests)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"--{FLAG}={self._path} {what}", key=FLAG)


def _digest(token: str) -> bytes:
    """All of one length: comparing tells nothing about that either."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
