from collections.abc import Callable
from typing import Any, final

from tisfast.engine.caching_runtime import CachingRuntime
from tisfast.engine.core import Clock
from tisfast.engine.ensemble_graph import EnsembleGraph
from tisfast.engine.interface import Runtime
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

@final
class EnsembleRuntime(CachingRuntime):
    graph: EnsembleGraph
    def __init__(
        self,
        signature: ModelSignature,
        arena: Arena,
        graph: EnsembleGraph,
        clock: Clock,
        config: dict[str, Any],
        resolve: Callable[[str, str], Runtime],
    ) -> None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def queued(self) -> int: ...
    def refuse(self, message: str) -> None: ...
