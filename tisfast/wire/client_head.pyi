from typing import final

from tisfast.wire.head import MessageHead

@final
class RequestHead:
    method: str
    text: bytes
    is_head: bool
    def __init__(self, method: str, target: str, host: str, headers: list[tuple[str, str]] = ...) -> None: ...
    def with_body(self, nbytes: int, json_bytes: int = -1, *, expect_continue: bool = False) -> bytes: ...
    def in_chunks(self, *, expect_continue: bool = False) -> bytes: ...
    def without_body(self) -> bytes: ...

@final
class ResponseHead(MessageHead):
    status: int
    reason: str
    inference_header_length: int
    content_type: str
    content_encoding: str
    def first(self, name: str) -> str | None: ...

def parse(raw: bytes) -> ResponseHead: ...
def chunk(data: bytes) -> bytes: ...
