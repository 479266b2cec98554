"""Messages between the server and one codec process: msgpack over a stream socket, with descriptors.  Layer 3 (codec).

A message is its length and the number of its descriptors, both little-endian, then the msgpack array
``[kind, ...]``.  Descriptors come with a message's first byte, so they are taken in the order of the messages.

Server to codec: ``model id description``, ``file id bytes writable`` (1 descriptor), ``forget kind id``; a job,
``parse ...`` or ``render ...`` (job_runner.pyx); the answers to a codec's questions: ``block offset bytes``,
``region ...``, ``copied``, ``resolved model arena``, ``refused status text``.
Codec to server: questions within a job, ``take bytes``, ``region name``, ``copy ...``, ``resolve name version``; then
``done ...``, ``failed status text id`` or ``broken name traceback``.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from tisfast.limits import CODEC_MESSAGE_BYTES_MAX

INFER, GENERATE, GRPC = "infer", "generate", "grpc"
"""Forms of requests and answers."""
HEAD = struct.Struct("<IB")
READ_BYTES = 64 * 1024
DESCRIPTORS_MAX = 8
"""Descriptors of one read: a message has at most one, and the kernel does not join messages with descriptors."""


def packed(message: Sequence[object], descriptors: int) -> bytes:
    """A message as it goes over the socket."""
    text: bytes = msgpack.packb(message, use_bin_type=True)
    return HEAD.pack(len(text), descriptors) + text


class Inbox:
    """Turns received bytes and descriptors into messages.  Descriptors that were not taken are closed with it."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()

    def read(self, from_socket: socket.socket) -> bool:
        """Read once; False at the end of the stream.  Raises OSError, BlockingIOError."""
        data, descriptors, _, _ = socket.recv_fds(
            from_socket, READ_BYTES, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC | socket.MSG_NOSIGNAL
        )
        self._bytes += data
        self._descriptors += descriptors
        return bool(data)

    def messages(self) -> Iterator[tuple[list[Any], int]]:
        """The next whole message, and its descriptor (-1: none), which is the receiver's from then on."""
        while len(self._bytes) >= HEAD.size:
            nbytes, descriptors = HEAD.unpack_from(self._bytes)
            if nbytes > CODEC_MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {nbytes} bytes; {CODEC_MESSAGE_BYTES_MAX} is the limit")
            if len(self._bytes) < HEAD.size + nbytes:
                return
            text = bytes(self._bytes[HEAD.size : HEAD.size + nbytes])
            del self._bytes[: HEAD.size + nbytes]
            message = msgpack.unpackb(text, use_list=False, strict_map_key=False)
            yield message, self._descriptors.popleft() if descriptors else -1

    def close(self) -> None:
        """Close the descriptors that were not taken."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
