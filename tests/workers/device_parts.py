"""Tensors that say that they lie on a GPU, in memory that frameworks of this machine can read: the host's."""

from __future__ import annotations

import ctypes
import json

import numpy as np
from tisfast_worker import dtypes
from tisfast_worker.device_batches import DeviceParts
from tisfast_worker.device_tensor import DeviceTensor
from tisfast_worker.model import Model

CODES = {names[0]: code for code, names in dtypes.TYPES.items()}


class _Memory:
    def __init__(self, array, shift):
        self.bytes = np.zeros(array.nbytes + 64, np.uint8)
        self.address = (self.bytes.ctypes.data + 15) // 16 * 16 + shift
        ctypes.memmove(self.address, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        self.shape = array.shape


def part(array, kind="FP32", shift=0):
    """One request's tensor.  shift: of its address, from a multiple of 16."""
    return DeviceTensor("X", CODES[kind], _Memory(array, shift), (1, 0))


def parts(*given):
    """A batch of tensors on the GPU and of arrays."""
    rows = sum(each.shape()[0] if isinstance(each, DeviceTensor) else len(each) for each in given)
    rest = given[0].shape()[1:] if isinstance(given[0], DeviceTensor) else given[0].shape[1:]
    return DeviceParts(list(given), (rows, *rest))


def content(left, dtype=np.float32):
    """What lies in a DeviceArray."""
    nbytes = int(np.prod(left.shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(ctypes.string_at(left.address, nbytes), dtype).reshape(left.shape)


class Join:
    """In place of the worker's module cuda."""

    def __init__(self):
        self.joined = 0

    def join(self, to, given):
        self.joined += 1
        for each in given:
            on_gpu = isinstance(each, DeviceTensor)
            array = None if on_gpu else np.ascontiguousarray(each)
            nbytes = each.nbytes() if on_gpu else array.nbytes
            ctypes.memmove(to, each.address() if on_gpu else array.ctypes.data, nbytes)
            to += nbytes


class Space:
    """In place of a DeviceSpace: what is wanted, and where."""

    def __init__(self, stays=(), wants=()):
        self._stays, self._wants = set(stays), set(wants)

    def stays(self, name):
        return name in self._stays

    def wants(self, name):
        return name in self._wants or name in self._stays

    def take(self, shapes):
        return {}


def model(folder, backend, inputs, outputs, kind="CPU"):
    """A Model as the worker has it.  inputs, outputs: (name, KServe's type, dims without the batch)."""
    sides = {"input": inputs, "output": outputs}
    config = {
        side: [{"name": name, "data_type": f"TYPE_{dtype}", "dims": dims} for name, dtype, dims in tensors]
        for side, tensors in sides.items()
    }
    return Model({
        "name": "m", "version": "1", "repository": str(folder), "version_dir": str(folder / "1"), "file": "",
        "instance": "m_0_0", "backend": backend, "kind": kind, "device_id": 0, "decoupled": False, "max_batch_size": 8,
        "config": json.dumps({"name": "m", "max_batch_size": 8, **config}),
        "inputs": [[name, CODES[dtype], dims, None] for name, dtype, dims in inputs],
        "outputs": [[name, CODES[dtype], dims, None] for name, dtype, dims in outputs],
    })  # fmt: skip
