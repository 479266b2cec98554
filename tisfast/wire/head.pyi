from typing import Any, final

@final
class Head:
    raw: bytes
    method: str
    target: str
    path: str
    query: str
    minor_version: int
    keep_alive: bool
    chunked: bool
    expects_continue: bool
    content_length: int
    json_bytes: int
    json_bytes_error: str
    request_coding: str
    response_coding: str
    route: Any
    def headers(self) -> list[tuple[bytes, bytes]]: ...

def parse(raw: bytes) -> Head: ...
def find(data: bytes, from_byte: int = 0) -> int: ...
