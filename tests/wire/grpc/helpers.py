"""Requests as protobuf's own runtime writes them, and answers as it reads them: the reference for our codec."""

from __future__ import annotations

import struct

from tests.wire.helpers import arena, read_record
from tisfast import descriptors
from tisfast.types import BY_WIRE
from tisfast.wire.grpc import infer

RAW_TAG = b"\x3a"
FIELD_OF = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
PACKED = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
    "UINT64": "Q", "FP32": "f", "FP64": "d",
}  # fmt: skip
F3 = struct.pack("<3f", 1, 2, 3)


def message(name):
    """A class of package inference."""
    return descriptors.message_class(f"inference.{name}")


def request(**fields):
    return message("ModelInferRequest")(**{"model_name": "m", **fields})


def tensor(name="I", shape=(3,), datatype="FP32", **fields):
    return {"name": name, "shape": list(shape), "datatype": datatype, **fields}


def simple(**fields):
    """One raw FP32 input of three."""
    return request(**{"inputs": [tensor()], "raw_input_contents": [F3], **fields})


def tensor_bytes(datatype, values):
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(value)) + value for value in values)
    return struct.pack(f"<{len(values)}{PACKED[datatype]}", *values)


def parse(model, told, **options):
    """(record head, tensors, texts) of a message object or of bytes."""
    data = told if isinstance(told, bytes) else told.SerializeToString()
    return read_record(infer.parse(model, options.pop("arena", None) or arena(), data, **options))


def size_of(datatype):
    return BY_WIRE[datatype].size or 1
