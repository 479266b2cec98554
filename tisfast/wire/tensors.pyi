from typing import final

from tisfast.native.memory import Block, MemoryFile
from tisfast.native.region import SystemRegion

@final
class Tensor:
    name: str
    dtype: int
    shape: tuple[int, ...]
    file: MemoryFile
    offset: int
    nbytes: int
    keep: object
    def renamed_as(self, name: str) -> Tensor: ...
    def start(self, most: int) -> bytes: ...
    def bytes(self) -> bytes: ...

def in_block(name: str, dtype: int, shape: tuple[int, ...], block: Block, offset: int, nbytes: int) -> Tensor: ...
def in_region(
    name: str, dtype: int, shape: tuple[int, ...], region: SystemRegion, offset: int, nbytes: int
) -> Tensor: ...
