from tisfast.native.memory import Arena
from tisfast.native.region import Regions
from tisfast.wire.record import InferInput
from tisfast.wire.signature import ModelSignature

class ReadElsewhere(Exception): ...

def parse(
    model: ModelSignature,
    arena: Arena,
    text: bytes,
    head_bytes: int = -1,
    *,
    max_input_bytes: int = ...,
    regions: Regions | None = None,
    forwarded: bytes = ...,
) -> InferInput: ...
