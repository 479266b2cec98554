from typing import final

from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_request import WantedOutputs
from tisfast.wire.client_response import InferResponse

@final
class RequestMessage:
    def render(
        self,
        model: str,
        inputs: list[BufferTensor],
        *,
        version: str = "",
        outputs: WantedOutputs | None = None,
        parameters: dict[str, bool | int | str | float] | None = None,
        id: str = "",
        raw: bool = True,
    ) -> list[bytes | BufferTensor]: ...

def read_infer_response(message: bytes) -> InferResponse: ...
def read_stream_response(message: bytes) -> tuple[str, InferResponse]: ...
