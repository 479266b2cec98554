"""A request and an answer of tests/golden, by the worker's reader and writer."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from tisfast_worker import dtypes
from tisfast_worker.model import Model

from tests.golden import MODEL, Golden
from tests.workers.driver import record
from tests.workers.record_helpers import Bench, raw
from tisfast.types import BY_CODE, BY_WIRE


def bench() -> Bench:
    """Both arenas of the golden model."""
    where = {"repository": "", "version_dir": "", "file": "model.py", "instance": "m_0", "kind": "CPU", "device_id": 0}
    what = {"name": "m", "version": "1", "config": "{}", "decoupled": False, "max_batch_size": MODEL["max_batch_size"]}
    rows = {
        kind: [[name, BY_WIRE[datatype].code, dims, None] for name, datatype, dims in MODEL[kind]]
        for kind in ("inputs", "outputs")
    }
    return Bench(Model({**where, **what, **rows}))


def request_as_read(golden: Golden, at: int) -> dict[str, Any]:
    """What the worker finds in a record at `at`."""
    made = bench()
    memory = made.plane.inputs.memory
    memory[at : at + len(golden.record)] = golden.record
    places = golden.parts["places"]
    for (*_, data), place in zip(golden.meaning["inputs"], range(0, len(places), 16), strict=True):
        offset, nbytes = struct.unpack_from("<2Q", places, place)
        memory[offset : offset + nbytes] = bytes.fromhex(data)
    request = made.reader.read(at, len(golden.record), made.lease, None)
    tensors = [
        [tensor.name(), BY_CODE[tensor.triton_dtype()].wire, list(tensor.shape()), raw(tensor.as_numpy()).hex()]
        for tensor in request.inputs()
    ]
    return {
        "id": request.request_id(), "parameters": json.loads(request.parameters()),
        "correlation": request.correlation_id(), "start": bool(request.flags() & 1), "end": bool(request.flags() & 2),
        "timeout": request.timeout(), "batch": tensors[0][2][0], "outputs": sorted(request.requested_output_names()),
        "inputs": tensors,
    }  # fmt: skip


def answer_as_written(golden: Golden) -> bytes:
    """The block that the worker writes for what the answer means."""
    made = bench()
    names = [name for name, *_ in MODEL["outputs"]]
    requested = sum(1 << names.index(name) for name, *_ in golden.meaning["outputs"])
    request = made.read(record([(0, BY_WIRE["FP32"].code, (1, 2), made.plane.place(bytes(8)))], requested=requested))
    outputs = [pb.Tensor(name, array_of(*rest)) for name, *rest in golden.meaning["outputs"]]
    response = pb.InferenceResponse(outputs, parameters=golden.meaning["parameters"])
    kind, _, nbytes, block = made.writer.write(request, response)
    assert kind == 2 and nbytes == len(golden.record)
    at = made.ours.outputs.offset(block)
    return made.plane.outputs.memory[at : at + len(golden.block)]


def array_of(datatype: str, shape: list[int], data: str) -> np.ndarray:
    """The array whose bytes these are."""
    if datatype == "BYTES":
        return pb.deserialize_bytes_tensor(bytes.fromhex(data)).reshape(shape)
    return np.frombuffer(bytes.fromhex(data), dtypes.TYPES[BY_WIRE[datatype].code][3]).reshape(shape)
