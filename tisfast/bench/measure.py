"""One level of load, from its first connection to its figures.  It always ends.  Layer 5 (bench)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tisfast import limits, tuning
from tisfast.bench.client_side import clocks
from tisfast.bench.collected import COMPARED, Collected, Part, Piece, Pieces
from tisfast.bench.histogram import Histogram
from tisfast.bench.loop import Loop
from tisfast.bench.results import Level, Measurement, Settings
from tisfast.bench.schedules import Pacing, Periodic
from tisfast.bench.server_metrics import ServerMetrics
from tisfast.bench.server_side import Counters, ServerSide, split
from tisfast.bench.statistics import warm_up_end
from tisfast.bench.stopping import BATCHES_MIN, Rule, Stopping, Verdict, why_unstable
from tisfast.client import ConnectFailed
from tisfast.errors import Unavailable

SECOND_NS: Final = 1_000_000_000
SLICE_NS: Final = int(tuning.BENCH_SLICE_SECONDS * SECOND_NS)
LOOK_NS: Final = 5 * SECOND_NS
"""The server's statistics are waited for so long; without them there is no server's split."""
STAMPS_EACH: Final = 4
"""Responses of streams that are kept for --profile-export-file, for each request that is."""
LOOKED_NS: Final = 500_000
"""So often it is looked whether they have come."""
SILENT_NS: Final = 60 * SECOND_NS
"""What waits for answers ends when none has come for so long, although requests were under way."""
WARM_UP_SHARE: Final = 0.25
"""Of the time that a level may take: the warm-up before an interval is wanted ends then in any case."""


@dataclass
class Stop:
    """Somebody wants the end: what was measured until then is the result."""

    requested: bool = False


class Progress(NamedTuple):
    """For whoever looks on.

    trial: the number of the window; answers, seconds, latency: of the last slice; left_seconds: until the level ends
    at the latest; None: nobody knows.  Nothing of it changes any more.
    """

    trial: int
    answers: int
    in_flight: int
    errors: int
    level: Level
    seconds: float
    latency: Histogram
    left_seconds: float | None = None


@dataclass(frozen=True)
class Job:
    """How one level is measured.

    pacing: makes the intended times of an open loop; periodic: how requests join; connections: to open at the start;
    records: to keep.
    """

    level: Level
    settings: Settings
    connections: int
    pacing: Callable[[], Pacing] | None = None
    periodic: Periodic | None = None
    records: int = 0
    metrics: ServerMetrics | None = None
    progress: Callable[[Progress], None] = lambda _: None


class LevelRun:
    """Measures one level with a loop of its own.  server: None where its statistics are not wanted."""

    def __init__(self, loop: Loop, job: Job, server: ServerSide | None, stop: Stop) -> None:
        self._loop, self._job, self._server, self._stop = loop, job, server, stop
        self._settings = settings = job.settings
        self._confidence = settings.stop == "confidence" and not settings.request_count
        self._seen = Collected(self._confidence, time.monotonic_ns(), loop.mixture)
        self._pieces = Pieces()
        self._grown = Histogram()  # of all slices since the warm-up
        self._stable, self._reason, self._interrupted, self._gone = False, "", False, False
        seconds = settings.window_ms / 1000
        quantile = settings.percentile / 100 if settings.percentile > 0 else None
        self._rule = Rule(quantile, settings.stability_percent, seconds, seconds * settings.trials)
        self._stopping = Stopping(self._rule)
        self._verdict: Verdict | None = None
        self._measured_from = 0  # 0: the warm-up is not over
        self._base = 0  # the start of an open loop's times
        self._fed_seconds = 0.0
        self._pacing: Pacing | None = None
        self._counters: Counters | None = None
        self._clocks = clocks()
        self._slice_began = 0
        self._slice_end = 0
        self._failed_all = 0  # requests of the last window, where none ended well

    def measure(self) -> Measurement:
        """All of it.  Raises ConnectFailed when the server is gone before the first window; behind it that is told."""
        loop = self._loop
        began = time.monotonic_ns()
        loop.open_connections(self._job.connections)
        if not loop.ready(began + int(limits.BENCH_CONNECT_SECONDS_MAX * SECOND_NS)):
            raise ConnectFailed(loop.lost_text or f"no connection within {limits.BENCH_CONNECT_SECONDS_MAX:g} s")
        if self._job.records:
            self._keep_records()
        try:
            self._warm_up()
        except Unavailable as gone:
            raise ConnectFailed(f"in the warm-up: {gone.message}") from None
        try:
            self._windows()
        except Unavailable as gone:
            self._close_window(ask=False)
            self._seen.gone()
            self._gone, self._reason = True, gone.message
        self._drain()
        return self._result()

    def _keep_records(self) -> None:
        most = self._records_max()
        self._loop.keep_records(most, STAMPS_EACH * most if self._settings.streaming else 0)

    def _records_max(self) -> int:
        """Of one window, so that those of the result are no more than the job's."""
        settings = self._settings
        if settings.request_count:
            return self._job.records
        if self._confidence:
            kept = sum(len(each) for part in self._seen.windows for each in part.records)
            return max(self._job.records - kept, 1)
        return self._job.records // COMPARED

    def _warm_up(self) -> None:
        """What is sent here is in no figure."""
        loop, settings = self._loop, self._settings
        began = time.monotonic_ns()
        counters = self._look(sending=False)
        if settings.warm_up_count:
            loop.allow(settings.warm_up_count)
            self._start()
            self._turns_until_done()
            loop.allow(-1)
            counters = self._look(sending=False)
        elif self._confidence:
            self._start()
            self._until_steady()
            counters = self._look(sending=True)
        loop.swap()
        loop.swap_slice()
        self._take_errors()
        if settings.warm_up_count or self._confidence:
            self._seen.warmed_up(began)
        if self._job.records:
            loop.swap_records()
        if settings.request_count:
            loop.allow(settings.request_count)
        self._counters = counters

    def _until_steady(self) -> None:
        """The load runs until its latencies no longer change (MSER-5 over slices), or for a share of the time."""
        limit = time.monotonic_ns() + int(self._rule.seconds_max * WARM_UP_SHARE * SECOND_NS)
        looked = 0
        while time.monotonic_ns() < limit and not self._stop.requested and self._turn(limit):
            if len(self._pieces.whole) == looked:
                continue
            looked = len(self._pieces.whole)
            means = np.array([each.mean for each in self._pieces.latencies() if each.count])
            if len(means) >= BATCHES_MIN and warm_up_end(means) is not None:
                return

    # ---- the load

    def _start(self) -> None:
        self._base = time.monotonic_ns()
        self._slice_began, self._slice_end = self._base, self._base + SLICE_NS
        joining = self._job.periodic
        if joining is not None:
            self._loop.keep_joining(joining.start, joining.end, joining.step, joining.period)
        elif self._job.pacing is None:
            self._loop.keep_in_flight(int(self._job.level.value))
        else:
            self._loop.keep_in_flight(0)  # what was due in the warm-up is not any more
            self._pacing, self._fed_seconds = self._job.pacing(), 0.0
            self._feed()

    def _look(self, *, sending: bool) -> Counters | None:
        """What the server has counted.  The load goes on meanwhile, but where nothing is sent any more."""
        if self._server is None:
            return None
        asked = self._server.look()
        deadline = time.monotonic_ns() + LOOK_NS
        if not sending:
            wait([asked], LOOK_NS / SECOND_NS)
        while not asked.done() and (now := time.monotonic_ns()) < deadline:
            self._turn(now + LOOKED_NS)
        found = asked.result() if asked.done() else None
        if found is None:
            why = self._server.failure if asked.done() else f"they did not come within {LOOK_NS / SECOND_NS:g} s"
            self._seen.notes.append(f"the server's statistics are not shown: {why}")
            self._server = None  # a further wait would lengthen each window of this level
        return found

    def _feed(self) -> None:
        pacing, loop = self._pacing, self._loop
        if pacing is None:
            return
        known = self._fed_seconds
        passed = (time.monotonic_ns() - self._base) / SECOND_NS
        if known - passed < tuning.BENCH_SCHEDULE_SECONDS / 2:
            seconds = passed - known + tuning.BENCH_SCHEDULE_SECONDS
            loop.follow(pacing.take(seconds) + self._base)
            self._fed_seconds = known + seconds

    def _turn(self, until: int) -> bool:
        """One slice at most.  False: all that may be sent has been answered."""
        going = self._loop.run(min(until, self._slice_end))
        now = time.monotonic_ns()
        if now >= self._slice_end:
            self._end_slice(now)
        self._feed()
        return going

    def _end_slice(self, now: int) -> None:
        answers, latency = self._loop.swap_slice()
        self._pieces.add(Piece(self._slice_began, now, answers, latency))
        self._take_errors()
        self._slice_began, self._slice_end = now, now + SLICE_NS
        seen = self._seen
        self._job.progress(
            Progress(
                seen.closed + 1,
                answers,
                self._loop.in_flight,
                seen.errors.total(),
                self._job.level,
                SLICE_NS / SECOND_NS,
                latency,
                self._left(now),
            )
        )
        if self._confidence and self._measured_from and self._verdict is None:
            self._grown.merge(latency)
            seconds = (now - self._measured_from) / SECOND_NS
            self._verdict = self._stopping.look(seconds, self._grown, self._pieces.latencies())

    def _left(self, now: int) -> float | None:
        """Seconds until the level ends at the latest."""
        settings = self._settings
        passed = (now - self._measured_from) / SECOND_NS if self._measured_from else 0.0
        if settings.request_count:
            answered = self._answered()
            return passed * max(settings.request_count / answered - 1, 0) if answered and passed else None
        return max(self._rule.seconds_max - passed, 0.0) if settings.measurement_mode == "time_windows" else None

    def _take_errors(self) -> None:
        self._seen.take_errors(*self._loop.swap_errors())

    def _turns_until_done(self) -> None:
        """Until what may be sent has been answered, or nobody answers any more."""
        heard, last = self._answered(), time.monotonic_ns()
        while self._turn(time.monotonic_ns() + SLICE_NS) and not self._stop.requested:
            now = time.monotonic_ns()
            if self._answered() != heard or self._idle():
                heard, last = self._answered(), now
            elif now - last > SILENT_NS:
                raise Unavailable(f"no request was answered for {SILENT_NS // SECOND_NS} s")

    def _idle(self) -> bool:
        """Nothing is under way, as nothing is due yet."""
        return self._loop.in_flight == 0 and self._loop.opened > 0

    def _answered(self) -> int:
        return self._loop.tally.completed + self._loop.tally.failed

    # ---- windows

    def _windows_max(self) -> int:
        return 1 if self._settings.request_count else self._settings.trials

    def _windows(self) -> None:
        settings = self._settings
        self._clocks = clocks()
        self._pieces = Pieces()
        self._loop.swap()
        self._start()
        self._measured_from = self._base
        for _ in range(self._windows_max()):
            self._window()
            self._close_window()
            if self._judge():
                return
        if settings.request_count:
            self._stable = True
            self._reason = f"all {settings.request_count} requests were sent, and their answers were waited for"
        elif self._confidence:
            self._verdict = self._stopping.look(self._rule.seconds_max, self._grown, self._pieces.latencies())
            self._judge()
        else:
            self._reason = self._unstable_text()

    def _window(self) -> None:
        settings = self._settings
        if settings.request_count:
            self._turns_until_done()
            return
        end = time.monotonic_ns() + settings.window_ms * 1_000_000
        if settings.measurement_mode == "time_windows":
            while time.monotonic_ns() < end and not self._stop.requested and self._turn(end):
                if self._verdict is not None:
                    return
            return
        heard, last = self._answered(), time.monotonic_ns()
        while self._answered() < settings.measurement_request_count and not self._stop.requested:
            now = time.monotonic_ns()
            if not self._turn(now + SLICE_NS):
                return
            if self._answered() != heard or self._idle():
                heard, last = self._answered(), now
            elif now - last > SILENT_NS:
                return

    def _close_window(self, *, ask: bool = True) -> None:
        """The load goes on while the server says what it has counted; the window ends when that has come.

        With a number of requests nothing is under way any more: the window ends first.
        """
        counted = self._settings.request_count > 0
        ended = (self._loop.swap(), clocks()) if counted else None
        counters = self._look(sending=not counted) if ask else None
        tally, after = ended or (self._loop.swap(), clocks())
        before, self._clocks = self._clocks, after
        found = None
        if self._server is not None and counters is not None and self._counters is not None:
            found = split(self._counters, counters, self._server.models)
        self._counters = counters
        pieces: list[Piece] = []
        if not self._confidence:  # there slices go on over the ends of windows
            self._end_slice(time.monotonic_ns())
            pieces, self._pieces = self._pieces.all(), Pieces()
        part = Part.of(tally, before, after, found, pieces)
        if self._job.records:
            part.keep(*self._loop.swap_records())
        self._seen.add(part)
        self._failed_all = part.all.counts["failed"] if not part.completed else 0
        if self._job.records and self._confidence:
            self._keep_records()

    def _judge(self) -> bool:
        """Whether the level ends here; sets why."""
        settings, windows = self._settings, self._seen.windows
        if self._stop.requested:
            self._reason, self._interrupted = "it was interrupted; these are the figures until then", True
            return True
        server_may_return = self._loop.lost and self._seen.closed < self._windows_max()
        if self._failed_all and not server_may_return:
            self._reason = f"all {self._failed_all} requests of a window failed"
            return True
        if self._verdict is not None:
            self._stable, self._reason = self._verdict.stable, self._verdict.reason
            return True
        if settings.request_count or self._seen.closed < COMPARED:
            return False
        return self._over(windows[:1]) if self._confidence else self._agree(windows[-COMPARED:])

    def _agree(self, windows: list[Part]) -> bool:
        """perf_analyzer's rule, of the last windows."""
        settings = self._settings
        rates = [each.rate for each in windows]
        latencies = [each.latency(settings.percentile) for each in windows]
        allowed = 1 + settings.stability_percent / 100
        if min(rates) > 0 and max(rates) <= allowed * min(rates) and max(latencies) <= allowed * min(latencies):
            self._stable = True
            spread = f"{settings.stability_percent:g} %"
            self._reason = f"throughput and latency of the last {COMPARED} windows differ by {spread} at most"
            return True
        return self._over(windows)

    def _over(self, windows: list[Part]) -> bool:
        """All of them exceed the limit of -l: to measure on would tell no more of it."""
        limit = self._settings.latency_threshold_ms
        if not limit or min(each.latency(self._settings.percentile) for each in windows) <= limit * 1e6:
            return False
        self._reason = f"Measured latency went over the set limit of {limit} msec. "
        return True

    def _unstable_text(self) -> str:
        settings, level = self._settings, self._job.level
        load = f"concurrency {level.value:g}" if level.mode == "concurrency" else f"request rate {level.value:g}"
        timed = settings.measurement_mode == "time_windows"
        flag = "--measurement-interval" if timed else "--measurement-request-count"
        return (
            f"Failed to obtain stable measurement within {settings.trials} measurement windows for {load}. "
            f"Please try to increase the {flag}."
        )

    # ---- the end

    def _drain(self) -> None:
        """What is under way may still be answered.  Of an open loop that counts: it was due in the measured time."""
        loop, seen = self._loop, self._seen
        open_loop = self._job.pacing is not None
        if self._confidence:
            self._measured_from = 0  # nothing is judged any more
            self._end_slice(time.monotonic_ns())
        if open_loop:
            loop.end()
        else:
            loop.allow(0)
        loop.finish()
        deadline = time.monotonic_ns() + int(self._settings.drain_seconds * SECOND_NS)
        try:
            while (now := time.monotonic_ns()) < deadline and loop.run(min(deadline, now + SLICE_NS)):
                pass
        except Unavailable:
            pass
        self._take_errors()
        tally = loop.swap()
        if open_loop:
            seen.late = tally
            seen.late_records = loop.swap_records() if self._job.records else None
        if loop.scheduled:
            self._stable, seen.unsent = False, loop.scheduled
            why = "" if self._gone else ": the server takes less than this rate"
            seen.notes.append(
                f"{loop.scheduled} requests were due and had not left{why}; the true latencies from the intended time "
                "are above those that are shown"
            )
        unanswered = loop.in_flight
        if unanswered:
            text = f"no answer within {self._settings.drain_seconds:g} s behind the end of the level"
            seen.unanswered = unanswered
            seen.errors[("none", text)] += unanswered
            seen.first_error = seen.first_error or (text, time.monotonic_ns())

    def _result(self) -> Measurement:
        seen, metrics = self._seen, self._job.metrics
        if self._confidence:
            seen.windows[0].pieces = self._pieces.all()
        found = seen.result(self._job.level, stable=self._stable, reason=self._reason, interrupted=self._interrupted)
        if not found.reason and self._verdict is not None:
            latencies = [each.latency for each in found.windows]
            reason = why_unstable(
                self._rule, self._verdict, found.response, latencies, found.errors.measured, found.client.limited
            )
            found = replace(found, reason=reason)
        if metrics is not None:
            gpus, note = metrics.between(found.began_ns, found.ended_ns)
            found = replace(found, gpus=gpus, notes=(*found.notes, *([note] if note else [])))
        return found
