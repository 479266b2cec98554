from collections.abc import Callable
from typing import Any, final

import numpy as np

from tisfast.bench.encryption import Channel
from tisfast.bench.histogram import Histogram
from tisfast.bench.mixture import Mixture
from tisfast.bench.sequences import Player
from tisfast.bench.tokens import Tokens

_Rows = np.ndarray[Any, np.dtype[np.void]]

@final
class Tally:
    response: Histogram
    service: Histogram
    first_byte: Histogram
    lateness: Histogram
    began_ns: int
    ended_ns: int
    requests: int
    completed: int
    failed: int
    responses: int
    delayed: int
    sequences: int
    sent_bytes: int
    received_bytes: int
    send_ns: int
    receive_ns: int
    idle_ns: int
    gil_ns: int
    tokens: Tokens | None
    parts: list[Tally] | None

class Marks:
    def __init__(self, places: tuple[int, int, int], id_bytes: int, text: bool) -> None: ...

class Load:
    def __init__(self, loop: Loop) -> None: ...

@final
class Loop:
    templates: list[Any]
    opened: int
    lost_text: str
    tally: Tally
    first_error: tuple[str, int] | None
    mixture: Mixture | None
    def __init__(
        self,
        address: Any,
        family: int,
        make: Callable[[Loop], Load],
        templates: list[Any],
        *,
        slots: int,
        connections_max: int,
        player: Player | None = None,
        channel: Callable[[], Channel] | None = None,
        counting: Callable[[], Tokens] | None = None,
        mixture: Mixture | None = None,
    ) -> None: ...
    def keep_in_flight(self, concurrency: int) -> None: ...
    def keep_joining(self, start: int, end: int, step: int, period: int) -> None: ...
    def finish(self) -> None: ...
    def follow(self, times: np.ndarray[Any, np.dtype[np.int64]]) -> None: ...
    def allow(self, count: int) -> None: ...
    def end(self) -> int: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def lost(self) -> bool: ...
    @property
    def connections(self) -> int: ...
    def open_connections(self, count: int) -> None: ...
    def ready(self, until: int) -> bool: ...
    def swap(self) -> Tally: ...
    def swap_slice(self) -> tuple[int, Histogram]: ...
    def swap_errors(self) -> tuple[dict[tuple[str, str], int], tuple[str, int] | None]: ...
    def keep_records(self, count: int, stamps: int = ...) -> None: ...
    def swap_records(self) -> tuple[_Rows, int, _Rows | None, int]: ...
    def run(self, until: int) -> bool: ...
    def close(self) -> None: ...
