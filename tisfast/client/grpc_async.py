"""gRPC over asyncio: all calls share one connection.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic

from tisfast import limits
from tisfast.client.async_socket import OneLoop, Where
from tisfast.client.calls import Call, GrpcCall, T
from tisfast.client.errors import ClientClosed, TimedOut, client_closed, not_sent, of_grpc, two_readers
from tisfast.client.grpc_sync import no_http2, server_timeout_ns
from tisfast.client.transport import Cancel
from tisfast.client.turns import Turns, wait
from tisfast.errors import BadResponse, TisError
from tisfast.wire.grpc.client_session import GrpcClientSession

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.wire.grpc.client_session import GrpcCall as SessionCall


class Inbox:
    """What has come of one call, and who waits for it."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.ended = False
        self.error: TisError | None = None
        self.waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Something has come."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self) -> None:
        """Nothing more is wanted: whoever waits is told that nothing comes."""
        self.messages.clear()
        self.ended, self.error = True, None
        self.wake()


class GrpcProtocol(asyncio.Protocol):
    """One connection and its calls."""

    def __init__(self, where: Where) -> None:
        self._where = where
        address = where.address
        self._session = GrpcClientSession(address.authority, scheme="https" if address.tls else "http")
        self._inboxes: dict[int, Inbox] = {}
        self._transport: asyncio.Transport | None = None
        self._gone = ""
        self._latest_id = 0

    # ---- told by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        try:
            self._note(self._session.take(data))
        except BadResponse as error:
            self._fail(error)
            return
        self._flush()
        if self._inboxes and self._session.ended:
            self._fail(no_http2(self._where.address, data))

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._gone = self._gone or str(error or "the server closed it")
        self._note(self._session.lost())

    def _note(self, events: list[Any]) -> None:
        for kind, call, value in events:
            inbox = self._inboxes.get(call.id)
            if inbox is None:
                continue
            if kind == "message":
                inbox.messages.append(value)
            elif kind == "end":
                inbox.ended = True
                if call.code:
                    inbox.error = self._where.lost(self._gone) if self._gone else of_grpc(call)
                del self._inboxes[call.id]
            else:
                continue
            inbox.wake()

    def _fail(self, error: TisError) -> None:
        self._gone = self._gone or error.message
        inboxes, self._inboxes = list(self._inboxes.values()), {}
        for inbox in inboxes:
            inbox.ended, inbox.error = True, error
            inbox.wake()
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        data = self._session.outgoing()
        if data and self._transport is not None:
            self._transport.write(data)

    # ---- told by the transport

    @property
    def usable(self) -> bool:
        """Another call may be made."""
        used_up = self._latest_id >= limits.HTTP2_CALL_ID_MAX
        return not (used_up or self._gone or self._session.leaving or self._session.ended)

    @property
    def idle(self) -> bool:
        """No call is open."""
        return not self._inboxes

    def begin(self, call: GrpcCall[Any], deadline: float, paced: bool = False) -> tuple[SessionCall, Inbox]:
        """Send a call with one message.  paced: see GrpcClientSession.start, and `taken`.  Raises TimedOut."""
        if deadline <= monotonic():  # its turn or the connection came too late
            raise not_sent()
        timeout_ns = server_timeout_ns(call, deadline)
        begun = self._session.start(
            call.path, metadata=call.metadata, timeout_ns=timeout_ns, encoding=call.encoding, paced=paced
        )
        self._latest_id = begun.id
        inbox = self._inboxes[begun.id] = Inbox()
        try:
            self._session.send(begun, call.message, last=True)
        except BaseException:  # it is too long: what has begun has an end
            self.cancel(begun)
            raise
        self._flush()
        return begun, inbox

    async def message(self, inbox: Inbox, deadline: float) -> bytes | None:
        """The next message of a call, None: it has ended well.  Raises TisError."""
        while not inbox.messages:
            if inbox.ended:
                if inbox.error is not None:
                    raise inbox.error
                return None
            inbox.waiter = asyncio.get_running_loop().create_future()
            await wait(inbox.waiter, deadline, self._where.late())
        return inbox.messages.popleft()

    def taken(self, call: SessionCall, message: bytes) -> None:
        """A message of a paced call is read."""
        if not self._gone:
            self._session.taken(call, message)
            self._flush()

    def cancel(self, call: SessionCall) -> None:
        """No further message is wanted; the server is told."""
        if self._inboxes.pop(call.id, None) is not None and not self._gone:
            self._session.cancel(call)
            self._flush()

    def close(self) -> None:
        """End all calls."""
        self._fail(client_closed())


