import asyncio
from collections.abc import Callable
from typing import final

from tisfast.engine.registry import Registry
from tisfast.front.access import HttpGate
from tisfast.front.connection import HttpConnection
from tisfast.front.policy import Policy
from tisfast.front.response import Handler
from tisfast.front.tracer import Tracer
from tisfast.native.region import Regions

@final
class FrontShared:
    connections: set[HttpConnection]
    draining: bool
    verbose: bool
    tracer: Tracer | None
    on_made: Callable[[], None] | None
    on_empty: Callable[[], None] | None
    tick: int
    def __init__(
        self,
        registry: Registry | None,
        routes: Handler,
        loop: asyncio.AbstractEventLoop,
        *,
        max_input_bytes: int,
        policy: Policy | None = None,
        regions: Regions | None = None,
        gate: HttpGate | None = None,
    ) -> None: ...
    def sweep(self) -> None: ...
    def begin_drain(self) -> None: ...
    def drain(self) -> None: ...
