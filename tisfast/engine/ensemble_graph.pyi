from collections.abc import Sequence
from typing import final

from tisfast.config.model_config import LoadedConfig

@final
class EnsembleGraph:
    tensors: list[str]
    def __init__(
        self,
        config: LoadedConfig,
        levels: dict[str, int],
        decoupled: Sequence[bool],
        leaves: Sequence[set[str]] | None = None,
    ) -> None: ...

def fitted(shape: tuple[int, ...], dims: tuple[int, ...], batches: bool, batch: int) -> tuple[int, ...]: ...
def reshape(shape: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]: ...
