"""`submit`: futures, with a bound on what is asked at one time."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, in_turn, read_request, respond
from tisfast.client import BadRequest, Cancelled, Client, ClientClosed, NotFound

A = np.ones(1, np.float32)


def test_futures_have_the_answers(client):
    model = client.model("add_one")
    futures = [model.submit(A + number) for number in range(60)]
    assert [future.result().item() for future in futures] == [number + 2 for number in range(60)]


def test_a_future_has_the_error(client):
    assert isinstance(client.model("none").submit(A).exception(), NotFound)


def test_batches_are_split_and_joined(client):
    model = client.model("batched")
    rows = np.arange(22, dtype=np.float32).reshape(11, 2)
    assert model.batches(rows).B.tolist() == (rows + 1).tolist()
    assert model.batches(A=rows, size=3).B.tolist() == (rows + 1).tolist()
    with pytest.raises(Exception, match="has no batches"):
        client.model("add_one").batches(A)
    with pytest.raises(BadRequest, match=r"has 1 inputs \(A: .*\), 2 were given"):
        model.batches(rows, rows)
    with pytest.raises(Exception, match=r"same number of rows, they are INPUT0\[4\], INPUT1\[2\]"):
        client.model("add_sub").batches(np.zeros(4, np.float32), np.zeros(2, np.float32))


def test_no_more_are_asked_at_one_time_than_was_said():
    busy, most, lock, three, go = [0], [0], threading.Lock(), threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while infer(connection):
                pass

    def infer(connection: socket.socket) -> bool:
        request = read_request(connection)
        if request.startswith(b"GET"):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(METADATA) + METADATA)
        if not request.startswith(b"POST"):
            return bool(request)
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
            if busy[0] == 3:
                three.set()
        go.wait(60)
        with lock:
            busy[0] -= 1
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
        return True

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads.append(threading.Thread(target=serve, args=(listener,)))
        threads[0].start()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}", concurrency=3) as client:
            model = client.model("m")
            model.metadata()
            futures = [model.submit(A) for _ in range(12)]
            assert three.wait(60)
            assert [future.running() for future in futures] == [True] * 3 + [False] * 9  # the server holds them
            go.set()
            assert [future.result().item() for future in futures] == [2] * 12
        listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(60)
    assert most[0] == 3


def test_a_future_on_its_way_is_cancelled_and_the_server_told():
    told, begun = threading.Event(), threading.Event()

    def stall(connection: socket.socket) -> None:
        read_request(connection)
        begun.set()
        assert connection.recv(1) == b""
        told.set()

    with answering(in_turn(respond(METADATA), stall)) as address, Client(address, concurrency=1) as client:
        model = client.model("m")
        model.metadata()
        future, behind = model.submit(A), model.submit(A)
        assert begun.wait(60)
        assert behind.cancel() and behind.cancelled()
        assert future.cancel()
        assert isinstance(future.exception(60), Cancelled) and told.wait(60)
        assert not future.cancel()


def test_the_end_of_a_client_ends_its_futures():
    begun = threading.Event()

    def stall(connection: socket.socket) -> None:
        read_request(connection)
        begun.set()
        assert connection.recv(1) == b""

    with answering(in_turn(respond(METADATA), stall)) as address:
        client = Client(address, concurrency=1)
        model = client.model("m")
        model.metadata()
        futures = [model.submit(A) for _ in range(3)]
        assert begun.wait(60)
        client.close()
        assert all(isinstance(future.exception(60), ClientClosed) for future in futures)
