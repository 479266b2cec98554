from tisfast.wire.record import Answer, InferInput
from tisfast.wire.tensors import Tensor

def join(request: InferInput, tensors: list[Tensor], parameters: bytes = b"") -> Answer: ...
