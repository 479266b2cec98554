"""One HTTP listener as the app sees it.  Layer 4 (front)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tisfast.front.connection import HttpConnection
from tisfast.front.connections import ListenerFront
from tisfast.front.listener_context import ListenerContext

if TYPE_CHECKING:
    from tisfast.codec.pool import Codecs
    from tisfast.engine.registry import Registry
    from tisfast.native.region import Regions
    from tisfast.operations.control_access import HttpGate
    from tisfast.operations.header_policy import Policy
    from tisfast.operations.http_response import Handler
    from tisfast.telemetry.access_log import AccessLog
    from tisfast.telemetry.tracer import Tracer


class HttpFront(ListenerFront):
    """One HTTP listener.

    registry: where inference requests go, None for a listener without inference; routes: everything else;
    max_input_bytes: --http-max-input-size; policy: what flags say about headers, None when they say nothing; regions:
    shared memory that clients have registered; gate: of calls that load and unload models, None for one that is open;
    codecs: processes for large texts, None: the loop does it all.
    """

    def __init__(  # noqa: PLR0913 - its parts, most of them optional
        self,
        registry: Registry | None,
        routes: Handler,
        loop: asyncio.AbstractEventLoop,
        *,
        max_input_bytes: int,
        policy: Policy | None = None,
        gate: HttpGate | None = None,
        regions: Regions | None = None,
        codecs: Codecs | None = None,
    ) -> None:
        self._shared = ListenerContext(
            registry,
            routes,
            loop,
            max_input_bytes=max_input_bytes,
            policy=policy,
            regions=regions,
            gate=gate,
            codecs=codecs,
        )
        super().__init__(self._shared, loop, f"{'HTTP' if registry is not None else 'metrics'} service connections")

    @property
    def protocol_factory(self) -> Callable[[], HttpConnection]:
        """For loop.create_server."""
        return self._connect

    def trace_with(self, tracer: Tracer | None) -> None:
        """Ask `tracer` about inference requests from now on; None: no tracing (see Tracer.attach)."""
        self._shared.tracer = tracer

    def log_to(self, access_log: AccessLog) -> None:
        """Note each request there (see AccessLog)."""
        self._shared.log_to(access_log)

    def _connect(self) -> HttpConnection:
        return HttpConnection(self._shared)
