"""gRPC's messages beside protobuf's own runtime: what it makes is read alike, and it reads all of ours alike."""

from __future__ import annotations

import json
import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.helpers import F3, message, request, simple, tensor
from tests.wire.helpers import answer, arena, model, read_record
from tisfast.errors import BadResponse, Internal, TisError
from tisfast.types import BY_WIRE
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_request import WantedOutput, WantedOutputs
from tisfast.wire.grpc import infer, respond
from tisfast.wire.grpc.client_codec import RequestMessage, read_infer_response, read_stream_response
from tisfast.wire.signature import ModelSignature

PLACE = arena()
OUT = arena()
SERVED = model(inputs=("I", "J"), outputs=("O", "P"), optional=("J",))
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARAMETER = st.one_of(
    st.just({}),
    st.booleans().map(lambda value: {"bool_param": value}),
    INT64.map(lambda value: {"int64_param": value}),
    TEXT.map(lambda value: {"string_param": value}),
    st.floats().map(lambda value: {"double_param": value}),
    st.integers(0, 2**64 - 1).map(lambda value: {"uint64_param": value}),
)
PARAMETERS = st.dictionaries(
    TEXT | st.sampled_from(["timeout", "priority", "sequence_id", "sequence_start", "classification",
                            "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset", "triton_x"]),
    PARAMETER, max_size=3,
)  # fmt: skip
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=3),
        "int_contents": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "fp32_contents": st.lists(st.floats(width=32), max_size=3),
        "fp64_contents": st.lists(st.floats(), max_size=3),
        "bytes_contents": st.lists(st.binary(max_size=4), max_size=3),
    },
)
SHAPES = st.lists(st.integers(0, 3) | INT64, max_size=3)
INPUTS = st.fixed_dictionaries(
    {"name": st.sampled_from("IJX") | TEXT},
    optional={
        "datatype": st.sampled_from(sorted(BY_WIRE)) | TEXT,
        "shape": SHAPES,
        "parameters": PARAMETERS,
        "contents": CONTENTS,
    },
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "id": TEXT,
        "model_version": st.sampled_from(["", "1", "01"]),
        "parameters": PARAMETERS,
        "inputs": st.lists(INPUTS, max_size=3),
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("OPX")}, optional={"parameters": PARAMETERS}), max_size=2
        ),
        "raw_input_contents": st.lists(st.sampled_from([F3, b""]) | st.binary(max_size=12), max_size=3),
    },
)


@settings(max_examples=400)
@given(REQUESTS)
def test_any_message_that_protobuf_makes_is_a_request_or_a_refusal_with_its_id(fields):
    told = request(**fields)
    try:
        got = infer.parse(SERVED, PLACE, told.SerializeToString())
    except TisError as error:
        assert error.facts["id"] == told.id and not error.message.startswith("Unable to parse request")
    else:
        assert got.id == told.id
        read_record(got)
        del got
    assert PLACE.used_blocks == 0


