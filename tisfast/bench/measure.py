"""One level of load, from its first connection to its figures.  It always ends.  Layer 5 (bench)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast import limits, tuning
from tisfast.bench.client_side import Clocks, Counted, clocks, cost
from tisfast.bench.histogram import Histogram
from tisfast.bench.loop import Loop, Tally
from tisfast.bench.results import Errors, Level, Measurement, ServerSplit, Settings, Window
from tisfast.bench.schedules import Pacing, Periodic
from tisfast.bench.server_metrics import ServerMetrics
from tisfast.bench.server_side import Counters, ServerSide, split
from tisfast.client import ConnectFailed
from tisfast.errors import Unavailable

SECOND_NS: Final = 1_000_000_000
SLICE_NS: Final = int(tuning.BENCH_SLICE_SECONDS * SECOND_NS)
COMPARED: Final = 3
"""Windows that must agree, and that are the result, as perf_analyzer has it."""
LOOK_NS: Final = 5 * SECOND_NS
"""The server's statistics are waited for so long; without them there is no server's split."""
LOOKED_NS: Final = 500_000
"""So often it is looked whether they have come."""
SILENT_NS: Final = 60 * SECOND_NS
"""A window of a number of requests ends when no answer has come for so long."""


@dataclass
class Stop:
    """Somebody wants the end: what was measured until then is the result."""

    requested: bool = False


class Progress(NamedTuple):
    """For whoever looks on.  answers: of the last slice; trial: the number of the window."""

    trial: int
    answers: int
    in_flight: int
    errors: int


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


@dataclass
class _Stretch:
    """One window."""

    tally: Tally
    before: Clocks
    after: Clocks
    server: ServerSplit | None


@dataclass
class _Seen:
    """All of a level."""

    stretches: list[_Stretch] = field(default_factory=list)
    slices: list[Window] = field(default_factory=list)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_error: tuple[str, int] | None = None
    stable: bool = False
    reason: str = ""
    interrupted: bool = False
    late: Tally | None = None  # of an open loop: what was answered behind the last window


class LevelRun:
    """Measures one level with a loop of its own.  server: None where its statistics are not wanted."""

    def __init__(self, loop: Loop, job: Job, server: ServerSide | None, stop: Stop) -> None:
        self._loop, self._job, self._server, self._stop = loop, job, server, stop
        self._settings = job.settings
        self._seen = _Seen()
        self._base = 0  # the start of an open loop's times
        self._fed_seconds = 0.0
        self._pacing: Pacing | None = None
        self._counters: Counters | None = None
        self._clocks = clocks()
        self._slice_began = 0
        self._slice_end = 0

    def measure(self) -> Measurement:
        """All of it.  Raises ConnectFailed when no connection can be made; what comes later is in the result."""
        loop, settings = self._loop, self._settings
        began = time.monotonic_ns()
        loop.open_connections(self._job.connections)
        if not loop.ready(began + int(limits.BENCH_CONNECT_SECONDS_MAX * SECOND_NS)):
            raise ConnectFailed(loop.lost_text or f"no connection within {limits.BENCH_CONNECT_SECONDS_MAX:g} s")
        counters = self._look_now()
        if self._job.records:
            loop.keep_records(self._job.records)
        try:
            if settings.warm_up_count:
                loop.allow(settings.warm_up_count)
                self._start()
                self._turns_until_done()
                loop.allow(-1)
                counters = self._look_now()
            if settings.request_count:
                loop.allow(settings.request_count)
            loop.swap()
            loop.swap_slice()
            loop.swap_errors()
            self._seen.errors.clear()  # those of the warm-up
            self._seen.first_error = None
            self._windows(counters)
        except Unavailable as gone:
            self._close_window(None)
            self._seen.reason = gone.message
        self._drain()
        return self._result(began)

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

    def _look_now(self) -> Counters | None:
        """What the server has counted, while nothing is under way."""
        if self._server is None:
            return None
        try:
            return self._server.look().result(LOOK_NS / SECOND_NS)
        except FutureTimeoutError:
            return None

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
        seen = self._seen
        if len(seen.slices) < limits.BENCH_WINDOWS_MAX:
            seen.slices.append(Window(self._slice_began, now, answers, latency))
        self._take_errors()
        self._slice_began, self._slice_end = now, now + SLICE_NS
        trial = len(seen.stretches) + 1
        self._job.progress(Progress(trial, answers, self._loop.in_flight, seen.errors.total()))

    def _take_errors(self) -> None:
        counts, first = self._loop.swap_errors()
        self._seen.errors.update(counts)
        self._seen.first_error = self._seen.first_error or first

    def _turns_until_done(self) -> None:
        """Until what may be sent has been answered, or nobody answers any more."""
        heard, last = self._answered(), time.monotonic_ns()
        while self._turn(time.monotonic_ns() + SLICE_NS) and not self._stop.requested:
            now = time.monotonic_ns()
            if self._answered() != heard:
                heard, last = self._answered(), now
            elif now - last > SILENT_NS:
                raise Unavailable(f"no request was answered for {SILENT_NS // SECOND_NS} s")

    def _answered(self) -> int:
        return self._loop.tally.completed + self._loop.tally.failed

    # ---- windows

    def _windows(self, counters: Counters | None) -> None:
        settings, seen = self._settings, self._seen
        self._counters = counters
        self._clocks = clocks()
        self._loop.swap()
        self._start()
        trials = 1 if settings.request_count else settings.trials
        for _ in range(trials):
            self._window()
            self._close_window(self._server)
            if self._judge():
                return
        if settings.request_count:
            seen.stable = True
            seen.reason = f"all {settings.request_count} requests were sent, and their answers were waited for"
        else:
            seen.reason = self._unstable_text()

    def _window(self) -> None:
        settings, loop = self._settings, self._loop
        if settings.request_count:
            self._turns_until_done()
            return
        end = time.monotonic_ns() + settings.window_ms * 1_000_000
        if settings.measurement_mode == "time_windows":
            while time.monotonic_ns() < end and not self._stop.requested and self._turn(end):
                pass
            return
        heard, last = loop.tally.completed, time.monotonic_ns()
        while loop.tally.completed < settings.measurement_request_count and not self._stop.requested:
            now = time.monotonic_ns()
            if not self._turn(now + SLICE_NS):
                return
            if loop.tally.completed != heard:
                heard, last = loop.tally.completed, now
            elif now - last > SILENT_NS:
                return

    def _close_window(self, server: ServerSide | None) -> None:
        """The load goes on while the server says what it has counted; the window ends when that has come.

        With a number of requests nothing is under way any more: the window ends first.
        """
        counters: Counters | None = None
        ended = (self._loop.swap(), clocks()) if self._settings.request_count else None
        if server is not None:
            asked = server.look()
            deadline = time.monotonic_ns() + LOOK_NS
            if ended is not None:
                wait([asked], LOOK_NS / SECOND_NS)
            while not asked.done() and (now := time.monotonic_ns()) < deadline:
                self._turn(now + LOOKED_NS)
            counters = asked.result() if asked.done() else None
        tally, after = ended or (self._loop.swap(), clocks())
        before, self._clocks = self._clocks, after
        found = None
        if server is not None and counters is not None and self._counters is not None:
            found = split(self._counters, counters, server.models)
        self._counters = counters
        self._seen.stretches.append(_Stretch(tally, before, after, found))
        self._end_slice(time.monotonic_ns())

    def _judge(self) -> bool:
        """Whether the level ends here; sets why."""
        seen, settings = self._seen, self._settings
        last = seen.stretches[-1].tally
        if self._stop.requested:
            seen.reason, seen.interrupted = "it was interrupted; these are the figures until then", True
            return True
        if last.completed == 0 and last.failed:
            seen.reason = f"all {last.failed} requests of a window failed"
            return True
        if settings.request_count or len(seen.stretches) < COMPARED:
            return False
        tallies = [each.tally for each in seen.stretches[-COMPARED:]]
        rates = [each.completed / (each.ended_ns - each.began_ns) for each in tallies]
        latencies = [_latency(each.response, settings.percentile) for each in tallies]
        allowed = 1 + settings.stability_percent / 100
        if min(rates) > 0 and max(rates) <= allowed * min(rates) and max(latencies) <= allowed * min(latencies):
            seen.stable = True
            spread = f"{settings.stability_percent:g} %"
            seen.reason = f"throughput and latency of the last {COMPARED} windows differ by {spread} at most"
            return True
        if settings.latency_threshold_ms and min(latencies) > settings.latency_threshold_ms * 1e6:
            seen.reason = f"Measured latency went over the set limit of {settings.latency_threshold_ms} msec. "
            return True
        return False

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
        if open_loop:
            loop.end()
        else:
            loop.allow(0)
        loop.finish()
        deadline = time.monotonic_ns() + int(limits.BENCH_DRAIN_SECONDS_MAX * SECOND_NS)
        try:
            while (now := time.monotonic_ns()) < deadline and loop.run(min(deadline, now + SLICE_NS)):
                pass
        except Unavailable:
            pass
        self._take_errors()
        tally = loop.swap()
        if open_loop:
            seen.late = tally
        if loop.scheduled:
            seen.stable = False
            seen.reason += (
                f"; {loop.scheduled} requests were due and had not left: the server takes less than this rate, and "
                "latencies from the intended time are lower bounds"
            )
        unanswered = loop.in_flight
        if unanswered:
            text = f"no answer within {limits.BENCH_DRAIN_SECONDS_MAX:g} s behind the end of the level"
            seen.errors[("none", text)] += unanswered
            seen.first_error = seen.first_error or (text, time.monotonic_ns())

    def _result(self, began: int) -> Measurement:
        seen, job = self._seen, self._job
        used = _last_windows(seen.stretches)
        tallies = [each.tally for each in used]
        counted = [*tallies, seen.late] if seen.late is not None else tallies
        first, last = used[0].tally.began_ns, used[-1].tally.ended_ns
        lateness = _merged([each.lateness for each in counted])
        delayed = sum(each.delayed for each in tallies)
        first_error = None
        if seen.first_error is not None:
            first_error = seen.first_error[0], max(seen.first_error[1] - began, 0) / 1e9
        errors = Errors(count=seen.errors.total(), by_text=dict(seen.errors), first=first_error)
        return Measurement(
            level=job.level,
            began_ns=first,
            ended_ns=last,
            began_realtime_ns=time.time_ns() - (time.monotonic_ns() - first),
            requests=sum(each.requests for each in tallies),
            completed=sum(each.completed for each in tallies),
            responses=sum(each.responses for each in tallies),
            sequences=sum(each.sequences for each in tallies),
            delayed=delayed,
            errors=errors,
            response=_merged([each.response for each in counted]),
            service=_merged([each.service for each in counted]),
            first_byte=_merged([each.first_byte for each in counted]),
            windows=tuple(each for each in seen.slices if first <= each.began_ns < last),
            sent_bytes=sum(each.sent_bytes for each in tallies),
            received_bytes=sum(each.received_bytes for each in tallies),
            server=added([each.server for each in used]),
            client=cost(
                used[0].before,
                used[-1].after,
                Counted(
                    idle_ns=sum(each.idle_ns for each in tallies),
                    send_ns=sum(each.send_ns for each in tallies),
                    receive_ns=sum(each.receive_ns for each in tallies),
                    delayed=delayed,
                    lateness=lateness,
                ),
            ),
            stable=seen.stable,
            reason=seen.reason,
            warm_up_ns=first - began,
            interrupted=seen.interrupted,
            gpus=job.metrics.between(first, last) if job.metrics is not None else {},
            records=self._records(first) if job.records else None,
        )

    def _records(self, first: int) -> np.ndarray[Any, np.dtype[np.void]]:
        found = self._loop.swap_records()
        return found[found["last"] >= first]


def _last_windows(stretches: list[_Stretch]) -> list[_Stretch]:
    """Those that are the result: the last ones, but not those behind the server's death."""
    answered = [number for number, each in enumerate(stretches) if each.tally.completed]
    end = answered[-1] + 1 if answered else len(stretches)
    return stretches[max(end - COMPARED, 0) : end]


def _latency(histogram: Histogram, percentile: int) -> float:
    """What is compared: the average, or a percentile; ns."""
    if percentile > 0:
        return float(histogram.quantile(percentile / 100))
    return histogram.sum / histogram.count if histogram.count else 0.0


def _merged(histograms: list[Histogram]) -> Histogram:
    found = Histogram()
    for each in histograms:
        found.merge(each)
    return found


def added(splits: list[ServerSplit | None]) -> ServerSplit | None:
    """Of windows that follow each other; None where one of them has none."""
    known = [each for each in splits if each is not None]
    if not known or len(known) < len(splits):
        return None
    numbers = {
        name: sum(getattr(each, name) for each in known)
        for name in ServerSplit.__dataclass_fields__
        if name.endswith(("_count", "_ns"))
    }
    sizes: Counter[int] = Counter()
    for each in known:
        sizes.update(each.batch_sizes)
    parts = {}
    for key in known[-1].composing:
        found = added([each.composing.get(key) for each in known])
        if found is not None:
            parts[key] = found
    return ServerSplit(known[-1].model, known[-1].version, **numbers, batch_sizes=dict(sizes), composing=parts)
