"""ModelInferRequest messages become requests: what protobuf's runtime wrote is what the worker gets."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import json
import math
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.helpers import (
    F3,
    FIELD_OF,
    message,
    parse,
    request,
    simple,
    size_of,
    tensor,
    tensor_bytes,
)
from tests.wire.helpers import answer, arena, model, read_record, strings
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.native.region import Regions, SystemRegion
from tisfast.types import BY_WIRE, Status
from tisfast.wire.grpc import infer, respond

MORE, FOUND, NONE = range(3)
PLACE = arena()


def refused(told, served=None, status=Status.INVALID_ARG, **options):
    with pytest.raises(TisError) as caught:
        parse(served or model(), told, **options)
    assert caught.value.status == status
    return caught.value.message


# ---- round trips

IDS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = {
    "BOOL": st.booleans(),
    **{f"INT{bits}": st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    "FP32": st.floats(width=32),
    "FP64": st.floats(),
    "BYTES": st.binary(max_size=20),
}
VALUES = st.one_of(
    st.booleans().map(lambda value: {"bool_param": value}),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: {"int64_param": value}),
    st.text(st.characters(codec="utf-8"), max_size=9).map(lambda value: {"string_param": value}),
    st.floats(allow_nan=False).map(lambda value: {"double_param": value}),
)
CUSTOM = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=9).map(lambda name: "c" + name), VALUES, max_size=3
)


@st.composite
def inputs(draw, typed=False):
    """A model of some types, and values for each of its inputs."""
    names = draw(st.lists(st.text("abcé", min_size=1, max_size=5), min_size=1, max_size=4, unique=True))
    types = [draw(st.sampled_from(sorted(FIELD_OF if typed else {**FIELD_OF}))) for _ in names]
    values = [draw(st.lists(NUMBERS[datatype], max_size=9)) for datatype in types]
    return names, types, values


def model_of(names, types):
    served = model(inputs=("x",), outputs=("O",))
    return type(served)(
        "m", "1", 0, False, [(n, BY_WIRE[t].code, (-1,), False, False) for n, t in zip(names, types, strict=True)],
        [("O", 11, (-1,))],
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(inputs(), IDS, CUSTOM, st.booleans(), st.one_of(st.none(), st.integers(300, 420)), st.data())
def test_raw_tensors_come_as_they_were_sent(what, name, custom, repeat, start, data):
    names, types, values = what
    served = model_of(names, types)
    order = data.draw(st.permutations(range(len(names))))
    raws = [tensor_bytes(types[i], values[i]) for i in order]
    told = request(
        id=name, parameters=custom, raw_input_contents=raws,
        inputs=[tensor(names[i], (len(values[i]),), types[i]) for i in order],
    )  # fmt: skip
    for _ in range(1 + repeat):  # the second time its head is known
        head, tensors, texts = parse(served, told, arena=PLACE, start=-1 if start is None else start)
        assert [each[3] for each in tensors] == [tensor_bytes(t, v) for t, v in zip(types, values, strict=True)]
        assert [each[2] for each in tensors] == [[len(v)] for v in values]
        assert texts[0] == name.encode()
        assert (json.loads(texts[1]) if texts[1] else {}) == {k: next(iter(v.values())) for k, v in custom.items()}
    assert PLACE.used_blocks == 0


@settings(max_examples=200, deadline=None)
@given(inputs(typed=True), st.booleans(), st.data())
def test_typed_contents_become_the_tensors_that_raw_ones_are(what, unpacked, data):
    names, types, values = what
    fields = [{FIELD_OF[t]: v} for t, v in zip(types, values, strict=True)]
    told = request(
        inputs=[tensor(n, (len(v),), t, contents=f) for n, t, v, f in zip(names, types, values, fields, strict=True)]
    )
    head, tensors, _ = parse(model_of(names, types), told, arena=PLACE)
    assert [each[3] for each in tensors] == [tensor_bytes(t, v) for t, v in zip(types, values, strict=True)]


def varint(value):
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


UNKNOWN = st.sampled_from(
    [b"\xa0\x06\x01", b"\xa2\x06\x02hi", b"\xa5\x06abcd", b"\xa1\x06abcdefgh", b"\xa3\x06\x08\x01\xa4\x06"]
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_fields_in_any_order_and_unknown_ones_between_them(data):
    served = model(inputs=("I", "J"))
    parts = [
        [request().SerializeToString()],
        [field(3, b"id")],
        [request(model_name="", inputs=[tensor(n)]).SerializeToString() for n in "IJ"],
        [request(model_name="", raw_input_contents=[raw]).SerializeToString() for raw in (F3, F3[::-1])],
    ]
    message = b""
    while any(parts):
        message += data.draw(st.one_of(st.just(b""), UNKNOWN))
        message += data.draw(st.sampled_from([part for part in parts if part])).pop(0)
    _, tensors, texts = parse(served, message, arena=PLACE)
    assert [each[3] for each in tensors] == [F3, F3[::-1]]
    assert texts[0] == b"id"


def test_packed_unpacked_and_split_contents_are_one_list():
    one = field(1, b"I") + field(2, b"INT32") + b"\x18\x04"  # a shape that is not packed
    contents = field(5, b"\x10\x01" + field(2, b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")) + field(5, b"\x10\x03")
    message = field(1, b"m") + field(5, one + contents)
    _, tensors, _ = parse(model(dtype="INT32"), message)
    assert tensors == [(0, BY_WIRE["INT32"].code, [4], struct.pack("<4i", 1, 2, -1, 3))]


@pytest.mark.parametrize("start", range(400, 464))
def test_tensors_lie_as_their_types_want_them(start):
    served = model_of(["a", "b", "c", "d"], ["UINT8", "FP64", "INT16", "FP32"])
    raws = [b"12345", struct.pack("<d", 5), struct.pack("<3h", 1, 2, 3), F3]
    shapes, types = [(5,), (1,), (3,), (3,)], ["UINT8", "FP64", "INT16", "FP32"]
    told = request(
        inputs=[tensor(n, s, t) for n, s, t in zip("abcd", shapes, types, strict=True)], raw_input_contents=raws
    )
    taken = infer.parse(served, PLACE, told.SerializeToString(), start=start)
    _, tensors, _ = read_record(taken)
    assert [each[3] for each in tensors] == raws
    at = 48 + 4 * 16
    for i, datatype in enumerate(types):
        offset = struct.unpack_from("<Q", taken.record, at + 16 * i)[0]
        assert offset % size_of(datatype) == 0


def test_a_repeated_head_takes_the_new_ids_and_sizes():
    served = model(dtype="BYTES")
    for i, texts in enumerate([(b"a", b"bc"), (b"", b""), (b"x" * 200, b"y")]):
        told = request(id=str(i), inputs=[tensor(shape=(2,), datatype="BYTES")], raw_input_contents=[strings(*texts)])
        _, tensors, read = parse(served, told)
        assert (tensors[0][3], read[0]) == (strings(*texts), str(i).encode())
    told.raw_input_contents[0] = strings(b"one")
    assert "expected 2 string elements for inference input 'I' for model 'm', got 1" in refused(told, served)
    told.raw_input_contents[0] = strings(b"one", b"two", b"three")
    assert "unexpected number of string elements 3" in refused(told, served)


# ---- parameters


def test_tritons_own_parameters():
    told = simple(
        parameters={
            "sequence_id": {"int64_param": -1}, "sequence_start": {"bool_param": True},
            "sequence_end": {"bool_param": True}, "priority": {"uint64_param": 3}, "timeout": {"int64_param": 77},
            "triton_enable_empty_final_response": {"bool_param": True},
        }
    )  # fmt: skip
    taken = infer.parse(model(), PLACE, told.SerializeToString())
    head, _, texts = read_record(taken)
    assert head == {"flags": 3, "requested": 1, "timeout": 77, "correlation": 2**64 - 1, "batch": 1}
    assert (taken.priority, taken.outputs.empty_final, texts[1]) == (3, True, b"")
    assert parse(model(), simple(parameters={"sequence_id": {"string_param": "é"}}))[2][2] == "é".encode()
    assert parse(model(), simple(parameters={"sequence_id": {"string_param": ""}}))[0]["correlation"] == 0


def test_numbers_that_json_does_not_have_reach_the_model():
    for value in (math.nan, math.inf, -math.inf):
        text = parse(model(), simple(parameters={"x": {"double_param": value}}))[2][1]
        got = json.loads(text)["x"]
        assert got == value or (math.isnan(got) and math.isnan(value))


BOOL = ("expected bool_param.", ["int64_param", "string_param", "double_param", "uint64_param", ""])
KINDS = [
    ("sequence_id", "expected int64_param or string_param.", ["bool_param", "double_param", "uint64_param", ""]),
    ("sequence_start", *BOOL),
    ("sequence_end", *BOOL),
    ("triton_enable_empty_final_response", *BOOL),
    ("priority", "expected int64_param or uint64_param.", ["bool_param", "string_param", "double_param", ""]),
    ("timeout", "expected int64_param.", ["bool_param", "string_param", "double_param", "uint64_param", ""]),
    ("x", "expected int64_param, bool_param, or string_param.", ["uint64_param", ""]),
]
SAMPLE = {"bool_param": True, "int64_param": 3, "string_param": "s", "double_param": 1.5, "uint64_param": 7}


def parameter(kind, value=None):
    return {kind: SAMPLE[kind] if value is None else value} if kind else {}


@pytest.mark.parametrize(("name", "text", "kind"), [(n, t, kind) for n, t, kinds in KINDS for kind in kinds])
def test_parameters_of_the_wrong_kind(name, text, kind):
    message = refused(simple(parameters={name: parameter(kind)}))
    assert message.startswith(f"invalid value type for '{name}' parameter, {text}")


def test_other_bad_parameters():
    assert refused(simple(parameters={"triton_x": parameter("bool_param")})).startswith(
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
        "'triton_' are allowed: triton_enable_empty_final_response"
    )
    for name in ("priority", "timeout"):
        message = refused(simple(parameters={name: {"int64_param": -1}}))
        assert message.startswith(f"invalid value for '{name}', expected value >= 0.")


# ---- outputs


def test_requested_outputs():
    served = model(outputs=("O", "P"))
    assert parse(served, simple(outputs=[{"name": "P"}]))[0]["requested"] == 2
    assert parse(served, simple(outputs=[{"name": "P"}, {"name": "O"}]))[0]["requested"] == 3
    assert parse(served, simple())[0]["requested"] == 3
    assert refused(simple(outputs=[{"name": "X"}])).startswith("unexpected inference output 'X' for model 'm'")
    assert "output 'O' already exists in request" in refused(simple(outputs=[{"name": "O"}] * 2))


SHARED = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 12}}


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"shared_memory_region": {"int64_param": 1}},
            "invalid value type for 'shared_memory_region' parameter for tensor ",
        ),
        ({"shared_memory_region": {"string_param": "r"}}, "'shared_memory_byte_size' must be specified along with "),
        ({"shared_memory_offset": {"int64_param": 1}}, "'shared_memory_offset' can not be specified without "),
        ({"shared_memory_byte_size": {"int64_param": 1}}, "'shared_memory_byte_size' can not be specified without "),
        (
            {**SHARED, "shared_memory_offset": {"bool_param": True}},
            "invalid value type for 'shared_memory_offset' parameter",
        ),
        (
            {**SHARED, "shared_memory_byte_size": {"string_param": "1"}},
            "invalid value type for 'shared_memory_byte_size' ",
        ),
    ],
)
def test_bad_places_in_shared_memory(parameters, text):
    assert refused(simple(outputs=[{"name": "O", "parameters": parameters}])).startswith(text)
    assert refused(request(inputs=[tensor(parameters=parameters)])).startswith(text)


@pytest.fixture
def region(tmp_path):
    """Regions of one file, 'r', that holds F3 twice."""
    file = tmp_path / "region"
    file.write_bytes(F3 * 2)
    regions = Regions()
    regions.add(SystemRegion("r", "/r", os.open(file, os.O_RDWR), 0, 24))
    return file, regions


def test_tensors_in_regions_and_in_the_message_beside_them(region):
    file, regions = region
    served = model(inputs=("I", "J"))
    at = {**SHARED, "shared_memory_offset": {"int64_param": 12}}
    told = request(inputs=[tensor("I", parameters=SHARED), tensor("J")], raw_input_contents=[F3[::-1]])
    told.outputs.add(name="O").MergeFrom(message("ModelInferRequest.InferRequestedOutputTensor")(parameters=at))
    for i in range(2):  # the second time its head is known
        taken = infer.parse(served, PLACE, told.SerializeToString(), regions=regions)
        assert [each[3] for each in read_record(taken)[1]] == [F3, F3[::-1]]
        values = struct.pack("<3f", 7 + i, 8, 9)
        got = respond.render(answer(taken, [(0, 11, (3,), values)]))
        parsed = message("ModelInferResponse").FromString(got)
        assert list(parsed.raw_output_contents) == [b""]
        assert parsed.outputs[0].parameters["shared_memory_byte_size"].int64_param == 12
        assert parsed.outputs[0].parameters["shared_memory_offset"].int64_param == 12
        assert file.read_bytes() == F3 + values
    served = type(served)(
        "m", "1", 0, False, [("I", 11, (-1,), False, False), ("J", 11, (-1,), True, False)], [("O", 11, (-1,))]
    )
    short = {**SHARED, "shared_memory_byte_size": {"int64_param": 25}}
    assert refused(request(inputs=[tensor(parameters=short)]), served, regions=regions) == (
        "Invalid offset + byte size for shared memory region: 'r' (input 'I': offset 0 + byte_size 25, the region has "
        "24 bytes)"
    )
    before = {**SHARED, "shared_memory_offset": {"int64_param": -4}}
    text = f"Invalid offset for shared memory region: 'r' (input 'I': offset {2**64 - 4}, the region has 24 "
    assert refused(request(inputs=[tensor(parameters=before)]), served, regions=regions).startswith(text)


def test_regions_that_nobody_registered():
    told = request(inputs=[tensor(parameters=SHARED)])
    assert refused(told, status=Status.NOT_FOUND) == "Unable to find shared memory region: 'r'"
    told = simple(outputs=[{"name": "O", "parameters": SHARED}])
    assert refused(told, status=Status.NOT_FOUND) == "Unable to find shared memory region: 'r'"
    told = request(inputs=[tensor(parameters=SHARED, contents={"fp32_contents": [1]})])
    assert refused(told).startswith(
        "unexpected 'content' provided when using shared memory for input tensor 'I' for model 'm'"
    )


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"classification": {"string_param": "1"}},
            "invalid value type for 'classification' parameter, expected int64_param",
        ),
        ({"classification": {"int64_param": 0}}, "invalid value for 'classification' parameter, expected >= 0"),
        (
            {**SHARED, "classification": {"int64_param": 1}},
            "output can't set both 'shared_memory_region' and 'classification'",
        ),
    ],
)
def test_bad_classifications(parameters, text):
    assert refused(simple(outputs=[{"name": "O", "parameters": parameters}])).startswith(text)


# ---- data and fit

TWO = {"inputs": [tensor("I"), tensor("J")]}


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (request(**TWO), "unable to find data for input tensor 'I' for model 'm' in request."),
        (request(**TWO, raw_input_contents=[F3]), "unable to find data for input tensor 'J' for model 'm' in request."),
        (request(**TWO, raw_input_contents=[F3] * 3), "unexpected raw_input_contents: 3 entries for 2 inputs"),
        (request(**TWO, raw_input_contents=[F3] * 100), "unexpected raw_input_contents: 100 entries, and at most 66"),
        (
            request(inputs=[tensor("I", contents={"fp32_contents": [1]}), tensor("J")], raw_input_contents=[F3, F3]),
            "contents field must not be specified when using raw_input_contents for 'I' for model 'm'",
        ),
        (request(**TWO, raw_input_contents=[F3, F3[:8]]), "[request id: <id_unknown>] input byte size mismatch for input 'J'"),
        (request(inputs=[tensor("I"), tensor("I")], raw_input_contents=[F3, F3]), "[request id: <id_unknown>] input 'I' already"),
        (request(inputs=[tensor("I")], raw_input_contents=[F3]), "[request id: <id_unknown>] expected 2 inputs but got 1 inputs"),
        (request(), "[request id: <id_unknown>] expected 2 inputs but got 0 inputs"),
        (request(inputs=[tensor("I")] * 99), "[request id: <id_unknown>] expected 2 inputs but got 99 inputs"),
        (request(inputs=[tensor("I"), tensor("X")], raw_input_contents=[F3, F3]), "unexpected inference input 'X' for model 'm'"),
        (
            request(inputs=[tensor("I", datatype="FP33"), tensor("J")], raw_input_contents=[F3, F3], id="7"),
            "[request id: 7] inference input 'I' data-type is '<invalid>', but model 'm' expects 'FP32'",
        ),
        (
            request(inputs=[tensor("I", [-3]), tensor("J")], raw_input_contents=[F3, F3]),
            "invalid shape for input 'I': shape [-3] contains one or more invalid dimensions",
        ),
        (request(inputs=[tensor("I", [1] * 33), tensor("J")], raw_input_contents=[F3, F3]), "invalid shape for input 'I': 33"),
        (request(inputs=[tensor("I", [2**62, 4]), tensor("J")], raw_input_contents=[F3, F3]), "invalid shape for input 'I'"),
    ],
    ids=range(15),
)  # fmt: skip
def test_what_does_not_fit(told, text):
    assert refused(told, model(inputs=("I", "J"))).startswith(text)


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ({"fp64_contents": [1]}, "unexpected explicit tensor data for input tensor 'I' for model 'm' of type 'FP64', expected"),
        ({"int_contents": [1]}, "unexpected explicit tensor data for input tensor 'I' for model 'm' of type 'INT32', expected"),
        ({"bool_contents": [True], "fp32_contents": [1]}, "unexpected explicit tensor data for input tensor 'I' for model 'm' of"),
        (
            {"fp32_contents": [1, 2, 3], "fp64_contents": [1]},
            "unexpected explicit tensor data for input tensor 'I' for model 'm', binary data was already supplied.",
        ),
        ({"fp32_contents": [1]}, "[request id: <id_unknown>] input byte size mismatch for input 'I' for model 'm'. Expected 12, got 4"),
        ({}, "[request id: <id_unknown>] input byte size mismatch for input 'I' for model 'm'. Expected 12, got 0"),
    ],
)  # fmt: skip
def test_bad_contents(contents, text):
    assert refused(request(inputs=[tensor(contents=contents)])).startswith(text)


def test_small_integers_must_fit_their_type():
    for datatype, field_name, value in (("INT8", "int_contents", 128), ("UINT16", "uint_contents", 65536)):
        told = request(inputs=[tensor(shape=(1,), datatype=datatype, contents={field_name: [value]})])
        assert refused(told, model(dtype=datatype)).endswith(f"does not fit its datatype {datatype}")


def test_strings_in_contents_are_counted():
    told = request(inputs=[tensor(shape=(3,), datatype="BYTES", contents={"bytes_contents": [b"a", b"b"]})])
    assert "expected 3 string elements for inference input 'I' for model 'm', got 2" in refused(
        told, model(dtype="BYTES")
    )


def test_decoded_contents_have_a_bound():
    told = request(inputs=[tensor(shape=(3,), datatype="INT64", contents={"int64_contents": [1, 2, 3]})])
    assert "contents of input 'I' have 24 bytes as a tensor, 20 is the limit" in refused(
        told, model(dtype="INT64"), max_input_bytes=20
    )


def test_two_model_names_and_long_ids():
    assert refused(field(1, b"x") + simple().SerializeToString()).startswith("the request names two models")
    assert refused(simple(id="x" * 4097)) == "the request's id has 4097 bytes, 4096 is the limit"


GOOD = simple().SerializeToString()


@pytest.mark.parametrize(
    "message",
    [b"\xff\xff", GOOD[:-1], GOOD + b"\x00\x01", GOOD + b"\x0c", b"\x0a\x02\xff\xfe" + GOOD, GOOD + b"\x1a\x02\xff\xfe",
     GOOD + b"\x0b" * 101, GOOD + b"\xa3\x06\xac\x06", GOOD + b"\x2a\x02\x0a\x05", field(1, b"m") + field(5, b"\x1a\x01\xff"),
     field(1, b"m") + field(4, field(2, b"\x08")), field(1, b"m") + field(5, field(2, b"INT32") + field(5, b"\x12\x01\xff"))],
)  # fmt: skip
def test_what_is_no_message(message):
    with pytest.raises(Internal, match="^Unable to parse request"):
        infer.parse(model(), PLACE, message)


# ---- the first look


def test_the_model_is_known_from_the_beginning():
    whole = simple(model_version="02", id="x", raw_input_contents=[F3 * 100]).SerializeToString()
    total = len(whole)
    seen = [infer.peek(whole[:n], total) for n in range(total + 1)]
    states = [state for state, *_ in seen]
    assert states == sorted(states)  # MORE, then FOUND; never NONE
    first = states.index(FOUND)
    assert all(each[1:3] == ("m", "2") for each in seen[first:])
    assert whole[seen[-1][3] :][:12] == F3
    assert {raw_at for *_, raw_at in seen} == {0, seen[-1][3]}
    assert first < seen[-1][3]


def test_a_name_that_does_not_come_first_is_found_in_the_whole_message():
    whole = field(3, b"id") + field(1, b"m") + field(2, b"3")
    assert [infer.peek(whole[:n], len(whole))[0] for n in (3, 4, 5)] == [NONE, NONE, NONE]
    assert infer.peek(whole)[:3] == (FOUND, "m", "3")
    assert infer.peek(b"") == (FOUND, "", "", 0)


@pytest.mark.parametrize("version", ["x", "1x", " 1", "-1", "9" * 20, "²"])
def test_versions_that_are_none(version):
    with pytest.raises(BadRequest, match="version should be an integral value > 0"):
        infer.peek(simple(model_version=version).SerializeToString())


def test_nothing_is_known_of_a_broken_message_until_it_is_whole():
    assert infer.peek(b"\x0a\x7f", 200) == (MORE, "", "", 0)
    with pytest.raises(Internal):
        infer.peek(b"\x0a\x7f")


def many(number, entry, count=100_000):
    return request().SerializeToString() + (bytes([number << 3 | 2, len(entry)]) + entry) * count


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (many(5, b""), "expected 2 inputs but got 100000 inputs for model 'm'"),
        (many(6, b"\x0a\x01O"), "more than 128 outputs"),
        (
            request().SerializeToString() + b"".join(b"\x22\x06\x0a\x04%04x" % i for i in range(2000)),
            "more than 1024 parameters",
        ),
        (
            request(inputs=[tensor("I", [1] * 100_000), tensor("J")]).SerializeToString(),
            "invalid shape for input 'I': 100000 dimensions, 32 is the limit",
        ),
    ],
)
def test_what_is_far_too_much_is_counted_and_not_kept(told, text):
    assert text in refused(told, model(inputs=("I", "J")))
