"""The responses of one HTTP connection, put together from what is received.  Layer 3 (client).

A large body of known length is received where it stays: the outputs of the answer are views of it.
"""

from __future__ import annotations

import numpy as np

from tisfast import tuning
from tisfast.client.calls import Body
from tisfast.errors import BadResponse
from tisfast.wire.client_head import RequestHead, ResponseHead
from tisfast.wire.http1 import Http1Client


class ResponseAssembler:
    """`begin` for each request; then bytes go into `buffer`, and `received` is told how many.

    Once `received` or `ended` has said that it is whole, `response` gives it.
    """

    def __init__(self) -> None:
        self.session = Http1Client()
        self._head: ResponseHead | None = None
        self._body: Body = b""
        self._scratch = memoryview(bytearray(tuning.CLIENT_RECEIVE_BYTES))
        self._parts = bytearray()
        self._place: memoryview | None = None
        self._filled = 0

    @property
    def reusable(self) -> bool:
        """Another request may follow on this connection."""
        return self.session.reusable and not self.session.outstanding

    def begin(self, head: RequestHead) -> None:
        """A request is sent."""
        self._forget()
        self.session.sent(head)

    def response(self) -> tuple[ResponseHead, Body]:
        """Head and body, of which nothing stays here: they may be large.  Raises BadResponse."""
        head, body = self._head, self._body
        self._forget()
        if head is None:
            raise BadResponse("the server sent a body without a head")
        return head, body

    def _forget(self) -> None:
        self._head, self._body, self._place, self._filled = None, b"", None, 0
        self._parts = bytearray()

    def buffer(self) -> memoryview:
        """Where the next bytes are to be received."""
        return self._scratch if self._place is None else self._place[self._filled :]

    def received(self, n: int) -> bool:
        """So many bytes have come.  True: the response is whole.  Raises BadResponse."""
        if self._place is not None:
            self._filled += n
            if not self.session.took(n):
                return False
            self._body, self._place = self._place, None  # whatever else comes is no part of it
            return True
        whole = False
        for kind, value in self.session.receive(bytes(self._scratch[:n])):
            if kind == "head":
                assert isinstance(value, ResponseHead)
                if value.status >= 200:
                    self._head = value
            elif kind == "data":
                assert isinstance(value, bytes)
                self._parts += value
            else:
                whole = True
        if whole:
            self._body = self._parts
        elif self.session.body_left >= tuning.CLIENT_PLACED_BYTES_MIN:
            self._begin_place()
        return whole

    def _begin_place(self) -> None:
        self._filled = len(self._parts)
        self._place = np.empty(self._filled + self.session.body_left, np.uint8).data
        self._place[: self._filled] = self._parts

    def ended(self) -> bool:
        """The server has closed its side.  True: the response is whole by that.  Raises BadResponse."""
        if not self.session.closed():
            return False
        self._body = self._parts
        return True
