from typing import final

class MessageHead:
    raw: bytes
    http10: bool
    keep_alive: bool
    chunked: bool
    content_length: int
    def headers(self) -> list[tuple[bytes, bytes]]: ...

@final
class Head(MessageHead):
    method: str
    target: str
    path: str
    is_infer: bool
    call: int
    name: str
    version: str
    expect_continue: bool
    inference_header_length: int
    content_encoding: str
    accept_encoding: str
    accepts_events: bool
    def aim(self, method: str, path: str) -> None: ...

def parse(raw: bytes) -> Head: ...
def find(data: bytes, searched: int = 0) -> int: ...
def version_number(digits: str) -> str: ...
def canonical_version(text: str) -> str: ...
