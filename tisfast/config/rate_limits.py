"""Resources that executions share: what instance groups need, and what the command line grants (rows 20.*).  Layer 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.config.report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.errors import ConfigError

MODES: Final = ("off", "execution_count")
FLAG: Final = "rate-limit-resource"
COUNT_MAX: Final = 2**32 - 1


@dataclass(frozen=True)
class Demand:
    """What one execution takes of a resource; is_global: of the server's, else of its device's."""

    name: str
    count: int
    is_global: bool = False


@dataclass(frozen=True)
class RateLimit:
    """Of an instance group.  priority: weight of its executions in the order of those that wait; 0 counts as 1."""

    demands: tuple[Demand, ...] = ()
    priority: int = 0


@dataclass(frozen=True)
class Grant:
    """How much there is of a resource.  device: None for every device, and for the server's own."""

    name: str
    count: int
    device: int | None = None


@dataclass(frozen=True)
class RateLimitSettings:
    """--rate-limit and --rate-limit-resource."""

    mode: str = "off"
    grants: tuple[Grant, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for an unknown mode."""
        if self.mode not in MODES:
            raise ConfigError(
                f"--rate-limit must be one of {', '.join(MODES)}, not {self.mode!r}", key="rate-limit"
            )

    @property
    def enabled(self) -> bool:
        """Whether resources limit executions."""
        return self.mode != "off"


def read(message: Message, index: int, report: Report) -> RateLimit:
    """Of one instance group of a message; what is wrong goes to the report."""
    path: KeyPath = ("instance_group", index, "rate_limiter")
    wanted = message.instance_group[index].rate_limiter
    if wanted.priority > limits.RATE_LIMIT_PRIORITY_MAX:
        report.wrong(f"rate limiter priority {wanted.priority} is above {limits.RATE_LIMIT_PRIORITY_MAX} for "
                     f"{message.name}", (*path, "priority"), hint="it is a weight: what counts is the ratio")  # fmt: skip
    return RateLimit(tuple(Demand(each.name, each.count, each["global"] if False else _is_global(each))
                           for each in wanted.resources), wanted.priority)


def _is_global(resource: Message) -> bool:
    return bool(getattr(resource, "global"))  # a keyword of Python's


def read_grants(texts: Sequence[str]) -> tuple[Grant, ...]:
    """Of --rate-limit-resource NAME:COUNT[:DEVICE].  Raises ConfigError."""
    return tuple(_grant(text) for text in texts)
