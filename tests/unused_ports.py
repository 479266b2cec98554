"""Ports where nobody listens, and which the system gives to nobody else meanwhile."""

import random
import socket
from contextlib import ExitStack


def closed_port():
    """One that was free a moment ago."""
    return closed_ports(1)


def closed_ports(count):
    """The first of so many ports in a row, below those that the system gives to clients."""
    while True:
        first = random.SystemRandom().randrange(10000, 30000)
        try:
            with ExitStack() as found:
                for port in range(first, first + count):
                    found.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
