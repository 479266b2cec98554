"""Headers that become request parameters.  Layer 4 (operations)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from tisfast.errors import BadRequest, ConfigError

RESERVED: Final = frozenset(
    ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output")
)
"""Parameters that mean something to the server."""
RESERVED_PREFIX: Final = "triton_"


class HeaderForward:
    """--http-header-forward-pattern or --grpc-header-forward-pattern.

    pattern: a regular expression in RE2's syntax, searched for in the header's name; flag: whose it is.  Raises
    ConfigError.
    """

    def __init__(self, pattern: str, *, flag: str, ignore_case: bool) -> None:
        self._pattern = _compiled(pattern, flag, ignore_case)

    def parameters(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers of a request that are forwarded; of one that comes twice, the last.  Raises BadRequest."""
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


_SAME: Final = re.compile(
    r"""(?:\(\?[is]+\))?                                       # flags for all of it
    (?: [^\\\[({}]
      | \{\d+(?:,\d*)?\}
      | \\(?:[dDwWsSbBAtnrfv]|[^A-Za-z0-9])
      | \((?:\?:|\?P<\w+>)?(?!\?)
      | \[\^?\]?(?:[^\]\\\[]|\\(?:[dDwWsStnrfv]|[^A-Za-z0-9]))*\]
    )*""",
    re.VERBOSE | re.ASCII,
)
"""Patterns that RE2 and Python's re read alike, for names of headers, which are ASCII; _POSSESSIVE is Python's alone.
"""
_POSSESSIVE: Final = re.compile(r"[*+?}]\+")


def _compiled(pattern: str, flag: str, ignore_case: bool) -> Any:
    """By RE2 where it is installed, else by Python's re, if both read the pattern alike."""
    try:
        import re2  # noqa: PLC0415 - optional, and asked for by few
    except ImportError:
        return _compiled_by_python(pattern, flag, ignore_case)
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0]
        raise _not_a_pattern(pattern, flag, why.decode() if isinstance(why, bytes) else str(why)) from None


def _compiled_by_python(pattern: str, flag: str, ignore_case: bool) -> re.Pattern[str]:
    if _SAME.fullmatch(pattern) is None or _POSSESSIVE.search(pattern):
        raise ConfigError(
            f"--{flag}={pattern} needs RE2, which is not installed: Python does not read this pattern as RE2 does",
            key=flag,
            hint="python3 -m pip install 'tisfast[re2]' (google-re2), or write the pattern in what both have",
        )
    try:
        return re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except re.error as error:
        raise _not_a_pattern(pattern, flag, str(error)) from None


def _not_a_pattern(pattern: str, flag: str, why: str) -> ConfigError:
    return ConfigError(f"--{flag}={pattern} is not a regular expression: {why}", key=flag, hint="use RE2's syntax")
