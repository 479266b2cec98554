"""A model configuration as the server knows it: what clients read and `bind` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tisfast.pytriton.model_config.common import DeviceKind, DynamicBatcher, ModelWarmup


@dataclass
class ResponseCache:
    """Whether answers are kept."""

    enable: bool


@dataclass
class TensorSpec:
    """One input or output; its shape is without the batch dimension, its dtype a NumPy scalar type."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    optional: bool | None = False


@dataclass
class TritonModelConfig:
    """All of it."""

    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: DynamicBatcher | None = None
    instance_group: dict[DeviceKind, int | None] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: dict[str, str] = field(default_factory=dict)
    inputs: Sequence[TensorSpec] | None = None
    outputs: Sequence[TensorSpec] | None = None
    response_cache: ResponseCache | None = None
    model_warmup: Sequence[ModelWarmup] | None = None

    @property
    def backend(self) -> str:
        """The server's backend that runs it."""
        return "python"
