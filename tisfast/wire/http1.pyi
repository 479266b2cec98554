from typing import Literal, final

from tisfast.wire.client_head import RequestHead, ResponseHead
from tisfast.wire.head import Head

class Http1Session: ...

@final
class Http1Server(Http1Session):
    head: Head | None
    def receive(self, data: bytes) -> list[_RequestEvent]: ...

@final
class Http1Client(Http1Session):
    head: ResponseHead | None
    reusable: bool
    def __init__(self, *, body_max: int = ...) -> None: ...
    @property
    def outstanding(self) -> int: ...
    def sent(self, request: RequestHead) -> int: ...
    def closed(self) -> bool: ...
    def receive(self, data: bytes) -> list[_ResponseEvent]: ...

_RequestEvent = tuple[Literal["head"], Head] | tuple[Literal["data"], bytes] | tuple[Literal["end"], None]
_ResponseEvent = tuple[Literal["head"], ResponseHead] | tuple[Literal["data"], bytes] | tuple[Literal["end"], None]
