"""An ensemble beside its composing models: do their tensors fit?  Layer 2 (config).

Messages are Triton's, which stops at the first; so do these checks, as what follows a wrong tensor means little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from tisfast.config import error_texts, schema
from tisfast.config.ensemble_config import SCHEDULING, EnsembleConfig, Step
from tisfast.config.tensor_config import VARIABLE
from tisfast.errors import ConfigError
from tisfast.types import BY_CODE

if TYPE_CHECKING:
    from tisfast.config.model_config import LoadedConfig

NO_TYPE: Final = "TYPE_INVALID"


class TensorFace(Protocol):
    """The facts of a composing model's tensor (wire.signature.TensorSpec, config.tensor_config.TensorConfig)."""

    @property
    def name(self) -> str:
        """The name in the composing model."""

    @property
    def dtype(self) -> int:
        """Code of types.DataType."""

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions as clients see them, without the batch dimension."""

    @property
    def optional(self) -> bool:
        """Whether a step may leave it out."""


class ModelFace(Protocol):
    """The facts of a composing model (wire.signature.ModelSignature, config.model_config.LoadedConfig)."""

    @property
    def name(self) -> str:
        """Without a namespace."""

    @property
    def max_batch_size(self) -> int:
        """0 for a model that does not batch."""

    @property
    def decoupled(self) -> bool:
        """Whether a request may have any number of responses."""

    @property
    def inputs(self) -> Sequence[TensorFace]:
        """Those that clients send."""

    @property
    def outputs(self) -> Sequence[TensorFace]:
        """All."""


@dataclass(frozen=True)
class Joined:
    """An ensemble that fits its models.

    config: with the transaction policy that its models give it.  levels: by ensemble tensor, how many decoupled steps
    it went through; each of their responses is a tensor of its own.
    """

    config: LoadedConfig
    levels: dict[str, int]


@dataclass
class _Node:
    """One ensemble tensor: its type and shape, and the model that told them first."""

    source: str
    dtype: int
    dims: tuple[int, ...]
    batched: bool
    made_of: list[str] = field(default_factory=list)
    step: int = -1

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (VARIABLE, *self.dims) if self.batched else self.dims


def join(config: LoadedConfig, models: Sequence[ModelFace]) -> Joined:
    """models: of each step, as loaded.  Raises ConfigError."""
    assert config.ensemble is not None
    nodes = _Nodes(config)
    for index, (step, model) in enumerate(zip(config.ensemble.steps, models, strict=True)):
        nodes.add(index, step, model)
    levels = _levels(config, config.ensemble, nodes.by_name, models)
    decoupled = any(levels[name] for name in levels)
    if decoupled and config.message.response_cache.enable:
        raise _wrong(config, error_texts.no_cache(config.name, error_texts.DECOUPLED))
    message = schema.model_config()
    message.CopyFrom(config.message)
    message.model_transaction_policy.decoupled = decoupled
    return Joined(replace(config, message=message, decoupled=decoupled), levels)


def _wrong(config: LoadedConfig, text: str, step: int = -1) -> ConfigError:
    path = (SCHEDULING, "step", step) if step >= 0 else (SCHEDULING,)
    place = config.places.get(path) or config.places.get((SCHEDULING,))
    line, column = (place.line, place.column) if place else (0, 0)
    return ConfigError(text, file=config.file, line=line, column=column, key=SCHEDULING)


class _Nodes:
    """The tensors of an ensemble, as far as its own configuration and the steps so far tell."""

    def __init__(self, config: LoadedConfig) -> None:
        self.config = config
        batched = config.max_batch_size > 0
        self.by_name = {
            tensor.name: _Node(config.name, tensor.dtype, tensor.worker_dims, batched)
            for tensor in (*config.outputs, *config.inputs)
        }

    def add(self, index: int, step: Step, model: ModelFace) -> None:
        name, most = self.config.name, self.config.max_batch_size
        if 0 < model.max_batch_size < most:
            raise self._wrong(f"ensemble {name} allows maximum batch size {most}, but it contains model {model.name} "
                              f"which only allows maximum batch size to be {model.max_batch_size}", index)  # fmt: skip
        self._inputs(index, step, model)
        self._outputs(index, step, model)

    def _wrong(self, text: str, step: int) -> ConfigError:
        return _wrong(self.config, text, step)

    def _inputs(self, index: int, step: Step, model: ModelFace) -> None:
        known = {tensor.name: tensor for tensor in model.inputs}
        for name, tensor in step.inputs:
            if name not in known:
                raise self._wrong(f"in ensemble {self.config.name}, ensemble tensor {tensor} is mapping to "
                                  f"non-existing input {name} in model {model.name}", index)  # fmt: skip
        mapped = dict(step.inputs)
        for spec in model.inputs:
            if spec.name in mapped:
                self._meet(index, mapped[spec.name], spec, model)
            elif not spec.optional:
                raise self._wrong(f"in ensemble {self.config.name}, input {spec.name} in model {model.name} is not "
                                  "mapped to any ensemble tensors", index)  # fmt: skip

    def _outputs(self, index: int, step: Step, model: ModelFace) -> None:
        known = {tensor.name: tensor for tensor in model.outputs}
        for name, tensor in step.outputs:
            if name not in known:
                raise self._wrong(f"in ensemble {self.config.name}, ensemble tensor {tensor} is mapped from "
                                  f"non-existing output {name} in model {model.name}", index)  # fmt: skip
        for name, tensor in step.outputs:
            node = self._meet(index, tensor, known[name], model)
            node.made_of = [source for _, source in step.inputs]
            node.step = index

    def _meet(self, index: int, name: str, spec: TensorFace, model: ModelFace) -> _Node:
        """The node of an ensemble tensor, which a model's tensor must fit; made of it when it is the first."""
        other = _Node(model.name, spec.dtype, spec.dims, model.max_batch_size > 0)
        node = self.by_name.setdefault(name, other)
        about = f"in ensemble {self.config.name}, ensemble tensor {name}: inconsistent"
        if node.dtype != other.dtype:
            raise self._wrong(f"{about} data type: {_type(node)} is inferred from model {node.source} while "
                              f"{_type(other)} is inferred from model {other.source}", index)  # fmt: skip
        # A model without batches takes [-1, 4] where one with batches says [4].
        if not _alike(node.dims, other.dims) and not _alike(node.full_dims, other.full_dims):
            raise self._wrong(f"{about} shape: {_text(node.full_dims)} is inferred from model {node.source} while "
                              f"{_text(other.full_dims)} is inferred from model {other.source}", index)  # fmt: skip
        return node


