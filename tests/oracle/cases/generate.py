"""The generate extension, good and bad."""

# ruff: noqa: E501  (a table: one case, one line)
from __future__ import annotations

import json
from typing import Any

from tests.oracle.cases.table import Case, Headers, call


def generate(name: str, rows: str, model: str, body: Any, headers: Headers = (), *, stream: bool = False) -> Case:
    """One request; `body` is text as bytes, or a value to be dumped."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    verb = "generate_stream" if stream else "generate"
    return call(f"{verb}: {name}", rows, "POST", f"/v2/models/{model}/{verb}", text, headers)


FOUR = [1, 2, 3, 4]
VALUES: dict[str, Any] = {
    "a number": 1.5, "one number": [1.5], "two numbers": [1.5, 2], "no number": [], "nested": [[1, 2], [3, 4]], "half nested": [1, [2]],
    "true": True, "a list of true": [True], "text": "x", "a number and text": [1, "x"], "an object": {}, "null": None, "beyond FP32": [1e39],
}  # fmt: skip
MISFITS: dict[str, Any] = {
    "three of four": [1, 2, 3], "eight of four": [1, 2, 3, 4, 5, 6, 7, 8], "one of four": 1, "none of four": [], "two rows of two": [[1, 2], [3, 4]],
    "text in four": ["a", 2, 3, 4], "an object for four": {"a": 1}, "null for four": None, "text for four": "text", "true for four": True,
}  # fmt: skip
PARAMETERS: dict[str, Any] = {
    "text": "t", "whole": 5, "negative": -5, "real": 1.5, "true": True, "null": None, "object": {}, "list": [1], "largest": 9223372036854775807,
    "sequence_id": 5, "sequence_start": True, "sequence_end": 1, "priority": "x", "timeout": 100, "triton_x": 1, "headers": 1, "binary_data_output": True,
}  # fmt: skip
TYPED: dict[str, list[Any]] = {
    "BOOL": [True, 1, [True, False]], "UINT8": [7, -1, 1.5, "x"], "INT8": [-7], "UINT16": [7], "INT16": [7], "INT32": [7, 1.5], "INT64": [7, 1.5, "x"],
    "UINT64": [18446744073709551615, -1], "FP16": [1], "FP64": [1.5, "x"], "STRING": ["x", 1, ["x", "y"], "é\n\"", None, True, ["x", 1], {}],
}  # fmt: skip

CASES: list[Case] = [
    generate("add_sub", "4.01 4.04", "add_sub", {"INPUT0": FOUR, "INPUT1": FOUR}),
    generate("add_sub", "4.06 4.07", "add_sub", {"INPUT0": FOUR, "INPUT1": FOUR}, stream=True),
    generate("an input missing", "4.08", "add_sub", {"INPUT0": FOUR}),
    generate("an input missing", "4.08", "add_sub", {"INPUT0": FOUR}, stream=True),
    *(generate(name, "4.03", "identity_fp32", {"INPUT0": value}) for name, value in VALUES.items()),
    *(generate(name, "4.03", "add_sub", {"INPUT0": value, "INPUT1": FOUR}) for name, value in MISFITS.items()),
    generate("bad value in the second input", "4.03", "add_sub", {"INPUT0": FOUR, "INPUT1": "x"}),
    generate("NaN", "4.03", "identity_fp32", b'{"INPUT0":NaN}'),
    *(
        generate(f"{value!r} for {kind}", "4.03", "types", {f"IN_{kind}": value})
        for kind, values in TYPED.items()
        for value in values
    ),
    generate("a word", "4.03", "word", {"WORD": "text"}),
    generate("a word in a list", "4.03", "word", {"WORD": ["text"]}),
    generate("an empty word", "4.03", "word", {"WORD": ""}),
    generate("two words", "4.03", "word", {"WORD": ["a", "b"]}),
    generate("no word", "4.03", "word", {"WORD": []}),
    generate("a number for a word", "4.03", "word", {"WORD": 7}),
    generate("null for a word", "4.03", "word", {"WORD": None}),
    generate("six in a matrix", "4.03", "matrix", {"M": [1, 2, 3, 4, 5, 6]}),
    generate("six in a batched grid", "4.03", "grid", {"GRID": [1, 2, 3, 4, 5, 6]}),
    generate("five in a batched grid", "4.03", "grid", {"GRID": [1, 2, 3, 4, 5]}),
    generate("a batch of one", "4.03", "batched", {"INPUT0": FOUR, "INPUT1": FOUR}),
    generate("a batch of two", "4.03", "batched", {"INPUT0": FOUR * 2, "INPUT1": FOUR * 2}),
    generate("a batch of three in one", "4.03", "batched", {"INPUT0": [1, 2, 3], "INPUT1": FOUR}),
    generate("a batch too large", "4.03", "batched", {"INPUT0": FOUR * 9, "INPUT1": FOUR * 9}),
    generate("into a reshaped input", "4.03", "reshaped", {"X": 3}),
    generate("an id", "4.04", "identity_fp32", {"id": "abc", "INPUT0": 1}),
    generate("an id", "4.04", "identity_fp32", {"id": "abc", "INPUT0": 1}, stream=True),
    generate("an empty id", "4.04", "identity_fp32", {"id": "", "INPUT0": 1}),
    generate("an id that is a number", "4.04", "identity_fp32", {"id": 7, "INPUT0": 1}),
    generate("an id of null", "4.04", "identity_fp32", {"id": None, "INPUT0": 1}),
    generate("an id in the error", "4.08", "identity_fp32", {"id": "q"}),
    generate("what the model sees of an id", "4.02", "facts", {"INPUT0": 7, "id": "q"}),
    generate("no JSON", "4.03", "identity_fp32", b"x"),
    generate("no JSON", "4.06", "identity_fp32", b"x", stream=True),
    generate("nothing", "4.03", "identity_fp32", b""),
    generate("a list", "4.03", "identity_fp32", []),
    generate("a bare number", "4.03", "identity_fp32", 7),
    generate("an empty object", "4.08", "identity_fp32", {}),
    *(generate(f"parameter {name}", "4.02", "facts", {"INPUT0": 7, name: value}) for name, value in PARAMETERS.items()),
    *(
        generate(f"nested parameter {name}", "4.02", "facts", {"INPUT0": 7, "parameters": {name: value}})
        for name, value in PARAMETERS.items()
    ),
    generate("an optional input", "4.02", "facts", {"INPUT0": 7, "EXTRA": 3}),
    generate("parameters twice nested", "4.02", "facts", {"INPUT0": 7, "parameters": {"parameters": {"s": "t"}}}),
    generate("an id in parameters", "4.02", "facts", {"INPUT0": 7, "parameters": {"id": "q"}}),
    generate("an input in parameters", "4.02", "identity_fp32", {"parameters": {"INPUT0": 1}}),
    generate("a bad input in parameters", "4.02", "add_sub", {"parameters": {"INPUT0": 1}}),
    generate("parameters that are a number", "4.02", "identity_fp32", {"parameters": 7, "INPUT0": 1}),
    generate("parameters that are null", "4.02", "identity_fp32", {"parameters": None, "INPUT0": 1}),
    generate("parameters that are a list", "4.02", "identity_fp32", {"parameters": [], "INPUT0": 1}),
    generate("an unknown model", "4.01", "nobody", {}),
    generate("an unknown model", "4.01", "nobody", b"x", stream=True),
    generate("an unknown version", "4.01", "identity_fp32/versions/9", {"INPUT0": 1}),
    generate("a version", "4.01", "versions/versions/1", {"INPUT0": 1}),
    generate("a textual version", "4.01", "identity_fp32/versions/x", {"INPUT0": 1}),
    *(
        generate(f"encoding {coding}", "4.09", "identity_fp32", {"INPUT0": 1}, [("Content-Encoding", coding)])
        for coding in ("gzip", "identity", "br")
    ),
    generate("encoding gzip", "4.09", "identity_fp32", {"INPUT0": 1}, [("Content-Encoding", "gzip")], stream=True),
    generate("gzip accepted", "4.09", "identity_fp32", {"INPUT0": 1}, [("Accept-Encoding", "gzip")]),
    generate("a head length", "4.01", "identity_fp32", {"INPUT0": 1}, [("Inference-Header-Content-Length", "3")]),
    call("get of generate", "1.02", "GET", "/v2/models/identity_fp32/generate"),
    call("get of generate_stream", "1.02", "GET", "/v2/models/identity_fp32/generate_stream"),
    *(
        generate(f"responses {plan or 'none'}", "4.05", "responses", {"PLAN": plan})
        for plan in ("1", "12", "", "e", "1e", "e1", "n", "F", "1F")
    ),
    *(
        generate(f"responses {plan or 'none'}", "4.06", "responses", {"PLAN": plan}, stream=True)
        for plan in ("1", "12", "123", "", "e", "1e", "1e2", "e1", "n", "F", "1F")
    ),
    call(
        "infer of a decoupled model",
        "1.30",
        "POST",
        "/v2/models/responses/infer",
        b'{"inputs":[{"name":"PLAN","shape":[1],"datatype":"BYTES","data":["1"]}]}',
    ),
]
