from collections.abc import Iterable
from typing import NamedTuple, final

from tisfast.wire.buffer_tensor import BufferTensor

class WantedOutput(NamedTuple):
    name: str
    binary: bool = ...
    classes: int = ...
    region: str | None = ...
    nbytes: int = ...
    offset: int = ...

@final
class WantedOutputs:
    outputs: tuple[WantedOutput, ...]
    json: bytes
    message: bytes
    def __init__(self, outputs: Iterable[WantedOutput] = ...) -> None: ...

@final
class RequestBody:
    parts: list[BufferTensor]
    nbytes: int
    json_bytes: int
    def render(
        self,
        inputs: list[BufferTensor],
        *,
        outputs: WantedOutputs | None = None,
        parameters: dict[str, bool | int | str | float] | None = None,
        id: str = "",
        binary: bool = True,
    ) -> list[bytes | memoryview]: ...

def target_part(name: str) -> str: ...
def infer_target(model: str, version: str = "", call: str = "infer") -> str: ...
