import asyncio
from typing import final

from tisfast.engine.core import Clock, InferRequest, Link
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.native.channel import Bell

@final
class Poller:
    bell: Bell
    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, spin_us: int = ...) -> None: ...
    def close(self) -> None: ...

@final
class RingLink(Link):
    runtime: ModelRuntime
    def __init__(
        self,
        instance: str,
        runtime: ModelRuntime,
        poller: Poller,
        output_arena_bytes: int,
        registry: Registry | None = None,
    ) -> None: ...
    @property
    def fds(self) -> tuple[int, int, int, int, int]: ...
    @property
    def executing_since_ns(self) -> int: ...
    def open(self) -> None: ...
    def answer_to(self, runtime: ModelRuntime) -> None: ...
    def listen(self) -> None: ...
    def request_stop(self) -> None: ...
    def close(self) -> tuple[list[InferRequest], list[InferRequest]]: ...
