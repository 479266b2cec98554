"""What an inference body is refused with, word for word: the texts that clients match on, and ours behind them."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import json
import math
import struct

import pytest

from tests.wire.helpers import arena, binary, body, model, strings, tensor
from tisfast.errors import BadRequest, Internal, NotFound, Unsupported
from tisfast.wire import infer
from tisfast.wire.signature import ModelSignature

F3 = struct.pack("<3f", 1, 2.5, -3)
TOP = (1 << 63) - 1
DATA = {"data": [1, 2, 3]}
ONE = model()
WHO = "[request id: <id_unknown>] "
KNOWN = "BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16"
BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input "
    "shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
SOURCES = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in "
    "'parameters'. But "
)


def refused(error, message, signature, text, head_bytes=-1, **options):
    place = arena()
    for _ in range(2):  # what is refused is not remembered
        with pytest.raises(error) as caught:
            infer.parse(signature, place, text, head_bytes, **options)
        assert caught.value.message == message and type(caught.value) is error
    assert place.used_blocks == 0


def absent(field):
    return f"Unable to parse '{field}': attempt to access non-existing object member '{field}'"


def not_a(field, kind):
    return f"Unable to parse '{field}': attempt to access JSON non-{kind} as {kind}"


def without(field, **changes):
    entry = {**tensor(**DATA), **changes}
    del entry[field]
    return entry


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (5, absent("inputs")),
        (None, absent("inputs")),
        ("inputs", absent("inputs")),
        ([{"inputs": []}], absent("inputs")),
        ({}, absent("inputs")),
        ({"inputs": None}, not_a("inputs", "array")),
        ({"inputs": "I"}, not_a("inputs", "array")),
        ({"inputs": [without("name")]}, absent("name")),
        ({"inputs": [without("datatype")]}, absent("datatype")),
        ({"inputs": [without("shape")]}, absent("shape")),
        ({"inputs": [{**tensor(**DATA), "name": 1}]}, not_a("name", "string")),
        ({"inputs": [{**tensor(**DATA), "datatype": None}]}, not_a("datatype", "string")),
        ({"inputs": [{**tensor(**DATA), "shape": 3}]}, not_a("shape", "array")),
        ({"inputs": [{**tensor(**DATA), "shape": [3.0]}]}, not_a("shape", "unsigned-integer")),
        ({"inputs": [{**tensor(**DATA), "shape": [True]}]}, not_a("shape", "unsigned-integer")),
        ({"inputs": [{**tensor(**DATA), "shape": [[3]]}]}, not_a("shape", "unsigned-integer")),
        ({"inputs": [{**tensor(**DATA), "shape": [1 << 64]}]}, not_a("shape", "unsigned-integer")),
        ({"inputs": [tensor(data="1,2,3")]}, not_a("data", "array")),
        ({"inputs": [tensor(data={"a": 1})]}, not_a("data", "array")),
        ({"inputs": [tensor(**DATA)], "id": None}, not_a("id", "string")),
        ({"inputs": [tensor(**DATA)], "outputs": {}}, not_a("outputs", "array")),
        ({"inputs": [tensor(**DATA)], "outputs": [5]}, absent("name")),
        ({"inputs": [tensor(**DATA)], "outputs": [{"name": 5}]}, not_a("name", "string")),
        (
            {"inputs": [tensor(**DATA)], "parameters": []},
            "failed to get request params.: attempt to get members for non-object",
        ),
        (
            {"inputs": [tensor(**DATA)], "parameters": None},
            "failed to get request params.: attempt to get members for non-object",
        ),
    ],
)
def test_fields_that_are_missing_or_of_another_type(document, message):
    refused(Internal, message, ONE, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        (tensor(), "no field is set"),
        (tensor(parameters={}), "no field is set"),
        (tensor(parameters=[]), "no field is set"),
        (5, "no field is set"),
        (tensor(data=[1], parameters={"binary_data_size": 1}), "set 'data' 'binary_data_size'"),
        (tensor(data=[1], parameters={"shared_memory_region": "r"}), "set 'data' 'shared_memory_region'"),
        (
            tensor(parameters={"shared_memory_region": "r", "binary_data_size": 1}),
            "set 'binary_data_size' 'shared_memory_region'",
        ),
        (
            tensor(data=None, parameters={"shared_memory_region": "r", "binary_data_size": 1}),
            "set 'data' 'binary_data_size' 'shared_memory_region'",
        ),
    ],
)
def test_an_input_has_one_source(entry, given):
    refused(BadRequest, SOURCES + given, ONE, body(entry)[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [tensor(shape=[TOP + 1], **DATA)],
            f"invalid shape for input 'I': shape [{TOP + 1}] contains one or more invalid dimensions",
        ),
        ([tensor(shape=[1] * 33, **DATA)], "invalid shape for input 'I': 33 dimensions, 32 is the limit"),
        (
            [tensor(shape=[1 << 32, 1 << 31], **DATA)],
            f"invalid shape for input 'I': shape [{1 << 32}, {1 << 31}] causes total element count to exceed maximum size of {TOP}",
        ),
        (
            [tensor(shape=[1 << 61], **DATA)],
            f"byte size overflow for input 'I': element count ({1 << 61}) * data type size (4) exceeds maximum allowed size ({TOP})",
        ),
        ([tensor(datatype="fp32", **DATA)], f"invalid datatype for input I (got 'fp32', known: {KNOWN})"),
        ([tensor(datatype="", **DATA)], f"invalid datatype for input I (got '', known: {KNOWN})"),
        (
            [tensor(datatype="FP16", **DATA)],
            "receiving FP16 data via JSON is not supported. Please use the binary data format for input I",
        ),
        (
            [tensor(datatype="BF16", **DATA)],
            "receiving BF16 data via JSON is not supported. Please use the binary data format for input I",
        ),
        (
            [tensor(shape=[1 << 25], **DATA)],
            f"JSON input 'I' has a byte_size ({1 << 27} bytes) that exceeds the maximum allowed value of {1 << 26} bytes. Use --http-max-input-size to increase the limit.",
        ),
        (
            [tensor(datatype="INT32", **DATA)],
            WHO + "inference input 'I' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            [tensor(shape=[3, 1], **DATA)],
            WHO + "unexpected shape for input 'I' for model 'm'. Expected [-1], got [3,1]. ",
        ),
        ([tensor(shape=[], data=[1])], WHO + "unexpected shape for input 'I' for model 'm'. Expected [-1], got []. "),
        ([tensor("X", **DATA)], "unexpected inference input 'X' for model 'm' (its inputs are I)"),
        ([tensor(**DATA), tensor(**DATA)], WHO + "input 'I' already exists in request"),
        ([tensor()] * 66, WHO + "expected 1 inputs but got 66 inputs for model 'm'"),
        (
            [tensor(**DATA), tensor("X", **DATA)],
            WHO
            + "expected 1 inputs but got 2 inputs for model 'm'. Got input(s) ['I','X'], but missing required input(s) []. Please provide all required input(s).",
        ),
        (
            [],
            WHO
            + "expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required input(s) ['I']. Please provide all required input(s).",
        ),
    ],
)
def test_inputs_that_the_model_does_not_take(inputs, message):
    refused(BadRequest, message, ONE, body(*inputs)[0])


def test_the_id_of_the_request_stands_in_front_where_tritons_does():
    text = body(tensor(datatype="INT32", **DATA), id="seven")[0]
    refused(
        BadRequest,
        "[request id: seven] inference input 'I' data-type is 'INT32', but model 'm' expects 'FP32'",
        ONE,
        text,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "A",
            "expected number of inputs between 2 and 3 but got 1 inputs for model 'm'. Got input(s) ['A'], but missing required input(s) ['B']. Please provide all required input(s).",
        ),
        (
            "AC",
            "expected number of inputs between 2 and 3 but got 2 inputs for model 'm'. Got input(s) ['A','C'], but missing required input(s) ['B']. Please provide all required input(s).",
        ),
        (
            "ABCD",
            "expected number of inputs between 2 and 3 but got 4 inputs for model 'm'. Got input(s) ['A','B','C','D'], but missing required input(s) []. Please provide all required input(s).",
        ),
    ],
)
def test_inputs_that_are_missing_or_too_many(given, message):
    signature = model(inputs="ABC", optional="C")
    refused(BadRequest, WHO + message, signature, body(*[tensor(name, **DATA) for name in given])[0])


@pytest.mark.parametrize("given", ["XB", "BX", "ABX"])
def test_a_name_that_the_model_has_not_is_told_before_those_that_are_missing(given):
    text = body(*[tensor(name, **DATA) for name in given])[0]
    refused(
        BadRequest,
        "unexpected inference input 'X' for model 'm' (its inputs are A, B, C)",
        model(inputs="ABC", optional="C"),
        text,
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([[9, 3]], WHO + "inference request batch-size must be <= 8 for 'm'"),
        ([[3]], WHO + f"unexpected shape for input 'I0' for model 'm'. Expected [-1,3], got [3]. {BATCH_NOTE}"),
        ([[2, 4]], WHO + f"unexpected shape for input 'I0' for model 'm'. Expected [-1,3], got [2,4]. {BATCH_NOTE}"),
        ([[]], WHO + "input 'I0' has no shape but model requires batch dimension for 'm'"),
        (
            [[0, 3]],
            WHO
            + "input byte size mismatch for input 'I0' for model 'm'. Expected 12, got 0 (the batch dimension must be at least 1, its shape is [0,3])",
        ),
        ([[1, 3], [2, 3]], WHO + "input 'I1' batch size does not match other inputs for 'm' (got 2, others have 1)"),
        ([[1, 3], []], WHO + "input 'I1' has no shape but model requires batch dimension for 'm'"),
    ],
)
def test_batches_that_the_model_does_not_take(shapes, message):
    signature = model(inputs=[f"I{i}" for i in range(len(shapes))], dims=[3], max_batch=8)
    items = [tensor(f"I{i}", shape, data=[0] * math.prod(shape)) for i, shape in enumerate(shapes)]
    refused(BadRequest, message, signature, body(*items)[0])


@pytest.mark.parametrize(
    ("dtype", "dims", "expected"),
    [("FP64", [2, 3], 48), ("INT8", [-1, 5], 5), ("BYTES", [2], 8), ("BYTES", [-1], 4), ("BOOL", [], 1)],
)
def test_a_batch_of_nothing_is_told_what_one_entry_takes(dtype, dims, expected):
    shape = [0, *[max(dim, 1) for dim in dims]]
    text = ",".join(map(str, shape))
    refused(
        BadRequest,
        f"{WHO}input byte size mismatch for input 'I' for model 'm'. Expected {expected}, got 0 (the batch dimension must be at "
        f"least 1, its shape is [{text}])",
        model(dtype=dtype, dims=dims, max_batch=4), body(tensor(shape=shape, datatype=dtype, data=[]))[0],
    )  # fmt: skip


SHAPE = "Unable to parse 'data': Shape does not match true shape of 'data' field (input 'I': 3 elements by its shape, {} in 'data')"


@pytest.mark.parametrize(
    ("dtype", "data", "message"),
    [
        ("FP32", [1, 2], SHAPE.format("2")),
        ("FP32", [], SHAPE.format("0")),
        ("FP32", [[], [1], [[2]]], SHAPE.format("2")),
        ("FP32", [1, 2, 3, 4], SHAPE.format("more")),
        (
            "FP32",
            [1, 2, "3"],
            "Unable to parse 'data': attempt to access JSON non-number as double (input 'I', value '3')",
        ),
        (
            "FP64",
            [1, 2, None],
            "Unable to parse 'data': attempt to access JSON non-number as double (input 'I', value null)",
        ),
        (
            "FP32",
            [1, 2, {}],
            "Unable to parse 'data': attempt to access JSON non-number as double (input 'I', value {...})",
        ),
        (
            "FP32",
            [1, 2, False],
            "Unable to parse 'data': attempt to access JSON non-number as double (input 'I', value false)",
        ),
        (
            "INT32",
            [1, 2, 3.0],
            "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer (input 'I', value 3.0)",
        ),
        (
            "INT64",
            [1, 2, 1 << 63],
            f"Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer (input 'I', value {1 << 63})",
        ),
        ("INT8", [1, 2, 128], "Unable to parse 'data': 128 of input 'I' is outside INT8's range -128 to 127"),
        (
            "INT16",
            [1, 2, -32769],
            "Unable to parse 'data': -32769 of input 'I' is outside INT16's range -32768 to 32767",
        ),
        (
            "INT32",
            [1, 2, 1 << 31],
            f"Unable to parse 'data': {1 << 31} of input 'I' is outside INT32's range {-1 << 31} to {(1 << 31) - 1}",
        ),
        ("UINT8", [1, 2, 256], "Unable to parse 'data': 256 of input 'I' is outside UINT8's range 0 to 255"),
        ("UINT16", [1, 2, 65536], "Unable to parse 'data': 65536 of input 'I' is outside UINT16's range 0 to 65535"),
        (
            "UINT32",
            [1, 2, 1 << 32],
            f"Unable to parse 'data': {1 << 32} of input 'I' is outside UINT32's range 0 to {(1 << 32) - 1}",
        ),
        (
            "UINT32",
            [1, 2, -1],
            "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer (input 'I', value -1)",
        ),
        (
            "UINT64",
            [1, 2, "x"],
            "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer (input 'I', value 'x')",
        ),
        (
            "BOOL",
            [True, False, 1],
            "Unable to parse 'data': attempt to access JSON non-boolean as boolean (input 'I', value 1)",
        ),
        (
            "BYTES",
            ["a", "b", 3],
            "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'I', value 3)",
        ),
        (
            "BYTES",
            ["a", "b", None],
            "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'I', value null)",
        ),
    ],
)
def test_elements_that_do_not_fit_the_input(dtype, data, message):
    error = BadRequest if "range" in message else Internal
    refused(error, message, model(dtype=dtype), body(tensor(datatype=dtype, data=data))[0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a"], WHO + "expected 3 string elements for inference input 'I' for model 'm', got 1"),
        ([], WHO + "expected 3 string elements for inference input 'I' for model 'm', got 0"),
        (["a"] * 4, WHO + "unexpected number of string elements 4 for inference input 'I' for model 'm', expecting 3"),
        (["a"] * 9, WHO + "unexpected number of string elements 4 for inference input 'I' for model 'm', expecting 3"),
    ],
)
def test_strings_are_counted(data, message):
    signature = model(dtype="BYTES")
    refused(BadRequest, message, signature, body(tensor(datatype="BYTES", data=data))[0])
    if data:
        packed = strings(*[each.encode() for each in data])
        text, n = body(binary(datatype="BYTES", nbytes=len(packed)), tail=packed)
        refused(BadRequest, message, signature, text, n)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            strings(b"a") + b"\1\0\0",
            WHO
            + "incomplete string length indicator for inference input 'I' for model 'm', expecting 4 bytes but only 3 bytes available. Please make sure the string length indicator is in one buffer.",
        ),
        (
            strings(b"a", b"b") + struct.pack("<I", 9) + b"abc",
            "incomplete string data for inference input 'I', expecting string of length 9 but only 3 bytes available",
        ),
        (
            struct.pack("<I", 9) + b"abc",
            WHO + "expected 3 string elements for inference input 'I' for model 'm', got 1",
        ),
    ],
)
def test_strings_that_end_early(data, message):
    text, n = body(binary(datatype="BYTES", nbytes=len(data)), tail=data)
    refused(BadRequest, message, model(dtype="BYTES"), text, n)


BEHIND = "(binary_data_size is {}, {} bytes are left behind the JSON; is the request header Inference-Header-Content-Length set?)"


@pytest.mark.parametrize(
    ("items", "tail", "message"),
    [
        (
            [binary("A"), binary("B")],
            F3,
            "unexpected size for input 'B', expecting 12 additional bytes for model 'm' " + BEHIND.format(12, 0),
        ),
        (
            [binary("A"), binary("B")],
            F3 + b"x",
            "unexpected size for input 'B', expecting 11 additional bytes for model 'm' " + BEHIND.format(12, 1),
        ),
        (
            [binary("A"), binary("B")],
            F3 * 2 + b"xy",
            "unexpected additional input data for model 'm' (2 bytes behind the last tensor)",
        ),
        (
            [binary("A"), binary("B", nbytes=8)],
            F3 + F3[:8],
            WHO + "input byte size mismatch for input 'B' for model 'm'. Expected 12, got 8",
        ),
        (
            [binary("A"), binary("B", shape=[1 << 61], nbytes=12)],
            F3 + F3,
            f"byte size for tensor 'B' exceeds maximum size of {TOP} (byte size overflow for input 'B' of shape [{1 << 61}])",
        ),
        (
            [binary("A"), binary("B", datatype="FP33")],
            F3 + F3,
            WHO + "inference input 'B' data-type is '<invalid>', but model 'm' expects 'FP32'",
        ),
    ],
)
def test_binary_tensors_that_do_not_fit(items, tail, message):
    text, n = body(*items, tail=tail)
    refused(BadRequest, message, model(inputs="AB"), text, n)


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        ([{"name": "Z"}], BadRequest, "unexpected inference output 'Z' for model 'm' (its outputs are O, P)"),
        ([{"name": ""}], BadRequest, "unexpected inference output '' for model 'm' (its outputs are O, P)"),
        ([{"name": "P"}, {"name": "O"}, {"name": "P"}], BadRequest, WHO + "output 'P' already exists in request"),
        ([{"name": "O", "parameters": {"binary_data": 1}}], Internal, not_a("binary_data", "boolean")),
        (
            [{"name": "O", "parameters": {"classification": -1}}],
            Internal,
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            [{"name": "O", "parameters": {"shared_memory_region": "r"}}],
            NotFound,
            "Unable to find shared memory region: 'r'",
        ),
        (
            [{"parameters": {"shared_memory_region": "r", "classification": 1}}],
            BadRequest,
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
        (
            [{"parameters": {"shared_memory_region": "r", "binary_data": True}}],
            BadRequest,
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
        (
            [{"parameters": {"shared_memory_region": "r", "binary_data": "x"}}],
            Internal,
            "Unable to set 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
    ],
)
def test_outputs_that_cannot_be_given(outputs, error, message):
    refused(error, message, model(outputs=("O", "P")), body(tensor(**DATA), outputs=outputs)[0])


RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified. (got '{}')"
)
NO_PARAMETER = "parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'."


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"timeout": -1}, Internal, not_a("timeout", "unsigned-integer")),
        ({"timeout": 1 << 64}, Internal, not_a("timeout", "unsigned-integer")),
        ({"timeout": "5"}, Internal, not_a("timeout", "unsigned-integer")),
        ({"priority": True}, Internal, not_a("priority", "unsigned-integer")),
        ({"priority": 1.0}, Internal, not_a("priority", "unsigned-integer")),
        ({"sequence_id": -1}, Internal, not_a("sequence_id", "string")),
        ({"sequence_id": 1.5}, Internal, not_a("sequence_id", "string")),
        ({"sequence_id": True}, Internal, not_a("sequence_id", "string")),
        ({"sequence_id": 1 << 64}, Internal, not_a("sequence_id", "string")),
        ({"sequence_id": "x" * 129}, Unsupported, "string correlation ID cannot be longer than 128 characters"),
        (
            {"sequence_id": "\N{SNOWMAN}" * 43},
            Unsupported,
            "string correlation ID cannot be longer than 128 characters",
        ),
        ({"sequence_start": 1}, Internal, not_a("sequence_start", "boolean")),
        ({"sequence_end": "true"}, Internal, not_a("sequence_end", "boolean")),
        ({"binary_data_output": 1}, Internal, not_a("binary_data_output", "boolean")),
        (
            {"triton_enable_empty_final_response": True},
            BadRequest,
            RESERVED.format("triton_enable_empty_final_response"),
        ),
        ({"triton_": 1}, BadRequest, RESERVED.format("triton_")),
        ({"mine": None}, BadRequest, NO_PARAMETER.format("mine")),
        ({"mine": [1]}, BadRequest, NO_PARAMETER.format("mine")),
        ({"mine": {}}, BadRequest, NO_PARAMETER.format("mine")),
    ],
)
def test_parameters_that_are_none(parameters, error, message):
    refused(error, message, ONE, body(tensor(**DATA), parameters=parameters)[0])


def test_ids_and_parameters_have_their_bounds():
    infer.parse(ONE, arena(), body(tensor(**DATA), id="x" * 4096)[0])
    refused(
        BadRequest,
        "Unable to parse 'id': it has 4097 bytes, 4096 is the limit",
        ONE,
        body(tensor(**DATA), id="x" * 4097)[0],
    )
    wide = json.dumps({"id": "\N{SNOWMAN}" * 1366, "inputs": [tensor(**DATA)]}).encode()
    refused(BadRequest, "Unable to parse 'id': it has 4098 bytes, 4096 is the limit", ONE, wide)
    most = 16 << 20
    text = json.dumps(
        {"parameters": {"a": "x" * (most + 1 - 8), "sequence_id": "s"}, "inputs": [tensor(**DATA)]}
    ).encode()
    message = f"the request's parameters and sequence id have {most + 2} bytes; {most} is the limit"
    refused(BadRequest, message, ONE, text)


NO_OBJECT = (
    " (a JSON object was expected; a body that is one tensor, or a file, needs Inference-Header-Content-Length: 0)"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"x", "unexpected character, expected a JSON value at 0" + NO_OBJECT),
        (b"[1", "unexpected end of data at 2" + NO_OBJECT),
        (b"\xff", "text is not valid UTF-8: invalid start byte at 0" + NO_OBJECT),
        (b" \t", "input data is empty at 0"),
        (b'{"a" 1}', "unexpected character, expected ':' after key at 5"),
        (b' {"a":1}x', "unexpected content after document at 8"),
        (b'  {"a":"\xc3', "text is not valid UTF-8: unexpected end of data at 8"),
        (b'{"a":NaN', "Expecting ',' delimiter at 8"),
    ],
)
def test_texts_that_are_no_json(text, message):
    refused(Internal, "failed to parse the request JSON buffer: " + message, ONE, text)


@pytest.mark.parametrize(
    ("signature", "text", "message"),
    [
        (
            model(inputs="AB"),
            F3,
            WHO
            + "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm' model configuration",
        ),
        (
            model(dims=[-1, -1]),
            F3,
            WHO
            + "The shape of the raw input 'I' can not be deduced because there are more than one variable-sized dimension",
        ),
        (
            model(dtype="BYTES", dims=[-1]),
            F3,
            WHO + "For BYTE datatype raw input 'I', the model must have input shape [1]",
        ),
        (
            model(dtype="BYTES", dims=[2]),
            F3,
            WHO + "For BYTE datatype raw input 'I', the model must have input shape [1]",
        ),
        (
            model(dims=[4]),
            F3,
            WHO + "input byte size mismatch for input 'raw_input' for model 'm'. Expected 16, got 12",
        ),
        (
            model(dims=[-1], dtype="FP64"),
            F3,
            WHO + "input byte size mismatch for input 'raw_input' for model 'm'. Expected 8, got 12",
        ),
    ],
)
def test_raw_bodies(signature, text, message):
    refused(BadRequest, message, signature, text, 0)


@pytest.mark.parametrize(
    ("text", "head_bytes", "most", "message"),
    [
        (F3, 13, 99, "inference header size should be in range (0, 12), got: 13"),
        (F3, 0, 11, "Raw input has a byte_size (12 bytes) that exceeds the maximum allowed value of 11 bytes. Use --http-max-input-size to increase the limit."),
        (
            body(tensor(**DATA))[0], -1, 20,
            f"request JSON size of {len(body(tensor(**DATA))[0])} bytes exceeds the maximum allowed input size of 20 bytes. Use --http-max-input-size to increase the limit.",
        ),
    ],
)  # fmt: skip
def test_bodies_that_are_too_long(text, head_bytes, most, message):
    refused(BadRequest, message, ONE, text, head_bytes, max_input_bytes=most)


def test_a_ragged_input_is_checked_as_any_other():
    signature = ModelSignature("m", "1", 4, False, [("I", 11, (-1,), False, True)], [("O", 11, (-1,))])
    assert infer.parse(signature, arena(), body(tensor(shape=[1, 2], data=[1, 2]))[0]).shape_key == b""
    refused(BadRequest, f"{WHO}unexpected shape for input 'I' for model 'm'. Expected [-1,-1], got [2]. {BATCH_NOTE}",
            signature, body(tensor(shape=[2], data=[1, 2]))[0])  # fmt: skip
