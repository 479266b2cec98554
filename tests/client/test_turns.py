"""Calls that wait for a connection: each has its turn, whatever others do, and waits no longer than it may."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections import deque
from contextlib import contextmanager, suppress
from time import monotonic

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, in_turn, recorded, respond
from tisfast import limits
from tisfast.client import AsyncClient, Client, ClientClosed, Retries, TimedOut, Tls, Unavailable
from tisfast.client.pool import Pool, Waiter

A = np.ones(1, np.float32)
AT_ONCE = Retries(count=2, pause_seconds=0.001)


def run(url, work, **options):
    async def main():
        async with AsyncClient(url, **options) as client:
            return await work(client)

    return asyncio.run(main())


def test_a_waiting_task_has_its_turn_though_another_asks_all_the_time(url):
    async def work(client):
        model, counts = client.model("add_one"), [0, 0]
        await model.metadata()

        async def ask(number):
            while sum(counts) < 100:
                await model(A)
                counts[number] += 1

        await asyncio.gather(ask(0), ask(1))
        return counts

    assert min(run(url, work, connections=1, timeout=30)) > 40


def test_a_connection_may_be_dropped_by_the_garbage_collector_within_the_pool():
    """A stream that nobody holds ends so, in whatever thread the collection runs."""

    class Idle:
        usable, close, abort = (lambda self: True), (lambda self: None), (lambda self: None)

    class Stream:
        def __init__(self, pool, connection):
            self.pool, self.connection, self.itself = pool, connection, self

        def __del__(self):
            self.pool.drop(self.connection)

    def wait_for(pool, connection, objects):
        gc.collect()
        Stream(pool, connection)
        gc.set_threshold(objects)
        gc.enable()
        with suppress(TimedOut):
            pool.take(monotonic() + 0.005)
        gc.disable()

    before = gc.get_threshold()
    gc.disable()
    gc.freeze()  # else each collection looks through thousands of tests
    try:
        for objects in range(1, 60):
            pool = Pool(lambda _: Idle(), 1)
            taker = threading.Thread(target=wait_for, args=(pool, pool.take(monotonic() + 60), objects), daemon=True)
            taker.start()
            taker.join(20)
            assert not taker.is_alive(), f"a collection after {objects} objects has stopped it"
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        gc.enable()


class Kept:
    """A connection that knows what became of it."""

    closed = aborted = False

    def usable(self):
        return True

    def close(self):
        self.closed = True

    def abort(self):
        self.aborted = True


def test_closing_a_pool_ends_a_connection_that_is_handed_over_in_this_moment():
    class Idle(deque):
        def pop(self):
            found = super().pop()
            if not pool._closed:
                pool.close()
            return found

    pool = Pool(lambda _: Kept(), 1)
    pool.give(kept := pool.take(monotonic() + 60))
    pool._idle = Idle(pool._idle)
    with pytest.raises(ClientClosed):
        pool.take(monotonic() + 60)
    assert kept.closed


def test_a_connection_that_came_to_an_interrupted_thread_of_a_closed_pool_is_closed(monkeypatch):
    def interrupted(*_):
        pool.give(kept)
        pool.close()
        raise KeyboardInterrupt

    pool = Pool(lambda _: Kept(), 1)
    kept = pool.take(monotonic() + 60)
    monkeypatch.setattr(Waiter, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.take(monotonic() + 60)
    assert kept.closed


def test_a_waiting_thread_has_its_turn_though_another_asks_all_the_time():
    with (
        answering(in_turn(respond(METADATA), *[respond(ANSWER)] * 3)) as address,
        Client(address, connections=1, timeout=60) as client,
    ):
        model = client.model("m")
        model.metadata()
        pool = client._core.transport._pool
        held = pool.take(float("inf"))
        other = model.submit(A)
        while not pool._waiting:
            assert not other.done()
        pool.give(held)
        with pytest.raises(TimedOut):  # it was the other's before this thread could ask again
            pool.take(0)
        assert other.result(60).tolist() == [2]


def test_a_turn_that_came_to_a_cancelled_task_goes_to_the_next_one(url):
    async def work(client):
        model = client.model("add_one")
        await model.metadata()

        async def first():
            await model(A)
            second.cancel()  # its turn has come in this moment

        begun = asyncio.ensure_future(first())
        second, third = (asyncio.ensure_future(model(A)) for _ in range(2))
        await begun
        return (await third).tolist()

    assert run(url, work, connections=1, timeout=30) == [2]


@contextmanager
def closing():
    """A proxy without its server: it accepts, and closes at once.  Gives its address, and a list that grows."""
    accepted: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return
                accepted.append(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", accepted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_server_that_closes_connections_at_once_is_an_error_after_the_retries(scheme):
    async def work(client):
        for _ in range(10):
            with pytest.raises(Unavailable):
                await client.live()

    with closing() as (address, accepted):
        run(f"{scheme}://{address}", work, retries=AT_ONCE, timeout=60)
    assert 10 <= len(accepted) <= 30


@contextmanager
def silent():
    """It takes connections and says nothing, so that TLS is not agreed on.  Gives its address, and what it accepted."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"grpcs://127.0.0.1:{listener.getsockname()[1]}", accepted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            for connection in accepted:
                connection.close()


NOBODY = {"tls": Tls(verify=False), "retries": 0}


def test_who_joins_a_connect_waits_by_its_own_time():
    async def work(client):
        patient = asyncio.ensure_future(client.model("m")(A, timeout=60))
        await asyncio.sleep(0)
        with pytest.raises(TimedOut):
            await client.model("m")(A, timeout=0.05)
        assert not patient.done()
        patient.cancel()

    with silent() as (url, _):
        run(url, work, **NOBODY)


def test_the_short_time_of_the_first_caller_ends_the_connect_for_nobody_else():
    async def work(client):
        hasty = asyncio.ensure_future(client.model("m")(A, timeout=0.05))
        await asyncio.sleep(0)
        patient = asyncio.ensure_future(client.model("m")(A, timeout=60))
        with pytest.raises(TimedOut):
            await hasty
        for _ in range(10):
            await asyncio.sleep(0)
        assert not patient.done()
        patient.cancel()

    with silent() as (url, _):
        run(url, work, **NOBODY)


def test_a_connect_that_failed_when_nobody_waited_is_nobodys_error():
    async def work(client):
        first = asyncio.ensure_future(client.live())
        while not accepted:
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        accepted[0].close()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(client.live())
        while len(accepted) < 2 and not second.done():
            await asyncio.sleep(0)
        assert not second.done()
        second.cancel()

    with silent() as (url, accepted):
        run(url, work, **NOBODY)


def test_a_connection_of_the_parents_does_not_count_in_a_forked_childs_pool():
    pool = Pool(lambda _: Kept(), 1)
    parents = pool.take(monotonic() + 60)
    pool.forget()
    pool.drop(parents)  # as when the child drops a stream that the parent had
    pool.take(monotonic() + 60)
    with pytest.raises(TimedOut):
        pool.take(0)


@pytest.mark.parametrize("awaited", [False, True])
def test_a_connection_whose_numbers_are_used_up_is_followed_by_another(place, monkeypatch, awaited):
    async def work(client):
        await asyncio.gather(*[client.live() for _ in range(3)])
        return [await client.live() for _ in range(3)]

    monkeypatch.setattr(limits, "HTTP2_CALL_ID_MAX", 5)  # 1, 3, 5
    with recorded(place.grpc) as (url, sent):
        if awaited:
            assert all(run(url, work))
        else:
            with Client(url) as client:
                assert all(client.live() for _ in range(6))
    assert sent.count(b"PRI * HTTP/2.0") == 2
