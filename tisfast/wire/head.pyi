from typing import final

@final
class Head:
    raw: bytes
    method: str
    target: str
    path: str
    is_infer: bool
    call: int
    name: str
    version: str
    http10: bool
    keep_alive: bool
    chunked: bool
    expect_continue: bool
    content_length: int
    inference_header_length: int
    content_encoding: str
    accept_encoding: str
    accepts_events: bool
    def headers(self) -> list[tuple[bytes, bytes]]: ...

def parse(raw: bytes) -> Head: ...
def find(data: bytes, searched: int = 0) -> int: ...
def version_number(digits: str) -> str: ...
def canonical_version(text: str) -> str: ...
