from tisfast.native.memory import Arena
from tisfast.native.region import Regions
from tisfast.wire.record import InferInput
from tisfast.wire.signature import ModelSignature

def parse(
    model: ModelSignature,
    arena: Arena,
    message: bytes,
    *,
    max_input_bytes: int = ...,
    regions: Regions | None = None,
    start: int = -1,
    forwarded: bytes = ...,
) -> InferInput: ...
def peek(message: bytes, total: int | None = None) -> tuple[int, str, str, int]: ...
