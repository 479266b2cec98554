"""Texts of the command line that are sent to the server, and flags that would change nothing.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tisfast.errors import ConfigError

SENT: Final[Mapping[str, str]] = {
    "-m": "model_name",
    "-x": "model_version",
    "-u": "url",
    "-H": "headers",
    "--endpoint": "endpoint",
    "--bls-composing-models": "bls_composing_models",
    "--request-parameter": "request_parameter",
    "--trace-file": "trace_file",
}
"""By flag: its name in the parsed command line."""


def check_sent(given: Any) -> None:
    """Raises ConfigError for bytes that are no text."""
    for flag, name in SENT.items():
        value = getattr(given, name) or ""
        for text in [value] if isinstance(value, str) else value:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise ConfigError(f"{flag} {ascii(text)}: it is no UTF-8, and nothing else can be sent") from None


def check_used_data(given: Any) -> None:
    """Raises ConfigError for data that would be drawn, beside files that have it."""
    files = [each for each in given.input_data if each not in ("random", "zero")]
    drawn = [each for each in given.input_data if each in ("random", "zero")]
    if files and (drawn or given.zero):
        word = f"--input-data {drawn[0]}" if drawn else "-z"
        raise ConfigError(f"{word} has data made, and --input-data {files[0]} has its own: leave one of them out")


def check_used_pacing(given: Any, mode: str) -> None:
    """Raises ConfigError for flags of a rate where there is none.  mode: of the load."""
    closed = mode in ("concurrency", "periodic")
    named = {
        "--request-distribution poisson": given.request_distribution == "poisson" and given.request_rate_range is None,
        "--connections": given.connections > 0 and closed,
    }
    name = next((name for name, used in named.items() if used), "")
    if name:
        raise ConfigError(f"{name} is of a request rate, and changes nothing here: add --request-rate-range")
