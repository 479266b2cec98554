"""Settings of the sequence batcher, and Triton's rules for them.  Layer 2 (config)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.config.error_report import Report
from tisfast.config.schema import Message
from tisfast.config.sequence_controls import ControlInput, read_controls
from tisfast.config.sequence_states import State, read_states

BATCHING: Final = "sequence_batching"


@dataclass(frozen=True)
class SequenceSettings:
    """How the requests of a sequence are kept together.

    slots: sequences that one instance serves at one time; oldest: the strategy, else direct; idle_ns: without a request
    for so long a sequence is over; delay_ns: how long a batch may be waited for, until it is large enough, which is
    minimum_slot_utilization of the slots (direct, 0 to 1) or a preferred_batch_size (oldest; ascending, each once).
    """

    slots: int
    oldest: bool
    idle_ns: int
    delay_ns: int = 0
    minimum_slot_utilization: float = 0.0
    preferred_batch_sizes: tuple[int, ...] = ()
    preserve_ordering: bool = False
    iterative: bool = False
    controls: tuple[ControlInput, ...] = ()
    states: tuple[State, ...] = ()

    @property
    def correlation_control(self) -> ControlInput | None:
        """The tensor in which the model wants the sequence's id, if it does."""
        return next((control for control in self.controls if control.kind == "CORRID"), None)


def read(message: Message, report: Report) -> SequenceSettings | None:
    """The settings of a normalised message, None without sequence batching; what is wrong goes to the report."""
    if not message.HasField(BATCHING):
        return None
    batching = message.sequence_batching
    _check_times(message, report)
    if batching.HasField("oldest"):
        _check_oldest(message, report)
    elif message.max_batch_size > limits.SUBMIT_SLOTS:
        report.wrong(f"max_batch_size {message.max_batch_size} is above {limits.SUBMIT_SLOTS}, as many sequences as an "
                     f"instance serves by the direct strategy, for {message.name}", ("max_batch_size",),
                     hint="give the model more instances, or use oldest { max_candidate_sequences: N }")  # fmt: skip
    _check_utilization(message, report)
    oldest, direct = batching.oldest, batching.direct
    slots = max(1, message.max_batch_size)
    return SequenceSettings(
        slots=oldest.max_candidate_sequences or slots,
        oldest=batching.HasField("oldest"),
        idle_ns=batching.max_sequence_idle_microseconds * 1000,
        delay_ns=(oldest if batching.HasField("oldest") else direct).max_queue_delay_microseconds * 1000,
        minimum_slot_utilization=direct.minimum_slot_utilization,
        preferred_batch_sizes=tuple(sorted(set(oldest.preferred_batch_size))),
        preserve_ordering=oldest.preserve_ordering,
        iterative=batching.iterative_sequence,
        controls=read_controls(message, report),
        states=read_states(message, report),
    )


def _check_oldest(message: Message, report: Report) -> None:
    oldest = message.sequence_batching.oldest
    for index, size in enumerate(oldest.preferred_batch_size):
        path = (BATCHING, "oldest", "preferred_batch_size", index)
        if size <= 0:
            report.wrong(f"sequence batching preferred batch size must be positive for {message.name}", path,
                       hint=f"it is {size}")  # fmt: skip
        elif size > message.max_batch_size and not report.is_broken(("max_batch_size",)):
            report.wrong(f"sequence batching preferred batch size must be <= max batch size for {message.name}", path,
                       hint=f"{size} is above max_batch_size {message.max_batch_size}")  # fmt: skip
    if oldest.preserve_ordering and message.model_transaction_policy.decoupled:
        report.wrong(
            f"'preserve_ordering' is known, but not served yet for sequences of decoupled models for {message.name}",
            (BATCHING, "oldest", "preserve_ordering"), hint="remove it: the order within a sequence is kept",
        )  # fmt: skip
    if oldest.max_candidate_sequences < 0:
        report.wrong(
            f"'max_candidate_sequences' is {oldest.max_candidate_sequences}, below 0 for {message.name}",
            (BATCHING, "oldest", "max_candidate_sequences"), hint="leave it out for as many as max_batch_size",
        )  # fmt: skip
    if oldest.max_candidate_sequences > limits.CANDIDATE_SEQUENCES_MAX:
        report.wrong(
            f"'max_candidate_sequences' is {oldest.max_candidate_sequences}, above {limits.CANDIDATE_SEQUENCES_MAX} "
            f"for {message.name}", (BATCHING, "oldest", "max_candidate_sequences"),
            hint="further sequences wait for a place anyway",
        )  # fmt: skip


def _check_utilization(message: Message, report: Report) -> None:
    share = message.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        report.wrong(f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {message.name}",
                   (BATCHING, "direct", "minimum_slot_utilization"), hint=f"it is {share:g}")  # fmt: skip


def _check_times(message: Message, report: Report) -> None:
    batching = message.sequence_batching
    for value, path in (
        (batching.max_sequence_idle_microseconds, (BATCHING, "max_sequence_idle_microseconds")),
        (batching.direct.max_queue_delay_microseconds, (BATCHING, "direct", "max_queue_delay_microseconds")),
        (batching.oldest.max_queue_delay_microseconds, (BATCHING, "oldest", "max_queue_delay_microseconds")),
    ):
        if value > limits.CONFIG_MICROSECONDS_MAX:
            report.wrong(f"'{path[-1]}' is {value}, above {limits.CONFIG_MICROSECONDS_MAX} for {message.name}", path,
                       hint="give a smaller one")  # fmt: skip
