"""HTTP over asyncio.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from tisfast.client.assembler import ResponseAssembler
from tisfast.client.async_connect import connect, late
from tisfast.client.async_pool import AsyncPool
from tisfast.client.calls import Body, Call, HttpCall, T
from tisfast.client.errors import ConnectionLost
from tisfast.client.transport import Cancel, Stream
from tisfast.errors import BadResponse, TisError, Unsupported

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.wire.client_head import ResponseHead


class HttpProtocol(asyncio.BufferedProtocol):
    """One connection and its responses."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._assembler = ResponseAssembler()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gone = ""

    # ---- told by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are received."""
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        try:
            if self._assembler.received(nbytes):
                self._told(None)
        except TisError as error:
            self._gone = error.message
            self._told(error)

    def eof_received(self) -> None:
        """The server has closed its side."""

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._gone = self._gone or str(error or "the server closed it")
        try:
            if self._assembler.ended():
                self._told(None)
                return
        except BadResponse as broken:
            self._gone = broken.message
        self._told(
            ConnectionLost(
                f"the connection to {self._address} was lost behind the request ({self._gone}); "
                "the model may have executed it"
            )
        )

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
        """Another request may follow."""
        return not self._gone and self._assembler.reusable

    async def ask(self, call: HttpCall[T], deadline: float) -> tuple[ResponseHead, Body]:
        """Send the request, and read its response."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._assembler.begin(call.head)
        self._transport.writelines([call.head_bytes, *call.pieces])
        try:
            async with asyncio_timeout(deadline):
                await self._waiter
        except TimeoutError:
            raise late(self._address) from None
        if self._assembler.head is None:
            raise BadResponse("the server sent a body without a head")
        return self._assembler.head, self._assembler.body

    def close(self) -> None:
        """No further request."""
        self._gone = self._gone or "the client closed it"
        if self._transport is not None:
            self._transport.abort()
