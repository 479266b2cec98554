"""One level: its windows, why it ends, and what its figures hold."""

from __future__ import annotations

import itertools
import re
import socket
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from tests.bench.stub_server import StubServer
from tisfast.bench.client_side import Counted, limited
from tisfast.bench.collected import Piece, Pieces
from tisfast.bench.histogram import Histogram
from tisfast.bench.http_load import HttpLoad
from tisfast.bench.loop import Loop
from tisfast.bench.measure import Job, LevelRun, Stop
from tisfast.bench.results import Level, Settings
from tisfast.bench.server_side import Models, ServerSide
from tisfast.bench.templates import Form, Step, http_templates
from tisfast.client import Client, ConnectFailed
from tisfast.client.address import parse_url
from tisfast.wire.buffer_tensor import BufferTensor

SHORT = Settings(window_ms=100, stability_percent=1e6, trials=100)  # a busy machine may leave windows empty
ONE = Level("concurrency", 1)


class Rate:
    """A request each 1/rate seconds."""

    def __init__(self, rate: float) -> None:
        self._rate, self._seconds, self._known = rate, 0.0, 0

    def take(self, seconds: float, /):
        self._seconds += seconds
        end = int(self._seconds * self._rate)
        times = (np.arange(self._known, end) / self._rate * 1e9).astype(np.int64)
        self._known = end
        return times


def mortal(last: int) -> StubServer:
    """A server that dies in the request of this number."""

    def answering(number: int) -> str:
        if number == last:
            threading.Thread(target=server.end).start()
        return ""

    server = StubServer(answering)
    server.start()
    return server


@pytest.fixture
def measure():
    """Measure a stub: measure(port, job)."""
    loops = []

    def measured(port: int, job: Job, stop: Stop | None = None, connections_max: int = 64, server=None):
        form = Form(parse_url(f"127.0.0.1:{port}"), "stub")
        templates = http_templates(form, [Step([BufferTensor("A", "FP32", (1, 4), np.zeros(4, np.float32))])])
        address = ("127.0.0.1", port)
        loops.append(Loop(address, socket.AF_INET, HttpLoad, templates, slots=64, connections_max=connections_max))
        return LevelRun(loops[-1], job, server, stop or Stop()).measure()

    yield measured
    for loop in loops:
        loop.close()


def test_three_windows_that_agree_are_the_result(measure):
    with StubServer() as server:
        found = measure(server.port, Job(ONE, SHORT, 1))
    assert found.stable
    assert found.reason == "throughput and latency of the last 3 windows differ by 1e+06 % at most"
    assert 0.3 <= found.seconds < 30
    assert found.completed == found.response.count > 0
    assert found.throughput == pytest.approx(found.completed / found.seconds)
    assert 0 < found.client.cpu_ns <= found.client.wall_ns
    assert sum(each.responses for each in found.windows) <= server.count


def test_the_servers_statistics_are_not_in_the_time_of_counted_requests(measure):
    """The window has ended before the server is asked for what it counted."""
    looks = []

    class Asked:
        models = Models("stub", "")
        failure = "it says nothing"

        def look(self):
            looks.append(time.monotonic_ns())
            answered = Future()
            answered.set_result({})
            return answered

    with StubServer() as server:
        found = measure(server.port, Job(ONE, Settings(request_count=5), 1), server=Asked())
    assert found.completed == 5
    assert found.ended_ns <= looks[-1]


def test_errors_of_the_warm_up_are_not_those_of_the_level(measure):
    """The warm-up lasts for several slices, so some of its errors have been taken before it ends."""
    slow = threading.Event()

    def answering(number: int) -> str:
        slow.wait(0.03)
        return "no luck" if number <= 8 else ""

    with StubServer(answering) as server:
        found = measure(server.port, Job(ONE, Settings(request_count=5, warm_up_count=10), 1))
    assert found.errors.count == 0


def test_windows_that_do_not_agree_are_told_with_their_figures(measure):
    with StubServer() as server:
        found = measure(server.port, Job(ONE, Settings(window_ms=100, stability_percent=0, trials=3), 1))
    assert not found.stable
    assert found.reason == (
        "Failed to obtain stable measurement within 3 measurement windows for concurrency 1. "
        "Please try to increase the --measurement-interval."
    )
    assert found.completed > 0


def test_a_number_of_requests_is_sent_and_no_more(measure):
    with StubServer() as server:
        found = measure(server.port, Job(Level("concurrency", 2), Settings(request_count=40, warm_up_count=10), 2))
    assert (server.count, found.completed, found.requests) == (50, 40, 40)
    assert found.stable
    assert found.reason == "all 40 requests were sent, and their answers were waited for"


