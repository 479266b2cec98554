from typing import Any, final

from tisfast.engine.rate_limiter import Claim
from tisfast.native.memory import Arena

class AnswerSink: ...

@final
class InferRequest:
    parent: InferRequest | None
    cancelled: bool
    queued_ns: int
    expires_ns: int
    done: bool
    trace: Any
    @property
    def times(self) -> dict[str, int]: ...

class Clock: ...

class Link:
    @property
    def kept_blocks(self) -> int: ...
    instance: str
    output: Arena | None
    up: bool
    inflight: int
    claim: Claim | None
