import asyncio
from collections.abc import Callable

from tisfast.config.settings import GrpcSettings
from tisfast.engine.registry import Registry
from tisfast.front.grpc.connection import GrpcConnection
from tisfast.front.grpc.front import GrpcExtras
from tisfast.operations.grpc.methods import Methods
from tisfast.telemetry.access_log import AccessLog
from tisfast.telemetry.tracer import Tracer

class GrpcListenerContext:
    connections: set[GrpcConnection]
    draining: bool
    collected_bytes: int
    on_made: Callable[[], None] | None
    on_empty: Callable[[], None] | None
    tick: int
    def __init__(
        self,
        registry: Registry,
        methods: Methods,
        loop: asyncio.AbstractEventLoop,
        settings: GrpcSettings,
        *,
        max_input_bytes: int,
        extras: GrpcExtras,
    ) -> None: ...
    def trace_with(self, tracer: Tracer | None) -> None: ...
    def log_to(self, access_log: AccessLog) -> None: ...
    def sweep(self) -> None: ...
    def finish_sequences(self, message: str) -> None: ...
    def begin_drain(self) -> None: ...
    def drain(self) -> None: ...
