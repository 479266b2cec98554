"""Inference requests with binary tensors."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

import json
import struct

from tests.oracle.cases.json_requests import BOTH, IN0, IN1
from tests.oracle.cases.table import Case, Headers, binary, infer, post, post_binary, tensor

FOUR = struct.pack("<4f", 1, 2, 3, 4)
OUT_BINARY = {"binary_data_output": True}


def _size(name: str, size: object, datatype: str = "FP32", shape: tuple[int, ...] = (4,)) -> dict[str, object]:
    return tensor(name, datatype, shape, None, binary_data_size=size)


HEAD = {"inputs": [_size("INPUT0", 16), _size("INPUT1", 16)]}


def _head(name: str, rows: str, length: object, headers: Headers = ()) -> Case:
    return binary(name, rows, "add_sub", HEAD, FOUR * 2, headers=headers, length=length)


def _sized(name: str, rows: str, size: object, tail: bytes = FOUR) -> Case:
    return binary(name, rows, "identity_fp32", {"inputs": [_size("INPUT0", size)]}, tail)


def _raw(name: str, model: str, body: bytes, length: object = 0) -> Case:
    return Case(name, "2.06", (post_binary(model, b"", body, (), length),))


def _typed(name: str, datatype: str, tail: bytes, count: int = 2, **more: object) -> Case:
    entry = _size(f"IN_{datatype.replace('BYTES', 'STRING')}", len(tail), datatype, (count,))
    return binary(name, "2.05", "types", {"inputs": [entry], **more}, tail)


_BYTES = struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)
_VALUES = {
    "BOOL": b"\x01\x00", "UINT8": b"\x00\xff", "UINT16": b"\x01\x02\x03\x04", "UINT32": bytes(range(8)), "UINT64": bytes(range(16)),
    "INT8": b"\x80\x7f", "INT16": b"\x00\x80\xff\x7f", "INT32": bytes(range(8)), "INT64": bytes(range(16)), "FP16": b"\x00\x3c\x00\xc0",
    "FP32": FOUR[:8], "FP64": struct.pack("<2d", 0.1, -1e300), "BYTES": _BYTES,
}  # fmt: skip

LENGTHS = [
    binary("binary in and out", "2.01 2.04", "add_sub", {**HEAD, "parameters": OUT_BINARY}, FOUR * 2),
    binary("binary in, JSON out", "2.04", "add_sub", HEAD, FOUR * 2),
    binary("binary with id", "2.04 1.24", "add_sub", {**HEAD, "id": "b", "parameters": OUT_BINARY}, FOUR * 2),
    infer("JSON in, binary out", "2.04", "add_sub", {"inputs": BOTH, "parameters": OUT_BINARY}),
    infer("one output binary", "2.04", "add_sub", {"inputs": BOTH, "outputs": [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}]}),
    infer("first output binary", "2.04", "add_sub", {"inputs": BOTH, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}, {"name": "OUTPUT1"}]}),
    infer("binary_data_output beside outputs", "1.23", "add_sub", {"inputs": BOTH, "outputs": [{"name": "OUTPUT0"}], "parameters": OUT_BINARY}),
    infer("binary_data_output beside empty outputs", "1.23", "add_sub", {"inputs": BOTH, "outputs": [], "parameters": OUT_BINARY}),
    infer("binary_data_output false", "1.23", "add_sub", {"inputs": BOTH, "parameters": {"binary_data_output": False}}),
    infer("binary_data false", "1.23", "add_sub", {"inputs": BOTH, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": False}}]}),
    binary("JSON then binary", "2.07", "add_sub", {"inputs": [IN0, _size("INPUT1", 16)]}, FOUR),
    binary("binary then JSON", "2.07", "add_sub", {"inputs": [_size("INPUT0", 16), IN1]}, FOUR),
    binary("binary in another order", "2.07", "add_sub", {"inputs": [_size("INPUT1", 16), _size("INPUT0", 16)]}, FOUR + FOUR[::-1]),
    _head("head length one short", "2.01", len(json.dumps(HEAD)) - 1),
    _head("head length one long", "2.01", len(json.dumps(HEAD)) + 1),
    _head("head length beyond the body", "2.01", 100000),
    _head("head length negative", "2.01", -1),
    _head("head length text", "2.01", "x"),
    _head("head length empty", "2.01", ""),
    _head("head length with text", "2.01", f"{len(json.dumps(HEAD))}x"),
    _head("head length with spaces", "2.01", f" {len(json.dumps(HEAD))} "),
    _head("head length with plus", "2.01", f"+{len(json.dumps(HEAD))}"),
    _head("head length float", "2.01", "1.5"),
    _head("head length beyond 32 bits", "2.01", 2**32),
    _head("head length beyond 64 bits", "2.01", 2**64),
    _head("head length twice", "2.01", None, [("Inference-Header-Content-Length", "5")]),
    Case("binary without head length", "2.02", (post("add_sub", json.dumps(HEAD).encode() + FOUR * 2),)),
    Case("binary that is text without head length", "2.02", (post("add_sub", json.dumps(HEAD).encode() + b"1234" * 8),)),
    Case("binary that is zeros without head length", "2.02", (post("add_sub", json.dumps(HEAD).encode() + bytes(32)),)),
    Case("binary size without tail and head length", "2.02", (post("add_sub", HEAD),)),
    _sized("size too small", "2.03", 12),
    _sized("size smaller than the shape, no more bytes", "2.03", 12, FOUR[:12]),
    _sized("size too great", "2.03", 20),
    _sized("size greater than the shape, bytes there", "2.03", 20, FOUR + b"1234"),
    _sized("bytes missing", "2.03", 16, FOUR[:8]),
    _sized("no bytes", "2.03", 16, b""),
    _sized("trailing bytes", "2.03", 16, FOUR + b"1234"),
    _sized("size zero", "2.03", 0, b""),
    _sized("size negative", "2.03", -16),
    _sized("size a text", "2.03", "16"),
    _sized("size a float", "2.03", 16.0),
    _sized("size true", "2.03", True),
    _sized("size null", "2.03", None),
    _sized("size of 2^63", "2.03", 2**63),
    _sized("size of 2^64 - 1", "2.03", 2**64 - 1),
    binary("sizes that wrap around", "2.03", "add_sub", {"inputs": [_size("INPUT0", 2**64 - 16), _size("INPUT1", 48)]}, FOUR * 2),
    binary("second tensor missing", "2.03", "add_sub", HEAD, FOUR),
    binary("negative shape with bytes", "1.16", "identity_fp32", {"inputs": [_size("INPUT0", 16, "FP32", (-4,))]}, FOUR),
    binary("overflowing shape with bytes", "1.16", "identity_fp32", {"inputs": [_size("INPUT0", 16, "FP32", (2**62, 4))]}, FOUR),
    binary("nothing in a tensor", "2.08", "identity_fp32", {"inputs": [_size("INPUT0", 0, "FP32", (0,))], "parameters": OUT_BINARY}, b""),
    binary("wrong data type with bytes", "15.55", "identity_fp32", {"inputs": [_size("INPUT0", 16, "INT32")]}, FOUR),
    binary("wrong element size with bytes", "15.55", "identity_fp32", {"inputs": [_size("INPUT0", 16, "INT64")]}, FOUR),
    binary("unknown input with bytes", "15.55", "identity_fp32", {"inputs": [_size("OTHER", 16)]}, FOUR),
    binary("unknown model with bytes", "1.08", "nobody", HEAD, FOUR * 2),
    binary("bad JSON with bytes", "2.01", "add_sub", b'{"inputs":[', FOUR * 2),
]  # fmt: skip

TYPES = [
    *(_typed(f"binary of {t}", t, tail, parameters=OUT_BINARY) for t, tail in _VALUES.items()),
    *(_typed(f"binary in, JSON out of {t}", t, tail) for t, tail in _VALUES.items()),
    _typed("BOOL of 2", "BOOL", b"\x02\x01", parameters=OUT_BINARY),
    _typed("BYTES with too few elements", "BYTES", _BYTES, 3),
    _typed("BYTES with too many elements", "BYTES", _BYTES, 1),
    _typed("BYTES with a length beyond the end", "BYTES", struct.pack("<I", 9) + b"ab", 1),
    _typed("BYTES with a huge length", "BYTES", struct.pack("<I", 2**32 - 1) + b"ab", 1),
    _typed("BYTES with half a length", "BYTES", b"\x01\x00", 1),
    _typed("BYTES with rest", "BYTES", _BYTES + b"\x00", 2),
    _typed("BYTES without elements", "BYTES", b"", 0),
    _typed("BYTES that are not UTF-8, JSON out", "BYTES", struct.pack("<I", 2) + b"\xff\xfe", 1),
    _typed("BYTES of control characters, JSON out", "BYTES", struct.pack("<I", 3) + b"\x00\x1f\x7f", 1),
]

RAW = [
    _raw("raw", "identity_fp32", FOUR),
    _raw("raw of no bytes", "identity_fp32", b""),
    _raw("raw that does not divide", "identity_fp32", FOUR[:7]),
    _raw("raw to a model of two inputs", "add_sub", FOUR * 2),
    _raw("raw to a model with two variable dimensions", "matrix", FOUR),
    _raw("raw to a batching model", "grid", struct.pack("<6d", *range(6))),
    _raw("raw to a batching model, not dividing", "grid", struct.pack("<5d", *range(5))),
    _raw("raw text", "word", b"hello"),
    _raw("raw text of no bytes", "word", b""),
    _raw("raw to a model of optional inputs", "facts", struct.pack("<2i", 1, 2)),
    _raw("raw of a fixed shape, too long", "sleeper", struct.pack("<2I", 1, 2)),
    _raw("raw of a fixed shape", "sleeper", struct.pack("<I", 1)),
    _raw("raw to an unknown model", "nobody", FOUR),
]

CASES: list[Case] = [*LENGTHS, *TYPES, *RAW]
