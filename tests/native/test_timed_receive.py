"""A read whose time the kernel keeps: what it gives, what it raises, and that a signal does not go unseen."""

from __future__ import annotations

import errno
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tisfast.native.timed_receive import receive_into

FOR_EVER = 60


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, other = socket.socketpair()
    with mine, other:
        allow(mine, FOR_EVER)
        yield mine, other


def allow(of: socket.socket, seconds: float) -> None:
    time = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)


@contextmanager
def alarms(handler: Callable[..., None]) -> Iterator[None]:
    """One each 20 ms: the first may come before the read waits.  None comes when its handler is gone: it would kill."""
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_came_is_written_where_it_is_to_lie(pair):
    into = bytearray(8)
    pair[1].sendall(b"abc")
    assert receive_into(pair[0].fileno(), memoryview(into)[2:]) == 3
    assert bytes(into) == b"\0\0abc\0\0\0"


def test_no_more_is_read_than_there_is_room_for(pair):
    into = bytearray(2)
    pair[1].sendall(b"abc")
    assert receive_into(pair[0].fileno(), into) == 2
    assert receive_into(pair[0].fileno(), into) == 1
    assert bytes(into) == b"cb"


def test_the_end_is_none_and_nothing_yet_is_less(pair):
    into = bytearray(2)
    assert receive_into(pair[0].fileno(), into, socket.MSG_DONTWAIT) == -1
    allow(pair[0], 0.001)
    assert receive_into(pair[0].fileno(), into) == -1
    pair[1].close()
    assert receive_into(pair[0].fileno(), into) == 0


def test_it_ends_at_a_signal_whose_handler_has_run(pair):
    seen = []
    with alarms(lambda *_: seen.append(1)):
        while not seen:  # another signal ends it, too
            assert receive_into(pair[0].fileno(), bytearray(2)) == -1


def test_what_a_handler_raises_comes_through(pair):
    def handler(*_) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), alarms(handler):
        while True:
            receive_into(pair[0].fileno(), bytearray(2))


def test_an_error_of_the_socket_is_raised_as_python_does(pair):
    with pytest.raises(OSError) as caught:
        receive_into(-1, bytearray(2))
    assert caught.value.errno == errno.EBADF
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as mine:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(ConnectionResetError):
            receive_into(mine.fileno(), bytearray(2))


def test_what_cannot_be_written_into_is_refused(pair):
    with pytest.raises(BufferError):
        receive_into(pair[0].fileno(), b"ab")
