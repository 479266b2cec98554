"""What happens when an HTTP server is not there, says 503, goes, stalls or answers garbage."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, answering_anew, in_turn, read_request, respond
from tisfast.client import BadResponse, Client, ConnectFailed, ConnectionLost, Retries, TimedOut, Unavailable

A = np.ones(1, np.float32)
AT_ONCE = Retries(count=2, pause_seconds=0.001)
BUSY = respond(b'{"error":"the queue is full"}', "503 Service Unavailable")


def ask(url: str, **options):
    with Client(url, retries=AT_ONCE, **options) as client:
        return client.model("m")(A)


def test_what_the_server_says_is_for_later_is_asked_again():
    with answering(in_turn(respond(METADATA), BUSY, BUSY, respond(ANSWER))) as address:
        assert ask(address).tolist() == [2]


def test_retries_have_an_end_and_can_be_switched_off():
    with (
        answering(in_turn(respond(METADATA), BUSY, BUSY, BUSY)) as address,
        pytest.raises(Unavailable, match="the queue is full"),
    ):
        ask(address)
    with (
        answering(in_turn(respond(METADATA), BUSY)) as address,
        Client(address, retries=0) as client,
        pytest.raises(Unavailable, match="the queue is full"),  # a second request would find no server
    ):
        client.model("m")(A)
    with (
        answering(in_turn(respond(METADATA), BUSY)) as address,
        Client(address) as client,
        pytest.raises(Unavailable, match="the queue is full"),
    ):
        client.model("m")(A, retry=False)


def test_a_server_that_asks_for_more_patience_than_there_is_is_not_asked_again():
    late = respond(b'{"error":"not today"}', "503 Service Unavailable", "Retry-After: 100\r\n")
    with answering(in_turn(respond(METADATA), late)) as address, pytest.raises(Unavailable, match="not today"):
        ask(address)


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectFailed, match=rf"cannot connect to http://127.0.0.1:{port}: .*refused"):
        ask(f"127.0.0.1:{port}")


def gone(connection: socket.socket) -> None:
    read_request(connection)


def half(connection: socket.socket) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nabc")


@pytest.mark.parametrize("behave", [gone, half])
def test_a_server_that_goes_behind_the_request_is_not_asked_again(behave):
    with (
        answering(in_turn(respond(METADATA), behave)) as address,
        pytest.raises(ConnectionLost, match="the model may have executed it"),
    ):
        ask(address)


def test_a_proxy_that_lost_its_server_is_not_asked_again():
    lost = respond(b"", "502 Bad Gateway")
    with answering(in_turn(respond(METADATA), lost)) as address, pytest.raises(ConnectionLost, match="status 502"):
        ask(address)


def test_a_connection_that_the_server_has_closed_is_made_anew():
    with answering_anew(ANSWER) as (address, closed), Client(address, retries=0) as client:
        model = client.model("m")
        assert model.metadata().name == "m"
        assert closed.wait(60)
        assert model(A).tolist() == [2]


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"outputs":[1}',
        b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 99\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_garbage_is_a_bad_response(answer):
    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    with answering(in_turn(respond(METADATA), behave)) as address, pytest.raises(BadResponse):
        ask(address)


@pytest.mark.parametrize("metadata", [b"[]", b"{}", b'{"name":"m","inputs":[{"name":"A"}]}', b"not JSON"])
def test_metadata_that_is_none(metadata):
    with answering(respond(metadata)) as address, pytest.raises(BadResponse):
        ask(address)


def test_a_server_that_stalls_is_waited_for_no_longer_than_asked():
    def stall(connection: socket.socket) -> None:
        read_request(connection)
        assert connection.recv(1) == b""  # until the client closes

    with (
        answering(in_turn(respond(METADATA), stall)) as address,
        Client(address) as client,
        pytest.raises(TimedOut, match="no answer came in time"),
    ):
        model = client.model("m")
        model.metadata()  # what comes next needs no connection, so that it is the answer that is late
        model(A, timeout=0.05)


def test_a_server_that_reads_no_body_is_heard():
    def refuse(connection: socket.socket) -> None:
        while b"\r\n\r\n" not in connection.recv(65536):
            pass
        connection.sendall(b'HTTP/1.1 400 Bad\r\nConnection: close\r\nContent-Length: 16\r\n\r\n{"error":"large"}'[:-1])
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with (
        answering(in_turn(respond(METADATA), refuse)) as address,
        Client(address, shared_memory=False) as client,
        pytest.raises(Exception, match="large"),
    ):
        client.model("m")(np.zeros(3_000_000, np.float32))


def test_a_body_in_chunks_and_one_without_length():
    def chunks(connection: socket.socket) -> None:
        read_request(connection)
        body = b"".join(b"1\r\n%b\r\n" % ANSWER[at : at + 1] for at in range(len(ANSWER)))
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n")

    def close(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + ANSWER)

    for behave in (chunks, close):
        with answering(in_turn(respond(METADATA), behave)) as address:
            assert ask(address).tolist() == [2]


def test_all_connections_in_use_is_said():
    def stall(connection: socket.socket) -> None:
        read_request(connection)
        assert connection.recv(1) == b""

    with answering(in_turn(respond(METADATA), stall)) as address, Client(address, connections=1) as client:
        model = client.model("m")
        model.metadata()
        held = client._core.transport._pool.take(float("inf"))
        with pytest.raises(TimedOut, match="none of the client's 1 connections"):
            model(A, timeout=0.01)
        client._core.transport._pool.give(held)
