from collections.abc import Iterable, Mapping
from typing import Literal, final

@final
class GrpcCall:
    id: int
    path: str
    metadata: dict[str, str] | None
    trailers: dict[str, str] | None
    code: int
    http_status: int
    text: str
    @property
    def waiting_bytes(self) -> int: ...

@final
class GrpcClientSession:
    leaving: bool
    def __init__(self, authority: str, *, scheme: str = ..., user_agent: str = ..., message_max: int = ...) -> None: ...
    def start(
        self,
        path: str,
        *,
        metadata: Iterable[tuple[str, str | bytes]] = ...,
        timeout_ns: int = ...,
        encoding: str = ...,
    ) -> GrpcCall: ...
    def send(self, call: GrpcCall, message: bytes | list[object], *, last: bool = ...) -> None: ...
    def finish_sending(self, call: GrpcCall) -> None: ...
    def cancel(self, call: GrpcCall) -> None: ...
    def take(self, data: bytes) -> list[_Event]: ...
    def outgoing(self) -> bytes: ...
    @property
    def ended(self) -> bool: ...
    @property
    def calls_max(self) -> int: ...
    def lost(self) -> list[_Event]: ...

_Event = tuple[Literal["head", "end"], GrpcCall, Mapping[str, str]] | tuple[Literal["message"], GrpcCall, bytes]

def timeout_text(timeout_ns: int) -> bytes: ...
