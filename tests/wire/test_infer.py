"""Inference bodies: what is taken, where it goes, and what is refused with which of Triton's words."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import FP32, arena, binary, body, model, read_record, strings, tensor
from tisfast.errors import BadRequest, Internal, NotFound, TisError, Unavailable
from tisfast.limits import HEAD_CACHE_ENTRIES_MAX, REQUEST_ID_BYTES_MAX
from tisfast.types import BY_WIRE
from tisfast.wire import infer
from tisfast.wire.signature import ModelSignature

F3 = struct.pack("<3f", 1, 2.5, -3)


def parse(signature, text, head_bytes=-1, **options):
    return infer.parse(signature, arena(), text, head_bytes, **options)


def refused(error, match, signature, text, head_bytes=-1, **options):
    place = arena()
    with pytest.raises(error) as caught:
        infer.parse(signature, place, text, head_bytes, **options)
    assert match in str(caught.value)
    assert place.used_blocks == 0


def test_a_binary_tensor_stays_where_it_was_received_aligned_to_a_cache_line():
    text, n = body(binary(), tail=F3)
    place = arena()
    request = infer.parse(model(), place, text, n)
    head, tensors, _ = read_record(request)
    assert tensors == [(0, FP32, [3], F3)]
    assert head == {"flags": 0, "requested": 1, "timeout": 0, "correlation": 0, "batch": 1}
    assert place.used_blocks == 1
    offset = struct.unpack_from("<Q", request.record, 48 + 16)[0]
    assert offset % 64 == 0
    del request
    assert place.used_blocks == 0


def test_json_data_takes_one_block():
    place = arena()
    request = infer.parse(model(), place, body(tensor(data=[1, 2.5, -3]))[0])
    assert read_record(request)[1] == [(0, FP32, [3], F3)]
    assert place.used_blocks == 1


def test_json_data_larger_than_its_text():
    request = parse(model(dtype="FP64"), body(tensor(shape=[400], datatype="FP64", data=[1] * 400))[0])
    assert read_record(request)[1][0][3] == struct.pack("<400d", *[1] * 400)


def test_tensors_come_in_index_order_whatever_the_request_says():
    signature = model(inputs=("A", "B"))
    b3 = struct.pack("<3f", 7, 8, 9)
    text, n = body(binary("B"), binary("A"), tail=b3 + F3)
    assert [t[3] for t in read_record(parse(signature, text, n))[1]] == [F3, b3]


def test_json_and_binary_tensors_may_be_mixed():
    signature = model(inputs=("A", "B", "C"))
    text, n = body(tensor("A", data=[4, 5, 6]), binary("B"), tensor("C", data=[[7], [8, 9]]), tail=F3)
    assert [t[3] for t in read_record(parse(signature, text, n))[1]] == [
        struct.pack("<3f", 4, 5, 6),
        F3,
        struct.pack("<3f", 7, 8, 9),
    ]


def test_more_tensors_than_fit_on_the_stack():
    names = [f"I{i}" for i in range(40)]
    text, n = body(*[binary(name) for name in names], tail=F3 * 40)
    tensors = read_record(parse(model(inputs=names), text, n))[1]
    assert [t[0] for t in tensors] == list(range(40))
    assert {t[3] for t in tensors} == {F3}


def test_the_texts_of_a_record():
    parameters = {"timeout": 7, "priority": 3, "sequence_id": "séq", "sequence_start": True, "sequence_end": True}
    request = parse(model(), body(tensor(data=[1, 2, 3]), id="é7", parameters={**parameters, "mine": [][:0] or "x"})[0])
    head, _, (id_text, parameter_text, correlation) = read_record(request)
    assert (id_text.decode(), json.loads(parameter_text), correlation.decode()) == ("é7", {"mine": "x"}, "séq")
    assert (head["timeout"], head["flags"], request.priority, request.correlation) == (7, 7, 3, "séq")


def test_a_long_id_does_not_fit_the_headroom_and_still_arrives():
    text, n = body(binary(), tail=F3, id="x" * REQUEST_ID_BYTES_MAX)
    request = parse(model(), text, n)
    assert read_record(request)[2][0] == b"x" * REQUEST_ID_BYTES_MAX
    assert read_record(request)[1][0][3] == F3


@pytest.mark.parametrize("dtype", [name for name in BY_WIRE if name != "BYTES"])
def test_each_type_in_binary(dtype):
    size = BY_WIRE[dtype].size
    text, n = body(binary(nbytes=3 * size, datatype=dtype), tail=bytes(range(3 * size)))
    assert read_record(parse(model(dtype=dtype), text, n))[1] == [(0, BY_WIRE[dtype].code, [3], bytes(range(3 * size)))]


@pytest.mark.parametrize(
    ("dtype", "values", "form"),
    [
        ("BOOL", [True, False], "2?"),
        ("UINT8", [0, 255], "2B"),
        ("UINT16", [0, 2**16 - 1], "2H"),
        ("UINT32", [0, 2**32 - 1], "2I"),
        ("UINT64", [0, 2**64 - 1], "2Q"),
        ("INT8", [-128, 127], "2b"),
        ("INT16", [-(2**15), 2**15 - 1], "2h"),
        ("INT32", [-(2**31), 2**31 - 1], "2i"),
        ("INT64", [-(2**63), 2**63 - 1], "2q"),
        ("FP32", [0.1, -5], "2f"),
        ("FP64", [0.1, 1e300], "2d"),
    ],
)
def test_each_type_in_json_to_its_last_value(dtype, values, form):
    request = parse(model(dtype=dtype), body(tensor(shape=[2], datatype=dtype, data=values))[0])
    assert read_record(request)[1][0][3] == struct.pack("<" + form, *values)


def test_nan_and_infinities_in_json():
    text = b'{"inputs":[{"name":"I","shape":[4],"datatype":"FP32","data":[NaN,Infinity,-Infinity,-Inf]}]}'
    values = struct.unpack("<4f", read_record(parse(model(), text))[1][0][3])
    assert str(values) == "(nan, inf, -inf, -inf)"


def test_strings_in_json_and_in_binary_are_the_same_bytes():
    signature = model(dtype="BYTES")
    text, n = body(binary(shape=[2], datatype="BYTES", nbytes=11), tail=strings(b"ab", b"\xff"))
    assert read_record(parse(signature, text, n))[1][0][3] == strings(b"ab", b"\xff")
    request = parse(signature, body(tensor(shape=[3], datatype="BYTES", data=["a", ["", "é\n"]]))[0])
    assert read_record(request)[1][0][3] == strings(b"a", b"", "é\n".encode())


@pytest.mark.parametrize(
    "item", [tensor(shape=[0], data=[]), binary(shape=[0], nbytes=0), binary(shape=[2, 0], nbytes=0)]
)
def test_tensors_without_elements(item):
    signature = model(dims=[-1] * len(item["shape"]))
    text, n = body(item)
    assert read_record(parse(signature, text, n))[1] == [(0, FP32, item["shape"], b"")]


def test_a_raw_body_is_the_only_tensor():
    request = parse(model(), F3, 0)
    assert read_record(request)[1] == [(0, FP32, [3], F3)]
    assert read_record(parse(model(dims=[2, -1], max_batch=4), F3 + F3, 0))[1] == [(0, FP32, [1, 2, 3], F3 + F3)]
    assert read_record(parse(model(), b"", 0))[1] == [(0, FP32, [0], b"")]
    assert read_record(parse(model(dtype="BYTES", dims=[1]), b"hello", 0))[1] == [(0, 13, [1], strings(b"hello"))]


def test_batches_and_shape_keys():
    def ask(*shape):
        nbytes = 4 * shape[0] * shape[1]
        text, n = body(binary(shape=shape, nbytes=nbytes), tail=bytes(nbytes))
        return parse(model(max_batch=8), text, n)

    assert (ask(2, 3).batch, ask(5, 3).batch) == (2, 5)
    assert ask(2, 3).shape_key == ask(5, 3).shape_key != ask(2, 4).shape_key
    assert parse(model(max_batch=8, dims=[3]), body(tensor(shape=[1, 3], data=[1, 2, 3]))[0]).shape_key == b""


def test_optional_inputs_may_be_left_out():
    signature = model(inputs=("A", "B"), optional=("B",))
    assert [t[0] for t in read_record(parse(signature, body(tensor("A", data=[1, 2, 3]))[0]))[1]] == [0]
    refused(
        BadRequest,
        "expected number of inputs between 1 and 2 but got 1 inputs",
        signature,
        body(tensor("B", data=[1, 2, 3]))[0],
    )


def test_requested_outputs():
    signature = model(outputs=("X", "Y"))
    data = tensor(data=[1, 2, 3])
    assert parse(signature, body(data)[0]).requested == 3
    assert parse(signature, body(data, outputs=[])[0]).requested == 3
    assert parse(signature, body(data, outputs=[{"name": "Y"}])[0]).requested == 2


# ---- the remembered heads


def test_a_repeated_head_is_the_same_request_with_other_bytes():
    signature, place = model(), arena()
    for id_text, values in [("1", F3), ("22", F3[::-1]), ("", F3), ("333", F3)]:
        text, n = body(binary(), tail=values, **({"id": id_text} if id_text else {}))
        # Clients put the id first.
        text = json.dumps({**({"id": id_text} if id_text else {}), "inputs": [binary()]}).encode()
        request = infer.parse(signature, place, text + values, len(text))
        assert (request.id, read_record(request)[2][0], read_record(request)[1][0][3]) == (
            id_text,
            id_text.encode(),
            values,
        )


def test_a_remembered_head_is_checked_against_the_bytes_that_came():
    signature, place = model(), arena()
    text, n = body(binary(), tail=F3)
    infer.parse(signature, place, text, n)
    with pytest.raises(BadRequest, match="expecting 4 additional bytes"):
        infer.parse(signature, place, text[:-4], n)
    with pytest.raises(BadRequest, match="unexpected additional input data"):
        infer.parse(signature, place, text + b"x", n)


@pytest.mark.parametrize("tail", [b"\0\0\x80\x3f", b"\0\0\0\0", b"1234", b"\xff\xff\xff\xff"])
@pytest.mark.parametrize("before", [b"", b" \n"])
def test_tensors_behind_a_json_whose_length_was_not_told(before, tail):
    text, _ = body(binary(shape=[1], nbytes=4))
    said = "expecting 4 additional bytes for model 'm' .* is the request header Inference-Header-Content-Length set"
    with pytest.raises(BadRequest, match=said):
        infer.parse(model(), arena(), before + text + tail, -1)


def test_a_length_that_takes_in_the_first_byte_of_a_tensor():
    text, n = body(binary(), tail=F3)
    with pytest.raises(BadRequest, match="expecting 1 additional bytes"):
        infer.parse(model(), arena(), text, n + 1)


@pytest.mark.parametrize("entry", [tensor(data=[1, 2, 3]), binary(nbytes=0, shape=[0])])
def test_a_text_without_missing_bytes_is_no_json_for_what_is_behind_it(entry):
    with pytest.raises(Internal, match="failed to parse the request JSON buffer"):
        infer.parse(model(), arena(), body(entry)[0] + b"\xff", -1)


@pytest.mark.parametrize(("text", "place"), [(b'{"inputs":[],"id":"\xff"}', 19), (b'{"a\xc3', 3)])
def test_the_place_that_is_no_utf8_is_named(text, place):
    with pytest.raises(Internal, match=f"not valid UTF-8: .* at {place}$"):
        infer.parse(model(), arena(), text, -1)


def test_a_second_id_in_the_head_wins_every_time():
    signature, place = model(), arena()
    text = b'{"id":"first","inputs":[%b],"id":"second"}' % json.dumps(binary()).encode()
    for _ in range(3):
        assert infer.parse(signature, place, text + F3, len(text)).id == "second"


def test_string_tensors_are_walked_in_remembered_heads_too():
    signature, place = model(dtype="BYTES"), arena()
    text, n = body(binary(shape=[1], nbytes=6, datatype="BYTES"), tail=strings(b"ab"))
    infer.parse(signature, place, text, n)
    with pytest.raises(BadRequest, match="expecting string of length 100 but only 2 bytes available"):
        infer.parse(signature, place, text[:-6] + struct.pack("<I", 100) + b"ab", n)


def test_remembered_heads_are_bounded():
    signature, place = model(), arena()
    for i in range(3 * HEAD_CACHE_ENTRIES_MAX):
        text, n = body(binary(), tail=F3, parameters={"p": i})
        assert json.loads(read_record(infer.parse(signature, place, text, n))[2][1]) == {"p": i}


# ---- refusals

ONE = model()
DATA = {"data": [1, 2, 3]}


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (b"{", Internal, "failed to parse the request JSON buffer: unexpected end of data at 1"),
        (b"\xff\xd8\xff\xe0 a picture", Internal, "needs Inference-Header-Content-Length: 0)"),
        (b"--form\r\nContent-Disposition: form-data", Internal, "needs Inference-Header-Content-Length: 0)"),
        (b"[]", Internal, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        (b'{"inputs":{}}', Internal, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        (b'{"inputs":[5]}', BadRequest, "Input must set only one of the following fields"),
        (b'{"inputs":[{"name":"I"}]}', BadRequest, "But no field is set"),
        (body(tensor(**DATA), id=7)[0], Internal, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (body(tensor(**DATA), id="x" * 5000)[0], BadRequest, "5000 bytes, 4096 is the limit"),
        (body(tensor(**DATA, parameters={"binary_data_size": 4}))[0], BadRequest, "But set 'data' 'binary_data_size'"),
        (
            body(tensor(shape=["1"], **DATA))[0],
            Internal,
            "Unable to parse 'shape': attempt to access JSON non-unsigned",
        ),
        (body(tensor(shape=[-1], **DATA))[0], Internal, "Unable to parse 'shape': attempt to access JSON non-unsigned"),
        (body(tensor(shape=[2**63], **DATA))[0], BadRequest, "contains one or more invalid dimensions"),
        (
            body(tensor(shape=[2**40, 2**40], **DATA))[0],
            BadRequest,
            "causes total element count to exceed maximum size",
        ),
        (body(tensor(shape=[4, 2**60 + 2], **DATA))[0], BadRequest, "byte size overflow for input 'I'"),
        (body(tensor(shape=[1] * 40, **DATA))[0], BadRequest, "40 dimensions, 32 is the limit"),
        (body(tensor(shape=[2**30], **DATA))[0], BadRequest, "Use --http-max-input-size to increase the limit"),
        (body(tensor(datatype="FP31", **DATA))[0], BadRequest, "invalid datatype for input I"),
        (body(tensor(datatype="FP16", **DATA))[0], BadRequest, "receiving FP16 data via JSON is not supported"),
        (body(tensor(datatype="INT32", **DATA))[0], BadRequest, "data-type is 'INT32', but model 'm' expects 'FP32'"),
        (body(tensor(shape=[1, 3], **DATA))[0], BadRequest, "Expected [-1], got [1,3]. "),
        (body(tensor("J", **DATA))[0], BadRequest, "unexpected inference input 'J' for model 'm' (its inputs are I)"),
        (body(tensor(**DATA), tensor(**DATA))[0], BadRequest, "input 'I' already exists in request"),
        (body(tensor(**DATA), tensor("J", **DATA))[0], BadRequest, "expected 1 inputs but got 2 inputs for model 'm'"),
        (body(*[5] * 500)[0], BadRequest, "expected 1 inputs but got 500 inputs for model 'm'"),
        (body()[0], BadRequest, "but missing required input(s) ['I']"),
        (body(tensor(data=[1, 2]))[0], Internal, "Unable to parse 'data': Shape does not match true shape"),
        (body(tensor(data=[1, 2, 3, 4]))[0], Internal, "Unable to parse 'data': Shape does not match true shape"),
        (body(tensor(data=[1, 2, "3"]))[0], Internal, "attempt to access JSON non-number as double"),
        (body(tensor(data=[1, 2, True]))[0], Internal, "attempt to access JSON non-number as double"),
        (body(tensor(data=[1, 2, None]))[0], Internal, "value null)"),
        (body(tensor(data=7))[0], Internal, "Unable to parse 'data': attempt to access JSON non-array as array"),
        (body(tensor(**DATA), outputs=[{"name": "Z"}])[0], BadRequest, "unexpected inference output 'Z' for model 'm'"),
        (body(tensor(**DATA), outputs=[{"name": "O"}] * 2)[0], BadRequest, "output 'O' already exists in request"),
        (body(tensor(**DATA), outputs=[{}])[0], Internal, "Unable to parse 'name'"),
        (body(tensor(**DATA), outputs=5)[0], Internal, "Unable to parse 'outputs'"),
        (
            body(tensor(**DATA), outputs=[{"name": "O", "parameters": {"binary_data": 1}}])[0],
            Internal,
            "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean",
        ),
        (
            body(tensor(parameters={"shared_memory_region": "r"}))[0],
            NotFound,
            "Unable to find shared memory region: 'r'",
        ),
        (
            body(tensor(**DATA), outputs=[{"name": "O", "parameters": {"shared_memory_region": "r"}}])[0],
            NotFound,
            "Unable to find shared memory region: 'r'",
        ),
        (body(tensor(**DATA), parameters=5)[0], Internal, "failed to get request params."),
        (body(tensor(**DATA), parameters={"a": []})[0], BadRequest, "parameter 'a' has invalid type"),
        (body(tensor(**DATA), parameters={"triton_x": 1})[0], BadRequest, "reserved for Triton usage"),
        (body(tensor(**DATA), parameters={"timeout": -1})[0], Internal, "Unable to parse 'timeout'"),
        (body(tensor(**DATA), parameters={"priority": 1.5})[0], Internal, "Unable to parse 'priority'"),
        (body(tensor(**DATA), parameters={"sequence_id": -1})[0], Internal, "Unable to parse 'sequence_id'"),
        (body(tensor(**DATA), parameters={"sequence_start": 1})[0], Internal, "Unable to parse 'sequence_start'"),
        (
            body(tensor(**DATA), parameters={"binary_data_output": "x"})[0],
            Internal,
            "Unable to parse 'binary_data_output'",
        ),
    ],
)
def test_what_a_json_body_says_wrong(text, error, match):
    refused(error, match, ONE, text)


@pytest.mark.parametrize(
    ("item", "tail", "error", "match"),
    [
        (binary(), F3[:8], BadRequest, "unexpected size for input 'I', expecting 4 additional bytes for model 'm'"),
        (binary(), F3 + b"xx", BadRequest, "unexpected additional input data for model 'm'"),
        (binary(nbytes=8), F3[:8], BadRequest, "Expected 12, got 8"),
        (binary(nbytes=2**63), F3, BadRequest, "expecting 9223372036854775796 additional bytes"),
        (binary(nbytes=-1), F3, Internal, "Unable to parse 'binary_data_size'"),
        (binary(nbytes="12"), F3, Internal, "Unable to parse 'binary_data_size'"),
        (binary(shape=[2**61]), F3, BadRequest, "byte size for tensor 'I' exceeds maximum size"),
        (binary(datatype="FP31"), F3, BadRequest, "data-type is '<invalid>'"),
        (binary(shape=[0], nbytes=4), F3[:4], BadRequest, "Expected 0, got 4"),
    ],
)
def test_what_a_binary_body_says_wrong(item, tail, error, match):
    text, n = body(item, tail=tail)
    refused(error, match, ONE, text, n)


@pytest.mark.parametrize(
    ("shape", "data", "match"),
    [
        ([1], strings(b"a", b"b"), "unexpected number of string elements 2 for inference input 'I'"),
        ([3], strings(b"a", b"b"), "expected 3 string elements for inference input 'I' for model 'm', got 2"),
        ([1], b"\1\0\0", "incomplete string length indicator"),
        ([1], struct.pack("<I", 2**32 - 1) + b"x", "expecting string of length 4294967295 but only 1 bytes available"),
        ([1], b"", "expected 1 string elements"),
    ],
)
def test_what_a_string_tensor_says_wrong(shape, data, match):
    text, n = body(binary(shape=shape, nbytes=len(data), datatype="BYTES"), tail=data)
    refused(BadRequest, match, model(dtype="BYTES"), text, n)


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        (([9, 3],), "inference request batch-size must be <= 8 for 'm'"),
        (([3],), "Expected [-1,3], got [3]. NOTE: Setting a non-zero max_batch_size"),
        (([],), "input 'I0' has no shape but model requires batch dimension"),
        (([0, 3],), "Expected 12, got 0"),
        (([1, 3], [2, 3]), "input 'I1' batch size does not match other inputs for 'm'"),
    ],
)
def test_what_does_not_fit_a_batching_model(shapes, match):
    def size(shape):
        total = 1
        for dim in shape:
            total *= dim
        return total

    signature = model(inputs=[f"I{i}" for i in range(len(shapes))], dims=[3], max_batch=8)
    items = [tensor(f"I{i}", shape, data=[0] * size(shape)) for i, shape in enumerate(shapes)]
    refused(BadRequest, match, signature, body(*items)[0])


@pytest.mark.parametrize(
    ("signature", "match"),
    [
        (
            model(inputs=("A", "B")),
            "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm'",
        ),
        (model(dims=[-1, -1]), "there are more than one variable-sized dimension"),
        (model(dtype="BYTES"), "For BYTE datatype raw input 'I', the model must have input shape [1]"),
        (model(dims=[2, -1]), "input byte size mismatch for input 'raw_input' for model 'm'. Expected 8, got 12"),
    ],
)
def test_raw_bodies_that_fit_no_input(signature, match):
    refused(BadRequest, match, signature, F3, 0)


def test_limits_of_size():
    refused(BadRequest, "request JSON size of 70 bytes exceeds", ONE, b" " * 70, -1, max_input_bytes=60)
    refused(BadRequest, "Raw input has a byte_size (12 bytes)", ONE, F3, 0, max_input_bytes=8)
    refused(BadRequest, "inference header size should be in range (0, 12), got: 13", ONE, F3, 13)
    text = body(tensor(shape=[100], datatype="BYTES", data=[""] * 100))[0]
    refused(BadRequest, "JSON input 'I' has a byte_size (400 bytes)", model(dtype="BYTES"), text, max_input_bytes=399)


@pytest.mark.parametrize(("dtype", "value"), [("FP32", "1"), ("BYTES", '"hello"')])
def test_nesting_is_bounded(dtype, value):
    def nested(depth):
        head = b'{"inputs":[{"name":"I","shape":[1],"datatype":"%b","data":' % dtype.encode()
        return head + b"[" * depth + value.encode() + b"]" * depth + b"}]}"

    assert read_record(parse(model(dtype=dtype), nested(99)))[1][0][2] == [1]
    for depth in (100, 120, 5000, 300_000):
        refused(
            BadRequest,
            "JSON nesting depth exceeds maximum allowed limit (100)",
            model(dtype=dtype),
            nested(depth),
        )


def test_a_full_arena_is_unavailable_and_leaves_nothing_behind():
    small = arena(1 << 17)
    text = body(tensor(shape=[20000], data=[1] * 20000))[0]
    with pytest.raises(Unavailable, match="no room for"):
        infer.parse(ONE, small, text)
    assert small.used_blocks == 0


# ---- whatever comes

MODELS = [
    model(),
    model(dtype="BYTES"),
    model(inputs=("I", "J"), dtype="INT64", dims=[2], max_batch=4),
    ModelSignature(
        "k", "1", 0, False, [("I", FP32, (1,), False, False), ("J", 13, (-1,), True, False)], [("O", 1, ())]
    ),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["I", "J", "O", "", "nope"])
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": names | values,
        "shape": st.lists(st.integers(0, 4), max_size=3) | values,
        "datatype": st.sampled_from(list(BY_WIRE)) | values,
        "data": values,
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "shared_memory_region", "x"]), st.integers(0, 20) | values
        )
        | values,
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "id": values,
        "inputs": st.lists(inputs, max_size=3) | values,
        "outputs": st.lists(st.fixed_dictionaries({}, optional={"name": names, "parameters": values}), max_size=2)
        | values,
        "parameters": st.dictionaries(st.text(max_size=3) | st.sampled_from(["timeout", "sequence_id"]), values),
    },
)


@given(st.sampled_from(MODELS), documents, st.binary(max_size=40), st.integers(-1, 300))
def test_any_document_is_a_request_or_a_refusal(signature, document, tail, head_bytes):
    text = json.dumps(document).encode()
    place = arena(1 << 20)
    for n in {head_bytes, len(text)}:
        try:
            request = infer.parse(signature, place, text + tail, n)
            read_record(request)
        except TisError:
            request = None
    del request
    assert place.used_blocks == 0


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_parameters_beyond_64_bits_are_refused(number):
    text = b'{"parameters":{"a":NaN,"b":%d},"inputs":[]}' % number
    refused(BadRequest, "parameter 'b' has invalid type", model(), text)


def test_deep_values_are_named_by_their_kind():
    text, _ = body(tensor(data=["DEEP"]))
    text = text.replace(b'"DEEP"', b'{"a":' * 900 + b"1" + b"}" * 900)
    refused(Internal, "value {...}", model(), text)


def outcome(signature, text, head_bytes, forwarded):
    try:
        got = infer.parse(signature, arena(), text, head_bytes, forwarded=forwarded)
    except TisError as error:
        return type(error), str(error)
    return got.id, read_record(got)  # not where its tensors lie: a request that is known has another layout


IDS = [b'{"id":"of another"', b'{"id": "7"', b'{"id":""', b"{", b"", b'"id":"x"', b"\1", b"\0"]
MIDDLES = [
    b',"inputs":[{"name":"I","shape":[3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}',
    b'"inputs":[{"name":"I","shape":[3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}',
    b',"inputs":[{"name":"I","shape":[3],"datatype":"FP32","data":[1,2,3]}]}',
    b'"inputs":[{"name":"I","shape":[3],"datatype":"FP32","data":[1,2,3]}]}',
    b'"inputs":[{"name":"I","shape":[3],"datatype":"FP32","data":[]}]}',
    b',"\\u0069d":"b","inputs":[{"name":"I","shape":[3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}',
]
ENDS = [b"", b'{"x-user":"alice"}', b'\0{"x-user":"alice"}', b"\0", b" "]
FORWARDED = [b"", b'{"x-user":"alice"}', b'{"x-user":"bob"}']


@given(
    st.lists(st.tuples(*map(st.sampled_from, (IDS, MIDDLES, ENDS, FORWARDED)), st.booleans()), min_size=2, max_size=8)
)
def test_nothing_remembered_of_one_request_comes_to_another(requests):
    known = model()
    for start, middle, end, forwarded, binary_behind in requests:
        head = start + middle + end
        text, n = (head + F3, len(head)) if binary_behind else (head, -1)
        assert outcome(known, text, n, forwarded) == outcome(model(), text, n, forwarded)
