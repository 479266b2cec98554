"""The client that is awaited: the same answers over both protocols, and many calls at a time."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest

from tests.client.helpers import (
    ANSWER,
    METADATA,
    answering,
    answering_anew,
    in_turn,
    read_request,
    respond,
    server_context,
    speak_http_1,
)
from tests.descriptors import open_descriptors
from tisfast.client import (
    AsyncClient,
    BadRequest,
    BadResponse,
    ConnectFailed,
    ConnectionLost,
    NotFound,
    Retries,
    TimedOut,
    Tls,
    Unavailable,
)

A = np.arange(4, dtype=np.float32)
BUSY = respond(b'{"error":"the queue is full"}', "503 Service Unavailable")


def run(url, work, **options):
    async def main():
        async with AsyncClient(url, **options) as client:
            return await work(client)

    return asyncio.run(main())


def test_a_model_is_called_as_by_the_client_that_waits(url):
    async def work(client):
        model = client.model("add_sub")
        total, _ = await model(A, A)
        named = await model(INPUT0=A, INPUT1=A)
        one = await client.model("batched").sample([1, 2])
        inferred = await model.infer({"INPUT0": A, "INPUT1": A}, outputs=["OUTPUT1"])
        return total.tolist(), named.names, one.tolist(), inferred.names, await model.ready()

    assert run(url, work) == ([0, 2, 4, 6], ("OUTPUT0", "OUTPUT1"), [2, 3], ("OUTPUT1",), True)


@pytest.mark.parametrize("connections", [1, 7, 64])
def test_many_calls_at_a_time(url, connections):
    async def work(client):
        model = client.model("add_one")
        found = await asyncio.gather(*[model(A + number) for number in range(100)])
        return all(np.array_equal(each, A + number + 1) for number, each in enumerate(found))

    assert run(url, work, connections=connections)


def test_large_arrays(url):
    big = np.random.default_rng(2).random(300_000).astype(np.float32)

    async def work(client):
        model = client.model("add_one")
        found = await asyncio.gather(*[model(big + number) for number in range(6)])
        return all(np.array_equal(each, big + number + 1) for number, each in enumerate(found))

    assert run(url, work, shared_memory=False) and run(url, work)


def test_batches_and_sequences(url):
    async def work(client):
        batched = await client.model("batched").batches(np.arange(20, dtype=np.float32).reshape(10, 2))
        async with client.model("counting").sequence() as ask:
            sums = [(await ask([[number]])).SUM.item() for number in (1, 2, 3)]
        return batched.B.tolist(), sums

    assert run(url, work) == ((np.arange(20).reshape(10, 2) + 1).tolist(), [1, 3, 6])


def test_errors_have_classes(url):
    async def work(client):
        with pytest.raises(BadRequest, match="'INPUT1' is missing"):
            await client.model("add_sub")(A)
        with pytest.raises(NotFound):
            await client.model("none")(A)

    run(url, work)


def test_streams(place):
    async def work(client):
        model = client.model("repeat_int32")
        found = [answer.OUT.item() async for answer in model.stream([3, 1, 2], [0, 0, 0], [0])]
        async with model.stream([1, 2], [0, 60_000], [0]) as answers:
            first = await answers.__anext__()
        return found, first.OUT.item(), await client.live()

    assert run(place.grpc, work) == ([3, 1, 2], 1, True)


def test_a_cancelled_call_ends_and_no_other(place):
    async def work(client):
        model = client.model("repeat_int32")
        await model.metadata()
        stream = model.stream([1, 2], [0, 60_000], [0])
        assert (await stream.__anext__()).OUT.item() == 1
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await client.model("add_one")(A)).tolist()

    assert run(place.grpc, work) == [1, 2, 3, 4]


def stall(connection) -> None:
    read_request(connection)
    assert connection.recv(1) == b""  # until the client closes


def gone(connection) -> None:
    read_request(connection)


@pytest.mark.parametrize(
    ("behaviours", "error", "seconds"),
    [
        ([respond(METADATA), BUSY, BUSY, BUSY], Unavailable, 60),
        ([respond(METADATA), gone], ConnectionLost, 60),
        ([respond(METADATA), stall], TimedOut, 0.2),
        ([respond(METADATA), respond(b"[]")], BadResponse, 60),
        ([respond(b"no metadata")], BadResponse, 60),
    ],
)
def test_faults(behaviours, error, seconds):
    async def work(client):
        model = client.model("m")
        await model.metadata()
        return await model(np.ones(1, np.float32), timeout=seconds)

    with answering(in_turn(*behaviours)) as address, pytest.raises(error):
        run(address, work, retries=Retries(pause_seconds=0.001))


def test_what_is_for_later_is_asked_again():
    async def work(client):
        return (await client.model("m")(np.ones(1, np.float32))).tolist()

    with answering(in_turn(respond(METADATA), BUSY, respond(ANSWER))) as address:
        assert run(address, work, retries=Retries(pause_seconds=0.001)) == [2]


def test_a_connection_that_the_server_has_closed_is_made_anew():
    with answering_anew(ANSWER) as (address, closed):

        async def work(client):
            model = client.model("m")
            assert (await model.metadata()).name == "m"
            assert await asyncio.to_thread(closed.wait, 60)
            return (await model(np.ones(1, np.float32))).tolist()

        assert run(address, work, retries=0) == [2]


def test_no_server_and_one_that_speaks_something_else():
    async def work(client):
        await client.live()

    with pytest.raises(ConnectFailed, match="cannot connect"):
        run("127.0.0.1:1", work, retries=0)
    with answering(speak_http_1) as address, pytest.raises(BadResponse):
        run(f"grpc://{address}", work, retries=0)


def test_nothing_stays_open(url):
    async def work(client):
        await asyncio.gather(*[client.model("add_one")(A) for _ in range(20)])

    run(url, work)
    before = open_descriptors()
    run(url, work)
    assert open_descriptors() <= before


def test_one_loop_after_the_other(url):
    """As in a notebook's cells, or a program that calls asyncio.run twice."""
    client = AsyncClient(url, timeout=60)

    async def main():
        return (await client.model("add_one")(A)).tolist()

    async def end():
        await client.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what the first loop has left open
        assert [asyncio.run(main()) for _ in range(2)] == [[1, 2, 3, 4]] * 2
        asyncio.run(end())
        gc.collect()


