"""Responses that a client cannot take, and what is wrong with each; whatever a server says, its sizes are checked."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import json

import pytest

from tests.wire.helpers import strings
from tisfast import limits
from tisfast.errors import BadResponse
from tisfast.types import BY_WIRE
from tisfast.wire.client_response import ResponseReader, error_text

KNOWN = ", ".join(BY_WIRE)
OUT = {"name": "O", "datatype": "FP32", "shape": [2]}
BINARY = {**OUT, "parameters": {"binary_data_size": 8}}
SPELLED = {**OUT, "data": [1, 2]}
OF = "output 'O'"


def response(*outputs, **fields):
    return json.dumps({"model_name": "m", "model_version": "1", **fields, "outputs": list(outputs)}).encode()


def refused(text, tail=b"", json_bytes=None):
    reader, found = ResponseReader(), []
    for _ in range(2):  # what is refused is not remembered
        with pytest.raises(BadResponse) as caught:
            reader.infer(text + tail, (len(text) if tail else -1) if json_bytes is None else json_bytes)
        found.append(caught.value.message)
    assert found[0] == found[1]
    return found[0]


def with_parameters(**parameters):
    return {**OUT, "parameters": parameters}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the response is no JSON object"),
        (None, "the response is no JSON object"),
        ("x", "the response is no JSON object"),
        ({"error": "no such model"}, "the response is an error: 'no such model'"),
        ({"error": {"code": 3}}, "the response is an error: {'code': 3}"),
        ({"model_name": 3}, "'model_name' of the response is 3 and not str"),
        ({"model_version": 1}, "'model_version' of the response is 1 and not str"),
        ({"id": None}, "'id' of the response is None and not str"),
        ({"parameters": []}, "'parameters' of the response is [] and not dict"),
        ({"outputs": {}}, "'outputs' of the response is {} and not list"),
        ({"outputs": [None]}, "an output of the response is None"),
        ({"outputs": [{}]}, "'name' of an output is None and not str"),
        ({"outputs": [{"name": "O"}]}, "'datatype' of output 'O' is None and not str"),
        ({"outputs": [{"name": "O", "datatype": "FP32"}]}, "'shape' of output 'O' is None and not list"),
        ({"outputs": [{**OUT, "shape": "2"}]}, "'shape' of output 'O' is '2' and not list"),
        ({"outputs": [{**OUT, "parameters": 5}]}, "'parameters' of output 'O' is 5 and not dict"),
        ({"outputs": [{**OUT, "datatype": "FP31"}]}, f"output 'O' has datatype 'FP31', known are {KNOWN}"),
        ({"outputs": [{**OUT, "data": "1,2"}]}, "'data' of output 'O' is '1,2' and not list"),
        (
            {"outputs": [{**OUT, "datatype": "BF16", "data": [1, 2]}]},
            "output 'O' of BF16 is spelled in JSON, which has no such numbers",
        ),
    ],
)
def test_fields_that_are_missing_or_of_another_type(document, message):
    assert refused(json.dumps(document).encode()) == message


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (with_parameters(binary_data_size="8"), "'binary_data_size' of output 'O' is '8' and not int"),
        (with_parameters(binary_data_size=True), "'binary_data_size' of output 'O' is True and not int"),
        (with_parameters(binary_data_size=-1), "'binary_data_size' of output 'O' is -1"),
        (with_parameters(binary_data_size=1 << 63), f"'binary_data_size' of output 'O' is {1 << 63}"),
        (with_parameters(shared_memory_region=5), "'shared_memory_region' of output 'O' is 5 and not str"),
        (
            with_parameters(shared_memory_region="r", shared_memory_byte_size=-1),
            "'shared_memory_byte_size' of output 'O' is -1",
        ),
        (
            with_parameters(shared_memory_region="r", shared_memory_offset=0.5),
            "'shared_memory_offset' of output 'O' is 0.5 and not int",
        ),
        (
            {**with_parameters(shared_memory_region="r"), "shape": [-2]},
            "tensor 'O' has the shape [-2]; dimensions are integers from 0 on",
        ),
        (
            {**with_parameters(shared_memory_region="r"), "shape": [1] * 33},
            "tensor 'O' has 33 dimensions, 32 is the limit",
        ),
    ],
)
def test_sizes_that_are_none(output, message):
    assert refused(response(output)) == message


@pytest.mark.parametrize(
    ("outputs", "tail", "message"),
    [
        ([BINARY], bytes(7), "output 'O' is to have 8 bytes, 7 are left in the response"),
        ([BINARY], bytes(9), "the response has 1 bytes behind its last output"),
        ([BINARY, BINARY], bytes(15), "output 'O' is to have 8 bytes, 7 are left in the response"),
        ([SPELLED], bytes(1), "the response has 1 bytes behind its last output"),
        ([], bytes(3), "the response has 3 bytes behind its last output"),
        ([{**BINARY, "shape": [3]}], bytes(8), "tensor 'O' of FP32 and shape [3] has 12 bytes, its buffer has 8"),
        ([{**BINARY, "shape": [2.0]}], bytes(8), "tensor 'O' has the shape [2.0]; dimensions are integers from 0 on"),
        (
            [{**BINARY, "datatype": "BYTES"}],
            b"\xff" * 8,
            "tensor 'O' of BYTES: its 8 bytes are no sequence of elements, each behind its length",
        ),
        (
            [{**BINARY, "datatype": "BYTES", "shape": [3]}],
            strings(b"", b""),
            "tensor 'O' of BYTES and shape [3] has 3 elements, its buffer has 2",
        ),
    ],
)
def test_bytes_that_are_not_those_of_the_outputs(outputs, tail, message):
    assert refused(response(*outputs), tail) == message


CANNOT = "output 'O' cannot be read: "
MISMATCH = "Unable to parse 'data': Shape does not match true shape of 'data' field (input 'O': 2 elements by its shape, {} in 'data')"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({**SPELLED, "data": [1]}, CANNOT + MISMATCH.format("1")),
        ({**SPELLED, "data": [1, 2, 3]}, CANNOT + MISMATCH.format("more")),
        (
            {**SPELLED, "data": ["a", "b"]},
            CANNOT + "Unable to parse 'data': attempt to access JSON non-number as double (input 'O', value 'a')",
        ),
        (
            {**SPELLED, "datatype": "INT8", "data": [1, 128]},
            CANNOT + "Unable to parse 'data': 128 of input 'O' is outside INT8's range -128 to 127",
        ),
        (
            {**SPELLED, "datatype": "BYTES", "data": ["a", 1]},
            CANNOT
            + "Unable to parse JSON bytes array: attempt to access JSON non-string as string (input 'O', value 1)",
        ),
        (
            {**SPELLED, "datatype": "BYTES", "data": ["a"]},
            "tensor 'O' of BYTES and shape [2] has 2 elements, its buffer has 1",
        ),
    ],
)
def test_elements_that_do_not_fit_their_output(output, message):
    assert refused(response(output)) == message


@pytest.mark.parametrize("shape", [[1 << 40], [-1], [2.0], [True], [20, 20, 20], ["2"]])
def test_nothing_is_reserved_for_a_shape_that_the_text_cannot_fill(shape):
    text = response({**SPELLED, "shape": shape})
    assert refused(text) == f"output 'O' has the shape {tuple(shape)!r} in a JSON of {len(text)} bytes"


@pytest.mark.parametrize(
    ("body", "json_bytes", "message"),
    [
        (b"{}", 3, "the response has 2 bytes, of which 3 are to be its JSON"),
        (b"{}", 0, "the response has 2 bytes, of which 0 are to be its JSON"),
        (b"", -1, "the response has 0 bytes, of which -1 are to be its JSON"),
    ],
)
def test_a_json_that_is_not_there(body, json_bytes, message):
    assert refused(body, json_bytes=json_bytes) == message


@pytest.mark.parametrize("text", [b"x", b"{", b"\xff", b'{"outputs":[}', b"[" * 2000, b"[NaN"])
def test_a_text_that_is_no_json(text):
    assert refused(text).startswith("the response is no JSON: ")


def test_the_number_of_outputs_is_bounded():
    empty = {"name": "O", "datatype": "FP32", "shape": [0], "data": []}
    most = limits.CLIENT_OUTPUTS_MAX
    assert len(ResponseReader().infer(response(*[empty] * most)).outputs) == most
    assert refused(response(*[empty] * (most + 1))) == f"the response has {most + 1} outputs, {most} is the limit"


# ---- and those that it takes


def test_an_output_is_found_by_its_name():
    got = ResponseReader().infer(response({**SPELLED, "name": "P"}, SPELLED))
    assert got.output("O") is got.outputs[1] and got.output("P") is got.outputs[0]
    with pytest.raises(BadResponse) as caught:
        got.output("Q")
    assert caught.value.message == "the response of model 'm' has no output 'Q'"


@pytest.mark.parametrize(
    ("parameters", "region"),
    [
        ({"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 16}, ("r", 8, 16)),
        ({"shared_memory_region": "r"}, ("r", 0, 0)),
        ({}, ("", 0, 0)),
    ],
)
def test_an_output_in_a_region_says_where(parameters, region):
    (output,) = ResponseReader().infer(response({**OUT, "parameters": parameters})).outputs
    assert (output.region, output.nbytes, output.offset, output.shape) == (*region, (2,))


def test_what_a_response_says_beside_its_outputs():
    got = ResponseReader().infer(response(id="7", parameters={"a": 1, "b": [True]}))
    assert (got.model, got.version, got.id, got.parameters, got.outputs) == ("m", "1", "7", {"a": 1, "b": [True]}, [])
    bare = ResponseReader().infer(b"{}")
    assert (bare.model, bare.version, bare.id, bare.parameters, bare.outputs) == ("", "", "", {}, [])


def test_a_remembered_head_lends_nothing_to_the_next_response():
    reader, text = ResponseReader(), response(BINARY, parameters={"a": 1})
    first = reader.infer(text + b"abcdefgh", len(text))
    first.parameters["b"] = 2
    first.outputs.clear()
    second = reader.infer(text + b"ABCDEFGH", len(text))
    assert second.parameters == {"a": 1} and bytes(second.output("O").buffer()) == b"ABCDEFGH"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_buffer_and_is_not_copied(kind):
    text = response(BINARY)
    body = kind(text + bytes(8))
    (output,) = ResponseReader().infer(body, len(text)).outputs
    if kind is bytearray:
        body[-1] = 7
        assert output.buffer()[-1] == 7
    assert len(output.buffer()) == 8


@pytest.mark.parametrize("id", ["", "7"])
def test_more_heads_than_are_remembered(id):
    reader = ResponseReader()
    for each in [*range(limits.HEAD_CACHE_ENTRIES_MAX + 3), 0, 1]:
        text = response(BINARY, **({"id": id} if id else {}), parameters={"n": each})
        assert reader.infer(text + bytes(8), len(text)).parameters == {"n": each}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":"no \\u2603"}', "no \N{SNOWMAN}"),
        (b'{"error":""}', ""),
        (b'{"error":null}', '{"error":null}'),
        (b'{"errors":"x"}', '{"errors":"x"}'),
        (b'["error"]', '["error"]'),
        (b"", ""),
        (b"not found\n", "not found\n"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_the_text_of_an_error(body, text):
    assert error_text(body) == text


def test_the_text_of_an_error_is_bounded():
    most = limits.CLIENT_ERROR_CHARS_MAX
    assert error_text(json.dumps({"error": "x" * (most + 1)}).encode()) == "x" * most
    assert error_text(b"y" * (most + 1)) == "y" * most
