from typing import final

from tisfast.native.memory import Block
from tisfast.wire.signature import ModelSignature

@final
class InferInput:
    model: ModelSignature
    id: str
    batch: int
    priority: int
    timeout_us: int
    correlation: int | str
    sequence_flags: int
    requested: int
    shape_key: bytes
    outputs: object
    def copy_now(self) -> None: ...
    @property
    def is_late(self) -> bool: ...
    @property
    def record(self) -> bytes: ...
    def gpu_regions(self) -> list[str]: ...
    def read(self, offset: int, nbytes: int) -> bytes: ...
    def mark_traced(self) -> None: ...

@final
class Answer:
    input: InferInput
    count: int
    signature: bytes
    parameters: bytes
    def is_on_gpu(self, i: int) -> bool: ...
    def output(self, i: int) -> tuple[str, str, list[int], bytes]: ...
    def output_start(self, i: int, most: int) -> tuple[str, str, list[int], bytes, int]: ...

def read(request: InferInput, block: Block, record_bytes: int) -> Answer: ...