class AsyncGrpcStream(Generic[T]):
    """See transport.Stream."""

    def __init__(self, connection: GrpcProtocol, begun: SessionCall, inbox: Inbox, call: GrpcCall[T]) -> None:
        self._connection = connection
        self._begun = begun
        self._inbox = inbox
        self._call = call

    async def next(self, deadline: float) -> T | None:
        """See transport.Stream."""
        if self._inbox.waiter is not None:
            raise two_readers()
        try:
            message = await self._connection.message(self._inbox, deadline)
        except BaseException:
            self.cancel()
            raise
        if message is None:
            return None
        self._connection.taken(self._begun, message)
        return self._call.read(message)

    def cancel(self) -> None:
        """See transport.Stream."""
        self._connection.cancel(self._begun)
        self._inbox.end()


class AsyncGrpcTransport:
    """See transport.Transport.  connections: bounds the calls at one time, which share one connection."""

    def __init__(self, address: Address, context: SSLContext | None, server_name: str, connections: int) -> None:
        self._where = Where(address, context, server_name)
        self._loop = OneLoop(self._begin_anew)
        self._turns = Turns(connections, self._where.late)
        self._begin_anew()

    def forget(self) -> None:
        """See transport.Transport."""
        self._loop.forget()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._connection: GrpcProtocol | None = None
        self._connecting: asyncio.Future[GrpcProtocol] | None = None
        self._all: set[GrpcProtocol] = set()
        self._turns = self._turns.anew()

    async def _connect(self, deadline: float) -> GrpcProtocol:
        if self._connection is not None and self._connection.usable:
            return self._connection
        if self._turns.closed:
            raise ClientClosed("the client is closed")
        if self._connecting is None:  # the first one connects for all; each waits by its own deadline
            coroutine = self._where.connect(
                lambda: GrpcProtocol(self._where), monotonic() + limits.CLIENT_CONNECT_SECONDS_MAX
            )
            self._connecting = asyncio.ensure_future(coroutine)
            self._connecting.add_done_callback(self._on_connected)
        connecting = self._connecting
        await asyncio.wait([connecting], timeout=max(deadline - monotonic(), 0))
        if not connecting.done():
            raise TimedOut("there was no time left to connect")
        if connecting.cancelled():
            raise ClientClosed("the client is closed")
        made = connecting.result()
        if not made.usable:
            raise self._where.closed_at_once()
        return made

    def _on_connected(self, connecting: asyncio.Future[GrpcProtocol]) -> None:
        if self._connecting is connecting:
            self._connecting = None
        if connecting.cancelled() or connecting.exception() is not None:
            return  # whoever waits is told
        self._connection = made = connecting.result()
        for each in [each for each in self._all if not each.usable and each.idle]:
            each.close()
            self._all.discard(each)
        self._all.add(made)
        if self._turns.closed:
            made.close()

    async def ask(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> T:
        """See transport.Transport.  Whoever cancels the task that awaits it has the server told."""
        assert isinstance(call, GrpcCall)
        self._loop.check()
        if not self._turns.enter_now():
            await self._turns.enter(deadline)
        try:
            connection = await self._connect(deadline)
            begun, inbox = connection.begin(call, deadline)
            try:
                message = await connection.message(inbox, deadline)
                if message is None:
                    raise BadResponse(f"the server ended the call of {call.path} without an answer")
                if await connection.message(inbox, deadline) is not None:
                    raise BadResponse(f"the server answered the call of {call.path} more than once")
            finally:
                connection.cancel(begun)
        finally:
            self._turns.leave()
        return call.read(message)  # type: ignore[no-any-return]

    async def stream(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> AsyncGrpcStream[T]:
        """See transport.Transport."""
        assert isinstance(call, GrpcCall)
        self._loop.check()
        connection = await self._connect(deadline)
        begun, inbox = connection.begin(call, deadline, paced=True)
        return AsyncGrpcStream(connection, begun, inbox, call)

    async def pause(self, seconds: float, cancel: Cancel | None) -> None:
        """See transport.Transport."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """See transport.Transport."""
        self._loop.check()
        self._turns.close()
        if self._connecting is not None:
            self._connecting.cancel()
        for connection in self._all:
            connection.close()
        await asyncio.sleep(0)  # the loop closes what was aborted in its next turn