def test_windows_of_a_number_of_requests(measure):
    settings = Settings(measurement_mode="count_windows", measurement_request_count=7, stability_percent=1e6)
    with StubServer() as server:
        found = measure(server.port, Job(ONE, settings, 1))
    assert found.completed >= 21


def test_an_interruption_ends_it_with_the_figures_until_then(measure):
    stop, reached = Stop(), threading.Event()

    def answering(number: int) -> str:
        if number == 20:
            stop.requested = True
            reached.set()
        return ""

    with StubServer(answering) as server:
        found = measure(server.port, Job(ONE, Settings(window_ms=3_600_000), 1), stop)
    assert reached.is_set()
    assert found.reason == "it was interrupted; these are the figures until then"
    assert found.completed >= 19


def test_a_window_in_which_all_failed_ends_it_with_the_servers_words(measure):
    with StubServer(lambda _: "out of order") as server:
        found = measure(server.port, Job(ONE, SHORT, 1))
    assert found.reason.startswith("all ")
    assert found.reason.endswith(" requests of a window failed")
    assert found.errors.by_text.keys() == {("500", "out of order")}
    assert found.errors.first is not None
    assert found.errors.first[0] == "out of order"


def test_a_server_that_dies_leaves_the_figures_until_then(measure):
    server = mortal(30)
    found = measure(server.port, Job(ONE, Settings(window_ms=500, stability_percent=0, trials=1000), 1))
    assert "the server cannot be reached for 3 s" in found.reason
    assert found.completed >= 29
    assert found.errors.count >= 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (SHORT, "the server cannot be reached for 3 s"),
        (Settings(window_ms=100, trials=1), "all 1 requests of a window failed"),
        (Settings(request_count=1), "all 1 requests of a window failed"),
    ],
    ids=["window", "last window", "request count"],
)
def test_a_server_that_dies_as_a_window_begins_is_told_as_such(measure, settings, reason):
    """All that is of the window has failed then; behind the last one nothing is waited for."""

    def answering(_: int) -> str:
        server.end()
        return "drop"

    with StubServer(answering) as server:
        found = measure(server.port, Job(ONE, settings, 1))
    assert reason in found.reason and not found.stable
    assert (found.completed, found.errors.count) == (0, 1)


def test_no_server_is_an_error(measure):
    with StubServer() as server:
        port = server.port
    with pytest.raises(ConnectFailed, match="cannot connect: Connection refused"):
        measure(port, Job(ONE, SHORT, 1))


def test_a_stalled_server_is_seen_by_all_requests_that_were_due_meanwhile(measure):
    """No coordinated omission: with one connection the others wait here, and their waiting is latency."""
    stalled = threading.Event()

    def answering(number: int) -> str:
        if number == 10:
            stalled.wait(0.5)
        return ""

    with StubServer(answering) as server:
        settings = Settings(window_ms=500, stability_percent=1e6)
        job = Job(Level("request_rate", 100), settings, 1, lambda: Rate(100))
        found = measure(server.port, job, connections_max=1)
    # 50 of 150 were due within the stall, and half of them waited for 0.25 s and more.
    assert found.response.quantile(0.9) > 0.2e9
    assert found.service.quantile(0.9) < found.response.quantile(0.9) / 2
    assert found.delayed >= 40


def test_what_an_open_loop_had_due_at_the_end_is_waited_for(measure):
    release = threading.Event()

    def answering(number: int) -> str:
        if number > 20:
            release.wait(1.0)
        return ""

    with StubServer(answering) as server:
        job = Job(Level("request_rate", 100), Settings(window_ms=500, trials=1), 4, lambda: Rate(100))
        found = measure(server.port, job)
    assert found.response.count == server.count > found.completed
    assert found.response.maximum >= 0.9e9


@pytest.mark.parametrize(
    ("busy", "waited", "delayed", "text"),
    [
        (0.5, 0.0, 0, ""),
        (0.9, 0.0, 0, "the client's thread was busy for 90% of the time: the server may do more"),
        (0.9, 0.2, 0, "had no core for 20% of it"),
        (0.3, 0.2, 0, "the client was ready and had no core for 20% of the time"),
        (0.3, 0.0, 2, "20% of the requests left more than 1 ms behind their time"),
    ],
)
def test_it_says_when_the_client_is_the_limit(busy, waited, delayed, text):
    lateness = Histogram()
    for _ in range(10):
        lateness.record(1)
    said = limited(busy, waited, Counted(0, 0, 0, 0, delayed, lateness))
    assert text in said
    assert bool(said) == bool(text)


# ---- what the figures hold


def test_failures_are_counted_in_the_windows_that_are_the_result(measure):
    """All fail in the first windows, and none in the last three."""
    began: list[float] = []  # with the first request, which fails

    def answering(number: int) -> str:
        began.append(time.monotonic()) if not began else None
        return "no luck" if number % 2 and time.monotonic() - began[0] < 0.4 else ""

    settings = Settings(window_ms=200, stability_percent=30, trials=50)
    with StubServer(answering) as server:
        found = measure(server.port, Job(ONE, settings, 1))
    assert found.errors.count > found.errors.measured
    assert found.windows_before >= 1
    assert found.requests - found.completed <= found.errors.measured + 1


