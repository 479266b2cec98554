"""The worker's ZMTP peer against a real libzmq ROUTER, and against broken bytes."""

from __future__ import annotations

import contextlib

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from tisfast_worker import limits
from tisfast_worker.control import ControlClosed, ControlSocket
from tisfast_worker.zmtp import Dealer, ZmtpError

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16 + 32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"


@pytest.fixture
def router(tmp_path):
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.bind(f"ipc://{tmp_path}/control")
    yield socket
    socket.close()
    context.term()


def test_messages_of_all_sizes_cross_both_ways(router, tmp_path):
    control = ControlSocket(f"ipc://{tmp_path}/control")
    control.handshake()
    for size in (0, 1, 200, 255, 256, 70000, 3_000_000):
        control.send({"data": b"x" * size})
        while control.wants_write:
            control.flush()
            if router.poll(0):
                break
        peer, first = router.recv_multipart() if not control.wants_write else _receive(router, control)
        assert len(first) > size
        router.send_multipart([peer, first])
        assert control.wait_message() == {"data": b"x" * size}
    control.close()


def _receive(router, control):
    while not router.poll(1):
        control.flush()
    return router.recv_multipart()


def test_the_servers_end_is_told(router, tmp_path):
    control = ControlSocket(f"ipc://{tmp_path}/control")
    control.handshake()
    router.close()
    with pytest.raises(ControlClosed):
        control.wait_message()
    control.close()


def test_heartbeats_of_the_peer_are_answered():
    dealer = Dealer()
    dealer.receive(GREETING + READY)
    dealer.take_outgoing()
    dealer.receive(b"\x04\x0a\x04PING\x00\x0aabc")
    assert bytes(dealer.take_outgoing()) == b"\x04\x08\x04PONGabc"


@given(st.lists(st.binary(max_size=600), max_size=8), st.data())
def test_messages_survive_any_fragmentation(bodies, data):
    frames = b"".join(
        bytes([0, len(b)]) + b if len(b) < 256 else b"\x02" + len(b).to_bytes(8, "big") + b for b in bodies
    )
    stream, dealer, got = GREETING + READY + frames, Dealer(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        got += dealer.receive(stream[:cut])
        stream = stream[cut:]
    assert got == [[body] for body in bodies]


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak ZMTP"),
        (b"\xff" + bytes(8) + b"\x7f\x01\x00" + bytes(52), "speaks ZMTP 1"),
        (GREETING.replace(b"NULL", b"CURV"), "CURV"),
        (GREETING + b"\x04\x0b\x05ERROR\x04nope", "refused"),
        (GREETING + b"\x00\x01x", "before the handshake"),
        (GREETING + READY + b"\x02" + (limits.CONTROL_MESSAGE_BYTES_MAX + 1).to_bytes(8, "big"), "at most"),
    ],
)
def test_a_broken_peer_is_refused(stream, error):
    with pytest.raises(ZmtpError, match=error):
        Dealer().receive(stream)


@given(st.binary(max_size=300))
def test_any_bytes_after_the_handshake_give_messages_or_an_error(data):
    dealer = Dealer()
    dealer.receive(GREETING + READY)
    with contextlib.suppress(ZmtpError):
        dealer.receive(data)
