"""What the open-loop client sends, when, and what it counts; the requests of the rows that use it."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress

import pytest

from perf.figures import RunFailed
from perf.open_loop import Ask, Tail, is_whole, play, post, tail
from perf.unlike import SEQUENCE_LENGTH, UNLIKE

ARRIVE_SECONDS_MAX = 30.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request on any connection, but none before `still` of them have come, as a loop that stands."""

    def __init__(self, answer=OK, still=1):
        self.answer, self.still, self.seen, self.arrived = answer, still, [], threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            while data := connection.recv(65536):
                with self.arrived:
                    self.seen.append(data)
                    self.arrived.notify_all()
                    self.arrived.wait_for(lambda: len(self.seen) >= self.still, ARRIVE_SECONDS_MAX)
                connection.sendall(self.answer)


def close_each(listener):
    """Connections are closed at once, until the listener is."""
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


@pytest.fixture
def server():
    found = Server()
    yield found
    found.listener.close()


def test_a_server_that_stands_still_costs_all_who_would_have_asked():
    """A client that waits would have made one slow request; here each one is slow that was due meanwhile."""
    dues = [i * 0.01 for i in range(21)]
    standing = Server(still=len(dues))
    with standing.listener:
        found = play(standing.address, [Ask(due, post("/", {})) for due in dues])
    assert len(found) == len(dues)
    for seconds, due in zip(sorted(found), sorted(dues, reverse=True), strict=True):
        assert seconds >= dues[-1] - due - 1e-6
    assert tail(found).p50 >= 1e3 * dues[-1] / 2 - 1e-3


def test_what_does_not_count_is_sent_all_the_same(server):
    assert len(play(server.address, [Ask(0.0, post("/", {}), counted=False), Ask(0.0, post("/", {}))])) == 1
    assert len(server.seen) == 2


def test_the_rest_of_a_sequence_follows_its_answers(server):
    rest = (post("/2", {}), post("/3", {}))
    assert len(play(server.address, [Ask(0.0, post("/1", {}), rest)])) == 3
    assert [data.split(b" ")[1] for data in server.seen] == [b"/1", b"/2", b"/3"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nfull", "503 No: b'full'"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no length"),
        (b"", "closed"),
    ],
)
def test_a_bad_answer_ends_the_run(answer, said):
    if not answer:
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=close_each, args=(listener,), daemon=True).start()
        with listener, pytest.raises(RunFailed):
            play(f"127.0.0.1:{listener.getsockname()[1]}", [Ask(0.0, post("/", {}))])
        return
    refusing = Server(answer)
    with refusing.listener, pytest.raises(RunFailed, match=said):
        play(refusing.address, [Ask(0.0, post("/", {}))])


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", True),
    ],
)
def test_where_an_answer_ends(answer, whole):
    assert is_whole(answer) is whole


def test_percentiles_are_latencies_that_were_measured():
    assert tail([i / 1e3 for i in range(1, 101)]) == pytest.approx(Tail(50.0, 99.0, 100.0))
    assert tail([0.002]) == Tail(2.0, 2.0, 2.0)


@pytest.mark.parametrize("row", UNLIKE, ids=lambda row: row.line())
def test_both_servers_get_the_same_requests(row):
    one, two = (row.arrivals(random.Random(3), row.seconds) for _ in range(2))
    assert one == two and any(ask.counted for ask in one)
    assert all(0 <= ask.due < row.seconds and len(ask.then) in (0, SEQUENCE_LENGTH - 1) for ask in one)
