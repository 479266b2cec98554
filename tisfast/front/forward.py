"""Headers that become request parameters (rows 1.33, 7.06, 24.04).  Layer 4 (front)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tisfast.errors import BadRequest, ConfigError

RESERVED: Final = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
"""Parameters that mean something to the server (row 7.02)."""
RESERVED_PREFIX: Final = "triton_"


class HeaderForward:
    """--http-header-forward-pattern or --grpc-header-forward-pattern.

    pattern: a regular expression, searched for in the header's name; flag: whose it is.  Raises ConfigError.
    """

    def __init__(self, pattern: str, *, flag: str, ignore_case: bool) -> None:
        try:
            self._pattern = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        except re.error as error:
            raise ConfigError(
                f"--{flag}={pattern} is not a regular expression: {error}", key=flag, hint="use Python's syntax"
            ) from None

    def parameters(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """What is forwarded of a request's headers; of one that comes twice, the last.  Raises BadRequest."""
        found: dict[str, str] = {}
        for name, value in headers:
            if self._pattern.search(name) is None:
                continue
            if name in RESERVED or name.startswith(RESERVED_PREFIX):
                raise BadRequest(
                    f"header '{name}' is reserved for Triton usage and can not be forwarded as a parameter; "
                    "send it under another name, or let the server forward fewer headers"
                )
            found[name] = value
        return found
