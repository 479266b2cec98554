"""A connected socket with deadlines, for the blocking transports.  Layer 3 (client).

The kernel keeps the time (SO_RCVTIMEO), set again only when it differs: Python's own timeouts cost a system call for
each read and write.  Over TLS they are needed: OpenSSL, called by Python, begins again when the kernel's time is over.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from tisfast import limits, tuning
from tisfast.client.errors import ConnectFailed, ConnectionLost, TimedOut

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.client.calls import Piece

TIMEVAL: Final = struct.Struct("@ll")
TLS_RECORD_BYTES: Final = 16 * 1024
PIECES_MAX: Final = 512  # of one sendmsg; the kernel takes 1024


class WireSocket:
    """One connection."""

    def __init__(self, made: socket.socket, address: Address) -> None:
        self._socket = made
        self._address = address
        self._allowed = 0.0
        self._scratch = memoryview(bytearray(tuning.CLIENT_RECEIVE_BYTES))
        self._tls = hasattr(made, "pending")
        self._poll = select.poll()
        self._poll.register(made, select.POLLIN)
        self.aborted = False

    def send(self, pieces: Sequence[Piece], nbytes: int, deadline: float) -> str:
        """Send all, which gives "", or why the server takes no more.  Raises TimedOut."""
        self._allow(deadline)
        try:
            small = nbytes <= tuning.CLIENT_JOINED_BYTES_MAX
            if small and len(pieces) > 1:
                pieces = (b"".join(pieces),)
            if self._tls:
                self._send_records(pieces, deadline)
            elif small:
                self._socket.sendall(pieces[0])
            else:
                self._send_all(pieces, deadline)
        except OSError as error:
            if _is_wait(error):
                raise self._late("the request was not taken") from None
            return str(error) or type(error).__name__
        return ""

    def _send_records(self, pieces: Sequence[Piece], deadline: float) -> None:
        """Over TLS: each record may wait for as long as the socket allows, so that is set anew for each."""
        for piece in pieces:
            view = memoryview(piece)
            at = 0
            while at < len(view):
                at += self._socket.send(view[at : at + TLS_RECORD_BYTES])
                self._allow(deadline)

    def _send_all(self, pieces: Sequence[Piece], deadline: float) -> None:
        left = [memoryview(piece) for piece in pieces]
        while left:
            sent = self._socket.sendmsg(left[:PIECES_MAX])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]
                self._allow(deadline)

    def receive_into(self, view: memoryview, deadline: float) -> int:
        """The number of bytes that came, 0 for the end.  Raises TimedOut and ConnectionLost."""
        while True:
            self._allow(deadline)
            try:
                return self._socket.recv_into(view)
            except ConnectionResetError:
                return 0
            except OSError as error:
                if not _is_wait(error):
                    raise self.lost(str(error)) from None

    def receive(self, deadline: float) -> bytes:
        """Bytes that came, b"" for the end.  Raises TimedOut and ConnectionLost."""
        n = self.receive_into(self._scratch, deadline)
        return bytes(self._scratch[:n])

    def pending(self) -> bytes | None:
        """What came while nobody waited; None: nothing; b"": the server has closed the connection."""
        if not self._poll.poll(0) and not (self._tls and self._socket.pending()):  # type: ignore[attr-defined]
            return None
        self._socket.setblocking(False)
        try:
            return self._socket.recv(tuning.CLIENT_RECEIVE_BYTES)
        except OSError as error:
            return None if _is_wait(error) else b""
        finally:
            self._socket.setblocking(True)
            if self._tls:
                self._allowed = 0.0  # that was Python's own time

    def abort(self) -> None:
        """End what another thread waits for here."""
        self.aborted = True
        with suppress(OSError):  # it has ended by itself
            # Not the method of a socket of TLS: that one takes the encryption away under who reads and sends.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """No further call."""
        self._socket.close()

    def __del__(self) -> None:
        """Of a client that nobody closed."""
        self._socket.close()

    def lost(self, why: str) -> ConnectionLost:
        """The error of a connection that ended behind the request."""
        return ConnectionLost(
            f"the connection to {self._address} was lost behind the request ({why}); the model may have executed it"
        )

    def _allow(self, deadline: float) -> None:
        left = deadline - monotonic()
        if left <= 0:
            raise self._late("no answer came")
        if not left <= self._allowed <= 1.1 * left + 0.001:
            self._allowed = 1.05 * left + 0.0005
            if self._tls:
                self._socket.settimeout(self._allowed)
                return
            value = TIMEVAL.pack(int(self._allowed), int(self._allowed % 1 * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def _late(self, what: str) -> TimedOut:
        return TimedOut(f"{what} from {self._address} within the time that the call may take (timeout=)")


def _is_wait(error: OSError) -> bool:
    """It says that nothing goes yet: TLS has classes of its own for that."""
    late = isinstance(error, BlockingIOError | TimeoutError)
    return late or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def connect(address: Address, context: SSLContext | None, deadline: float, server_name: str = "") -> WireSocket:
    """A connection to the server.  Raises ConnectFailed; nothing was sent then."""
    now = monotonic()
    until = min(deadline, now + limits.CLIENT_CONNECT_SECONDS_MAX)
    if until <= now:
        raise TimedOut(f"there was no time left to connect to {address}")
    try:
        made = _connected(address, until)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise connect_failed(address, error) from None
    if context is not None:
        try:
            made.settimeout(_left(until))
            made = context.wrap_socket(made, server_hostname=server_name or address.host)
        except OSError as error:
            made.close()
            raise connect_failed(address, error) from None
    made.settimeout(None)
    return WireSocket(made, address)


def _connected(address: Address, until: float) -> socket.socket:
    """To the first address of that name that answers; each has its share of the time.  Raises OSError."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failed = OSError(f"the name '{address.host}' has no address")
    for number, (family, kind, protocol, _, where) in enumerate(found):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(_left(until) / (len(found) - number))
            made.connect(where)
            return made
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
    raise failed


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def connect_failed(address: Address, error: OSError) -> ConnectFailed:
    """The error of a connection that could not be made."""
    what = "answered nothing" if isinstance(error, TimeoutError) else str(error.strerror or error)
    return ConnectFailed(f"cannot connect to {address}: {what}; is a server running there?")
