"""HTTP over blocking sockets.  Layer 3 (client)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tisfast.client.assembler import ResponseAssembler
from tisfast.client.calls import Body, Call, HttpCall, T
from tisfast.client.pool import Pool
from tisfast.client.transport import Cancel, Stream, sleep
from tisfast.client.wire_socket import WireSocket, connect
from tisfast.errors import BadResponse, Unsupported

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address
    from tisfast.wire.client_head import ResponseHead


class HttpConnection:
    """One connection and its responses."""

    def __init__(self, made: WireSocket) -> None:
        self._socket = made
        self._assembler = ResponseAssembler()
        self.close = made.close
        self.abort = made.abort

    def usable(self) -> bool:
        """See pool.Connection."""
        return self._assembler.reusable and self._socket.pending() is None

    @property
    def reusable(self) -> bool:
        """The last response lets another request follow."""
        return self._assembler.reusable

    def ask(self, call: HttpCall[T], deadline: float) -> tuple[ResponseHead, Body]:
        """Send the request, and read its response."""
        assembler, socket = self._assembler, self._socket
        assembler.begin(call.head)
        pieces = [call.head_bytes, *call.pieces]
        failed = socket.send(pieces, sum(map(len, pieces)), deadline)  # who refuses a body answers before its end
        while True:
            n = socket.receive_into(assembler.buffer(), deadline)
            if n:
                if assembler.received(n):
                    break
                continue
            if socket.aborted is not None:
                raise socket.aborted()
            try:
                if assembler.ended():
                    break
            except BadResponse as error:
                raise socket.lost(failed or error.message) from None
            raise socket.lost(failed or "the server closed it")
        return assembler.response()


class HttpTransport:
    """See transport.Transport."""

    def __init__(self, address: Address, context: SSLContext | None, server_name: str, connections: int) -> None:
        self._pool = Pool(
            lambda deadline: HttpConnection(connect(address, context, deadline, server_name)), connections
        )
        self.close_now = self._pool.close
        self.forget = self._pool.forget

    async def ask(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> T:
        """See transport.Transport."""
        assert isinstance(call, HttpCall)
        connection = self._pool.take(deadline, cancel)
        well = False
        try:
            if cancel is not None:
                cancel.begin(connection.abort)
            head, body = connection.ask(call, deadline)
            well = connection.reusable
        finally:
            try:  # Ctrl-C may come in between
                if cancel is not None:
                    cancel.end()
            finally:
                if well:
                    self._pool.give(connection)
                else:
                    self._pool.drop(connection)
        return call.read(head, body)  # type: ignore[no-any-return]

    async def stream(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> Stream[Any]:
        """HttpCalls refuses such calls."""
        raise Unsupported("HTTP has no streams of tensors")

    async def pause(self, seconds: float, cancel: Cancel | None) -> None:
        """See transport.Transport."""
        sleep(seconds, cancel)

    async def close(self) -> None:
        """See transport.Transport."""
        self._pool.close()
