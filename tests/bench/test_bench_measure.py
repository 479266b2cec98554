"""One level: its windows, why it ends, and what its figures hold."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from tests.bench.stub_server import StubServer
from tisfast.bench.client_side import Counted, limited
from tisfast.bench.histogram import Histogram
from tisfast.bench.http_load import HttpLoad
from tisfast.bench.loop import Loop
from tisfast.bench.measure import Job, LevelRun, Stop
from tisfast.bench.results import Level, Settings
from tisfast.bench.templates import Form, Step, http_templates
from tisfast.client import ConnectFailed
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
        models = None

        def look(self):
            looks.append(time.monotonic_ns())
            answered = Future()
            answered.set_result(None)
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
    servers: list[StubServer] = []

    def answering(number: int) -> str:
        if number == 30:
            threading.Thread(target=servers[0].end).start()
        return ""

    servers.append(StubServer(answering))
    servers[0].start()
    found = measure(servers[0].port, Job(ONE, Settings(window_ms=500, stability_percent=0, trials=1000), 1))
    assert "the server cannot be reached for 3 s" in found.reason
    assert found.completed >= 29
    assert found.errors.count >= 1


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
    said = limited(busy, waited, Counted(0, 0, 0, delayed, lateness))
    assert text in said
    assert bool(said) == bool(text)
