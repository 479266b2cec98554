"""Sample inputs: from files or arrays, drawn where there are none, and as the requests that are compared.

Layer 5 (convert).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast.convert.sample_bounds import bytes_of, check_bytes, check_cases, check_files, check_headers
from tisfast.convert.signature import Signature, Tensor
from tisfast.errors import BadRequest, TisError

Array = NDArray[Any]
Samples = Sequence[Mapping[str, Array]]
DRAWN_ROWS: Final = 8
LENGTHS: Final = ":lengths"


class Case(NamedTuple):
    """One request.  name: for people; feeds: arrays by the model's names, in the model's shapes.

    alone: of a batch, the numbers of the requests that have its rows alone.
    """

    name: str
    feeds: dict[str, Array]
    alone: tuple[int, ...] = ()


def read_samples(given: Any) -> list[dict[str, Array]]:
    """Files (.npz), or dictionaries of arrays; one or several.  Raises BadRequest."""
    if given is None:
        return []
    several = given if isinstance(given, list | tuple) else [given]
    check_files(len(several))
    found = [_read(each) for each in several]
    if not all(found) or not found:
        raise BadRequest("the samples have no arrays: give one for each input, or leave samples out for random numbers")
    names = list(found[0])
    for at, each in enumerate(found):
        if set(each) != set(names):
            raise BadRequest(
                f"samples {at + 1} have the arrays {', '.join(each)}, and the first ones have {', '.join(names)}: all "
                "of them need the same names"
            )
    check_bytes(sum(bytes_of(array) for each in found for array in each.values()), "the samples")
    return [{name: each[name] for name in names} for each in found]


def _read(given: Any) -> dict[str, Array]:
    if isinstance(given, Mapping):
        return {str(name): _array(str(name), _as_array(str(name), value)) for name, value in given.items()}
    if not isinstance(given, str | os.PathLike):
        raise BadRequest(f"samples are files or dictionaries of arrays, not {type(given).__name__}")
    path = Path(given)
    if path.is_dir():
        raise BadRequest(f"--samples {path} is a folder: name a file, and repeat the flag for more")
    if not path.is_file():
        raise BadRequest(f"--samples {path}: there is no such file")
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise BadRequest(f"--samples {path} holds one array without a name: write it with numpy.savez(x=...)")
        with file:
            check_bytes(sum(each.file_size for each in file.zip.infolist()), f"--samples {path}: its arrays")
            check_headers(file.zip, f"--samples {path}")
            found = {name: _array(name, file[name]) for name in file.files}
    except TisError:
        raise
    except Exception as error:  # what damages or encrypts an archive has errors of zipfile, zlib, numpy and others
        if "Object arrays" in str(error):  # as numpy says it
            raise BadRequest(
                f"--samples {path} holds an array of Python's objects, which only a pickle can hold: write texts as an "
                "array of str, array.astype(str), and numbers as an array of numbers"
            ) from None
        raise BadRequest(f"--samples {path} cannot be read as arrays of numpy.savez: {_said(error)}") from None
    if not found:
        raise BadRequest(f"--samples {path} holds no arrays: write them with numpy.savez(x=...)")
    return found


def _as_array(name: str, value: Any) -> Array:
    try:
        return np.asarray(value)
    except Exception as error:  # of numpy, and of whatever the object is
        raise BadRequest(f"'{name}' of the samples cannot be made an array of numpy: {_said(error)}") from None


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _array(name: str, array: Array) -> Array:
    if not isinstance(array, np.ndarray):  # another file in the archive
        raise BadRequest(f"'{name}' of the samples is no array: write them with numpy.savez(x=...)")
    if array.dtype.kind not in "biufSUO" or (array.dtype.kind == "O" and not _are_texts(array)):
        raise BadRequest(f"the array '{name}' of the samples is of {array.dtype}: a tensor has numbers or texts")
    if array.dtype.kind in "UO":
        _check_texts(name, array)
    return array


def _check_texts(name: str, array: Array) -> None:
    """Raises BadRequest for one that no tensor can have."""
    for each in array.ravel().tolist():
        try:
            if isinstance(each, str):
                each.encode()
        except UnicodeEncodeError:
            raise BadRequest(
                f"the array '{name}' of the samples has the text {each!r:.60}, which is none of UTF-8: give it as bytes"
            ) from None


def _are_texts(array: Array) -> bool:
    return all(isinstance(each, str | bytes) for each in array.ravel().tolist())


def texts(array: Array) -> Array:
    """Texts as Python's own: frameworks take bytes for other texts, or for how Python shows them."""
    if array.dtype.kind not in "SUO":
        return array
    strings = [each.decode() if isinstance(each, bytes) else each for each in array.ravel().tolist()]
    found = np.empty(len(strings), object)
    found[:] = strings
    return found.reshape(array.shape)


