"""gRPC over blocking sockets.  Layer 3 (client).

One call at a time on a connection: the thread that asks also reads, so nothing is handed from thread to thread.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic

from tisfast import limits, tuning
from tisfast.client.calls import Call, GrpcCall, T
from tisfast.client.errors import of_grpc, two_readers
from tisfast.client.pool import Pool
from tisfast.client.transport import Cancel, sleep
from tisfast.client.wire_socket import WireSocket, connect
from tisfast.errors import BadResponse, TisError
from tisfast.wire.grpc.client_session import GrpcClientSession

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.wire.grpc.client_session import GrpcCall as SessionCall


def server_timeout_ns(call: GrpcCall[Any], deadline: float) -> int:
    """What is left of the time that the server is to be told of, 0 for none."""
    return max(int((deadline - monotonic()) * 1e9), 1) if call.server_timeout_ns else 0


def no_http2(address: Address, data: bytes) -> BadResponse:
    """The error of a server that speaks something else."""
    return BadResponse(f"{address} does not speak gRPC (HTTP/2): it sent {data[:40]!r}")


class GrpcConnection:
    """One connection, with one call at a time."""

    def __init__(self, made: WireSocket, address: Address) -> None:
        self._socket = made
        self._address = address
        self._session = GrpcClientSession(address.authority, scheme="https" if address.tls else "http")
        self._call: SessionCall | None = None
        self._messages: deque[bytes] = deque()
        self._lost = False
        self.close = made.close
        self.abort = made.abort

    def usable(self) -> bool:
        """See pool.Connection.  What the server has said meanwhile is read: pings, room, that it leaves."""
        data = self._socket.pending()
        try:
            if data:
                self._session.take(data)
        except BadResponse:
            return False
        return self.reusable and (data is None or data != b"")

    @property
    def reusable(self) -> bool:
        """Another call may follow."""
        call, session = self._call, self._session
        used_up = call is not None and call.id >= limits.HTTP2_CALL_ID_MAX
        return not (used_up or self._lost or session.leaving or session.ended)

    def begin(self, call: GrpcCall[Any], deadline: float) -> None:
        """Send a call with one message."""
        self._messages.clear()
        session = self._session
        self._call = session.start(
            call.path,
            metadata=call.metadata,
            timeout_ns=server_timeout_ns(call, deadline),
            encoding=call.encoding,
        )
        session.send(self._call, call.message, last=True)
        self._flush(deadline)

    def message(self, deadline: float) -> bytes | None:
        """The next message, None: the call has ended well.  Raises TisError."""
        call = self._call
        assert call is not None
        while not self._messages:
            if call.code == 0:
                return None
            if call.code > 0:
                raise self._error(call)
            self._read(call, deadline)
        return self._messages.popleft()

    def answer(self, deadline: float) -> bytes:
        """The only message of a call, which has ended well.  Raises TisError."""
        call, messages = self._call, self._messages
        assert call is not None
        while call.code < 0:
            self._read(call, deadline)
        if call.code:
            raise self._error(call)
        if len(messages) != 1:
            raise BadResponse(f"the server answered the call of {call.path} {len(messages)} times, and once is meant")
        return messages.popleft()

    @property
    def ended_well(self) -> bool:
        """Its call has, and so its connection is in a known state."""
        return self._call is not None and self._call.code == 0

    def _read(self, call: SessionCall, deadline: float) -> None:
        """What comes next."""
        data = self._socket.receive(deadline)
        if data:
            events = self._session.take(data)
        else:
            self._lost = True
            events = self._session.lost()
        for kind, of, value in events:
            if kind == "message" and of is call:
                assert isinstance(value, bytes)
                self._messages.append(value)
        if call.code < 0:
            self._flush(deadline)
            if data and self._session.ended:
                raise no_http2(self._address, data)

    def cancel(self, seconds: float) -> None:
        """No further message is wanted."""
        if self._call is not None and self._call.code < 0:
            self._session.cancel(self._call)
            self._flush(monotonic() + seconds)

    def _error(self, call: SessionCall) -> TisError:
        if self._socket.aborted is not None:
            return self._socket.aborted()
        return self._socket.lost(call.text) if self._lost else of_grpc(call)

    def _flush(self, deadline: float) -> None:
        data = self._session.outgoing()
        if data:
            self._socket.send((data,), len(data), deadline)  # what the server said before it went is still to be read


class GrpcStream(Generic[T]):
    """See transport.Stream.  Any thread may cancel it, also while another one waits for the next message."""

    def __init__(
        self, pool: Pool[GrpcConnection], connection: GrpcConnection, call: GrpcCall[T], cancel: Cancel | None
    ) -> None:
        self._pool = pool
        self._connection: GrpcConnection | None = connection
        self._call = call
        self._cancel = cancel
        self._lock = threading.RLock()  # a signal's handler may cancel, too
        self._reading = False
        self._cancelled = False

    async def next(self, deadline: float) -> T | None:
        """See transport.Stream."""
        with self._lock:
            if self._connection is None or self._cancelled:
                return None
            if self._reading:
                raise two_readers()
            connection, self._reading = self._connection, True
        message = None
        try:
            message = connection.message(deadline)
        except TisError:
            if not self._cancelled:
                raise
        finally:
            with self._lock:
                self._reading = False
                if message is None or self._cancelled:
                    self._end(connection)
        return None if message is None or self._cancelled else self._call.read(message)

    def cancel(self) -> None:
        """See transport.Stream."""
        with self._lock:
            connection = self._connection
            if connection is None or self._cancelled:
                return
            self._cancelled = True
            if self._reading:  # who reads ends it
                connection.abort()
                return
        with suppress(TisError, OSError):  # the connection is closed all the same
            connection.cancel(tuning.CLIENT_CANCEL_SECONDS)
        self._end(connection)

    def _end(self, connection: GrpcConnection) -> None:
        self._connection = None
        if self._cancel is not None:
            self._cancel.end()
        give_back(self._pool, connection, connection.ended_well and not self._cancelled)


def give_back(pool: Pool[GrpcConnection], connection: GrpcConnection, well: bool) -> None:
    """The call has ended, well or not: a failed one may have left its connection in any state."""
    if well and connection.reusable:
        pool.give(connection)
    else:
        pool.drop(connection)


class GrpcTransport:
    """See transport.Transport."""

    def __init__(self, address: Address, context: SSLContext | None, server_name: str, connections: int) -> None:
        self._pool = Pool(
            lambda deadline: GrpcConnection(connect(address, context, deadline, server_name), address), connections
        )
        self.close_now = self._pool.close
        self.forget = self._pool.forget

    async def ask(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> T:
        """See transport.Transport."""
        assert isinstance(call, GrpcCall)
        connection = self._begin(call, deadline, cancel)
        well = False
        try:
            message = connection.answer(deadline)
            well = True
        except TisError as error:
            well = "grpc_code" in error.facts
            raise
        finally:
            try:  # Ctrl-C may come in between
                if cancel is not None:
                    cancel.end()
            finally:
                give_back(self._pool, connection, well)
        return call.read(message)  # type: ignore[no-any-return]

    def _begin(self, call: GrpcCall[T], deadline: float, cancel: Cancel | None) -> GrpcConnection:
        connection = self._pool.take(deadline, cancel)
        try:
            if cancel is not None:
                cancel.begin(connection.abort)
            connection.begin(call, deadline)
        except BaseException:
            if cancel is not None:
                cancel.end()
            self._pool.drop(connection)
            raise
        return connection

    async def stream(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> GrpcStream[T]:
        """See transport.Transport."""
        assert isinstance(call, GrpcCall)
        return GrpcStream(self._pool, self._begin(call, deadline, cancel), call, cancel)

    async def pause(self, seconds: float, cancel: Cancel | None) -> None:
        """See transport.Transport."""
        sleep(seconds, cancel)

    async def close(self) -> None:
        """See transport.Transport."""
        self._pool.close()
