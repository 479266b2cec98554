from collections.abc import Callable
from typing import Any, final

from tisfast.engine.cache import LocalStore, ModelCache
from tisfast.engine.core import Clock, InferRequest, Link, Reply
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.served import Runtime
from tisfast.native.memory import Block
from tisfast.wire.record import Answer, InferInput
from tisfast.wire.signature import ModelSignature

@final
class FakeClock(Clock):
    now: int
    epoch: int
    def __init__(self, now: int = ...) -> None: ...

@final
class FakeReply(Reply):
    calls: list[tuple[str, int, str | None]]
    def __init__(self, calls: list[Any]) -> None: ...

@final
class StreamReply(Reply):
    calls: list[tuple[str, int, Any, bool]]
    told: Callable[[], None] | None
    def __init__(self, calls: list[Any], told: Callable[[], None] | None = ...) -> None: ...

@final
class KeepingReply(Reply):
    calls: list[tuple[int, Any, bool]]
    def __init__(self, calls: list[Any]) -> None: ...

@final
class FakeLink(Link):
    dispatched: list[list[InferRequest]]
    streams: list[InferRequest]
    slots: int
    expected: int
    def __init__(self, instance: str, runtime: ModelRuntime, clock: FakeClock, slots: int = ...) -> None: ...
    def ids(self) -> list[list[str]]: ...
    def places(self) -> list[list[tuple[str, int]]]: ...
    def reschedule(self, took_ns: int = ...) -> None: ...
    def execute(
        self, took_ns: int = ..., status: int = ..., answer: Callable[[InferInput], Answer] | None = ...
    ) -> None: ...
    def respond(
        self,
        request: InferRequest,
        status: int = ...,
        final: bool = ...,
        took_ns: int = ...,
        answer: Answer | None = ...,
    ) -> None: ...
    def execute_streams(self, took_ns: int = ...) -> list[InferRequest]: ...
    def die(self) -> None: ...
    def revive(self) -> None: ...

def make_input(
    model: ModelSignature,
    id: str = ...,
    batch: int = ...,
    timeout_us: int = ...,
    shape_key: bytes = ...,
    correlation: int | str = ...,
    flags: int = ...,
    priority: int = ...,
) -> InferInput: ...
def place_input(
    runtime: Runtime,
    id: str,
    tensors: list[tuple[int, int, tuple[int, ...], bytes]],
    parameters: bytes = ...,
    batch: int = ...,
) -> InferInput: ...
def submit(
    runtime: Runtime, input: InferInput, reply: Reply, trace: object = None, parent: InferRequest | None = None
) -> InferRequest: ...
def expect(runtime: Runtime, missing: int) -> None: ...
def cancel(runtime: Runtime, request: InferRequest) -> None: ...
def keep_answer(store: LocalStore, key: bytes, answer: Answer) -> bool: ...
def find_answer(store: LocalStore, key: bytes) -> Block | None: ...
def key_of(cache: ModelCache, input: InferInput) -> bytes: ...
def sequences(runtime: Runtime) -> dict[int | str, tuple[str | None, int]]: ...
