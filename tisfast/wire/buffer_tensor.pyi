from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

@final
class BufferTensor:
    name: str
    datatype: str
    shape: tuple[int, ...]
    region: str | None
    offset: int
    nbytes: int
    def __init__(self, name: str, datatype: str, shape: Iterable[int], data: Buffer) -> None: ...
    @staticmethod
    def in_region(
        name: str, datatype: str, shape: Iterable[int], region: str, nbytes: int, offset: int = 0
    ) -> BufferTensor: ...
    def buffer(self) -> memoryview: ...
    def memory(self) -> memoryview: ...
    def strings(self) -> list[bytes]: ...

def pack_strings(strings: Iterable[bytes]) -> bytes: ...
