from typing import final

from typing_extensions import Buffer

from tisfast.wire.buffer_tensor import BufferTensor

@final
class InferResponse:
    model: str
    version: str
    id: str
    parameters: dict[str, object]
    outputs: list[BufferTensor]
    final: bool
    def output(self, name: str) -> BufferTensor: ...

@final
class ResponseReader:
    def infer(self, body: Buffer, json_bytes: int = -1) -> InferResponse: ...

class HeadOfResponse: ...
class OutputHead: ...

def error_text(body: bytes) -> str: ...
