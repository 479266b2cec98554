"""A program whose signals have handlers: times hold, nothing is lost, and a handler may use the client itself."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, in_turn, respond, server_context
from tisfast.client import Cancelled, Client, ClientClosed, TimedOut, Tls
from tisfast.client.address import parse_url
from tisfast.client.futures import Submitter
from tisfast.client.pool import Pool
from tisfast.client.transport import Cancel, run, sleep
from tisfast.client.wire_socket import WireSocket, connect

A = np.ones(1, np.float32)
SIGNALS_MAX = 100  # of 20 ms each, where a call may take 0.2 s


class TooLong(Exception):
    """The call went on over many times its timeout."""


@contextmanager
def frequent_signals() -> Iterator[None]:
    """A signal each 20 ms, whose handler ends what goes on over SIGNALS_MAX of them."""
    came = [0]

    def handler(*_) -> None:
        came[0] += 1
        if came[0] > SIGNALS_MAX:
            raise TooLong

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def handled(handler) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_signals_do_not_put_the_timeout_of_a_call_off(scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener, frequent_signals():
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, retries=0, timeout=0.2) as client, pytest.raises(TimedOut):
            client.live()


def test_signals_do_not_put_the_time_to_send_off():
    mine, other = socket.socketpair()
    wire = WireSocket(mine, parse_url("http://localhost:1"))
    body = bytes(8_000_000)
    with other, frequent_signals(), pytest.raises(TimedOut):
        wire.send([body], len(body), monotonic() + 0.2)
    wire.close()


@pytest.mark.parametrize("what", ["receive", "send"])
def test_signals_do_not_put_the_time_over_tls_off(tmp_path, what):
    context = server_context(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []
        serve = threading.Thread(
            target=lambda: accepted.append(context.wrap_socket(listener.accept()[0], server_side=True))
        )
        serve.start()
        address = parse_url(f"https://127.0.0.1:{listener.getsockname()[1]}")
        wire = connect(address, Tls(ca=f"{tmp_path}/ca.pem").context(False), monotonic() + 60)
        serve.join()
    with accepted[0], frequent_signals(), pytest.raises(TimedOut):
        if what == "receive":
            wire.receive(monotonic() + 0.2)
        else:
            wire.send([bytes(8_000_000)], 8_000_000, monotonic() + 0.2)
    wire.close()


class Interrupted:
    """A connection whose look at the socket is interrupted once."""

    def __init__(self) -> None:
        self.looks = 0
        self.closed = False

    def usable(self) -> bool:
        self.looks += 1
        if self.looks == 1:
            raise KeyboardInterrupt
        return True

    def close(self) -> None:
        self.closed = True

    def abort(self, why=None) -> None:
        self.close()


def test_an_interrupt_in_the_look_at_a_connection_loses_none():
    pool: Pool[Interrupted] = Pool(lambda deadline: Interrupted(), 1)
    first = pool.take(monotonic() + 60)
    pool.give(first)
    with pytest.raises(KeyboardInterrupt):
        pool.take(monotonic() + 60)
    assert first.closed
    assert pool.take(monotonic() + 0.01) is not first  # there is room for another one


def test_an_interrupt_behind_an_answer_loses_no_connection():
    class Interrupting(Cancel):
        """Ctrl-C comes as the connection is to be given back: the second end, behind that of the wait for its turn."""

        ends = 0

        def end(self) -> None:
            super().end()
            self.ends += 1
            if self.ends == 2:
                raise KeyboardInterrupt

    with answering(in_turn(respond(), respond()), respond()) as address, Client(address, connections=1) as client:
        with pytest.raises(KeyboardInterrupt):
            run(client._core.ask(client._core.calls.live(), 5, cancel=Interrupting()))
        assert run(client._core.ask(client._core.calls.live(), 5))


def test_an_interrupt_while_regions_are_unregistered_leaves_no_connection():
    closed = threading.Event()

    def behave(connection: socket.socket) -> None:
        respond()(connection)
        if not connection.recv(1):
            closed.set()

    with answering(behave) as address:
        client = Client(address)
        assert client.live()

        async def interrupted() -> None:
            raise KeyboardInterrupt

        client._core.shared.close = interrupted
        with pytest.raises(KeyboardInterrupt):
            client.close()
        assert closed.wait(60)


def test_a_handler_may_cancel_what_is_being_cancelled():
    cancel = Cancel()
    cancel.begin(lambda: signal.raise_signal(signal.SIGUSR1))
    with handled(cancel.cancel):
        cancel.cancel()
    assert cancel.asked


def test_a_pause_is_ended_once_however_often_it_is_cancelled():
    cancel = Cancel()

    def twice() -> None:
        cancel.cancel()
        cancel.cancel()

    thread = threading.Timer(0.01, twice)
    thread.start()
    with pytest.raises(Cancelled):
        sleep(60, cancel)
    thread.join()


class SignalsWithin:
    """An executor that has a signal come while it takes work, as its own lock is held."""

    def __init__(self, executor) -> None:
        self._executor = executor
        self._inside = False

    def submit(self, *work):
        assert not self._inside, "the executor's lock would be taken twice"
        self._inside = True
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            self._inside = False
        return self._executor.submit(*work)

    def shutdown(self, wait):
        assert not self._inside, "the executor's lock would be taken twice"
        self._executor.shutdown(wait)


@pytest.fixture
def submitter():
    made = Submitter(1, 60)
    made._executor = SignalsWithin(made._executor)
    yield made
    made.end()
    made.wait(60)


def test_a_handler_may_submit_within_a_submit(submitter):
    more = []

    def handler() -> None:
        if not more:
            more.append(submitter.submit(lambda cancel: "handler's"))

    with handled(handler):
        mine = submitter.submit(lambda cancel: "mine")
        assert (mine.result(60), more[0].result(60)) == ("mine", "handler's")


def test_a_handler_may_close_within_a_submit(submitter):
    with handled(submitter.end):
        future = submitter.submit(lambda cancel: "mine")
        assert isinstance(future.exception(60), ClientClosed)
    with pytest.raises(ClientClosed):
        submitter.submit(lambda cancel: "mine")


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_future_of_a_closed_client_says_who_closed_it(timeout):
    asked, go = threading.Event(), threading.Event()

    def stall(connection: socket.socket) -> None:
        respond(METADATA)(connection)
        connection.recv(65536)
        asked.set()
        go.wait(60)
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)

    with answering(stall) as address:
        client = Client(address, concurrency=1, retries=0)
        model = client.model("m")
        options = {} if timeout is None else {"timeout": timeout}
        futures = [model.submit(A, **options) for _ in range(2)]
        assert asked.wait(60)
        client.close()
        for future in futures:
            error = future.exception(60)
            assert isinstance(error, ClientClosed) and "the client was closed" in error.message
        go.set()