def test_failures_of_the_warm_up_are_told_apart(measure):
    with StubServer(lambda number: "no luck" if number in (2, 4, 13) else "") as server:
        found = measure(server.port, Job(ONE, Settings(request_count=5, warm_up_count=10), 1))
    assert (found.errors.warm_up, found.errors.count, found.errors.measured) == (2, 1, 1)
    assert found.notes == ("2 requests of the warm-up failed, the first with: no luck",)
    assert found.warm_up_ns > 0


def test_a_server_that_dies_in_the_warm_up_is_no_measurement(measure):
    server = mortal(5)
    job = Job(ONE, Settings(request_count=5, warm_up_count=100_000), 1, records=100)
    with pytest.raises(ConnectFailed, match="in the warm-up: the server cannot be reached for 3 s"):
        measure(server.port, job)


def test_windows_of_a_server_that_hangs_are_part_of_the_result(measure):
    """Its throughput is not that of the time in which it was well."""
    hung = threading.Event()
    settings = Settings(window_ms=200, stability_percent=0, trials=4)
    began = time.monotonic()
    with StubServer(lambda _: hung.wait(1.5) or "" if time.monotonic() - began > 0.3 else "") as server:
        found = measure(server.port, Job(ONE, settings, 1))
        hung.set()
    assert found.seconds > 0.55
    assert sum(each.responses for each in found.windows[-3:]) == 0


def test_the_export_holds_the_requests_of_the_measured_windows(measure):
    """The level is not stable for long: what the first windows recorded has been let go."""
    settings = Settings(window_ms=300, stability_percent=0, trials=6)
    with StubServer() as server:
        found = measure(server.port, Job(ONE, settings, 1, records=3_000_000))
    records = np.concatenate(found.records)
    assert found.records_missed == 0
    assert len(records) == found.completed + found.errors.measured < server.count
    assert found.began_ns <= records["last"].min() and records["last"].max() <= found.ended_ns
    assert (np.diff(records["last"]) >= 0).all()


def test_requests_that_the_export_has_no_room_for_are_told(measure):
    with StubServer() as server:
        found = measure(server.port, Job(ONE, Settings(request_count=50), 1, records=20))
    assert sum(map(len, found.records)) == 20
    assert found.records_missed == 30
    assert found.notes[0].startswith("30 requests of these windows are not in the export")


def test_an_open_loop_exports_also_what_was_answered_later(measure):
    release = threading.Event()
    with StubServer(lambda number: release.wait(0.8) or "" if number > 20 else "") as server:
        job = Job(Level("request_rate", 100), Settings(window_ms=400, trials=1), 4, lambda: Rate(100), records=1000)
        found = measure(server.port, job)
    assert sum(map(len, found.records)) == found.response.count == server.count


def test_the_servers_part_is_what_it_says_of_the_same_requests(measure):
    parts = {"success": 5_000_000, "queue": 1_000_000, "compute_infer": 3_000_000}
    slow = threading.Event()
    with (
        StubServer(lambda _: slow.wait(0.01) or "", parts_ns=parts) as server,
        Client(f"http://127.0.0.1:{server.port}", shared_memory=False) as client,
    ):
        side = ServerSide(client, Models("stub", ""))
        found = measure(server.port, Job(ONE, SHORT, 1), server=side)
        side.close()
    assert found.server is not None
    # Between what the server counts and the end of a window lies the way of its answer.
    assert abs(found.server.success_count - found.completed) <= 5
    assert found.server.success_ns == 5_000_000 * found.server.success_count
    assert found.server.queue_ns == 1_000_000 * found.server.success_count
    assert found.notes == ()


def test_statistics_that_do_not_come_cost_one_wait(measure, monkeypatch):
    """The level goes on without the server's part, and says so."""
    monkeypatch.setattr("tisfast.bench.measure.LOOK_NS", 50_000_000)

    class Hanging:
        models = Models("stub", "")
        failure = ""
        looks = 0

        def look(self):
            self.looks += 1
            return Future()

    side = Hanging()
    with StubServer() as server:
        found = measure(server.port, Job(ONE, SHORT, 1), server=side)
    assert (side.looks, found.server) == (1, None)
    assert found.notes == ("the server's statistics are not shown: they did not come within 0.05 s",)


def test_what_was_due_and_never_left_a_dead_server_is_no_matter_of_the_rate(measure):
    server = mortal(30)
    job = Job(Level("request_rate", 100), Settings(window_ms=500, trials=100), 1, lambda: Rate(100))
    found = measure(server.port, job)
    assert found.unsent > 0
    (note,) = found.notes
    assert note.startswith(f"{found.unsent} requests were due and had not left; the true latencies")


