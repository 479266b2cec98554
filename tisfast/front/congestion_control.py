"""Congestion control of accepted connections.  Layer 4 (front).

Between two ends on one machine there is no network to spare.  Where the operator's choice is bbr, as many have it, it
paces what goes to a neighbour as well, with a timer for each 64 to 128 KB: 16 MB to one took 1.3 times as long.  Reno
never paces, and every Linux has it.

But a connection that has been bbr's for a moment is paced for good, whatever it is set to later (the kernel keeps
`sk_pacing_status`).  So the listening socket is set to reno, of which connections are then born; those from elsewhere
get the machine's choice.  Where an operator forbids reno, theirs stays for all, and so it does with
--unpaced-local=false.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

_UNPACED = b"reno"
_NAME_BYTES_MAX = 16  # TCP_CA_NAME_MAX


def listen_unpaced(listening: socket.socket) -> str:
    """Connections that `listening` accepts from now on are not paced.  Returns the machine's choice that this sets
    aside, or "".
    """
    with contextlib.suppress(OSError):
        choice = _control_of(listening)
        if choice != _UNPACED:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)
            return choice.decode()
    return ""


def pace_strangers(transport: asyncio.BaseTransport) -> None:
    """An accepted connection between two addresses has the machine's choice; one at a single address stays unpaced."""
    own, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    if own and peer and own[0] == peer[0]:
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if _control_of(connection) != _UNPACED:
            return
        with socket.socket() as fresh:  # a system out of descriptors has reno for this one
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _control_of(fresh))


def _control_of(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES_MAX).rstrip(b"\0")
