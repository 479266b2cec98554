"""A listener's connections as the app sees them: accept, sweep, drain.  Layer 4 (front)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tisfast.front.connection import HttpConnection
from tisfast.front.shared import FrontShared

if TYPE_CHECKING:
    from tisfast.engine.registry import Registry
    from tisfast.front.policy import Policy
    from tisfast.front.response import Handler
    from tisfast.front.tracer import Tracer
    from tisfast.native.region import Regions

SWEEP_SECONDS = 1.0


class HttpFront:
    """One HTTP listener.

    registry: where inference requests go, None for a listener without inference; routes: everything else;
    max_input_bytes: --http-max-input-size; policy: what flags say about headers, None when they say nothing; regions:
    shared memory that clients have registered.
    """

    def __init__(
        self,
        registry: Registry | None,
        routes: Handler,
        loop: asyncio.AbstractEventLoop,
        *,
        max_input_bytes: int,
        policy: Policy | None = None,
        regions: Regions | None = None,
    ) -> None:
        self._loop = loop
        self._shared = FrontShared(
            registry, routes, loop, max_input_bytes=max_input_bytes, policy=policy, regions=regions
        )
        self._timer: asyncio.TimerHandle | None = None
        self.closed = asyncio.Event()

    @property
    def protocol_factory(self) -> Callable[[], HttpConnection]:
        """For loop.create_server."""
        return self._connect

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._shared.connections)

    def begin_drain(self) -> None:
        """No new connections are coming: close idle ones, and every other after its answer.  `closed` is set when none
        is left."""
        self._shared.on_empty = self._on_empty
        self._shared.begin_drain()
        if not self._shared.connections:
            self._on_empty()

    def trace_with(self, tracer: Tracer | None) -> None:
        """Ask `tracer` about inference requests from now on; None: nobody (see Tracer.attach)."""
        self._shared.tracer = tracer

    def _connect(self) -> HttpConnection:
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        return HttpConnection(self._shared)

    def _sweep(self) -> None:
        try:
            self._shared.sweep()
        finally:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep) if self._shared.connections else None

    def _on_empty(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed.set()
