from collections.abc import Callable
from typing import final

from tisfast.bench.loop import Load, Loop, Marks
from tisfast.bench.openai_answers import Answer
from tisfast.wire.client_head import RequestHead

@final
class HttpTemplate:
    head: RequestHead
    text: bytes
    check: Callable[[bytes, int], str] | None
    def __init__(
        self,
        head: RequestHead,
        text: bytes,
        check: Callable[[bytes, int], str] | None = None,
        marks: Marks | None = None,
        answering: Callable[[int], Answer] | None = None,
    ) -> None: ...

@final
class HttpLoad(Load):
    def __init__(self, loop: Loop) -> None: ...
