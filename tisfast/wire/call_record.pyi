from typing import final

from tisfast.native.memory import Arena, Block
from tisfast.wire.tensors import Tensor

@final
class CallPlan:
    model: str
    version: str
    requested: list[str] | None
    names: list[str]
    dtypes: list[int]
    shapes: list[tuple[int, ...]]
    count: int

@final
class CallRecord:
    plan: CallPlan
    flags: int
    timeout_us: int
    parent: int
    trace: int
    correlation: int | str
    id: str
    parameters: bytes
    def place(self, i: int) -> tuple[int, int, int, int]: ...

class Cursor: ...

def read(record: bytes) -> CallRecord: ...
def reply(arena: Arena, tensors: list[Tensor], shares: list[int], parameters: bytes = b"") -> tuple[Block, int]: ...
