import asyncio
from collections.abc import Callable
from typing import final

from tisfast.engine.registry import Registry
from tisfast.front.response import Handler
from tisfast.native.region import Regions

@final
class FrontShared:
    connections: set[HttpConnection]
    draining: bool
    on_empty: Callable[[], None] | None
    tick: int
    def __init__(
        self,
        registry: Registry | None,
        routes: Handler,
        loop: asyncio.AbstractEventLoop,
        *,
        max_input_bytes: int,
        regions: Regions | None = None,
    ) -> None: ...
    def connect(self) -> HttpConnection: ...
    def sweep(self) -> None: ...
    def begin_drain(self) -> None: ...
    def close_idle(self) -> None: ...

@final
class HttpConnection(asyncio.BufferedProtocol): ...
