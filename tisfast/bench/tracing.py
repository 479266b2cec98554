"""The server's trace settings while it is measured; behind it they are as they were.  Layer 5 (bench)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tisfast.bench.asked import Tracing
from tisfast.client import Client
from tisfast.errors import BadRequest, ConfigError, TisError

FLAGS: Final = ("--trace-level", "--trace-rate", "--trace-count", "--log-frequency", "--trace-file")
LEVELS: Final = ("OFF", "TIMESTAMPS", "TENSORS")


def read_tracing(given: Any) -> Tracing:
    """Those that the command line names; empty for none.  Raises ConfigError."""
    strange = next((each for each in given.trace_level if each not in LEVELS), None)
    if strange is not None:
        raise ConfigError(f"Failed to parse --trace-level. It is OFF, TIMESTAMPS or TENSORS, not '{strange}'")
    for name, value, least in (
        ("--trace-rate", given.trace_rate, 0),
        ("--trace-count", given.trace_count, -1),
        ("--log-frequency", given.log_frequency, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"Failed to parse {name}. The value must be >= {least}, it is {value}")
    found: dict[str, str | list[str]] = {"trace_level": given.trace_level} if given.trace_level else {}
    for key in ("trace_rate", "trace_count", "log_frequency", "trace_file"):
        value = getattr(given, key)
        if value is not None:
            found[key] = str(value)
    if found and given.service_kind != "triton":
        raise ConfigError(
            f"{FLAGS[0]} and its like are Triton's: leave them out with --service-kind {given.service_kind}"
        )
    return found


@contextmanager
def traced(client: Client, settings: Tracing) -> Iterator[None]:
    """Within it the server has these settings, of all models.  Raises BadRequest with the server's words."""
    if not settings:
        yield
        return
    try:
        before = client.trace_settings()
    except TisError as error:
        raise BadRequest(f"{FLAGS[0]}: the server does not tell its trace settings: {error.message}") from None
    refused = False
    try:
        try:
            client.update_trace_settings(dict(settings))
        except TisError as error:
            refused = True  # nothing was changed
            raise BadRequest(f"{_told(settings)}: the server refuses it: {error.message}") from None
        yield
    finally:
        if not refused:
            _put_back(client, {name: before[name] for name in settings if name in before})


def _put_back(client: Client, before: Mapping[str, Any]) -> None:
    try:
        client.update_trace_settings(dict(before))
    except TisError as error:
        print(
            f"[WARNING] the server's trace settings stay as they are: {error.message}; before: {before}",
            file=sys.stderr,
        )


def _told(settings: Tracing) -> str:
    """As it was typed."""
    return " ".join(
        f"--{name.replace('_', '-')} {value if isinstance(value, str) else ' '.join(value)}"
        for name, value in settings.items()
    )
