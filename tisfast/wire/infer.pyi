from tisfast.native.memory import Arena
from tisfast.wire.record import InferInput
from tisfast.wire.signature import ModelSignature

def parse(
    model: ModelSignature,
    arena: Arena,
    body: bytes,
    json_bytes: int = -1,
    *,
    max_input_bytes: int = ...,
    in_block: bool = False,
) -> InferInput: ...