FLOATS = st.binary(max_size=30).map(lambda raw: raw[: len(raw) // 4 * 4])


@settings(max_examples=200)
@given(st.lists(st.lists(FLOATS, min_size=2, max_size=2), min_size=1, max_size=3), TEXT, st.booleans())
def test_messages_of_one_head_are_each_their_own(tensors, id, both):
    for raws in tensors:  # from the second on the head is known where the sizes are those of the first
        names = "IJ" if both else "I"
        told = request(
            id=id, inputs=[tensor(name, [len(raw) // 4]) for name, raw in zip(names, raws, strict=False)],
            raw_input_contents=raws[: len(names)],
        )  # fmt: skip
        got = infer.parse(SERVED, PLACE, told.SerializeToString())
        assert (got.id, [data for *_, data in read_record(got)[1]]) == (id, raws[: len(names)])


@settings(max_examples=300)
@given(st.binary(max_size=6), st.integers(0, 200), st.integers(0, 6))
def test_what_protobuf_cannot_read_is_refused_and_what_it_can_is_not_called_unreadable(odd, at, gone):
    whole = simple(id="7", parameters={"x": {"int64_param": 3}}, outputs=[{"name": "O"}]).SerializeToString()
    at %= len(whole) + 1
    data = whole[:at] + odd + whole[at + gone :]
    grouped = any(byte & 7 == 3 for byte in data)  # runtimes differ in what they skip within groups
    try:
        message("ModelInferRequest").FromString(data)
        readable = True
    except DecodeError:
        readable = False
    try:
        infer.parse(SERVED, PLACE, data)
    except TisError as error:
        unreadable = isinstance(error, Internal) and error.message == "Unable to parse request"
        assert not unreadable or grouped or not readable
    else:
        assert readable


# ---- the first look


@pytest.mark.parametrize(
    ("fields", "name", "version"),
    [
        ({}, "m", ""),
        ({"model_version": "3"}, "m", "3"),
        ({"model_version": "003"}, "m", "3"),
        ({"model_version": "0"}, "m", "0"),
        ({"model_version": str(2**63 - 1)}, "m", str(2**63 - 1)),
        ({"model_name": ""}, "", ""),
        ({"model_name": "\N{SNOWMAN}/a b"}, "\N{SNOWMAN}/a b", ""),
    ],
)
def test_name_and_version_are_seen_from_the_whole_message(fields, name, version):
    data = simple(**fields).SerializeToString()
    state, found, number, raw_at = infer.peek(data)
    assert (state, found, number) == (1, name, version) and data[raw_at : raw_at + len(F3)] == F3


NO_VERSION = (
    "failed to get model version from specified version string '{}' (details: stol), version should be an integral "
    "value > 0"
)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("-1", "invalid model version specified '-1' , version should be an integral value > 0"),
        ("x", NO_VERSION.format("x")),
        ("1.0", NO_VERSION.format("1.0")),
        (str(2**63), NO_VERSION.format(2**63)),
    ],
)  # fmt: skip
def test_a_version_that_is_none_is_told_at_once(version, text):
    with pytest.raises(TisError) as caught:
        infer.peek(simple(model_version=version).SerializeToString())
    assert caught.value.message == text


def test_the_last_of_several_names_and_versions_counts_while_they_come_first():
    twice = b"\x0a\x01a\x12\x011" * 2 + b"\x0a\x01m\x12\x012" + simple(model_name="").SerializeToString()
    assert infer.peek(twice)[:3] == (1, "m", "2")


@pytest.mark.parametrize("number", [1, 7, 30, 300])
def test_a_message_of_any_number_of_raw_tensors(number):
    names = [f"I{i}" for i in range(number)]
    raws = [struct.pack("<f", i) for i in range(number)]
    told = request(inputs=[tensor(name, [1]) for name in names], raw_input_contents=raws)
    got = infer.parse(model(inputs=names), PLACE, told.SerializeToString())
    assert [data for *_, data in read_record(got)[1]] == raws


# ---- forwarded headers

FORWARDED = b'{"x-user":"alice","a":"theirs"}'


def test_headers_that_are_forwarded_are_parameters_and_win():
    told = simple(parameters={"a": {"string_param": "mine"}, "b": {"bool_param": True}}).SerializeToString()
    texts = read_record(infer.parse(SERVED, PLACE, told, forwarded=FORWARDED))[2]
    assert json.loads(texts[1]) == {"a": "theirs", "b": True, "x-user": "alice"}


EACH = st.sampled_from([b"", FORWARDED, b'{"x-user":"bob"}'])


@given(st.lists(EACH, min_size=2, max_size=6), st.sampled_from(["", "7"]))
def test_headers_of_one_request_never_come_to_another(forwarded, id):
    told, served = simple(id=id).SerializeToString(), model()
    for each in forwarded:
        text = read_record(infer.parse(served, PLACE, told, forwarded=each))[2][1]
        assert json.loads(text or b"{}") == json.loads(each or b"{}")


# ---- answers

VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), TEXT, st.floats(allow_nan=False))
DATATYPES = sorted(name for name in BY_WIRE if name != "BYTES")


OUTPUTS = st.tuples(st.sampled_from(DATATYPES), st.lists(st.integers(0, 3), max_size=3), TEXT)


@settings(max_examples=150)
@given(
    st.lists(OUTPUTS, min_size=1, max_size=4),
    st.dictionaries(TEXT, VALUES, max_size=4),
    TEXT,
    st.data(),
)
def test_protobuf_and_our_client_read_any_answer_alike(outputs, parameters, id, data):
    names = [f"{i}{name}" for i, (*_, name) in enumerate(outputs)]
    made = []
    for i, (datatype, shape, _) in enumerate(outputs):
        count = 1
        for dim in shape:
            count *= dim
        n = count * BY_WIRE[datatype].size
        made.append((i, BY_WIRE[datatype].code, shape, data.draw(st.binary(min_size=n, max_size=n))))
    served = ModelSignature(
        "m", "1", 0, False, [("I", 11, (-1,), False, False)],
        [(name, code, (-1,) * len(shape)) for name, (_, code, shape, _) in zip(names, made, strict=True)],
    )  # fmt: skip
    asked = infer.parse(served, PLACE, simple(id=id).SerializeToString())
    whole = respond.render(answer(asked, made, parameters=json.dumps(parameters).encode(), of=OUT))
    theirs, ours = message("ModelInferResponse").FromString(whole), read_infer_response(whole)
    assert (ours.model, ours.version, ours.id) == (theirs.model_name, theirs.model_version, theirs.id) == ("m", "1", id)
    read = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in theirs.parameters.items()}
    assert ours.parameters == read == parameters
    expected = [
        (name, datatype, tuple(shape), raw)
        for name, (datatype, shape, _), (*_, raw) in zip(names, outputs, made, strict=True)
    ]
    raws = theirs.raw_output_contents
    assert [(o.name, o.datatype, o.shape, bytes(o.buffer())) for o in ours.outputs] == expected
    assert [(o.name, o.datatype, tuple(o.shape), raw) for o, raw in zip(theirs.outputs, raws, strict=True)] == expected


