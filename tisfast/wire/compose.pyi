from collections.abc import Collection
from typing import final

from tisfast.native.memory import Arena
from tisfast.wire.record import Answer, InferInput
from tisfast.wire.signature import ModelSignature
from tisfast.wire.tensors import Tensor

@final
class ComposeFields:
    id: str
    priority: int
    timeout_us: int
    correlation: int | str
    sequence_flags: int
    parameters: bytes
    requested: Collection[str] | None

def compose_request(
    model: ModelSignature, arena: Arena, tensors: list[Tensor], fields: ComposeFields | None = None
) -> InferInput: ...
def aim(request: InferInput, share: int) -> list[int]: ...
def answer_tensors(answer: Answer) -> list[Tensor]: ...
def input_tensors(request: InferInput) -> list[Tensor]: ...
