"""Error texts about requests that more than one place uses, Triton's where it has some.  Layer 2 (wire)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tisfast import limits
from tisfast.errors import BadRequest

NAMES_SHOWN: Final = 8  # of a model's inputs
UNSIZED: Final = " (the request says no 'shared_memory_byte_size' for it)"
"""What follows Triton's texts about a tensor in a region whose size is taken to be 0."""


def too_many_dimensions(name: str, rank: int) -> BadRequest:
    """The error of an input with too many dimensions."""
    return BadRequest(f"invalid shape for input '{name}': {rank} dimensions, {limits.TENSOR_RANK_MAX} is the limit")


def impossible_dimension(name: str, shape: object) -> BadRequest:
    """An input's dimension that is negative, or too large to be one."""
    return BadRequest(f"invalid shape for input '{name}': shape {shape} contains one or more invalid dimensions")


def input_twice(who: str, name: str) -> BadRequest:
    """who: the request's id as it stands in front of such texts, or nothing."""
    return BadRequest(f"{who}input '{name}' already exists in request")


def too_many_inputs(who: str, expected: int, found: int, model: str) -> BadRequest:
    """So many more that they are not looked at."""
    return BadRequest(f"{who}expected {expected} inputs but got {found} inputs for model '{model}'")


def unknown_output(name: str, model: str, known: Iterable[str]) -> BadRequest:
    """An output that is asked for."""
    return BadRequest(f"unexpected inference output '{name}' for model '{model}' (its outputs are {', '.join(known)})")


def json_input_too_large(name: str, nbytes: int, bytes_max: int) -> BadRequest:
    """The error of JSON whose tensors would exceed --http-max-input-size."""
    return BadRequest(
        f"JSON input '{name}' has a byte_size ({nbytes} bytes) that exceeds the maximum allowed value of {bytes_max} "
        "bytes. Use --http-max-input-size to increase the limit."
    )


def no_parameter(name: str) -> BadRequest:
    """A value that a request parameter cannot have."""
    return BadRequest(f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'.")


def neither_input_nor_parameter(name: str, inputs: list[str]) -> BadRequest:
    """A key of a generate request that is no input, and whose value no parameter can have."""
    names = ", ".join(f"'{each}'" for each in inputs[:NAMES_SHOWN]) + (", ..." if len(inputs) > NAMES_SHOWN else "")
    return BadRequest(f"{no_parameter(name).message} (it is no input either: the model's inputs are {names})")
