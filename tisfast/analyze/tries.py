"""Loads a variant and measures it, level by level; a failure is a row.  Layer 5 (analyze)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tisfast.analyze.aims import Aims
from tisfast.analyze.checkpoint import Checkpoint
from tisfast.analyze.ending import Doing, Ending, Interrupted
from tisfast.analyze.ranking import best_level, fallen
from tisfast.analyze.servers import Connect, Server
from tisfast.analyze.space import Load
from tisfast.analyze.subject import Subject
from tisfast.analyze.trials import Trial, joined, trial_of
from tisfast.analyze.variants import DEFAULT, DELAY, INSTANCES, MAX_BATCH, Variant, canonical, in_force
from tisfast.bench.asked import Asked
from tisfast.bench.parts import mixed_session
from tisfast.bench.prepared import prepared
from tisfast.bench.results import Run
from tisfast.bench.session import PROBE_SECONDS, NoFirstAnswer, Session, look_up
from tisfast.client import Client
from tisfast.client.address import Address
from tisfast.errors import BadRequest, TisError

GAINED: Final = 1.05
"""A level that has less than this times the throughput of those before has gained nothing."""
FLAT_LEVELS: Final = 2
"""So many of them, and levels that the user has not chosen end."""
ASK_SECONDS: Final = 30.0
BISECTIONS: Final = 3
"""Levels between one that keeps a bound of latency and one that breaks it: powers of two are coarse."""
FIRST_SECONDS_MIN: Final = 20.0
"""The first request of a variant has at least."""
LATE: Final = "--first-request SECONDS waits longer"
"""Within the failure of a row whose first request was late."""
FIRST_TIMES: Final = 10
"""So many times as long as the slowest first request that was answered may another one take."""


@dataclass
class Bench:
    """The bench core on one server.

    asked: what is sent, without a load; on_trial: told of each new row; first_seconds: that the first request of a
    variant may take, 0: it follows `first_seen`, the most that one took which was answered.
    """

    server: Server
    connect: Connect
    asked: Asked
    subject: Subject
    checkpoint: Checkpoint
    on_trial: Callable[[Trial], None] = lambda _: None
    ending: Ending = field(default_factory=Ending)
    loaded: Mapping[str, str] | None = None  # the configurations that the server has, by model; None: not known
    first_seconds: float = 0.0
    first_seen: float = 0.0

    def trial(self, variant: Variant, mode: str, level: float) -> Trial:
        """As the search has measured it, now or before.  Raises Interrupted; TisError when no server is there."""
        wanted = Trial(variant, mode, level)
        found = self.checkpoint.trials.get(wanted.key)
        return found.first if found is not None else self._kept(self._now(wanted))

    def again(self, trial: Trial, turn: int) -> None:
        """Measure a row once more, into its figures."""
        new = self._now(Trial(trial.variant, trial.mode, trial.level))
        row = joined(trial, new, turn)
        self.checkpoint.add(row)
        self.on_trial(row if new.failure else new)
        self.checkpoint.save()

    def _kept(self, found: Trial) -> Trial:
        self.checkpoint.add(found)
        self.on_trial(found)
        return found

    def _now(self, wanted: Trial) -> Trial:
        if self.ending.stop.requested:
            raise Interrupted
        with Doing(f"{wanted.variant.text}, {wanted.load}") as doing:
            try:
                doing("it is loaded")
                self._have(wanted.variant)
                found = self._measured(wanted, doing)
            except TisError as error:
                found = replace(wanted, failure=" ".join(error.message.split()))  # one line of a table
                self.loaded = None
        if found.failure and (ended := self.ending.wait_for(self.server.mend, self.server.abandon)):
            found = replace(found, failure=f"{ended}: {found.failure}")
            self.loaded = None
        return found

    def _have(self, variant: Variant) -> None:
        wanted = self.subject.configured(variant)
        before, self.loaded = self.loaded, None
        for name in self.subject.configs:
            if name not in wanted and (before is None or name in before):
                self.ending.wait_for(partial(self.server.unload, name), self.server.abandon)
        for name, config in wanted.items():
            if before is None or before.get(name) != canonical(config):
                self.ending.wait_for(partial(self.server.load, name, config), self.server.abandon)
        self.loaded = {name: canonical(config) for name, config in wanted.items()}

    def _measured(self, wanted: Trial, doing: Doing) -> Trial:
        run = self.run(wanted.variant, wanted.mode, wanted.level, doing)
        if self.ending.stop.requested:
            raise Interrupted
        return trial_of(wanted.variant, run.levels[0], self.asked.batch_size, self.server.memory())

    def run(self, variant: Variant, mode: str, level: float, doing: Callable[[str], None] = lambda _: None) -> Run:
        """One level of a variant that is loaded.  Raises TisError."""
        asked = asked_of(self.asked, self.server.address(), self.subject.served(variant))
        settings = replace(
            asked.settings,
            concurrency_end=int(level) if mode == "concurrency" else 1,
            rate_end=level if mode == "request_rate" else 0.0,
        )
        asked = replace(asked, mode=mode, levels=(level, level, 1.0), settings=settings)
        with self.connect(str(asked.address), ASK_SECONDS) as client, session_of(client, asked) as session:
            session.stop = self.ending.stop
            doing("its first request is waited for")
            self._probe(session)
            doing("it is measured")
            return session.run()

    def _probe(self, session: Session) -> None:
        session.probe_seconds = self.first_seconds or min(
            PROBE_SECONDS, max(FIRST_SECONDS_MIN, FIRST_TIMES * self.first_seen)
        )
        try:
            session.probe()
        except NoFirstAnswer as error:
            raise BadRequest(f"{error.message}; {LATE}") from None
        if self.ending.stop.requested:
            raise Interrupted
        self.first_seen = max(self.first_seen, session.probed_seconds)


def asked_of(asked: Asked, address: Address, models: Sequence[str]) -> Asked:
    """What is asked of a server for the models that it serves."""
    return replace(asked, address=address, model=asked.model if asked.mix else models[0])


@contextmanager
def session_of(client: Client, asked: Asked) -> Iterator[Session]:
    """With the requests of one model, or of several together.  Raises TisError."""
    if asked.mix:
        yield mixed_session(asked, client, "several models together")  # of -m A,B or --mix
        return
    with prepared(client, asked, look_up(client, asked)) as session:
        yield session


@dataclass
class Tries:
    """Measures variants, each at the levels that a search wants of it."""

    bench: Bench
    load: Load
    aims: Aims
    every_level: bool  # a search that leaves out levels is quicker

    def __post_init__(self) -> None:
        """The names under which equal configurations were met first."""
        self._met = {canonical(self.bench.subject.configured(DEFAULT)): DEFAULT}

    def same(self, variant: Variant) -> Variant:
        """The first one with the same configuration: it is measured once."""
        return self._met.setdefault(canonical(self.bench.subject.configured(variant)), variant)

    def rows(self, variant: Variant) -> list[Trial]:
        """Measure a variant.  Raises Interrupted; TisError when nothing can be measured any more."""
        variant = self.same(variant)
        try:
            return self._sweep(variant) if self.every_level else self._step_down(variant)
        finally:
            self.bench.checkpoint.save()

    def sweep(self, variant: Variant) -> None:
        """All levels of a variant that was measured at few."""
        try:
            self._sweep(self.same(variant))
        finally:
            self.bench.checkpoint.save()

    def refine(self, variant: Variant) -> None:
        """Levels between the last one that keeps all bounds of latency and the first one behind it that breaks them."""
        variant, load = self.same(variant), self.load
        for _ in range(0 if load.chosen else BISECTIONS):
            rows = [each for each in self.bench.checkpoint.trials.values() if each.variant == variant]
            rows = [each for each in rows if load.has(each.mode, each.level) and not each.failure]
            slow = {each.level for each in rows if self.aims.too_slow(each.first) or fallen(each, self.aims)}
            last = max((each.level for each in rows if each.level not in slow), default=0.0)
            first = min((level for level in slow if level > last), default=0.0)
            middle = (last + first) / 2 if load.mode == "request_rate" else float((last + first) // 2)
            if not 0 < last < middle < first:
                break
            self._trial(variant, middle)
        self.bench.checkpoint.save()

    def score(self, variant: Variant, base: Trial | None) -> float:
        """How good its best level is, against a row; one that breaks a bound is below all that do not."""
        best = best_level(self.rows(variant), self.aims, base)
        if best is None:
            return -math.inf
        excess = self.aims.excess(best)
        return -1000.0 * (1 + excess) if excess else self.aims.gain(best, base)

    def _trial(self, variant: Variant, level: float) -> Trial:
        return self.bench.trial(variant, self.load.mode, level)

    def _sweep(self, variant: Variant) -> list[Trial]:
        rows: list[Trial] = []
        flat, waits = 0, self._waits(variant)
        for level in self.load.levels:
            row = self._trial(variant, level)
            rows.append(row)
            if (row.failure and not row.starved) or (not waits and len(rows) > 1 and self.aims.slower(row, rows[-2])):
                break
            before = max((each.throughput for each in rows[:-1]), default=0.0)
            flat = 0 if row.throughput > GAINED * before else flat + 1
            if flat >= FLAT_LEVELS and not self.load.chosen:
                break
        return rows

    def _step_down(self, variant: Variant) -> list[Trial]:
        """From the level that keeps all instances busy to lower ones, until a bound of latency is kept."""
        levels = self.load.levels
        at = self._busy_level(variant) if self.load.mode == "concurrency" else len(levels) - 1
        rows: list[Trial] = []
        for level in reversed(levels[: at + 1]):
            row = self._trial(variant, level)
            rows.append(row)
            if row.failure and self.load.mode == "concurrency":
                return rows  # it does not load, or fails: less load would but try that again; a rate may be too high
            if not row.failure and not self.aims.too_slow(row):
                return rows
        if self._waits(variant):
            rows += self._step_up(variant, levels[at + 1 :])
        return rows

    def _step_up(self, variant: Variant, levels: Sequence[float]) -> list[Trial]:
        """To higher levels, where batches may fill before their delay is over, until a bound of latency is kept."""
        rows: list[Trial] = []
        for level in levels:
            rows.append(self._trial(variant, level))
            if rows[-1].failure or not self.aims.too_slow(rows[-1]):
                break
        return rows

    def _waits(self, variant: Variant) -> bool:
        """Few requests may wait for more to come, so latency may fall when there is more load."""
        return any(in_force(DELAY, each) for each in self.bench.subject.configured(variant).values())

    def _busy_level(self, variant: Variant) -> int:
        """The number of the first level with two full batches for each instance, as Model Analyzer's."""
        samples = sum(
            2 * int(in_force(INSTANCES, config) or 1) * max(int(in_force(MAX_BATCH, config) or 1), 1)
            for config in self.bench.subject.configured(variant).values()
        )
        wanted = -(-samples // self.bench.asked.batch_size)
        levels: Sequence[float] = self.load.levels
        return next((at for at, level in enumerate(levels) if level >= wanted), len(levels) - 1)
