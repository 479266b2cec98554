"""What a model wants of the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tisfast.pytriton.model_config.common import DynamicBatcher, ModelWarmup


@dataclass
class ModelConfig:
    """Batching, cache and answers of one model.

    batching: whether the first dimension of each tensor is the batch; without it, max_batch_size is not used.
    batcher: None batches nothing together, but requests may still be batches.  decoupled: any number of answers to a
    request.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher | None = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    model_warmup: Sequence[ModelWarmup] | None = None
