"""Answers each request with the same bytes, as fast as a small program can: for `--calibrate`.  Layer 5 (bench).

A program of its own, of the standard library alone: `python -I answerer.py http|grpc FD`.  FD listens.  Standard input
has the answer behind its length (8 bytes), and the program ends when that is closed.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from collections.abc import Callable

ROOM = 1 << 18
FRAME_BYTES_MAX = 16384
WINDOW = (1 << 31) - 1
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE_BYTES = 24
HEAD = b"\x88\x5f\x10application/grpc"  # :status 200 and content-type, both by HPACK's static table
TRAILERS = b"\x00\x0bgrpc-status\x010"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


class Http:
    """What comes on one connection of HTTP/1.1."""

    greeting = b""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._head = b""
        self._left = 0  # bytes of a body

    def take(self, data: bytes) -> bytes:
        """Gives the answers to the requests that are whole with it."""
        answers = 0
        while data:
            if self._left:
                used = min(self._left, len(data))
                self._left -= used
                data = data[used:]
                answers += self._left == 0
                continue
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                break
            head, data = self._head[:end].lower(), self._head[end + 4 :]
            self._head = b""
            at = head.find(b"\r\ncontent-length:")
            self._left = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            answers += self._left == 0
        return self._answer * answers


class Grpc:
    """What comes on one connection of HTTP/2.  The client's windows are not looked at: who starts this chooses few."""

    greeting = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, WINDOW)) + frame(
        WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - 65535)
    )

    def __init__(self, answer: bytes) -> None:
        text = b"\0" + struct.pack(">I", len(answer)) + answer
        self._pieces = [text[at : at + FRAME_BYTES_MAX] for at in range(0, len(text), FRAME_BYTES_MAX)]
        self._rest = b""
        self._skipped = PREFACE_BYTES
        self._used = 0  # of the connection's window

    def take(self, data: bytes) -> bytes:
        """See Http."""
        data = self._rest + data
        at = min(self._skipped, len(data))
        self._skipped -= at
        found = []
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at < 9 + size:
                break
            kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
            at += 9
            if kind == DATA:
                self._used += size
                if flags & END_STREAM:
                    found.append(self._answer(stream))
            elif kind == SETTINGS and not flags & ACK:
                found.append(frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                found.append(frame(PING, ACK, 0, data[at : at + size]))
            at += size
        self._rest = data[at:]
        if self._used > WINDOW // 2:
            found.append(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._used)))
            self._used = 0
        return b"".join(found)

    def _answer(self, stream: int) -> bytes:
        body = b"".join(frame(DATA, 0, stream, piece) for piece in self._pieces)
        return (
            frame(HEADERS, END_HEADERS, stream, HEAD)
            + body
            + frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS)
        )


class Connection:
    """Its socket, and what that has not taken."""

    def __init__(self, made: socket.socket, side: Http | Grpc) -> None:
        self.socket, self._side, self.rest = made, side, side.greeting

    def ready(self) -> bool:
        """Something came, or there is room.  False: the client has gone."""
        try:
            data = self.socket.recv(ROOM)
            if not data:
                return False
            self.rest += self._side.take(data)
        except BlockingIOError:
            pass
        try:
            while self.rest:
                self.rest = self.rest[self.socket.send(self.rest) :]
        except BlockingIOError:
            pass
        return True


def serve(listening: socket.socket, make: Callable[[], Http | Grpc]) -> None:
    """Until standard input ends."""
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == sys.stdin.fileno():
                return
            if key.fileobj is listening:
                made, _ = listening.accept()
                made.setblocking(False)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(made, make())
                selector.register(made, selectors.EVENT_READ, connection)
            else:
                connection = key.data
            try:
                alive = connection.ready()
            except OSError:
                alive = False
            if not alive:
                selector.unregister(connection.socket)
                connection.socket.close()
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.rest else 0)
            if selector.get_key(connection.socket).events != events:
                selector.modify(connection.socket, events, connection)


def main() -> None:
    """See the module."""
    kind, fd = sys.argv[1:]
    size = int.from_bytes(_read(8), "big")
    answer = _read(size)
    side = Http if kind == "http" else Grpc
    serve(socket.socket(fileno=int(fd)), lambda: side(answer))


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            raise SystemExit("standard input ended before the answer")
        data += piece
    return data


if __name__ == "__main__":
    main()
