"""Ports where nobody listens."""

import socket


def closed_port():
    """One that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
