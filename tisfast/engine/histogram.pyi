from collections.abc import Iterable
from typing import final

@final
class Histogram:
    count: int
    total_ns: int
    def observe(self, ns: int) -> None: ...
    def copy(self) -> Histogram: ...
    def below(self, power: int) -> int: ...
    def quantiles(self, wanted: Iterable[float], since: Histogram | None = None) -> list[float]: ...

@final
class FirstResponse:
    bounds_ms: tuple[float, ...]
    total_ns: int
    def __init__(self, bounds_ms: Iterable[float]) -> None: ...
    def observe(self, ns: int) -> None: ...
    def cumulative(self) -> list[int]: ...

@final
class Timings:
    request: Histogram
    queue: Histogram
    compute_input: Histogram
    compute_infer: Histogram
    compute_output: Histogram
    compute: Histogram
    first_response: FirstResponse
    def __init__(self, first_response_bounds_ms: Iterable[float]) -> None: ...
    def time_of(self, rounds: int) -> int: ...
