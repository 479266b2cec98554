from typing import final

def abi_version() -> int: ...

@final
class Bell:
    fd: int
    eventfd: int

@final
class Cells:
    fd: int
    def cell(self, index: int) -> float: ...
    def zero_cell(self, index: int) -> None: ...

@final
class Channel:
    fd: int
    nbytes: int
    def request_stop(self) -> None: ...
