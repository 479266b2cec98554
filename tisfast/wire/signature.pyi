from collections.abc import Iterable, Sequence

class TensorSpec:
    name: str
    index: int
    dtype: int
    datatype: str
    dims: tuple[int, ...]
    optional: bool
    ragged: bool
    labels: tuple[bytes, ...]
    def __init__(
        self,
        name: str,
        index: int,
        dtype: int,
        dims: Iterable[int],
        *,
        optional: bool = False,
        ragged: bool = False,
        labels: Iterable[bytes] = (),
    ) -> None: ...

class ModelSignature:
    name: str
    version: str
    namespace: str
    max_batch_size: int
    decoupled: bool
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    input_by_name: dict[str, TensorSpec]
    output_by_name: dict[str, TensorSpec]
    batches_vary: bool
    required_inputs: int
    has_strings: bool
    all_outputs: int
    record_room: int
    copies_regions: bool
    copies_devices: bool
    device_inputs: int
    device_inputs_meant: int
    device_outputs: int
    def __init__(
        self,
        name: str,
        version: str,
        max_batch_size: int,
        decoupled: bool,
        inputs: Iterable[tuple[str, int, Sequence[int], bool, bool]],
        outputs: Iterable[tuple[str, int, Sequence[int]] | tuple[str, int, Sequence[int], Sequence[bytes]]],
    ) -> None: ...
    @property
    def identity(self) -> str: ...
