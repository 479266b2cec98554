"""HTTP over asyncio.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
import select
from time import monotonic
from typing import TYPE_CHECKING, Any

from tisfast.client.assembler import ResponseAssembler
from tisfast.client.async_socket import AsyncPool, OneLoop, Where
from tisfast.client.calls import Body, Call, HttpCall, T
from tisfast.client.errors import client_closed, not_sent
from tisfast.client.transport import Cancel, Stream
from tisfast.client.turns import wait
from tisfast.errors import BadResponse, TisError, Unsupported

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.wire.client_head import ResponseHead


class HttpProtocol(asyncio.BufferedProtocol):
    """One connection and its responses."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._assembler = ResponseAssembler()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gone: TisError | None = None

    # ---- told by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are received."""
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        try:
            if self._assembler.received(nbytes):
                self._told(None)
        except TisError as error:
            self._end(error)

    def eof_received(self) -> None:
        """The server has closed its side: so is this one."""

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        if self._gone is not None:
            return
        why = str(error or "the server closed it")
        try:
            if self._assembler.ended():
                self._told(None)
        except BadResponse as broken:
            why = broken.message
        self._end(self._where.lost(why))

    def _end(self, error: TisError) -> None:
        if self._gone is None:
            self._gone = error
        self._told(error)

    def _told(self, error: TisError | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    # ---- told by the transport

    def usable(self) -> bool:
        """Another request may follow: nothing has come, not even an end that the loop has still to tell of."""
        return self._gone is None and self._assembler.reusable and not self._poll.poll(0)

    async def ask(self, call: HttpCall[T], deadline: float) -> tuple[ResponseHead, Body]:
        """Send the request, and read its response."""
        assert self._transport is not None
        if self._gone is not None:  # a new connection that ended before its first request
            raise self._gone if isinstance(self._gone, BadResponse) else self._where.closed_at_once()
        if deadline <= monotonic():  # its turn or the connection came too late
            raise not_sent()
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self._assembler.begin(call.head)
        self._transport.writelines([call.head_bytes, *call.pieces])
        await wait(waiter, deadline, self._where.late())
        return self._assembler.response()

    def close(self) -> None:
        """No further request."""
        self._end(client_closed())
        if self._transport is not None:
            self._transport.abort()


class AsyncHttpTransport:
    """See transport.Transport."""

    def __init__(self, address: Address, context: SSLContext | None, server_name: str, connections: int) -> None:
        where = Where(address, context, server_name)
        self._pool = AsyncPool(lambda deadline: where.connect(lambda: HttpProtocol(where), deadline), connections)
        self._loop = OneLoop(self._pool.forget)

    def forget(self) -> None:
        """See transport.Transport."""
        self._loop.forget()
        self._pool.forget()

    async def ask(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> T:
        """See transport.Transport.  Whoever cancels the awaiting task ends the connection, which tells the server."""
        assert isinstance(call, HttpCall)
        self._loop.check()
        connection = await self._pool.take(deadline)
        try:
            head, body = await connection.ask(call, deadline)
        except BaseException:
            self._pool.drop(connection)
            raise
        if connection.usable():
            self._pool.give(connection)
        else:
            self._pool.drop(connection)
        return call.read(head, body)  # type: ignore[no-any-return]

    async def stream(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> Stream[Any]:
        """HttpCalls refuses such calls."""
        raise Unsupported("HTTP has no streams of tensors")

    async def pause(self, seconds: float, cancel: Cancel | None) -> None:
        """See transport.Transport."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """See transport.Transport."""
        self._loop.check()
        self._pool.close()
        await asyncio.sleep(0)  # the loop closes what was aborted in its next turn
