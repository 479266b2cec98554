from typing import final

from tisfast.native.memory import Arena

@final
class RowArena(Arena):
    rows: int
    @property
    def run_rows(self) -> list[tuple[int, int]]: ...
