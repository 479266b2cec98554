"""One gRPC listener as the app sees it.  Layer 4 (front)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tisfast.front.connections import ListenerFront
from tisfast.front.grpc.connection import GrpcConnection
from tisfast.front.grpc.listener_context import GrpcListenerContext

if TYPE_CHECKING:
    from tisfast.codec.pool import Codecs
    from tisfast.config.settings import GrpcSettings
    from tisfast.engine.registry import Registry
    from tisfast.native.region import Regions
    from tisfast.operations.grpc.methods import Methods
    from tisfast.telemetry.access_log import AccessLog
    from tisfast.telemetry.tracer import Tracer


class Restriction(Protocol):
    """Restricted APIs."""

    def check(self, category: str, metadata: Mapping[str, str] | None) -> None:
        """Raises TisError for a call that lacks the field it needs."""


class Forward(Protocol):
    """Metadata that become request parameters."""

    def parameters(self, metadata: Mapping[str, str] | None) -> bytes:
        """A JSON object, or nothing.  Raises TisError."""


class GrpcExtras(NamedTuple):
    """Optional parts of a server: clients' shared memory, restricted APIs, forwarded metadata, codec processes."""

    regions: Regions | None = None
    restriction: Restriction | None = None
    forward: Forward | None = None
    codecs: Codecs | None = None


NO_EXTRAS: Final = GrpcExtras()


class GrpcFront(ListenerFront):
    """One gRPC listener.

    registry: where inferences go; methods: all other RPCs; max_input_bytes: of typed tensors once they are expanded.
    """

    def __init__(
        self,
        registry: Registry,
        methods: Methods,
        loop: asyncio.AbstractEventLoop,
        settings: GrpcSettings,
        *,
        max_input_bytes: int,
        extras: GrpcExtras = NO_EXTRAS,
    ) -> None:
        self._shared = GrpcListenerContext(
            registry, methods, loop, settings, max_input_bytes=max_input_bytes, extras=extras
        )
        super().__init__(self._shared, loop, "gRPC service connections and inference handlers")

    @property
    def protocol_factory(self) -> Callable[[], GrpcConnection]:
        """For loop.create_server."""
        return self._connect

    def trace_with(self, tracer: Tracer | None) -> None:
        """Ask `tracer` about inference requests from now on; None: no tracing (see Tracer.attach)."""
        self._shared.trace_with(tracer)

    def log_to(self, access_log: AccessLog) -> None:
        """Note each call there (see AccessLog)."""
        self._shared.log_to(access_log)

    def _connect(self) -> GrpcConnection:
        return GrpcConnection(self._shared)
