"""Bounds of samples, and of the requests and answers that they make.  Layer 5 (convert)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.lib import format as npy
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


def bytes_of(array: Array) -> int:
    """With the texts of an array of objects, which numpy does not count."""
    if array.dtype.kind != "O":
        return array.nbytes
    return array.nbytes + sum(len(each.encode() if isinstance(each, str) else each) for each in array.ravel().tolist())


def check_headers(archive: zipfile.ZipFile, what: str) -> None:
    """Raises BadRequest for an array that is larger by its header than what the archive has of it: numpy makes room
    for all of it before it reads, and bounds of bytes look at the archive alone."""
    for member in archive.infolist():
        opened: Any = archive.open(member)  # whose type does not know peek
        with opened as file:
            if not file.peek(len(npy.MAGIC_PREFIX)).startswith(npy.MAGIC_PREFIX):  # no array
                continue
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(file)
        nbytes = math.prod(shape) * max(dtype.itemsize, 1)
        if nbytes > member.file_size and not dtype.hasobject:
            raise BadRequest(
                f"{what}: its array '{member.filename}' is {list(shape)} of {dtype} by its header, "
                f"{nbytes} bytes, and has {member.file_size}: the file is damaged"
            )


def check_cases(groups: Sequence[Sequence[Mapping[str, Array]]], batches: bool, max_batch_size: int) -> None:
    """Raises BadRequest for too many requests, or too many bytes of them.  groups: samples whose rows share batches.

    See samples.cases_of.
    """
    count = nbytes = 0
    for group in groups:
        rows = sum(len(next(iter(each.values()))) for each in group) if batches else len(group)
        full = math.ceil(rows / max_batch_size) if batches and max_batch_size > 1 else 0
        size = sum(bytes_of(array) for each in group for array in each.values()) // max(rows, 1)
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
