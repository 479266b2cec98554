"""Triton's test hooks: environment variables with which its tests make schedulers and answers wait.  Layer 2 (config).

They are read when the server starts.  Without them nothing is looked at while requests are served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tisfast import limits
from tisfast.config.whole_numbers import whole_number
from tisfast.errors import ConfigError

QUEUE = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"
ANSWER = "TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC"


@dataclass(frozen=True)
class SchedulerHooks:
    """Requests that must wait before a scheduler hands out its first one; 0: it does not wait.

    hold_requests: in the queue of a model, or in the slots of its sequences; hold_backlog: of sequences without a slot.
    """

    hold_requests: int = 0
    hold_backlog: int = 0


def read_hooks(environ: Mapping[str, str]) -> SchedulerHooks:
    """Read the hooks from the environment.  Raises ConfigError for what is no number of requests."""
    most = limits.DEFAULT_QUEUE_REQUESTS_MAX
    return SchedulerHooks(_number(environ, QUEUE, "requests", most), _number(environ, BACKLOG, "requests", most))


def read_answer_delay(environ: Mapping[str, str]) -> int:
    """Seconds that answers of gRPC calls wait which are no inferences.  Raises ConfigError for another text."""
    return _number(environ, ANSWER, "seconds", limits.GRPC_ANSWER_DELAY_SECONDS_MAX)


def _number(environ: Mapping[str, str], name: str, unit: str, most: int) -> int:
    text = environ.get(name, "")
    if not text:
        return 0
    number = whole_number(text, most)
    if number is None:
        raise ConfigError(f"environment variable {name} must be a number of {unit}, 0 to {most}, not {text!r:.60}")
    return number
