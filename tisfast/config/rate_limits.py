"""Resources that executions share: what instance groups need, what the command line grants.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tisfast import limits
from tisfast.config.whole_numbers import whole_number
from tisfast.errors import ConfigError

if TYPE_CHECKING:  # the command line reads flags with this, and is to answer --help at once
    from tisfast.config.error_report import KeyPath, Report
    from tisfast.config.schema import Message

MODES: Final = ("off", "execution_count")
FLAG: Final = "rate-limit-resource"


@dataclass(frozen=True)
class Demand:
    """The units of a resource that one execution takes.  is_global: of the server's, else of its device's."""

    name: str
    count: int
    is_global: bool = False


@dataclass(frozen=True)
class RateLimit:
    """The rate limit of an instance group.  priority: weight of its executions in the order of those that wait; 0
    counts as 1.
    """

    demands: tuple[Demand, ...] = ()
    priority: int = 0


class Grant(NamedTuple):
    """How much there is of a resource.  device: None for every device, and for the server's own."""

    name: str
    units: int
    device: int | None


@dataclass(frozen=True)
class RateLimitSettings:
    """--rate-limit and --rate-limit-resource.  mode: one of MODES."""

    mode: str = "off"
    grants: tuple[Grant, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for an unknown mode."""
        if self.mode not in MODES:
            raise ConfigError(f"--rate-limit must be one of {', '.join(MODES)}, not {self.mode!r}", key="rate-limit")

    @property
    def enabled(self) -> bool:
        """Whether resources limit executions."""
        return self.mode != "off"


def read(message: Message, index: int, report: Report) -> RateLimit:
    """Read the rate limit of one instance group; errors go to the report."""
    path: KeyPath = ("instance_group", index, "rate_limiter")
    wanted = message.instance_group[index].rate_limiter
    if wanted.priority > limits.RATE_LIMIT_PRIORITY_MAX:
        report.wrong(f"rate limiter priority {wanted.priority} is above {limits.RATE_LIMIT_PRIORITY_MAX} for "
                     f"{message.name}", (*path, "priority"), hint="only the ratio of priorities counts")  # fmt: skip
    if len(wanted.resources) > limits.RATE_LIMIT_RESOURCES_MAX:
        report.wrong(f"{len(wanted.resources)} rate limiter resources, more than {limits.RATE_LIMIT_RESOURCES_MAX}, "
                     f"for {message.name}", (*path, "resources"), hint="join some")  # fmt: skip
    # `global` is a keyword of Python's
    demands = tuple(Demand(each.name, each.count, getattr(each, "global")) for each in wanted.resources)  # noqa: B009
    return RateLimit(demands, wanted.priority)


def read_grants(texts: Sequence[str]) -> tuple[Grant, ...]:
    """Read --rate-limit-resource NAME:COUNT[:DEVICE].  Raises ConfigError."""
    return tuple(_grant(text) for text in texts)


def _grant(text: str) -> Grant:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise _malformed(text, "it has no count" if len(parts) < 2 else f"it has {len(parts)} parts")
    device = _number(text, "device", parts[2]) if len(parts) > 2 else None
    return Grant(parts[0], _number(text, "count", parts[1]), device)


def _number(text: str, what: str, value: str) -> int:
    number = whole_number(value, limits.RATE_LIMIT_COUNT_MAX)
    if number is None:
        raise _malformed(text, f"its {what} {value!r:.60} is no number from 0 to {limits.RATE_LIMIT_COUNT_MAX}")
    return number


def _malformed(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"--{FLAG} option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got {text:.200}",
        key=FLAG, hint=why,
    )  # fmt: skip
