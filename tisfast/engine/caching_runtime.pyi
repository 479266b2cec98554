from collections.abc import Callable

from tisfast.engine.interface import Runtime

class CachingRuntime(Runtime):
    beside: Callable[..., object] | None
