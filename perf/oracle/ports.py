"""Ports for servers that are told a number: held, so that of two that choose at once none gets the other's."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Distinct free ports of this machine, nobody else's until the context ends.

    Each is bound and not listened on, with SO_REUSEADDR: Linux then chooses it neither for a bind to port 0 nor for a
    connection going out, and lets whoever asks for it by number with that option, as servers do, listen there.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]
