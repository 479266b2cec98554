"""Triton's test hooks: environment variables with which its own tests make schedulers wait.  Layer 2 (config).

They are read when the server starts.  Without them nothing is looked at while requests are served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tisfast import limits
from tisfast.errors import ConfigError

QUEUE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"


@dataclass(frozen=True)
class SchedulerHooks:
    """Requests that must wait before a scheduler hands out its first one; 0: it does not wait.

    hold_requests: in the queue of a model, or in the slots of its sequences; hold_backlog: of sequences without a slot.
    """

    hold_requests: int = 0
    hold_backlog: int = 0


def read_hooks(environ: Mapping[str, str]) -> SchedulerHooks:
    """Read the hooks from the environment.  Raises ConfigError for what is no number of requests."""
    return SchedulerHooks(_requests(environ, QUEUE), _requests(environ, BACKLOG))


def _requests(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text:
        return 0
    most = limits.DEFAULT_QUEUE_REQUESTS_MAX
    if not text.isascii() or not text.isdigit() or int(text) > most:
        raise ConfigError(f"environment variable {name} must be a number of requests, 0 to {most}, not {text!r}")
    return int(text)