def test_two_loops_at_one_time_are_refused(url):
    async def main():
        async with AsyncClient(url) as client:
            assert await client.live()
            with pytest.raises(BadRequest, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(client.live()))

    asyncio.run(main())


def test_a_server_that_closes_behind_a_large_answer_is_no_error_of_the_loop():
    body = respond(b" " * 100_000 + b"{}")
    answered, closed = threading.Event(), threading.Event()

    def answer(connection) -> None:
        body(connection)
        answered.wait(60)
        connection.close()
        closed.set()

    async def main(address):
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with AsyncClient(address) as client:
            assert await client.metadata() == {}
            answered.set()
            assert await asyncio.to_thread(closed.wait, 60)
            for _ in range(10):  # the loop sees the end
                await asyncio.sleep(0)
        assert told == []

    with answering(answer) as address:
        asyncio.run(main(address))


def test_a_connection_that_the_server_has_closed_is_made_anew_over_tls(tmp_path):
    context, closed = server_context(tmp_path), threading.Event()

    def first(connection) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            respond(METADATA)(encrypted)
            answered.wait(60)
        closed.set()

    def second(connection) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            respond(ANSWER)(encrypted)

    async def work(client):
        model = client.model("m")
        await model.metadata()
        answered.set()
        assert closed.wait(60)  # here, so that the loop cannot see the end
        return (await model(np.ones(1, np.float32))).tolist()

    answered = threading.Event()
    with answering(first, second) as address:
        assert run(f"https://{address}", work, retries=0, tls=Tls(ca=f"{tmp_path}/ca.pem")) == [2]


@pytest.mark.parametrize("turns", range(3, 12))
def test_a_cancel_that_comes_as_the_connection_is_made_is_none_that_is_lost(turns):
    asked = threading.Event()

    def answer_late(connection: socket.socket) -> None:
        if read_request(connection):
            asked.wait(60)  # not before the cancel has come
            with suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def scenario(address):
        async with AsyncClient(address, retries=0) as client:
            task = asyncio.ensure_future(client.live())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            asked.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    with answering(answer_late) as address:
        asyncio.run(scenario(address))
