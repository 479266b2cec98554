import asyncio
from collections.abc import Callable
from typing import final

from tisfast.codec.pool import Codecs
from tisfast.engine.registry import Registry
from tisfast.front.connection import HttpConnection
from tisfast.native.region import Regions
from tisfast.operations.control_access import HttpGate
from tisfast.operations.header_policy import Policy
from tisfast.operations.http_response import Handler
from tisfast.telemetry.access_log import AccessLog
from tisfast.telemetry.tracer import Tracer

@final
class ListenerContext:
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
        codecs: Codecs | None = None,
    ) -> None: ...
    def log_to(self, access_log: AccessLog) -> None: ...
    def sweep(self) -> None: ...
    def finish_sequences(self, message: str) -> None: ...
    def begin_drain(self) -> None: ...
    def drain(self) -> None: ...
