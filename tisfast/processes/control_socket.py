"""The control socket: msgpack messages between the server and its workers, over ZeroMQ.  Layer 4 (processes).

One ROUTER on the loop.  Nothing of a request's path comes here: hello, load, ready, logs, stop (workers/WIRE.md).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from typing import Any

import msgpack
import zmq

from tisfast import limits, tuning
from tisfast.processes.control_directory import ControlDirectory

Message = dict[str, Any]
log = logging.getLogger("tisfast.control")


class ControlSocket:
    """Routes control messages by worker id.  A peer speaks for an id only after a hello with that id's token."""

    def __init__(self, directory: ControlDirectory, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoint = f"ipc://{directory.socket}"
        self._loop = loop
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, limits.CONTROL_MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.RCVHWM, limits.CONTROL_QUEUE_MESSAGES_MAX)
        self._socket.setsockopt(zmq.SNDHWM, limits.CONTROL_QUEUE_MESSAGES_MAX)
        self._expected: dict[str, tuple[bytes, Callable[[Message], None]]] = {}
        self._ids: dict[bytes, str] = {}
        self._peers: dict[str, bytes] = {}
        self._fd = -1
        self._again: asyncio.Handle | None = None

    def open(self) -> None:
        """Bind, and listen on the loop."""
        self._socket.bind(self.endpoint)
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._turn)

    def close(self) -> None:
        """Unbind.  The directory is its owner's to remove."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        if self._again is not None:
            self._again.cancel()
        self._socket.close()
        self._context.term()

    def expect(self, worker: str, token: bytes, handle: Callable[[Message], None]) -> None:
        """From now on, `handle` gets each message of the peer that says hello as `worker` with `token`."""
        self._expected[worker] = (token, handle)

    def forget(self, worker: str) -> None:
        """The worker is gone: drop what its peer may still send."""
        self._expected.pop(worker, None)
        peer = self._peers.pop(worker, None)
        if peer is not None:
            self._ids.pop(peer, None)

    def send(self, worker: str, message: Message) -> bool:
        """Send without waiting; False when the worker has not said hello, is gone, or does not take its messages."""
        peer = self._peers.get(worker)
        if peer is None:
            return False
        try:
            self._socket.send_multipart([peer, msgpack.packb(message)], zmq.NOBLOCK)
        except (zmq.Again, zmq.ZMQError) as error:
            log.warning("control message %r not sent: %s", message.get("t"), error, extra={"instance": worker})
            return False
        # ZeroMQ's descriptor is edge-triggered and a send may swallow the edge: look for messages once more.
        self._look_again()
        return True

    def _look_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._fd < 0:
            return
        for _ in range(tuning.CONTROL_TURN_MESSAGES_MAX):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(frames)
            if self._fd < 0:
                return
        self._again = self._loop.call_later(tuning.WORKER_OUTPUT_PAUSE_SECONDS, self._turn)

    def _receive(self, frames: list[bytes]) -> None:
        peer = frames[0]
        try:
            message = msgpack.unpackb(frames[1], raw=False) if len(frames) == 2 else None
        except (ValueError, msgpack.UnpackException):
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("t"), str):
            log.warning(
                "control message dropped: not one msgpack map with a type", extra={"instance": self._ids.get(peer)}
            )
            return
        worker = self._ids.get(peer) or self._admit(peer, message)
        if worker is not None:
            try:
                self._expected[worker][1](message)
            except Exception as error:  # a bug of ours, which must not keep the messages of all others from us
                about = {"instance": worker}
                log.critical("a control message %r met a bug of the server", message["t"], exc_info=error, extra=about)

    def _admit(self, peer: bytes, message: Message) -> str | None:
        """The id that an unknown peer may speak for, or None."""
        if message["t"] != "hello":
            return None  # the last words of a worker that was forgotten a moment ago
        worker, token = message.get("id"), message.get("token")
        expected = self._expected.get(worker) if isinstance(worker, str) else None
        known = expected is not None and isinstance(token, bytes) and hmac.compare_digest(token, expected[0])
        if not isinstance(worker, str) or not known or worker in self._peers:
            log.warning("hello refused: unknown worker id or wrong token", extra={"instance": str(worker)})
            return None
        self._ids[peer] = worker
        self._peers[worker] = peer
        return worker
