from collections.abc import Callable
from typing import Any, final

from tisfast.config.scheduler import SchedulerSettings
from tisfast.engine.core import Clock, InferRequest, Link
from tisfast.engine.histogram import Timings
from tisfast.engine.rate_limiter import RateLimiter
from tisfast.engine.stats import Statistics
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

@final
class ModelRuntime:
    signature: ModelSignature
    arena: Arena
    stats: Statistics
    timings: Timings
    config: dict[str, Any]
    ready: bool
    reason: str
    timer_changed: Callable[[], None] | None
    links: list[Link]
    inflight: int
    def __init__(
        self,
        signature: ModelSignature,
        arena: Arena,
        settings: SchedulerSettings,
        clock: Clock,
        config: dict[str, Any],
    ) -> None: ...
    @property
    def queued(self) -> int: ...
    @property
    def platform(self) -> str: ...
    @property
    def backend(self) -> str: ...
    def limit_by(self, limiter: RateLimiter) -> None: ...
    def resume(self) -> None: ...
    def next_timer_ns(self) -> int: ...
    def on_timer(self) -> None: ...
    def add_link(self, link: Link) -> None: ...
    def remove_link(self, link: Link) -> None: ...
    def requeue(self, requests: list[InferRequest]) -> None: ...
    def fail(self, requests: list[InferRequest], status: int, message: str) -> None: ...
    def set_state(self, ready: bool, reason: str) -> None: ...
    def refuse(self, message: str) -> None: ...
