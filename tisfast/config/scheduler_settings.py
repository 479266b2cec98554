"""Settings of the default scheduler and the dynamic batcher.  Layer 2 (config)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tisfast import limits
from tisfast.config import sequence_settings
from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.config.sequence_settings import SequenceSettings

TimeoutAction: TypeAlias = Literal["REJECT", "DELAY"]
REJECT, DELAY = range(2)  # ModelQueuePolicy.TimeoutAction
ACTIONS: Final[dict[int, TimeoutAction]] = {REJECT: "REJECT", DELAY: "DELAY"}
BATCHING: Final = "dynamic_batching"
POLICY: Final = "default_queue_policy"


@dataclass(frozen=True)
class QueuePolicy:
    """How long, and how many, requests of one priority level may wait.

    max_queue_size: requests, 0 for the server's own bound; default_timeout_us: 0 for none.
    """

    max_queue_size: int = 0
    default_timeout_us: int = 0
    allow_timeout_override: bool = False
    timeout_action: TimeoutAction = "REJECT"


@dataclass(frozen=True)
class SchedulerSettings:
    """How requests of one model wait and meet.

    max_batch_size: 0 when the model has no batch dimension; preferred_batch_sizes: ascending, each once;
    priority_levels: 0 for no levels; priority_policies: (level, policy) of those levels that have one of their own;
    hold_requests, hold_backlog: a test's (scheduler_hooks.py): nothing goes out before so many requests wait, in the
    queue and in the backlog of sequences.
    """

    max_batch_size: int = 0
    dynamic: bool = False
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_ns: int = 0
    preserve_ordering: bool = False
    queue_policy: QueuePolicy = QueuePolicy()
    priority_levels: int = 0
    default_priority_level: int = 0
    priority_policies: tuple[tuple[int, QueuePolicy], ...] = ()
    sequence: SequenceSettings | None = None
    hold_requests: int = 0
    hold_backlog: int = 0

    def policy_of(self, level: int) -> QueuePolicy:
        """The policy that holds at a level."""
        return dict(self.priority_policies).get(level, self.queue_policy)


def read(message: Message, report: Report) -> SchedulerSettings:
    """The settings of a normalised message; what is wrong goes to the report."""
    if message.max_batch_size < 0:
        report.wrong(f"'max_batch_size' must be non-negative value for {message.name}", ("max_batch_size",),
                   hint="0 means that the model has no batch dimension")  # fmt: skip
    if not message.HasField(BATCHING):
        return SchedulerSettings(
            max_batch_size=message.max_batch_size, sequence=sequence_settings.read(message, report)
        )
    _check_sizes(message, report)
    _check_priorities(message, report)
    _check_delay(message, report)
    if message.dynamic_batching.preserve_ordering:
        _check_order(message, report)
    return _settings(message)


def _settings(message: Message) -> SchedulerSettings:
    batching = message.dynamic_batching
    levels = batching.priority_levels
    own = batching.priority_queue_policy
    return SchedulerSettings(
        max_batch_size=message.max_batch_size,
        dynamic=True,
        preferred_batch_sizes=tuple(sorted(set(batching.preferred_batch_size))),
        max_queue_delay_ns=batching.max_queue_delay_microseconds * 1000,
        preserve_ordering=batching.preserve_ordering,
        queue_policy=_policy(batching.default_queue_policy),
        priority_levels=levels,
        default_priority_level=batching.default_priority_level if levels else 0,
        priority_policies=tuple((level, _policy(own[level])) for level in sorted(own)),
    )


def _policy(policy: Message) -> QueuePolicy:
    return QueuePolicy(
        max_queue_size=policy.max_queue_size,
        default_timeout_us=policy.default_timeout_microseconds,
        allow_timeout_override=policy.allow_timeout_override,
        timeout_action=ACTIONS[policy.timeout_action],
    )


def _check_sizes(message: Message, report: Report) -> None:
    for index, size in enumerate(message.dynamic_batching.preferred_batch_size):
        path = (BATCHING, "preferred_batch_size", index)
        if size <= 0:
            report.wrong(f"dynamic batching preferred size must be positive for {message.name}", path,
                       hint=f"it is {size}")  # fmt: skip
        elif size > message.max_batch_size and not report.is_broken(("max_batch_size",)):
            report.wrong(f"dynamic batching preferred size must be <= max batch size for {message.name}", path,
                       hint=f"{size} is above max_batch_size {message.max_batch_size}")  # fmt: skip


def _check_priorities(message: Message, report: Report) -> None:
    batching = message.dynamic_batching
    levels = batching.priority_levels
    if levels == 0:
        for key in ("default_priority_level", "priority_queue_policy"):
            if getattr(batching, key) and not report.is_broken((BATCHING, "priority_levels")):
                report.wrong(f"'{key}' has no effect without 'priority_levels' for {message.name}", (BATCHING, key),
                           hint="set priority_levels, or remove it")  # fmt: skip
        return
    if not 1 <= batching.default_priority_level <= levels and not report.is_broken((BATCHING,)):
        report.wrong(f"default priority level must be in range [1, {levels}] for {message.name}",
                   (BATCHING, "default_priority_level"), hint=f"it is {batching.default_priority_level}")  # fmt: skip
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            report.wrong(f"priority queue policy must have priority level in range [1, {levels}] for {message.name}",
                       (BATCHING, "priority_queue_policy", level), hint=f"the key is {level}")  # fmt: skip


def _check_order(message: Message, report: Report) -> None:
    """Priorities and delays make requests overtake each other.  Without a timeout no request is ever delayed."""
    batching = message.dynamic_batching
    if batching.priority_levels > 1:
        report.wrong(f"Only one priority level is allowed when 'preserve_ordering' is true for {message.name}",
                   (BATCHING, "preserve_ordering"), hint="remove 'preserve_ordering' or 'priority_levels'")  # fmt: skip
    for path, policy in _policies(message):
        if policy.timeout_action == DELAY and policy.default_timeout_microseconds:
            report.wrong("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                       f"{message.name}", (*path, "timeout_action"), hint="use timeout_action: REJECT")  # fmt: skip


def _check_delay(message: Message, report: Report) -> None:
    """Times that a clock of int64 nanoseconds can add up."""
    batching = message.dynamic_batching
    delay: KeyPath = (BATCHING, "max_queue_delay_microseconds")
    times = [(delay, batching.max_queue_delay_microseconds, "give a smaller one")]
    for path, policy in _policies(message):
        timeout = (*path, "default_timeout_microseconds")
        times.append((timeout, policy.default_timeout_microseconds, "leave it out for no limit"))
    for path, value, hint in times:
        if value > limits.CONFIG_MICROSECONDS_MAX:
            report.wrong(f"'{path[-1]}' is {value}, above {limits.CONFIG_MICROSECONDS_MAX} for {message.name}", path,
                       hint=hint)  # fmt: skip


def _policies(message: Message) -> list[tuple[KeyPath, Message]]:
    """Every queue policy and where it stands."""
    batching = message.dynamic_batching
    own = batching.priority_queue_policy
    return [
        ((BATCHING, POLICY), batching.default_queue_policy),
        *(((BATCHING, "priority_queue_policy", level), own[level]) for level in sorted(own)),
    ]
