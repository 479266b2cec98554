from collections.abc import Callable
from typing import final

from tisfast.bench.loop import Load, Loop, Marks

@final
class GrpcTemplate:
    text: bytes
    tail: bytes
    id_at: int
    check: Callable[[bytes], str] | None
    def __init__(
        self,
        message: bytes,
        id_at: int = -1,
        check: Callable[[bytes], str] | None = None,
        marks: Marks | None = None,
        pack: Callable[[bytes], bytes] | None = None,
    ) -> None: ...

@final
class CallFields:
    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None: ...

@final
class GrpcLoad(Load):
    def __init__(
        self, loop: Loop, fields: CallFields, places: int, stream: bool = False, decoupled: bool = False
    ) -> None: ...
