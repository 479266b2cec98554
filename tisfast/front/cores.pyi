from typing import Final, final

STAY: Final[int]
WITH_SERVER: Final[int]
WITH_WORKER: Final[int]
ALONE: Final[int]
CROWDED: Final[int]

@final
class Places:
    def __init__(self) -> None: ...
    def step(self, place: int, now_ns: int) -> int: ...
    def begin(self) -> None: ...

def settle(worker_pid: int, ours: int, theirs: int) -> bool: ...
