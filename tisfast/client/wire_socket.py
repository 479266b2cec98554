"""A connected socket with deadlines, for the blocking transports.  Layer 3 (client).

A read blocks for as long as the kernel was told (SO_RCVTIMEO), which is told again only when what is left differs: a
small answer costs one system call.  A write does not block, and waits only when it has to.  TLS has Python's timeouts.
A signal's handler that runs within does not begin the time anew.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from tisfast import limits, tuning
from tisfast.client.errors import ConnectFailed, ConnectionLost, TimedOut, TisError
from tisfast.client.transport import cancelled
from tisfast.native.timed_receive import receive_into

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.client.calls import Piece

AT_ONCE: Final = int(socket.MSG_DONTWAIT)  # numbers: an enumeration's members cost a microsecond each
LOOK: Final = int(socket.MSG_DONTWAIT | socket.MSG_PEEK)
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
        made.setblocking(True)
        self.aborted: Callable[[], TisError] | None = None

    def send(self, pieces: Sequence[Piece], nbytes: int, deadline: float) -> str:
        """Send all, which gives "", or why the server takes no more.  Raises TimedOut."""
        try:
            if nbytes <= tuning.CLIENT_JOINED_BYTES_MAX and len(pieces) > 1:
                pieces = (b"".join(pieces),)
            if self._tls:
                self._allow(deadline)
                self._send_records(pieces, deadline)
            else:
                self._send_all(pieces, deadline)
        except OSError as error:
            if _is_wait(error):
                raise TimedOut("the request was not taken in time") from None
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
        _left(deadline)
        sent = 0
        if len(pieces) == 1:  # as a small request is: this costs less than sendmsg
            try:
                sent = self._socket.send(pieces[0], AT_ONCE)
            except BlockingIOError:
                sent = 0
            if sent == len(pieces[0]):
                return
        left = [memoryview(piece) for piece in pieces]
        left[0] = left[0][sent:]
        while left:
            _left(deadline)
            try:
                sent = self._socket.sendmsg(left[:PIECES_MAX], (), AT_ONCE)
            except BlockingIOError:
                self._wait_for_room(deadline)
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def _wait_for_room(self, deadline: float) -> None:
        room = select.poll()
        room.register(self._socket, select.POLLOUT)
        room.poll(_left(deadline) * 1000)

    def receive_into(self, view: memoryview, deadline: float) -> int:
        """The number of bytes that came, 0 for the end.  Raises TimedOut and ConnectionLost."""
        try:
            while True:
                self._allow(deadline)
                n = self._socket.recv_into(view) if self._tls else receive_into(self._socket.fileno(), view)
                if n >= 0:
                    return n
        except ConnectionResetError:
            return 0
        except OSError as error:
            if not _is_wait(error):
                raise self.lost(str(error)) from None
            raise TimedOut("no answer came in time") from None

    def receive(self, deadline: float) -> bytes:
        """Bytes that came, b"" for the end.  Raises TimedOut and ConnectionLost."""
        n = self.receive_into(self._scratch, deadline)
        return bytes(self._scratch[:n])

    def pending(self) -> bytes | None:
        """What came while nobody waited; None: nothing; b"": the server has closed the connection."""
        try:
            n = receive_into(self._socket.fileno(), self._scratch, LOOK if self._tls else AT_ONCE)
            if not self._tls:
                return bytes(self._scratch[:n]) if n >= 0 else None
            if n < 0 and not self._socket.pending():  # type: ignore[attr-defined]
                return None
            self._socket.setblocking(False)
            self._allowed = 0.0
            return self._socket.recv(tuning.CLIENT_RECEIVE_BYTES)
        except OSError as error:
            return None if _is_wait(error) else b""

    def abort(self, why: Callable[[], TisError] = cancelled) -> None:
        """End what another thread waits for here, which then raises the first `why`."""
        self.aborted = self.aborted or why
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
        """The next read waits so long, over TLS a write, too; told again only when it differs by a fiftieth.

        Raises TimeoutError when nothing is left.
        """
        left = _left(deadline)
        if left <= self._allowed <= 1.02 * left + 0.001:
            return
        self._allowed = 1.01 * left + 0.0005
        if self._tls:
            self._socket.settimeout(self._allowed)
        else:
            seconds = int(self._allowed)
            time = struct.pack("ll", seconds, int((self._allowed - seconds) * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)


def _is_wait(error: OSError) -> bool:
    """It says that nothing goes yet: TLS has classes of its own for that."""
    late = isinstance(error, BlockingIOError | TimeoutError)
    return late or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def connect(address: Address, context: SSLContext | None, deadline: float, server_name: str = "") -> WireSocket:
    """A connection to the server.  Raises ConnectFailed; nothing was sent then."""
    now = monotonic()
    until = min(deadline, now + limits.CLIENT_CONNECT_SECONDS_MAX)
    if until <= now:
        raise TimedOut("there was no time left to connect")
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
    return WireSocket(made, address)


def _connected(address: Address, until: float) -> socket.socket:
    """To the first address of that name that answers; each has its share of the time.  Raises OSError."""
    found = _looked_up(address, until)
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
    try:
        raise failed
    finally:
        del failed  # an error has this frame: with the request behind it, it would wait for the collector


_asked: dict[tuple[str, int], Future[Any]] = {}
"""The names that threads are looking up.  A name has one thread, however many calls give it up meanwhile."""
os.register_at_fork(after_in_child=_asked.clear)  # its threads are the parent's


def _looked_up(address: Address, until: float) -> list[Any]:
    """What a name stands for.  Raises OSError.

    The system's resolver has no deadline, so a thread asks it, which ends with the resolver's own time.  Numbers, and
    this machine, need no name server.
    """
    key = (address.host, address.port)
    mine: Future[Any] = Future()

    def ask() -> None:
        try:
            found: Any = socket.getaddrinfo(*key, type=socket.SOCK_STREAM)
        except Exception as error:
            found = (error if isinstance(error, OSError) else OSError(str(error))).with_traceback(None)
        _asked.pop(key, None)
        mine.set_result(found)

    if address.numeric or address.local:
        ask()
        found = mine.result()
    else:
        asked = mine
        try:
            asked = _asked.setdefault(key, mine)
            if asked is mine:
                threading.Thread(target=ask, name="tisfast-client-name", daemon=True).start()
        except RuntimeError:  # the program ends (since Python 3.12), or may have no more threads
            ask()
        except BaseException:  # Ctrl-C: else nobody would ever ask again
            _asked.pop(key, None)
            raise
        try:
            found = asked.result(_left(until))
        except TooLate:
            raise OSError(f"no name server said in time where '{address.host}' is") from None
    if isinstance(found, OSError):
        raise type(found)(*found.args)  # each caller its own, which has its frames
    return cast("list[Any]", found)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def connect_failed(address: Address, error: OSError) -> ConnectFailed:
    """The error of a connection that could not be made."""
    unproved: str = getattr(error, "verify_message", "")
    if unproved:
        return ConnectFailed(f"cannot connect to {address}: its certificate is not accepted: {unproved.rstrip('.')}")
    what = "answered nothing" if isinstance(error, TimeoutError) else str(error.strerror or error)
    return ConnectFailed(f"cannot connect to {address}: {what}; is a server running there?")
