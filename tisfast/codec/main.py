"""A codec process: does one job after the other until the server closes the socket.  Layer 3 (codec).

It inherits nothing but its socket, dies with the server, and may take so much memory and no more.  Started as
``python -m tisfast.codec.main FD PARENT_PID MEMORY_BYTES``.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tisfast import tuning
from tisfast.codec.job_runner import JobRunner
from tisfast.codec.messages import Inbox, packed
from tisfast.end_signals import END_SIGNALS, unblock_end_signals
from tisfast.native.memory import die_with_parent


class ServerGone(Exception):
    """The server has closed the socket."""


class ServerConnection:
    """The server as its codec sees it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._inbox = Inbox()
        self._messages = self._inbox.messages()

    def receive(self) -> tuple[Any, int]:
        """The next message and its descriptor (-1: none), waiting for it.  Raises ServerGone."""
        while True:
            for message in self._inbox.messages():
                return message
            if not self._inbox.read(self._socket):
                raise ServerGone

    def send(self, *message: object) -> None:
        """Raises ServerGone."""
        try:
            self._socket.sendall(packed(message, 0))
        except OSError:
            raise ServerGone from None


def private_bytes() -> int:
    """The bytes that count for RLIMIT_DATA before the first job: 10 MB, and the terabytes of a sanitizer's shadow."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def main(arguments: Sequence[str]) -> int:
    """Serve until the server is gone."""
    fd, parent, memory_bytes = map(int, arguments)
    for number in END_SIGNALS:  # of the terminal, or of a container's end: the server tells us
        signal.signal(number, signal.SIG_IGN)
    unblock_end_signals()
    die_with_parent(parent)
    os.nice(tuning.CODEC_NICE)
    os.chdir("/")
    # Private memory: what is mapped of the server's arenas is not ours, and address space costs nothing.
    memory_most = private_bytes() + memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (memory_most, memory_most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    server = ServerConnection(socket.socket(fileno=fd))
    worker = JobRunner(server, memory_bytes)
    try:
        while True:
            worker.handle(*server.receive())
    except ServerGone:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
