"""What a model takes and gives, and the configuration that a server reads of it.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """datatype: KServe's name; dims: the whole shape, the batch's too; -1: any size."""

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """batches: the first dimension of every tensor is the batch, and has any size.

    mixes: what one row is answered depends on the rows beside it, or nobody knows whether it does.  So a request's
    rows go to the model together and alone, and the server is told of no batch.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batches: bool
    mixes: bool = False

    @property
    def joined(self) -> bool:
        """Whether a server may put the rows of several requests together."""
        return self.batches and not self.mixes

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Signature:
        """From `document`."""
        inputs, outputs = (
            tuple(Tensor(each["name"], each["datatype"], tuple(each["dims"])) for each in document[role])
            for role in ("inputs", "outputs")
        )
        return cls(inputs, outputs, bool(document["batches"]), bool(document["mixes"]))

    def config(self, backend: str, max_batch_size: int) -> dict[str, Any]:
        """The configuration of a model that has this signature, as JSON."""
        found: dict[str, Any] = {
            "backend": backend,
            "input": [self._entry(each) for each in self.inputs],
            "output": [self._entry(each) for each in self.outputs],
        }
        if self.joined:
            found |= {"max_batch_size": max_batch_size, "dynamic_batching": {}}
        return found

    def _entry(self, tensor: Tensor) -> dict[str, Any]:
        dims = list(tensor.dims[1:] if self.joined else tensor.dims)
        kind = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
        found: dict[str, Any] = {"name": tensor.name, "data_type": f"TYPE_{kind}", "dims": dims or [1]}
        if self.joined and not dims:
            found["reshape"] = {"shape": []}  # without batches there is none: clients send [1], and backends know
        return found

    def sent(self, tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that a client sends for an array of the model's: see `reshape` of the configuration."""
        return (*shape, 1) if self.is_scalar(tensor) else tuple(shape)

    def is_scalar(self, tensor: Tensor) -> bool:
        """Whether it has no dimensions, beside the batch of one that the server knows."""
        return len(tensor.dims) == (1 if self.joined else 0)
