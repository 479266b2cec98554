"""Congestion control of accepted connections.  Layer 4 (front).

Between two ends on one machine there is no network to spare.  Where the operator's choice is bbr, as many have it, it
paces what goes to a neighbour as well, with a timer for each 64 to 128 KB: 16 MB to one took 1.3 times as long.  Reno
never paces, and every Linux has it.

But a connection that has been bbr's for a moment is paced for good, whatever it is set to later (the kernel keeps
`sk_pacing_status`).  So the listening socket is set to reno, of which connections are then born; those from elsewhere
get the machine's choice.  Where an operator forbids reno, theirs stays for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

_UNPACED = b"reno"
_NAME_BYTES_MAX = 16  # TCP_CA_NAME_MAX


def listen_unpaced(listening: socket.socket) -> None:
    """What `listening` accepts from now on is not paced."""
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)


def pace_strangers(transport: asyncio.BaseTransport) -> None:
    """An accepted connection between two addresses has the machine's choice; one at a single address stays unpaced."""
    own, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    if own and peer and own[0] == peer[0]:
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError), socket.socket() as fresh:  # a system out of descriptors has reno for this one
        choice = fresh.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES_MAX)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, choice)
