"""Bounds of samples, and of the requests and answers that they make.  Layer 5 (convert)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from tisfast import limits
from tisfast.errors import BadRequest

Array = NDArray[Any]


def check_files(count: int) -> None:
    """Raises BadRequest for too many files or dictionaries."""
    most = limits.CONVERT_SAMPLE_FILES_MAX
    if count > most:
        raise BadRequest(f"there are {count} files or dictionaries of samples, and tisfast convert takes {most}")


def check_bytes(nbytes: int, what: str, do: str = "give fewer") -> None:
    """Raises BadRequest for too many.  what: has them; do: what helps."""
    most = limits.CONVERT_SAMPLES_BYTES_MAX
    if nbytes > most:
        raise BadRequest(f"{what} have {nbytes} bytes, and tisfast convert takes {most}: {do}")


def check_cases(samples: Sequence[Mapping[str, Array]], batches: bool, max_batch_size: int) -> None:
    """Raises BadRequest for too many requests, or too many bytes of them.  See samples.cases_of."""
    count = nbytes = 0
    for each in samples:
        rows = len(next(iter(each.values()))) if batches else 1
        full = math.ceil(rows / max_batch_size) if batches and max_batch_size > 1 else 0
        size = sum(array.nbytes for array in each.values()) // max(rows, 1)
        count += rows + full
        nbytes += (rows + full * max_batch_size) * size
    if count > limits.CONVERT_CASES_MAX:
        raise BadRequest(
            f"the samples make {count} requests, and tisfast convert compares {limits.CONVERT_CASES_MAX} at most: "
            "give fewer rows"
        )
    check_bytes(
        nbytes, f"the requests of these samples, with batches of {max_batch_size},",
        "give fewer rows, or a smaller --max-batch-size",
    )  # fmt: skip


def check_answers(nbytes: int) -> None:
    """Of the source's so far.  Raises BadRequest for too many bytes."""
    most = limits.CONVERT_ANSWERS_BYTES_MAX
    if nbytes > most:
        raise BadRequest(
            f"the source's answers have more than {most} bytes, which are held in memory: give fewer samples"
        )
