"""Batches in groups: which rows belong together, and how results of different shapes become alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from tisfast.pytriton.batch_outputs import Later
from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError

Array = np.ndarray[Any, Any]


class ConstantPadder:
    """Pads the results of groups to the largest shape of each output; strings with empty ones."""

    def __init__(self, pad_value: Any = 0) -> None:
        """pad_value: for outputs that are no strings.  Raises PyTritonBadParameterError."""
        if not isinstance(pad_value, int | float | np.generic):
            raise PyTritonBadParameterError(f"pad_value of ConstantPadder must be a number, not {pad_value!r:.200}")
        self._pad_value = pad_value

    def __call__(self, batches_list: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        """The same results with equal shapes.  Raises PyTritonRuntimeError where dtypes of one output differ."""
        names = list(dict.fromkeys(name for result in batches_list for name in result))
        padded: list[dict[str, Array]] = [{} for _ in batches_list]
        for name in names:
            holders = [at for at, result in enumerate(batches_list) if name in result]
            for at, array in zip(holders, self._alike([batches_list[at][name] for at in holders]), strict=True):
                padded[at][name] = array
        return padded

    def _alike(self, arrays: Sequence[Array]) -> list[Array]:
        kind = arrays[0].dtype.kind
        if any(array.dtype.kind != kind or (kind not in "SU" and array.dtype != arrays[0].dtype) for array in arrays):
            raise PyTritonRuntimeError("All input arrays for given input name must have the same dtype.")
        if len({array.ndim for array in arrays}) != 1:
            raise PyTritonRuntimeError(
                "All input arrays for given input name must have the same number of dimensions; "
                f"found {', '.join(str(array.shape) for array in arrays)}."
            )
        dtype = max((array.dtype for array in arrays), key=lambda each: each.itemsize)
        shape = np.max([array.shape[1:] for array in arrays], axis=0).astype(int) if arrays[0].ndim > 1 else ()
        fill = {"S": b"", "O": b"", "U": ""}.get(kind, self._pad_value)
        made = []
        for array in arrays:
            target = np.full((array.shape[0], *shape), fill, dtype=dtype)
            target[tuple(slice(size) for size in array.shape)] = array
            made.append(target)
        return made


def group_rows(arrays: Sequence[Array]) -> list[Array]:
    """Numbers of rows in groups of equal values, in the order of the values' bytes."""
    groups: dict[tuple[bytes, ...], list[int]] = {}
    for row in range(arrays[0].shape[0]):
        groups.setdefault(tuple(_bytes_of(array[row]) for array in arrays), []).append(row)
    return [np.array(groups[key]) for key in sorted(groups)]


def in_groups(name: str, calls: Sequence[Callable[[], Any]], merge: Callable[[list[Any]], Any]) -> Any:
    """Make all calls and merge what they return; a coroutine where they return coroutines.

    name: of the decorator.  Raises PyTritonRuntimeError for generators, whose items belong to one group each.
    """
    results: list[Any] = []
    try:
        for call in calls:
            results.append(call())
        if any(inspect.isgenerator(result) or inspect.isasyncgen(result) for result in results):
            if len(results) == 1:
                return results[0]
            raise PyTritonRuntimeError(
                f"The @{name} decorator cannot put together what generators yield: the callable got requests of "
                f"{len(results)} groups."
            )
    except BaseException:
        _close(results)
        raise
    if any(inspect.isawaitable(result) for result in results):
        return Later(_merged_later(results, merge), lambda: _close(results))
    return merge(results)


async def _merged_later(results: Sequence[Any], merge: Callable[[list[Any]], Any]) -> Any:
    try:
        return merge([await result for result in results])
    finally:
        _close(results)


def _close(results: Sequence[Any]) -> None:
    """End coroutines and generators that nobody goes on with; those that have ended stay so."""
    for result in results:
        if isinstance(result, Coroutine) or inspect.isgenerator(result):
            result.close()


def _bytes_of(row: Any) -> bytes:
    array = np.asarray(row)
    if array.dtype.kind != "O":
        return array.tobytes()
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    return b"".join(len(item).to_bytes(4, "big") + item for item in map(_as_bytes, array.flat))


def _as_bytes(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
