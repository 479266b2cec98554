"""What bounds a call bounds all that it asks: its time, its cancel, its headers; and a client ends in bounded time."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from time import monotonic

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, in_turn, read_request, recorded, respond, server_context
from tisfast import client as tisfast_client
from tisfast import limits
from tisfast.client import (
    AsyncClient,
    BadRequest,
    Cancelled,
    Client,
    ClientClosed,
    ConnectFailed,
    Retries,
    TimedOut,
    TisError,
    Tls,
    Unavailable,
    assembler,
    model_core,
)

A = np.ones(1, np.float32)
CONNECTED_SECONDS = 0.4  # by then a connection is made, on a busy machine, too
BUSY = respond(b'{"error":"the queue is full"}', "503 Service Unavailable")


def stall(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_the_time_of_a_call_bounds_its_first_question_for_metadata(scheme):
    async def awaited(url):
        async with AsyncClient(url) as client:
            with pytest.raises(TimedOut):
                await client.model("m")(A, timeout=CONNECTED_SECONDS)
            with pytest.raises(TimedOut):
                await client.model("m").infer([A], timeout=CONNECTED_SECONDS)

    with answering(stall, stall, stall) as address:
        url = f"{scheme}://{address}"
        with Client(url) as client:
            for ask in (client.model("m"), client.model("m").sample, client.model("m").batches):
                with pytest.raises(TimedOut):
                    ask(A, timeout=CONNECTED_SECONDS)
    with answering(stall, stall) as address:
        asyncio.run(awaited(f"{scheme}://{address}"))


def test_the_time_of_a_call_bounds_a_question_for_the_configuration():
    with (
        answering(in_turn(respond(METADATA), stall), stall) as address,
        Client(address) as client,
        pytest.raises(TimedOut),
    ):
        client.model("m")(timeout=0.2)  # the input is missing: may it be?


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_future_is_cancelled_while_it_asks_for_metadata(scheme):
    begun = threading.Event()

    def begin(connection: socket.socket) -> None:
        connection.recv(65536)
        begun.set()
        stall(connection)

    with answering(begin) as address, Client(f"{scheme}://{address}") as client:
        future = client.model("m").submit(A)
        assert begun.wait(60) and future.cancel()
        assert isinstance(future.exception(60), Cancelled)


def test_a_future_is_cancelled_in_the_pause_before_it_is_made_again():
    patient = Retries(count=5, seconds=3600, pause_seconds=1800)
    paused = threading.Event()

    def busy(connection: socket.socket) -> None:
        BUSY(connection)
        paused.set()

    with (
        answering(in_turn(respond(METADATA), busy)) as address,
        Client(address, retries=patient, timeout=4000) as client,
    ):
        future = client.model("m").submit(A)
        assert paused.wait(60) and future.cancel()
        assert isinstance(future.exception(60), Cancelled)


def test_the_headers_of_a_call_go_with_its_question_for_metadata():
    seen = []

    def metadata(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(METADATA) + METADATA)

    with answering(in_turn(metadata, respond(ANSWER))) as address, Client(address) as client:
        client.model("m")(A, headers={"x-me": "you"})
    assert b"x-me: you" in seen[0]


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_closing_a_client_ends_what_was_submitted_and_refuses_more(scheme):
    begun = threading.Event()

    def begin(connection: socket.socket) -> None:
        connection.recv(65536)
        begun.set()
        stall(connection)

    with answering(begin) as address:
        client = Client(f"{scheme}://{address}", concurrency=1)
        model = client.model("m")
        futures = [model.submit(A) for _ in range(3)]
        assert begun.wait(60)
        client.close()
        assert all(isinstance(future.exception(60), ClientClosed) for future in futures)
        with pytest.raises(ClientClosed):
            model.submit(A)
        with pytest.raises(ClientClosed):
            model(A)


def test_closing_a_client_does_not_wait_for_a_connection_that_is_being_made():
    """TLS is never agreed on, which nothing but time ends."""
    begun, ended = threading.Event(), threading.Event()

    def begin(connection: socket.socket) -> None:
        begun.set()
        ended.wait(60)

    with answering(begin) as address:
        client = Client(f"https://{address}", tls=Tls(verify=False), retries=0)
        future = client.model("m").submit(A)
        assert begun.wait(60)
        client.close()
        assert not future.done()
        ended.set()
        with pytest.raises(TisError):
            future.result(60)


def test_a_server_that_answers_nothing_over_tls_is_a_timeout(tmp_path):
    context, ended = server_context(tmp_path), threading.Event()

    def silent(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True):
            ended.wait(60)

    with answering(silent) as address:
        client = Client(f"https://{address}", tls=Tls(ca=f"{tmp_path}/ca.pem"), retries=0)
        asked = client.model("m").submit(A, timeout=2)  # TLS is agreed on by then; in a thread: it must end by itself
        try:
            with pytest.raises(TimedOut, match="no answer came"):
                asked.result(30)
            assert not ended.is_set()
        finally:
            ended.set()
            client.close()


def test_an_input_that_is_called_as_an_option_is_an_input():
    metadata = METADATA.replace(b'"A"', b'"timeout"')
    with (
        answering(in_turn(respond(metadata), *[respond(ANSWER)] * 2)) as address,
        Client(address, retries=0, connections=1, shared_memory=False) as client,
    ):
        model = client.model("m")
        model.metadata()
        assert model.submit(timeout=1e-9).result(60)["B"].tolist() == [2]
        assert model.submit(timeout=np.float32(1e-9).reshape(1)).result(60)["B"].tolist() == [2]


@pytest.fixture
def later(monkeypatch):
    """Call it, and for calls it is 100 s later."""
    passed = [0.0]
    monkeypatch.setattr(model_core, "monotonic", lambda: monotonic() + passed[0])
    return lambda: passed.__setitem__(0, 100.0)


def test_an_input_of_a_sequence_that_is_called_as_an_option_is_an_input(later):
    metadata = METADATA.replace(b'"A"', b'"timeout"')

    def slow(connection: socket.socket) -> None:
        later()
        respond(metadata)(connection)

    with answering(in_turn(slow, respond(ANSWER))) as address, Client(address) as client:
        ask = client.model("m").sequence()
        assert ask(timeout=50.0, last=True)["B"].tolist() == [2]  # 50 s would be over


def test_a_timeout_may_be_a_scalar_of_numpy_and_nothing_but_a_number(later):
    def slow(connection: socket.socket) -> None:
        later()
        respond(METADATA)(connection)

    with answering(slow) as address, Client(address, timeout=3000) as client:
        model = client.model("m")
        with pytest.raises(TimedOut, match="nothing was sent"):
            model(A, timeout=np.float32(50))
        with pytest.raises(BadRequest, match="timeout='1' must be seconds"):
            model(A, timeout="1")
        with pytest.raises(BadRequest, match="timeout='1' must be seconds"):
            Client(address, timeout="1")


def test_a_server_that_reads_nothing_over_tls_is_a_timeout_and_one_that_goes_an_error(tmp_path):
    context, ended = server_context(tmp_path), threading.Event()

    def deaf(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            respond(METADATA)(encrypted)
            ended.wait(60)

    def going(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            respond(METADATA)(encrypted)
            encrypted.recv(1)

    big = np.zeros(10_000_000, np.float32)
    options = {"tls": Tls(ca=f"{tmp_path}/ca.pem"), "shared_memory": False, "retries": 0}
    with answering(deaf) as address, Client(f"https://{address}", **options) as client:
        model = client.model("m")
        model.metadata()
        with pytest.raises(TimedOut, match="was not taken"):
            model(big, timeout=1)
        ended.set()
    with (
        answering(going) as address,
        Client(f"https://{address}", **options) as client,
        pytest.raises(Unavailable, match="lost behind the request"),
    ):
        client.model("m")(big)


SENT, LATE = (np.frombuffer(text, np.float32) for text in (b"is sent!", b"is late!"))


@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_without_time_is_not_sent(url, awaited):
    async def main(url):
        async with AsyncClient(url) as client:
            model = client.model("identity_fp32")
            await model(SENT)
            with pytest.raises(TimedOut):
                await model(LATE, timeout=1e-9)
            if url.startswith("grpc"):
                with pytest.raises(TimedOut):
                    await model.stream(LATE, timeout=1e-9).__anext__()

    with recorded(url) as (through, sent):
        if awaited:
            asyncio.run(main(through))
        else:
            with Client(through) as client:
                model = client.model("identity_fp32")
                model(SENT)
                with pytest.raises(TimedOut):
                    model(LATE, timeout=1e-9)
    assert SENT.tobytes() in sent and LATE.tobytes() not in sent


def test_what_was_sent_is_not_kept(client):
    model = client.model("add_one")
    for size in (4, 100_000):
        mine = np.ones(size, np.float32).view(Mine)
        gone = weakref.ref(mine)
        assert model(mine).sum() == 2 * size
        del mine
        gc.collect()
        assert gone() is None


def test_futures_after_a_fork(client):
    model = client.model("add_one")
    assert model.submit(A).result(60).tolist() == [2]
    child = os.fork()
    if child == 0:
        os._exit(0 if model.submit(A).result(60).tolist() == [2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_all_errors_are_classes_of_the_client():
    from tisfast.client import errors  # noqa: PLC0415

    assert all(getattr(tisfast_client, name) is getattr(errors, name) for name in errors.__all__)


def root(array):
    """What holds the memory of an answer."""
    while isinstance(array, np.ndarray | memoryview):
        below = array.base if isinstance(array, np.ndarray) else array.obj
        if below is None:
            return array
        array = below
    return array


@pytest.mark.parametrize("awaited", [False, True])
def test_what_was_received_is_not_kept(place, awaited):
    big = np.ones(100_000, np.float32)
    made = []

    class Noted(np.ndarray):
        pass

    def empty(*args):
        found = np.ndarray.__new__(Noted, args[0], args[1])
        made.append(weakref.ref(found))
        return found

    async def main():
        async with AsyncClient(place.http, shared_memory=False) as client:
            model = client.model("add_one")
            assert (await model(big)).sum() == 2 * big.size
            gc.collect()
            assert len(made) == 1 and made[0]() is None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(assembler.np, "empty", empty)
        if awaited:
            asyncio.run(main())
        else:
            with Client(place.http, shared_memory=False) as client:
                assert client.model("add_one")(big).sum() == 2 * big.size
                gc.collect()
                assert len(made) == 1 and made[0]() is None


class Mine(np.ndarray):
    pass


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_future_that_failed_is_freed_without_the_collector(no_collector):
    with Client("127.0.0.1:1", retries=0) as client:
        mine = np.ones(1, np.float32).view(Mine)
        ended = threading.Event()
        weakref.finalize(mine, ended.set)
        future = client.model("m").submit(mine)
        assert isinstance(future.exception(60), ConnectFailed)
        del mine, future
        assert ended.wait(60)


def test_a_request_that_had_no_connection_is_freed_without_the_collector(no_collector, monkeypatch):
    nobody = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))
    with (
        answering(respond(METADATA, more="Connection: close\r\n")) as address,
        Client(address, retries=0) as client,
    ):
        model = client.model("m")
        model.metadata()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [nobody])
        mine = np.ones(1, np.float32).view(Mine)
        gone = weakref.ref(mine)
        with suppress(ConnectFailed):
            model(mine)
            raise AssertionError("nobody listens there")
        del mine
        assert gone() is None


def test_parts_of_a_batch_are_cancelled_when_there_is_no_room_for_all(monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_SUBMITTED_MAX", 0)
    with (
        answering(in_turn(respond(METADATA), stall)) as address,
        Client(address, concurrency=1, retries=0) as client,
    ):
        model, parts = client.model("m"), []
        model.metadata()
        submit = model._submit
        monkeypatch.setattr(model, "_submit", lambda ask: parts.append(submit(ask)) or parts[-1])
        monkeypatch.setattr(client._submitter, "_seconds", 0.1)  # that it waits for room
        with pytest.raises(TimedOut, match="requests wait already"):
            model.batches(np.ones(2, np.float32), size=1, timeout=3000)
        with pytest.raises((Cancelled, CancelledError)):
            parts[0].result(60)


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
def test_a_name_that_is_none_is_a_bad_request(host):
    with pytest.raises(BadRequest, match="has no name of a host"):
        Client(f"{host}:8000")


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_future_is_cancelled_while_it_waits_for_a_connection(scheme):
    begun = threading.Event()

    def begin(connection: socket.socket) -> None:
        connection.recv(65536)
        begun.set()
        stall(connection)

    with answering(begin) as address, Client(f"{scheme}://{address}", connections=1) as client:
        model = client.model("m")
        model.submit(A)
        assert begun.wait(60)
        waiting = model.submit(A)
        pool = client._core.transport._pool
        while not pool._waiting:
            assert not waiting.done()
        assert waiting.cancel()
        assert isinstance(waiting.exception(60), Cancelled)


def test_an_address_of_metrics_without_a_port_has_theirs():
    with Client("127.0.0.1:1", timeout=5) as client, pytest.raises(ConnectFailed, match=r"127\.0\.0\.9:8002"):
        client.metrics("127.0.0.9")


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:8001", "grpcs://127.0.0.1:8001"])
def test_metrics_are_http(url):
    with Client("127.0.0.1:1") as client, pytest.raises(BadRequest, match="is no address of metrics"):
        client.metrics(url)
