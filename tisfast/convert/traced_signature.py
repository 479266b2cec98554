"""The signature of a program that does not tell it: by what it answers to the samples.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tisfast.client.arrays import datatype_of
from tisfast.convert.references import Array
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest

Run = Callable[[dict[str, Array]], dict[str, Array]]
FEW, MORE = 2, 3
"""Rows: a program that takes both, and answers with as many, takes batches."""


def signature_of(
    samples: Sequence[dict[str, Array]], run: Run, names: Sequence[str], *, no_batch: bool = False
) -> Signature:
    """names: of the inputs, in the program's order; no_batch: the user says that the first dimension is none.

    Raises BadRequest for samples that it does not take.
    """
    ordered = [{name: each[name] for name in names if name in each} for each in samples]
    batches = not no_batch and _batches(ordered[0], run)
    answers = [run(each) for each in ordered]
    if batches:
        answers.append(run(resized(ordered[0], FEW)))
    inputs = tuple(_tensor(name, [each[name] for each in ordered], batches) for name in ordered[0])
    outputs = tuple(_tensor(name, [each[name] for each in answers], batches) for name in answers[0])
    return Signature(inputs, outputs, batches)


def _batches(sample: dict[str, Array], run: Run) -> bool:
    """Whether the first dimension is a batch of any size."""
    rows = {each.shape[:1] for each in sample.values()}
    if len(rows) != 1 or rows & {(), (0,)}:
        return False
    try:
        found = [(count, run(resized(sample, count))) for count in (1, FEW, MORE)]
    except Exception:  # the framework's own, of a size that it does not take
        return False
    return all(each.shape[:1] == (count,) for count, answer in found for each in answer.values())


def resized(sample: dict[str, Array], count: int) -> dict[str, Array]:
    """So many rows: the first ones, again and again."""
    return {name: array[np.arange(count) % len(array)] for name, array in sample.items()}


def _tensor(name: str, arrays: Sequence[Array], batches: bool) -> Tensor:
    ranks = {each.ndim for each in arrays}
    if len(ranks) != 1:
        raise BadRequest(f"'{name}' has {' or '.join(map(str, sorted(ranks)))} dimensions, and a tensor has one number")
    sizes: Any = [set(each) for each in zip(*(array.shape for array in arrays), strict=True)]
    dims = [next(iter(each)) if len(each) == 1 else -1 for each in sizes]
    return Tensor(name, datatype_of(arrays[0]), (-1, *dims[1:]) if batches else tuple(dims))
