"""Sequences of requests: ids, lengths and which data each plays, as perf_analyzer makes them.  Layer 5 (bench)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tisfast.errors import BadRequest

ID_MAX: Final = (1 << 32) - 1
"""The default end of --sequence-id-range."""
LENGTH_MAX: Final = 100_000_000


class Turn(NamedTuple):
    """One request of a sequence.  stream, step: of the input data."""

    sequence_id: int
    stream: int
    step: int
    start: bool
    end: bool


@dataclass(frozen=True)
class Plan:
    """What the command line says of sequences.

    streams: the steps of each stream of the data, where files gave it; length: of --sequence-length, None where it was
    not said; variation: in percent; id_begin, id_end: the range, whose end is not in it.
    """

    streams: Sequence[int] = ()
    length: int | None = None
    variation: float = 20.0
    id_begin: int = 1
    id_end: int = ID_MAX
    in_flight: int = 4

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.length is not None and not 1 <= self.length <= LENGTH_MAX:
            raise BadRequest(f"--sequence-length is {self.length}: write a number from 1 to {LENGTH_MAX}")
        if not 0 <= self.variation <= 100:
            raise BadRequest(f"--sequence-length-variation is {self.variation:g}: write percent, from 0 to 100")
        if not 1 <= self.id_begin < self.id_end <= ID_MAX + 1:
            raise BadRequest(
                f"--sequence-id-range is {self.id_begin}:{self.id_end}: write START:END with "
                f"1 <= START < END <= {ID_MAX + 1}"
            )
        if self.id_end - self.id_begin < self.in_flight:
            raise BadRequest(
                f"--sequence-id-range {self.id_begin}:{self.id_end} has {self.id_end - self.id_begin} ids for "
                f"{self.in_flight} sequences at one time: each takes one of its own, so widen the range"
            )
        if any(steps < 1 for steps in self.streams):
            raise BadRequest("a stream of the input data has no steps")


class Sequences:
    """Gives the requests of sequences, one after the other; ids that are in use are skipped.

    next_id: of another load before, which ids go on from.
    """

    def __init__(self, plan: Plan, seed: int = 0, next_id: int = 0) -> None:
        self._plan, self._random = plan, np.random.default_rng(seed)
        self._next_id = next_id or plan.id_begin
        self._in_use: set[int] = set()

    @property
    def next_id(self) -> int:
        """That is tried for the next sequence."""
        return self._next_id

    @property
    def in_use(self) -> frozenset[int]:
        """Ids of sequences that have begun and not ended."""
        return frozenset(self._in_use)

    def begin(self) -> Playing:
        """Another sequence.  Raises BadRequest when all that may be are under way."""
        plan = self._plan
        if len(self._in_use) >= plan.in_flight:
            raise BadRequest(f"{plan.in_flight} sequences are under way, and no more may be")
        while self._next_id in self._in_use:
            self._advance()
        sequence_id = self._next_id
        self._advance()
        self._in_use.add(sequence_id)
        stream = int(self._random.integers(len(plan.streams))) if plan.streams else 0
        return Playing(self, sequence_id, stream, self._length(stream), plan.streams[stream] if plan.streams else 1)

    def ended(self, sequence_id: int) -> None:
        """Its id may be taken again."""
        self._in_use.discard(sequence_id)

    def _advance(self) -> None:
        self._next_id = self._next_id + 1 if self._next_id + 1 < self._plan.id_end else self._plan.id_begin

    def _length(self, stream: int) -> int:
        """The stream's own steps, where nobody says a length; else the length, more or less by the variation."""
        plan = self._plan
        if plan.length is None and plan.streams:
            return plan.streams[stream]
        length = plan.length if plan.length is not None else 20
        spread = length * plan.variation / 100
        return max(round(length + self._random.uniform(-spread, spread)), 1)


class Playing:
    """A sequence that is under way: its steps go round where it is longer than its stream."""

    def __init__(self, sequences: Sequences, sequence_id: int, stream: int, length: int, steps: int) -> None:
        self.sequence_id, self.stream, self.length = sequence_id, stream, length
        self._sequences, self._steps, self._given = sequences, steps, 0

    @property
    def done(self) -> bool:
        """Its last request was given."""
        return self._given >= self.length

    def take(self) -> Turn:
        """Its next request; the last one ends it."""
        return self._give(self._given + 1 == self.length)

    def cut(self) -> Turn:
        """A last request before its time, as when a level ends: the server must not keep the sequence open."""
        return self._give(True)

    def _give(self, end: bool) -> Turn:
        if self.done:
            raise ValueError(f"sequence {self.sequence_id} has ended")
        turn = Turn(self.sequence_id, self.stream, self._given % self._steps, self._given == 0, end)
        self._given = self.length if end else self._given + 1
        if end:
            self._sequences.ended(self.sequence_id)
        return turn

    def abandon(self) -> None:
        """Nothing further is sent: a request of it has failed, and the server may not know it any more."""
        if not self.done:
            self._given = self.length
            self._sequences.ended(self.sequence_id)


class Player:
    """Tells a load which request is next: `count` sequences are open at one time, and take turns.

    Each has one request under way at most, so requests arrive in their order whatever connection they take; the load
    sends at most `count` at one time.  firsts: the number of the first template of each stream.
    """

    def __init__(self, sequences: Sequences, firsts: Sequence[int], count: int) -> None:
        self._sequences, self._firsts, self._count = sequences, firsts, count
        self._next: deque[Playing | None] = deque([None] * count)  # None: another one begins there
        self._under_way: dict[int, Playing] = {}
        self._cutting = False

    def take(self) -> tuple[int, int, bool, bool]:
        """The next request: its template, the id of its sequence, whether it begins and whether it ends it."""
        playing = self._next.popleft() or self._sequences.begin()
        turn = playing.cut() if self._cutting else playing.take()
        self._under_way[turn.sequence_id] = playing
        return self._firsts[turn.stream] + turn.step, turn.sequence_id, turn.start, turn.end

    def answered(self, sequence_id: int, good: bool) -> None:
        """A request has ended; one that failed is the last of its sequence."""
        playing = self._under_way.pop(sequence_id)
        if not good:
            playing.abandon()
        if not playing.done:
            self._next.append(playing)
        elif not self._cutting:
            self._next.append(None)

    def cut(self) -> int:
        """From now on only the last requests of open sequences are given.  Gives the number of those that wait."""
        self._next = deque(each for each in self._next if each is not None)
        self._cutting = True
        return self.idle

    @property
    def idle(self) -> int:
        """Sequences that wait for their next request."""
        return len(self._next)

    def resume(self) -> None:
        """Sequences go on, and others begin in the place of those that were cut."""
        self._cutting = False
        self._next.extend([None] * (self._count - len(self._next) - len(self._under_way)))
