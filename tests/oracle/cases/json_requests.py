"""Inference requests in JSON, good and bad."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

from tests.oracle.cases.table import Case, infer, tensor

A = [1.0, 2.0, 3.0, 4.0]
IN0, IN1 = tensor("INPUT0", "FP32", [4], A), tensor("INPUT1", "FP32", [4], [1, 1, 1, 1])
BOTH = [IN0, IN1]


def _add(name: str, rows: str, *inputs: object, **more: object) -> Case:
    return infer(name, rows, "add_sub", {"inputs": list(inputs), **more})


def _one(name: str, rows: str, entry: object, **more: object) -> Case:
    return infer(name, rows, "identity_fp32", {"inputs": [entry], **more})


def _text(name: str, rows: str, text: bytes) -> Case:
    return infer(name, rows, "identity_fp32", text)


def _without(field: str) -> dict[str, object]:
    return {name: value for name, value in tensor("INPUT0", "FP32", [1], [1]).items() if name != field}


X = tensor("INPUT0", "FP32", [2], [1.5, -2.25])
FACTS = [tensor("INPUT0", "INT32", [1], [7])]


def _facts(name: str, rows: str, parameters: object, **more: object) -> Case:
    return infer(name, rows, "facts", {"inputs": FACTS, "parameters": parameters, **more})


GOOD = [
    _add("add_sub", "1.13 1.21 1.22", *BOTH),
    _add("add_sub with id", "1.24", *BOTH, id="an id"),
    _add("empty id", "1.24", *BOTH, id=""),
    _add("id of other letters", "1.24", *BOTH, id='ü"\\\n'),
    _add("inputs in another order", "1.13", IN1, IN0),
    infer("version given", "1.12", "versions", {"inputs": [tensor("INPUT0", "INT32", [1], [5])]}, version="1"),
    infer("newest version", "1.12", "versions", {"inputs": [tensor("INPUT0", "INT32", [1], [5])]}),
    infer("newest of latest", "1.12", "latest", {"inputs": [tensor("INPUT0", "INT32", [1], [5])]}),
    _add("one output asked for", "1.22 16.32", *BOTH, outputs=[{"name": "OUTPUT1"}]),
    _add("outputs asked for in reverse", "1.22", *BOTH, outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]),
    _add("empty list of outputs", "1.22", *BOTH, outputs=[]),
    _add("unknown top-level fields", "1.13", *BOTH, more={"a": [1, 2]}),
    _add("unknown input fields", "1.13", {**IN0, "more": 1}, IN1),
    _one("two floats", "1.13", X),
    _one("nested data", "1.15", tensor("INPUT0", "FP32", [4], [[1, 2], [3, 4]])),
    _one("oddly nested data", "1.15", tensor("INPUT0", "FP32", [3], [[1, [2]], 3])),
    _one("scalar data", "1.15", tensor("INPUT0", "FP32", [1], 1.5)),
    _one("no elements", "1.25", tensor("INPUT0", "FP32", [0], [])),
    _one("integers as floats", "1.15", tensor("INPUT0", "FP32", [2], [1, -7])),
    _one("great and small floats", "1.15", tensor("INPUT0", "FP32", [5], [3.4e38, 1e-45, 1e39, 0.1, 16777217])),
    _text("NaN and Infinity", "1.18", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}'),
    _text("Inf", "1.18", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[Inf,-Inf]}]}'),
    _text("white space", "1.13", b' {\n"inputs" :\t[ {"name":"INPUT0","datatype":"FP32","shape":[1],"data":[ 1 ]} ] }\r\n'),
    _text("fields in another order", "1.13", b'{"inputs":[{"data":[1,2],"shape":[2],"datatype":"FP32","name":"INPUT0"}],"id":"x"}'),
    _text("escapes in names", "1.13", b'{"inputs":[{"name":"INPUT\\u0030","datatype":"FP32","shape":[1],"data":[1]}]}'),
    _text("a field twice", "1.13", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"shape":[2],"data":[1,2]}]}'),
    infer("batch of one", "1.13", "batched", {"inputs": [tensor(n, "INT32", [1, 4], [1, 2, 3, 4]) for n in ("INPUT0", "INPUT1")]}),
    infer("batch of eight", "1.13", "batched", {"inputs": [tensor(n, "INT32", [8, 4], list(range(32))) for n in ("INPUT0", "INPUT1")]}),
    infer("batch of none", "15.55", "batched", {"inputs": [tensor(n, "INT32", [0, 4], []) for n in ("INPUT0", "INPUT1")]}),
    infer("auto-completed model", "1.13", "completed", {"inputs": [tensor("A", "INT64", [2, 2], [1, 2, 3, 4])]}),
    infer("auto-completed, optional input", "1.13", "completed", {"inputs": [tensor(n, "INT64", [1, 2], [1, 2]) for n in "AB"]}),
    infer("grid", "1.13", "grid", {"inputs": [tensor("GRID", "FP64", [1, 2, 3], [[1, 2, 3], [4, 5, 6]])]}),
    infer("grid without rows", "1.25", "grid", {"inputs": [tensor("GRID", "FP64", [1, 0, 3], [])]}),
    infer("matrix", "1.13", "matrix", {"inputs": [tensor("M", "FP32", [2, 3], [1, 2, 3, 4, 5, 6])]}),
    infer("word", "1.19", "word", {"inputs": [tensor("WORD", "BYTES", [1], ["hello"])]}),
    infer("empty word", "1.19", "word", {"inputs": [tensor("WORD", "BYTES", [1], [""])]}),
    infer("word of other letters", "1.19", "word", {"inputs": [tensor("WORD", "BYTES", [1], ["a\u0001\n\"\\"])]}),
    infer("reshape", "15.55", "reshaped", {"inputs": [tensor("X", "FP32", [2, 1], [1, 2])]}),
]  # fmt: skip

_VALUES: dict[str, list[object]] = {
    "BOOL": [True, False], "UINT8": [0, 255], "UINT16": [0, 65535], "UINT32": [0, 4294967295], "UINT64": [0, 18446744073709551615],
    "INT8": [-128, 127], "INT16": [-32768, 32767], "INT32": [-(2**31), 2**31 - 1], "INT64": [-(2**63), 2**63 - 1],
    "FP32": [0.1, -1e30], "FP64": [0.1, -1e300], "BYTES": ["a", "ü€"],
}  # fmt: skip
_WRONG: dict[str, list[object]] = {
    "BOOL": [2], "UINT8": [256], "UINT16": [65536], "UINT32": [-1], "UINT64": [-1], "INT8": [128], "INT16": [32768],
    "INT32": [2**31], "INT64": [2**63], "FP32": ["1"], "FP64": [None], "BYTES": [1],
}  # fmt: skip


def _typed(name: str, datatype: str, values: list[object]) -> Case:
    entry = tensor(f"IN_{datatype.replace('BYTES', 'STRING')}", datatype, [len(values)], values)
    return infer(name, "1.14 1.15", "types", {"inputs": [entry]})


TYPES = [
    *(_typed(f"json of {t}", t, values) for t, values in _VALUES.items()),
    *(_typed(f"json out of range of {t}", t, values) for t, values in _WRONG.items()),
    _typed("a float for INT32", "INT32", [1.5]),
    _typed("a whole float for INT32", "INT32", [1.0]),
    _typed("true for INT32", "INT32", [True]),
    _typed("text for INT32", "INT32", ["1"]),
    _typed("null for INT32", "INT32", [None]),
    _typed("an object for INT32", "INT32", [{}]),
    _typed("1 for BOOL", "BOOL", [1]),
    _typed("0 for BOOL", "BOOL", [0]),
    _typed("1.0 for BOOL", "BOOL", [1.0]),
    _typed("true for FP32", "FP32", [True]),
    _typed("FP16 in JSON", "FP16", [1.0]),
    _typed("BF16 in JSON", "BF16", [1.0]),
    _typed("unknown data type", "FP8", [1.0]),
    _typed("data type in small letters", "fp32", [1.0]),
    _typed("the configuration's name of a data type", "TYPE_FP32", [1.0]),
]

BAD_SHAPES = [
    _one("too few elements", "1.15", tensor("INPUT0", "FP32", [3], [1, 2])),
    _one("too many elements", "1.15", tensor("INPUT0", "FP32", [1], [1, 2])),
    _one("negative shape", "1.16", tensor("INPUT0", "FP32", [-1], [1])),
    _one("negative shape of two", "1.16", tensor("INPUT0", "FP32", [-2, -2], [1, 2, 3, 4])),
    _one("overflowing shape", "1.16", tensor("INPUT0", "FP32", [2**62, 8], [1])),
    _one("shape of 2^63", "1.16", tensor("INPUT0", "FP32", [2**63], [1])),
    _one("shape of 2^64", "1.16", tensor("INPUT0", "FP32", [2**64], [1])),
    _one("huge shape", "1.16 1.28", tensor("INPUT0", "FP32", [2**40], [1])),
    _one("shape of floats", "1.16", tensor("INPUT0", "FP32", [1.5], [1])),
    _one("shape of text", "1.16", tensor("INPUT0", "FP32", ["1"], [1])),
    _one("shape that is a number", "1.13", {**X, "shape": 2}),
    _one("empty shape", "15.55", tensor("INPUT0", "FP32", [], [1])),
    _one("wrong rank", "15.55", tensor("INPUT0", "FP32", [1, 2], [1, 2])),
    _add("wrong size", "15.55", tensor("INPUT0", "FP32", [3], [1, 2, 3]), IN1),
    infer("batch beyond the most", "15.55", "batched", {"inputs": [tensor(n, "INT32", [9, 4], list(range(36))) for n in ("INPUT0", "INPUT1")]}),
    infer("batches that differ", "15.55", "batched", {"inputs": [tensor("INPUT0", "INT32", [1, 4], [1] * 4), tensor("INPUT1", "INT32", [2, 4], [1] * 8)]}),
    infer("batch dimension missing", "15.55", "batched", {"inputs": [tensor(n, "INT32", [4], [1] * 4) for n in ("INPUT0", "INPUT1")]}),
    infer("wrong shape in a batching model", "15.55", "batched", {"inputs": [tensor(n, "INT32", [1, 5], [1] * 5) for n in ("INPUT0", "INPUT1")]}),
    infer("wrong fixed part of a shape", "15.55", "grid", {"inputs": [tensor("GRID", "FP64", [1, 2, 2], [1, 2, 3, 4])]}),
    infer("scalar to a batching model", "15.55", "grid", {"inputs": [tensor("GRID", "FP64", [], [1])]}),
    _one("depth of 100", "1.15", tensor("INPUT0", "FP32", [1], eval("[" * 99 + "1" + "]" * 99))),  # noqa: S307
    _text("depth of 101", "1.15", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":' + b"[" * 101 + b"1" + b"]" * 101 + b"}]}"),
    _text("depth of 5000", "1.15", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":' + b"[" * 5000 + b"1" + b"]" * 5000 + b"}]}"),
]  # fmt: skip

BAD_NAMES = [
    _add("an input twice", "1.20", IN0, IN0),
    _add("three inputs, one twice", "1.20", IN0, IN1, IN0),
    _add("an output twice", "1.20", *BOTH, outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]),
    _add("missing input", "15.55", IN0),
    _add("unknown input", "15.55", IN0, {**IN1, "name": "INPUT2"}),
    _add("one input too many", "15.55", *BOTH, {**IN1, "name": "INPUT2"}),
    _add("unknown output", "1.22", *BOTH, outputs=[{"name": "OUTPUT2"}]),
    _add("empty input name", "15.55", IN0, {**IN1, "name": ""}),
    _add("wrong data type", "15.55", tensor("INPUT0", "INT32", [4], [1, 2, 3, 4]), IN1),
    _add(
        "both data types wrong",
        "15.55",
        tensor("INPUT0", "INT32", [4], [1] * 4),
        tensor("INPUT1", "FP64", [4], [1] * 4),
    ),
    _add("wrong data type with id", "1.24 15.55", tensor("INPUT0", "INT32", [4], [1, 2, 3, 4]), IN1, id="job 7"),
    infer("optional input alone", "15.55", "facts", {"inputs": [tensor("EXTRA", "INT32", [1], [1])]}),
    infer("no optional input at all", "15.55", "types", {"inputs": []}),
    infer("unknown model", "1.08", "nobody", {"inputs": BOTH}),
    infer("unknown version", "1.08", "add_sub", {"inputs": BOTH}, version="9"),
    infer("unloaded version", "1.08", "latest", {"inputs": BOTH}, version="1"),
    infer("version 0", "1.12", "add_sub", {"inputs": BOTH}, version="0"),
    infer("version beyond 64 bits", "1.12", "add_sub", {"inputs": BOTH}, version="18446744073709551616"),
    infer("bad JSON to an unknown model", "1.08", "nobody", b"{"),
]

BAD_JSON = [
    _text("empty body", "1.13", b""),
    _text("half an object", "1.13", b'{"inputs":['),
    _text("not JSON", "1.13", b"hello"),
    _text("trailing comma", "1.13", b'{"inputs":[],}'),
    _text("text after the object", "1.13", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]} x'),
    _text("an array", "1.13", b"[]"),
    _text("a number", "1.13", b"1"),
    _text("null", "1.13", b"null"),
    _text("an empty object", "1.13", b"{}"),
    _text("inputs null", "1.13", b'{"inputs":null}'),
    _text("inputs an object", "1.13", b'{"inputs":{}}'),
    _text("inputs of numbers", "1.13", b'{"inputs":[1]}'),
    _text("no inputs", "1.13 15.55", b'{"inputs":[]}'),
    _text("a byte that is not UTF-8", "1.13", b'{"inputs":[{"name":"\xff","datatype":"FP32","shape":[1],"data":[1]}]}'),
    _text("a zero byte", "1.13", b'{"inputs":[]}\x00'),
    _text("a byte order mark", "1.13", b'\xef\xbb\xbf{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'),
    _text("single quotes", "1.13", b"{'inputs':[]}"),
    _text("a comment", "1.13", b'{"inputs":[]/* none */}'),
    _text("a lone surrogate", "1.13", b'{"id":"\\ud800","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}'),
    _text("nested objects of 5000", "1.15", b'{"inputs":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"),
    *(_one(f"input without {field}", "1.13", _without(field)) for field in ("name", "datatype", "shape", "data")),
    _one("name a number", "1.13", {**X, "name": 1}),
    _one("datatype a number", "1.13", {**X, "datatype": 1}),
    _one("data null", "1.13", {**X, "data": None}),
    _one("data an object", "1.13", {**X, "data": {}}),
    _one("data a text", "1.13", {**X, "data": "1"}),
    _one("data and binary size", "1.13", {**X, "parameters": {"binary_data_size": 8}}),
    _one("data and shared memory", "1.13", {**X, "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}),
    _one("unknown shared memory", "1.13", tensor("INPUT0", "FP32", [2], None, shared_memory_region="r", shared_memory_byte_size=8)),
    _one("input parameters a number", "1.13", {**X, "parameters": 1}),
    _add("id a number", "1.24", *BOTH, id=1),
    _add("outputs a number", "1.13", *BOTH, outputs=1),
    _add("outputs of numbers", "1.13", *BOTH, outputs=[1]),
    _add("output without name", "1.13", *BOTH, outputs=[{}]),
    _add("output parameters a number", "1.13", *BOTH, outputs=[{"name": "OUTPUT0", "parameters": 1}]),
    _add("binary_data a number", "1.23", *BOTH, outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": 1}}]),
    _add("binary_data a text", "1.23", *BOTH, outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": "true"}}]),
    _add("classification of an output", "3.01", *BOTH, outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}]),
    _add("output into unknown shared memory", "1.13", *BOTH, outputs=[{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 16}}]),
]  # fmt: skip

PARAMETERS = [
    _facts("parameters of each type", "7.01", {"t": "x", "i": -3, "f": 1.5, "b": True}),
    _facts("no parameters", "7.01", {}),
    _facts("id and requested outputs", "16.09", {}, id="me", outputs=[{"name": "FACTS"}]),
    _facts("a list as parameter", "7.01", {"l": [1]}),
    _facts("an object as parameter", "7.01", {"o": {}}),
    _facts("null as parameter", "7.01", {"n": None}),
    _facts("a parameter of 2^63", "7.01", {"i": 2**63}),
    _facts("a parameter of 2^64", "7.01", {"i": 2**64}),
    _facts("an empty parameter name", "7.01", {"": "x"}),
    _facts("a parameter of other letters", "7.01", {"ü": "€"}),
    _facts("parameters a list", "7.01", []),
    _facts("parameters a text", "7.01", "x"),
    _facts("triton_ prefix", "7.02", {"triton_x": 1}),
    _facts("triton_enable_empty_final_response", "7.02", {"triton_enable_empty_final_response": True}),
    _facts("headers as parameter", "7.02", {"headers": "x"}),
    _facts("sequence parameters", "7.02 16.09", {"sequence_id": 5, "sequence_start": True, "sequence_end": True}),
    _facts("textual sequence id", "7.02 16.09", {"sequence_id": "five"}),
    _facts("sequence id of another type", "7.02", {"sequence_id": 1.5}),
    _facts("negative sequence id", "7.02", {"sequence_id": -1}),
    _facts("sequence_start a number", "7.02", {"sequence_start": 1}),
    _facts("sequence_end a text", "7.02", {"sequence_end": "yes"}),
    _facts("priority", "8.01 8.03", {"priority": 1}),
    _facts("negative priority", "8.01", {"priority": -1}),
    _facts("priority a text", "8.01", {"priority": "high"}),
    _facts("timeout", "8.02 8.03 16.09", {"timeout": 5000000}),
    _facts("negative timeout", "8.02", {"timeout": -1}),
    _facts("timeout a text", "8.02", {"timeout": "1"}),
    _facts("timeout a float", "8.02", {"timeout": 1.5}),
    _facts("binary_data_output a number", "1.23", {"binary_data_output": 1}),
    _facts("binary_data_output a text", "1.23", {"binary_data_output": "true"}),
    infer("priority beyond the levels", "8.01", "sleeper", {"inputs": [tensor("MS", "UINT32", [1, 1], [0])], "parameters": {"priority": 9}}),
    infer("timeout shorter than the queue's", "8.02", "sleeper", {"inputs": [tensor("MS", "UINT32", [1, 1], [0])], "parameters": {"timeout": 40000}}),
]  # fmt: skip

CASES: list[Case] = [*GOOD, *TYPES, *BAD_SHAPES, *BAD_NAMES, *BAD_JSON, *PARAMETERS]
