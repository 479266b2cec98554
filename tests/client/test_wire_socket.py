"""The blocking socket of the client: its deadlines hold however the other side takes and gives."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from tests.client.helpers import server_context
from tisfast.client import ConnectFailed, TimedOut, Tls, wire_socket
from tisfast.client.address import parse_url
from tisfast.client.wire_socket import WireSocket, connect


@pytest.mark.parametrize("count", [1, 2])
def test_a_side_that_takes_a_little_each_time_does_not_put_the_deadline_off(count):
    with socket.socket() as listener:  # small buffers, so that the send has to wait
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        mine = socket.socket()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        mine.connect(listener.getsockname())
        other, _ = listener.accept()
    ended = threading.Event()

    def trickle() -> None:
        while not ended.wait(0.02):
            other.recv(9000)

    taker = threading.Thread(target=trickle)
    taker.start()
    wire = WireSocket(mine, parse_url("http://localhost:1"))
    pieces = [bytes(3_000_000 // count)] * count
    try:
        with pytest.raises(TimedOut):
            wire.send(pieces, sum(map(len, pieces)), monotonic() + 0.2)
    finally:
        ended.set()
        taker.join()
        wire.close()
        other.close()


@pytest.fixture
def encrypted(tmp_path):
    """Both ends of a connection with TLS: ours, and the server's."""
    context = server_context(tmp_path)
    ended: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(lambda: context.wrap_socket(listener.accept()[0], server_side=True))
        address = parse_url(f"https://127.0.0.1:{listener.getsockname()[1]}")
        wire = connect(address, Tls(ca=f"{tmp_path}/ca.pem").context(False), monotonic() + 60)
        ended.append(accepted.result(60))
        yield wire, ended[0]
    wire.close()
    ended[0].close()


def test_an_aborted_connection_stays_encrypted(encrypted):
    wire, server = encrypted
    server.sendall(b"answer")
    server.close()
    wire.abort()
    assert wire.receive(monotonic() + 60) in (b"answer", b"")  # and not a record of TLS
    assert wire.send([b"more"], 4, monotonic() + 60) != ""


def test_what_came_in_one_record_behind_an_answer_is_seen(encrypted):
    wire, server = encrypted
    server.sendall(b"answer, and what nobody asked for")
    place = memoryview(bytearray(6))
    assert wire.receive_into(place, monotonic() + 60) == 6 and bytes(place) == b"answer"
    assert wire.pending() == b", and what nobody asked for"
    assert wire.pending() is None


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_time_to_connect_is_for_all_addresses_of_a_name_and_for_tls(monkeypatch, scheme):
    """On a clock of the test's: each step takes all the time that it is given."""
    now = [monotonic()]

    class Slow:
        def __init__(self, *_):
            pass

        def settimeout(self, seconds):
            self.seconds = seconds

        def connect(self, where):
            now[0] += self.seconds
            if where != "the last":
                raise TimeoutError

        def setsockopt(self, *_):
            pass

        def close(self):
            pass

    class Context:
        def wrap_socket(self, made, server_hostname):
            now[0] += made.seconds
            raise TimeoutError

    names = ("one", "two", "three") if scheme == "http" else ("one", "the last")
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", name) for name in names]
    monkeypatch.setattr(wire_socket, "monotonic", lambda: now[0])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "socket", Slow)
    until = now[0] + 4
    with pytest.raises(ConnectFailed, match="answered nothing"):
        connect(parse_url(f"{scheme}://there:1"), Context() if scheme == "https" else None, until)
    assert now[0] <= until + 0.001