RESPONSES = st.fixed_dictionaries(
    {},
    optional={
        "model_name": TEXT, "model_version": TEXT, "id": TEXT,
        "parameters": st.dictionaries(TEXT, PARAMETER, max_size=3),
        "outputs": st.lists(
            st.fixed_dictionaries(
                {"name": TEXT, "datatype": st.sampled_from(["FP32", "BYTES", "BOOL"])},
                optional={"shape": SHAPES, "parameters": PARAMETERS, "contents": CONTENTS},
            ),
            max_size=2,
        ),
        "raw_output_contents": st.lists(st.binary(max_size=12), max_size=2),
    },
)  # fmt: skip


@settings(max_examples=300)
@given(RESPONSES, TEXT)
def test_any_response_that_protobuf_makes_is_read_alike_or_refused(fields, error):
    told = message("ModelInferResponse")(**fields)
    wrapped = message("ModelStreamInferResponse")(error_message=error, infer_response=told)
    try:
        got = read_infer_response(told.SerializeToString())
    except BadResponse as caught:
        assert "no ModelInferResponse" not in caught.message
        return
    assert (got.model, got.version, got.id) == (told.model_name, told.model_version, told.id)
    for name, value in told.parameters.items():
        kind = value.WhichOneof("parameter_choice")
        assert str(got.parameters[name]) == str(getattr(value, kind) if kind else None)
    assert [(each.name, each.datatype, each.shape) for each in got.outputs] == [
        (each.name, each.datatype, tuple(each.shape)) for each in told.outputs]  # fmt: skip
    text, inner = read_stream_response(wrapped.SerializeToString())
    assert text == wrapped.error_message and (inner.model, inner.id) == (told.model_name, told.id)


# ---- a client's requests

WANTED = st.lists(
    st.tuples(TEXT, st.booleans(), st.integers(0, 9), st.none() | st.just("r"), st.integers(0, 99), st.integers(0, 99)),
    max_size=3,
)


@settings(max_examples=150)
@given(
    st.tuples(TEXT, TEXT, TEXT), WANTED, st.dictionaries(TEXT, VALUES, max_size=3), st.lists(TEXT, max_size=3),
    st.booleans(),
)  # fmt: skip
def test_protobuf_reads_what_a_client_writes(names, wanted, parameters, inputs, raw):
    name, version, id = names
    outputs = [WantedOutput(n, b, 0 if region else c, region, size, at) for n, b, c, region, size, at in wanted]
    tensors = [BufferTensor(each, "INT16", [2], struct.pack("<2h", -3, i)) for i, each in enumerate(inputs)]
    pieces = RequestMessage().render(
        name, tensors, version=version, outputs=WantedOutputs(outputs), parameters=parameters, id=id, raw=raw
    )
    told = message("ModelInferRequest").FromString(b"".join(pieces))
    assert (told.model_name, told.model_version, told.id) == (name, version, id)
    read = {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in told.parameters.items()}
    assert read == parameters
    assert [each.name for each in told.inputs] == inputs
    assert all((each.datatype, list(each.shape)) == ("INT16", [2]) for each in told.inputs)
    if raw:
        assert list(told.raw_input_contents) == [bytes(each.buffer()) for each in tensors]
    else:
        assert [list(each.contents.int_contents) for each in told.inputs] == [[-3, i] for i in range(len(inputs))]
    for output, asked in zip(told.outputs, outputs, strict=True):
        assert output.name == asked.name
        given_ = {key: getattr(value, value.WhichOneof("parameter_choice")) for key, value in output.parameters.items()}
        expected = {"classification": asked.classes} if asked.classes else {}
        if asked.region:
            expected = {"shared_memory_region": "r", "shared_memory_byte_size": asked.nbytes}
            expected |= {"shared_memory_offset": asked.offset} if asked.offset else {}
        assert given_ == expected