def _type(node: _Node) -> str:
    return BY_CODE[node.dtype].config if node.dtype in BY_CODE else NO_TYPE


def _text(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _alike(a: Sequence[int], b: Sequence[int]) -> bool:
    return len(a) == len(b) and all(x == y or VARIABLE in (x, y) for x, y in zip(a, b, strict=True))


def _levels(
    config: LoadedConfig, ensemble: EnsembleConfig, nodes: dict[str, _Node], models: Sequence[ModelFace]
) -> dict[str, int]:
    """The level of each tensor, all of a step's inputs and all outputs being of one stream."""
    labels = {tensor.name: -1 for tensor in config.inputs}  # the decoupled step that a tensor's stream comes from
    levels = {tensor.name: 0 for tensor in config.inputs}
    left = dict(enumerate(ensemble.steps))
    while ready := [i for i, step in left.items() if all(tensor in labels for _, tensor in step.inputs)]:
        for index in ready:
            step = left.pop(index)
            sources = [tensor for _, tensor in step.inputs]
            if len({labels[source] for source in sources}) > 1:
                raise _mixed(config, nodes[step.outputs[0][1]].source, index)
            decoupled = models[index].decoupled
            for _, tensor in step.outputs:
                labels[tensor] = index if decoupled else labels[sources[0]]
                levels[tensor] = levels[sources[0]] + decoupled
    if len({labels[tensor.name] for tensor in config.outputs}) > 1:
        raise _mixed(config, config.name, -1)
    return levels


def _mixed(config: LoadedConfig, name: str, step: int) -> ConfigError:
    about = f"in ensemble {config.name}, step of model '{name}'"
    return _wrong(config, f"{about} receives inputs originated from different decoupled models", step)
