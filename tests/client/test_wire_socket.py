"""The blocking socket of the client: its deadlines hold however the other side takes and gives."""

from __future__ import annotations

import socket
import threading
from time import monotonic

import pytest

from tisfast.client import TimedOut
from tisfast.client.address import parse_url
from tisfast.client.wire_socket import WireSocket


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
