from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, final

from tisfast.engine.histogram import Histogram
from tisfast.native.memory import Arena

Threads: TypeAlias = Callable[[Callable[[], Any], Callable[[Any], None]], None]

class RemoteStore(Protocol):
    def look(self, key: bytes, done: Callable[[bytes | None], None], /) -> bool: ...
    def has_room(self, nbytes: int, /) -> bool: ...
    def keep(self, key: bytes, value: bytes, /) -> None: ...
    def report(self, error: Exception, /) -> None: ...

@final
class LocalStore:
    size_bytes: int
    evictions: int
    hits: int
    misses: int
    lookup_ns: int
    insertion_ns: int
    refused: int
    arena: Arena
    def __init__(self, size_bytes: int, cap_bytes: int = ...) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def keys(self) -> list[bytes]: ...

@final
class ModelCache:
    hit_times: Histogram
    miss_times: Histogram
    remote: RemoteStore | None
    def __init__(
        self,
        store: LocalStore | RemoteStore,
        salt: bytes,
        seed: int = ...,
        label: bytes = ...,
        threads: Threads | None = ...,
    ) -> None: ...
