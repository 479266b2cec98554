"""Batching, queues and warm-up of a model."""

from __future__ import annotations

import enum
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tisfast.pytriton.exceptions import PyTritonBadParameterError
from tisfast.pytriton.model_config.datatypes import is_text

_RANDOM_INT_END: Final = 100
_RANDOM_BYTES: Final = (8, 32)
"""Shortest and longest random string."""


class DeviceKind(enum.Enum):
    """Where instances are."""

    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"


class TimeoutAction(enum.Enum):
    """What becomes of a request whose time in the queue is over."""

    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass
class QueuePolicy:
    """How long a request may wait in the queue, and how many may wait; 0 is no limit."""

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    """How requests are put together to batches."""

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: list[int] | None = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] | None = None


@dataclass
class WarmupInput:
    """One input of a warm-up.

    dtype: a NumPy type, or bytes.  shape: without the batch dimension.  Data come from the file (of np.save) if there
    is one, else they are zeros if zero_data is set, else random.
    """

    dtype: Any
    shape: tuple[int, ...]
    zero_data: bool = False
    random_data: bool = False
    input_data_file: pathlib.Path | str | None = None


@dataclass
class ModelWarmup:
    """Requests that a callable executes before its model is loaded, `count` times."""

    name: str
    batch_size: int
    inputs: Mapping[str, WarmupInput]
    count: int


def generate_warmup_data(warmup_input: WarmupInput, batch_size: int) -> np.ndarray[Any, Any]:
    """The array of one input.  batch_size: 0 for a model without batching, which has no batch dimension.

    Raises PyTritonBadParameterError when the input names no source of data.
    """
    spec = warmup_input
    shape = (batch_size, *spec.shape) if batch_size > 0 else tuple(spec.shape)
    if spec.input_data_file is not None:
        return _from_file(spec, batch_size)
    if spec.zero_data:
        return np.full(shape, b"", dtype=spec.dtype) if is_text(spec.dtype) else np.zeros(shape, dtype=spec.dtype)
    if spec.random_data:
        return _random_text(shape, spec.dtype) if is_text(spec.dtype) else _random_numbers(shape, spec.dtype)
    raise PyTritonBadParameterError(
        "One of 'zero_data', 'random_data', or 'input_data_file' must be provided for warmup input."
    )


def generate_warmup_requests(
    model_warmup: Sequence[ModelWarmup], input_specs: Sequence[Any] = (), outputs_specs: Sequence[Any] = ()
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """The inputs of all requests, each warm-up `count` times.  The specifications of tensors are not used."""
    return [
        {name: generate_warmup_data(spec, warmup.batch_size) for name, spec in warmup.inputs.items()}
        for warmup in model_warmup
        for _ in range(warmup.count)
    ]


def _from_file(spec: WarmupInput, batch_size: int) -> np.ndarray[Any, Any]:
    assert spec.input_data_file is not None
    data = np.load(spec.input_data_file)
    if batch_size > 0:
        if data.ndim == len(spec.shape):
            data = np.repeat(data[np.newaxis], batch_size, axis=0)
        elif data.shape[0] != batch_size:
            times = -(-batch_size // max(1, data.shape[0]))
            data = np.concatenate([data] * times, axis=0)[:batch_size]
    converted: np.ndarray[Any, Any] = data.astype(spec.dtype)
    return converted


def _random_numbers(shape: tuple[int, ...], given: Any) -> np.ndarray[Any, Any]:
    random, dtype = np.random.default_rng(), np.dtype(given)
    if dtype.kind == "b":
        return random.integers(0, 2, size=shape).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, _RANDOM_INT_END, size=shape).astype(dtype)
    return np.asarray(random.random(size=shape)).astype(dtype)


def _random_text(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    random = np.random.default_rng()
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)
    array = np.empty(shape, dtype=np.object_)
    for index in np.ndindex(*shape):
        array[index] = random.choice(letters, random.integers(_RANDOM_BYTES[0], _RANDOM_BYTES[1] + 1)).tobytes()
    return array.astype(dtype)
