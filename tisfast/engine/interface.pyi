from typing import Any

from tisfast.engine.core import Link
from tisfast.engine.histogram import Timings
from tisfast.engine.response_cache import ModelCache
from tisfast.engine.stats import Statistics
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

class Runtime:
    signature: ModelSignature
    arena: Arena
    stats: Statistics
    timings: Timings
    config: dict[str, Any]
    links: list[Link]
    inflight: int
    cache: ModelCache | None
    @property
    def ready(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def queued(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def platform(self) -> str: ...
    @property
    def backend(self) -> str: ...
    def count_on_from(self, before: Runtime) -> None: ...
    def restate(self, config: dict[str, Any]) -> None: ...

def models_under(runtime: Runtime) -> set[str]: ...
