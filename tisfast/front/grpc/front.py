"""The gRPC listener's connections as the app sees them: accept, sweep, drain.  Layer 4 (front)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tisfast.front.grpc.connection import GrpcConnection
from tisfast.front.grpc.shared import GrpcShared

if TYPE_CHECKING:
    from tisfast.config.settings import GrpcSettings
    from tisfast.engine.registry import Registry
    from tisfast.front.grpc.methods import Methods
    from tisfast.front.tracer import Tracer
    from tisfast.native.region import Regions

SWEEP_SECONDS = 1.0


class Restriction(Protocol):
    """Restricted APIs (row 13.22)."""

    def check(self, category: str, metadata: Mapping[str, str] | None) -> None:
        """Raises TisError for a call that lacks the field it needs."""


class Forward(Protocol):
    """Metadata that become request parameters (row 24.04)."""

    def parameters(self, metadata: Mapping[str, str] | None) -> bytes:
        """A JSON object, or nothing.  Raises TisError."""


class GrpcExtras(NamedTuple):
    """What a server may have: shared memory that clients registered, restricted APIs, forwarded metadata."""

    regions: Regions | None = None
    restriction: Restriction | None = None
    forward: Forward | None = None


NO_EXTRAS: Final = GrpcExtras()


class GrpcFront:
    """One gRPC listener, with the face of front.http.HttpFront.

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
        self._loop = loop
        self._shared = GrpcShared(registry, methods, loop, settings, max_input_bytes=max_input_bytes, extras=extras)
        self._shared.on_made = self._arm
        self._timer: asyncio.TimerHandle | None = None
        self.closed = asyncio.Event()

    @property
    def protocol_factory(self) -> Callable[[], GrpcConnection]:
        """For loop.create_server."""
        return self._connect

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._shared.connections)

    def begin_drain(self) -> None:
        """No new calls: connections go with their last answer.  `closed` is set when none is left."""
        self._shared.on_empty = self._on_empty
        self._shared.begin_drain()
        if not self._shared.connections:
            self._on_empty()

    def trace_with(self, tracer: Tracer | None) -> None:
        """Ask `tracer` about inference requests from now on; None: nobody (see Tracer.attach)."""
        self._shared.trace_with(tracer)

    def _connect(self) -> GrpcConnection:
        return GrpcConnection(self._shared)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        try:
            self._shared.sweep()
        finally:
            if self._shared.connections:
                self._arm()

    def _on_empty(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed.set()