def drawn(signature: Signature) -> dict[str, Array]:
    """Random inputs.  Raises BadRequest for a model whose shapes are open."""
    random = np.random.default_rng(0)
    found = {}
    for each in signature.inputs:
        dims = each.dims[1:] if signature.batches else each.dims
        if -1 in dims or each.datatype in ("BYTES", "BF16"):
            raise BadRequest(
                f"input '{each.name}' is {each.datatype} {list(each.dims)}{_open(each, signature)}, and what to send "
                "is not known: give --samples FILE.npz, with an array for each input"
            )
        shape = (DRAWN_ROWS, *dims) if signature.batches else dims
        dtype = dtype_of(each)
        check_bytes(math.prod(shape) * dtype.itemsize, f"random numbers for input '{each.name}'", "give --samples")
        if dtype.kind == "f":
            found[each.name] = random.standard_normal(shape).astype(dtype)
        else:
            found[each.name] = random.integers(0, 2, shape).astype(dtype)
    return found


def _open(tensor: Tensor, signature: Signature) -> str:
    """Why its first size is no batch, where it looks like one."""
    if signature.batches or tensor.dims[:1] != (-1,) or -1 in tensor.dims[1:]:
        return ""
    for role, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for each in tensors:
            if each.dims[:1] != (-1,):
                return f", whose first size is no batch, as {role} '{each.name}' is {list(each.dims)} and has none"
    return ""


def dtype_of(tensor: Tensor) -> np.dtype[Any]:
    """Of numpy."""
    from tisfast.client.arrays import NUMPY  # noqa: PLC0415 - with the client

    return NUMPY[tensor.datatype]


def fitted(samples: Samples, signature: Signature) -> list[dict[str, Array]]:
    """The samples with the model's names and types.  Raises BadRequest where they do not fit."""
    wanted = {each.name: each for each in signature.inputs}
    told = ", ".join(f"{each.name} {each.datatype} {list(each.dims)}" for each in signature.inputs)
    found = []
    for sample in samples:
        if set(sample) != set(wanted):
            raise BadRequest(f"the samples have the arrays {', '.join(sample)}, and the model's inputs are {told}")
        found.append({name: _fitted(sample[name], each, told) for name, each in wanted.items()})
        rows = {name: len(array) for name, array in found[-1].items()} if signature.batches else {}
        if len(set(rows.values())) > 1 or 0 in rows.values():
            raise BadRequest(f"the arrays of the samples have {rows} rows: each needs the same number, and at least 1")
    return found


def _fitted(array: Array, tensor: Tensor, told: str) -> Array:
    dims = tensor.dims
    if len(dims) != array.ndim or any(dim not in (-1, size) for dim, size in zip(dims, array.shape, strict=True)):
        raise BadRequest(f"the samples' '{tensor.name}' is shaped {list(array.shape)}, and the inputs are {told}")
    if tensor.datatype == "BYTES":
        if array.dtype.kind not in "SUO":
            raise BadRequest(f"the samples' '{tensor.name}' is of {array.dtype}, and the inputs are {told}")
        return array.astype(object)  # numpy's own texts are all as wide as the longest of those that are put together
    dtype = dtype_of(tensor)
    whole = array.dtype.kind in "iu" and dtype.kind in "iu"
    if not whole and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise BadRequest(f"the samples' '{tensor.name}' is of {array.dtype}, and the inputs are {told}")
    if array.dtype != dtype and dtype.kind in "iuf":
        _check_range(array, tensor, dtype)
    return array.astype(dtype, order="C")