def test_a_rate_that_the_server_cannot_take_is_told(measure):
    slow = threading.Event()
    with StubServer(lambda _: slow.wait(0.1) or "") as server:
        job = Job(
            Level("request_rate", 200), Settings(window_ms=300, trials=1, drain_seconds=0.2), 1, lambda: Rate(200)
        )
        found = measure(server.port, job, connections_max=1)
    assert not found.stable
    assert any("had not left: the server takes less than this rate" in each for each in found.notes)


@pytest.mark.parametrize(("seconds", "cut"), [(0.01, 1), (5.0, 0)])
def test_what_nobody_waited_for_at_the_end_is_told_apart_from_failures(measure, seconds, cut):
    slow = threading.Event()
    with StubServer(lambda _: slow.wait(0.4) or "") as server:
        found = measure(server.port, Job(ONE, Settings(window_ms=500, trials=1, drain_seconds=seconds), 1))
    assert (found.errors.count, found.errors.unanswered) == (cut, cut)
    assert not cut or found.errors.first[0] == "no answer within 0.01 s behind the end of the level"


def test_a_seldom_rate_is_no_silence(measure, monkeypatch):
    """Nothing is due for longer than an answer is waited for."""
    monkeypatch.setattr("tisfast.bench.measure.SILENT_NS", 150_000_000)
    with StubServer() as server:
        job = Job(Level("request_rate", 2), Settings(request_count=3), 1, lambda: Rate(2))
        found = measure(server.port, job)
    assert (found.completed, found.reason) == (3, "all 3 requests were sent, and their answers were waited for")


def test_a_window_of_a_number_of_requests_ends_also_when_all_fail(measure):
    settings = Settings(measurement_mode="count_windows", measurement_request_count=7, stability_percent=1e6)
    with StubServer(lambda _: "out of order") as server:
        found = measure(server.port, Job(ONE, settings, 1))
    assert found.reason.startswith("all ")
    assert found.seconds < 30


# ---- it stops when enough is known


def steady(**more) -> Settings:
    return Settings(stop="confidence", window_ms=500, trials=40, **more)


def test_it_stops_when_the_wanted_latency_is_known_well_enough(measure):
    with StubServer() as server:
        found = measure(server.port, Job(ONE, steady(stability_percent=1000, percentile=50), 1, records=100_000))
    assert found.stable
    assert re.fullmatch(r"the p50 latency is known within [\d.]+ %, with 95 % confidence", found.reason)
    assert 2 <= found.seconds < 20  # 20 pieces of 0.1 s at least
    assert found.warm_up_ns > 0
    assert found.completed == found.response.count < server.count
    assert sum(map(len, found.records)) == found.completed
    assert sum(each.responses for each in found.windows) == found.completed


def test_it_stops_when_the_time_is_over_and_says_why(measure):
    with StubServer() as server:
        settings = Settings(stop="confidence", window_ms=300, trials=3, stability_percent=0.001, percentile=99)
        found = measure(server.port, Job(ONE, settings, 1))
    assert not found.stable
    assert found.reason
    assert not found.reason.startswith("Failed to obtain")
    assert found.completed > 0


@pytest.mark.parametrize("stop", ["windows", "confidence"])
def test_a_level_that_is_too_slow_ends_early(measure, stop):
    wait = threading.Event()
    settings = Settings(stop=stop, window_ms=150, trials=1000, stability_percent=0, latency_threshold_ms=5)
    with StubServer(lambda _: wait.wait(0.02) or "") as server:
        found = measure(server.port, Job(ONE, settings, 1))
    assert not found.stable
    assert found.reason == "Measured latency went over the set limit of 5 msec. "


def test_a_level_that_is_interrupted_ends_under_either_rule(measure):
    stop = Stop()

    def answering(number: int) -> str:
        stop.requested = number >= 30
        return ""

    with StubServer(answering) as server:
        found = measure(server.port, Job(ONE, steady(), 1), stop)
    assert found.interrupted
    assert found.reason == "it was interrupted; these are the figures until then"


def test_long_levels_have_longer_pieces():
    pieces = Pieces(most=8)
    for at in range(100):
        latency = Histogram()
        latency.record(at)
        pieces.add(Piece(at, at + 1, 1, latency))
    found = pieces.all()
    assert len(found) < 8
    assert sum(each.responses for each in found) == sum(each.latency.count for each in found) == 100
    assert (found[0].began_ns, found[-1].ended_ns) == (0, 100)
    assert all(one.ended_ns == other.began_ns for one, other in itertools.pairwise(found))
    assert len({each.responses for each in found[:-1]}) == 1