def _check_range(array: Array, tensor: Tensor, dtype: np.dtype[Any]) -> None:
    """Raises BadRequest for a number that would become another one, or infinity."""
    held: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    least, most = (np.asarray(each).item() for each in (held.min, held.max))
    finite = array[np.isfinite(array)]
    for value in (finite.min().item(), finite.max().item()) if finite.size else ():
        if not least <= value <= most:
            raise BadRequest(
                f"the samples' '{tensor.name}' has the value {value:g}, and {tensor.datatype} holds {least:g} to "
                f"{most:g}"
            )
    if array.dtype.kind in "iu" and dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # of the largest of 64 bits, which become one more
            changed = array[array.astype(dtype).astype(array.dtype) != array]
        if changed.size:
            raise BadRequest(
                f"the samples' '{tensor.name}' has the value {changed[0].item()}, and {tensor.datatype} holds its "
                f"neighbours alone: if one of them does, give numbers of {tensor.datatype} yourself (array.astype)"
            )


def cases_of(samples: Samples, signature: Signature, max_batch_size: int) -> list[Case]:
    """Each row alone, and all rows in batches of the largest size, which the first rows fill up.

    Of a model without batches each sample is one request.  Raises BadRequest for too many rows.
    """
    names = [each.name for each in signature.inputs]
    shapes = {tuple(each[name].shape[1:] for name in names) for each in samples}
    groups = [samples] if len(shapes) == 1 else [[each] for each in samples]
    check_cases(groups, signature.batches, max_batch_size)
    if not signature.batches:
        return [Case(f"sample {at}", dict(each)) for at, each in enumerate(samples)]
    found: list[Case] = []
    before = 0  # samples of earlier groups
    for group in groups:
        rows = {name: np.concatenate([each[name] for each in group]) for name in names}
        count, first = len(rows[names[0]]), len(found)
        for at in range(count):
            found.append(Case(f"sample {before + at}", {name: rows[name][at : at + 1] for name in names}))
        for at in range(0, count if max_batch_size > 1 else 0, max_batch_size):
            taken = np.arange(at, at + max_batch_size) % count
            name = f"the batch of {max_batch_size} from sample {before + at} on"
            alone = tuple((first + taken).tolist())
            found.append(Case(name, {each: rows[each][taken] for each in names}, alone))
        before += count
    return found


def save_cases(path: Path, cases: Sequence[Case]) -> None:
    """For another process."""
    arrays: dict[str, Array] = {}
    for at, case in enumerate(cases):
        for place, each in enumerate(case.feeds.values()):
            arrays |= _stored(f"{at}:{place}", each)
    save: Any = np.savez  # whose newer types know keywords of its own
    save(path, **arrays)


def load_cases(path: Path, tensors: Sequence[Tensor], names: Sequence[str]) -> list[Case]:
    """What `save_cases` has written.  names: of the cases."""
    with np.load(path, allow_pickle=False) as file:
        return [
            Case(name, {tensor.name: stored(file, f"{at}:{place}") for place, tensor in enumerate(tensors)})
            for at, name in enumerate(names)
        ]


def _stored(key: str, array: Array) -> dict[str, Array]:
    """Objects, which only a pickle could hold, as bytes and lengths: numpy's own texts lose NULs at their ends."""
    if array.dtype.kind != "O":
        return {key: array}
    texts = [each.encode() if isinstance(each, str) else bytes(each) for each in array.ravel().tolist()]
    lengths = np.array([len(each) for each in texts], np.int64).reshape(array.shape)
    return {key: np.frombuffer(b"".join(texts), np.uint8), f"{key}{LENGTHS}": lengths}


def stored(file: Mapping[str, Array], key: str) -> Array:
    """An array of a file of `save_cases`."""
    if f"{key}{LENGTHS}" not in file:
        return file[key]
    lengths, content = file[f"{key}{LENGTHS}"], file[key].tobytes()
    ends = np.cumsum(lengths.ravel()).tolist()
    found = np.empty(lengths.size, object)
    for at, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        found[at] = content[begin:end]
    return found.reshape(lengths.shape)
