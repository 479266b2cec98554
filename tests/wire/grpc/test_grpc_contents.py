"""Typed contents: the tensors that protobuf's own reader would give, or a refusal that names input, type and value."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.helpers import FIELD_OF, message, parse, request, tensor, tensor_bytes
from tests.wire.helpers import arena, model, strings
from tisfast.errors import BadRequest, Internal, TisError
from tisfast.types import BY_WIRE
from tisfast.wire.grpc import infer

PLACE = arena()
NUMBER_OF = {"bool_contents": 1, "int_contents": 2, "int64_contents": 3, "uint_contents": 4, "uint64_contents": 5,
             "fp32_contents": 6, "fp64_contents": 7, "bytes_contents": 8}  # fmt: skip
TYPE_OF = {"bool_contents": "BOOL", "int_contents": "INT32", "int64_contents": "INT64", "uint_contents": "UINT32",
           "uint64_contents": "UINT64", "fp32_contents": "FP32", "fp64_contents": "FP64", "bytes_contents": "BYTES"}  # fmt: skip
SAMPLE = {"bool_contents": [True], "bytes_contents": [b"a"]}
WHO = "[request id: <id_unknown>] "


def refused(told, served):
    with pytest.raises(TisError) as caught:
        infer.parse(served, PLACE, told if isinstance(told, bytes) else told.SerializeToString())
    assert PLACE.used_blocks == 0
    return type(caught.value), caught.value.message


def sent(datatype, values, shape=None, **fields):
    contents = {FIELD_OF[datatype]: values} if values or not fields else {}
    return request(
        inputs=[tensor("I", (len(values),) if shape is None else shape, datatype, contents={**contents, **fields})]
    )


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def with_contents(datatype, shape, *contents):
    """A request whose contents are these bytes; several are parts of one."""
    start = field(1, b"I") + field(2, datatype.encode()) + field(3, b"".join(map(varint, shape)))
    return field(1, b"m") + field(5, start + b"".join(field(5, part) for part in contents))


# ---- what is taken


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False]), ("INT8", [-128, 127, 0]), ("INT16", [-(1 << 15), (1 << 15) - 1]),
        ("INT32", [-(1 << 31), (1 << 31) - 1]), ("INT64", [-(1 << 63), (1 << 63) - 1]), ("UINT8", [0, 255]),
        ("UINT16", [0, 65535]), ("UINT32", [0, (1 << 32) - 1]), ("UINT64", [0, (1 << 64) - 1]),
        ("FP32", [1.5, float("inf"), -0.0, 1e-45]), ("FP64", [5e-324, 1.7976931348623157e308, float("-inf")]),
        ("BYTES", [b"", b"\xff\0", b"x" * 200]),
    ],
)  # fmt: skip
def test_each_type_to_its_last_value(datatype, values):
    _, tensors, _ = parse(model(dtype=datatype), sent(datatype, values))
    assert tensors == [(0, BY_WIRE[datatype].code, [len(values)], tensor_bytes(datatype, values))]


@pytest.mark.parametrize("datatype", sorted(FIELD_OF))
def test_a_tensor_without_elements_may_come_as_empty_contents(datatype):
    _, tensors, _ = parse(model(dtype=datatype), sent(datatype, [], (0,)))
    assert tensors == [(0, BY_WIRE[datatype].code, [0], b"")]


ELEMENTS = {
    "BOOL": st.booleans(), "INT8": st.integers(-128, 127), "INT32": st.integers(-(1 << 31), (1 << 31) - 1),
    "INT64": st.integers(-(1 << 63), (1 << 63) - 1), "UINT16": st.integers(0, 65535), "UINT32": st.integers(0, (1 << 32) - 1),
    "UINT64": st.integers(0, (1 << 64) - 1), "FP32": st.floats(width=32), "FP64": st.floats(), "BYTES": st.binary(max_size=9),
}  # fmt: skip


def piece(datatype, values, packed):
    """Some of the elements, in one field or each in its own."""
    number = NUMBER_OF[FIELD_OF[datatype]]
    if datatype == "BYTES":
        return b"".join(field(number, value) for value in values)
    if datatype in ("FP32", "FP64"):
        form, kind = ("<f", 5) if datatype == "FP32" else ("<d", 1)
        coded = [struct.pack(form, value) for value in values]
    else:
        kind, coded = 0, [varint(int(value)) for value in values]
    if packed:
        return field(number, b"".join(coded))
    return b"".join(varint(number << 3 | kind) + each for each in coded)


@settings(max_examples=200)
@given(st.sampled_from(sorted(ELEMENTS)), st.data())
def test_elements_come_packed_or_one_by_one_in_any_number_of_parts(datatype, data):
    parts = data.draw(st.lists(st.lists(ELEMENTS[datatype], max_size=4), min_size=1, max_size=4))
    pieces = [piece(datatype, part, data.draw(st.booleans())) for part in parts]
    values = [value for part in parts for value in part]
    groups = [b"".join(pieces)] if data.draw(st.booleans()) else pieces  # in one message, or in several that are merged
    told = with_contents(datatype, [len(values)], *groups)
    theirs = message("ModelInferRequest").FromString(told)
    theirs_values = list(getattr(theirs.inputs[0].contents, FIELD_OF[datatype]))
    _, ((_, _, shape, got),), _ = parse(model(dtype=datatype), told, arena=PLACE)
    assert shape == [len(values)] and got == tensor_bytes(datatype, theirs_values) == tensor_bytes(datatype, values)


UNKNOWN = [b"\x48\x01", b"\x4a\x02hi", b"\x4d1234", b"\x4912345678", b"\x4b\x08\x01\x4c"]  # of field 9, in each form


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_fields_that_are_not_known_are_passed_over(unknown):
    told = with_contents("INT32", [3], unknown + field(2, b"\1\2") + unknown, unknown, field(2, b"\3") + unknown)
    assert parse(model(dtype="INT32"), told)[1][0][3] == struct.pack("<3i", 1, 2, 3)


@pytest.mark.parametrize(
    "odd", [b"\x15abcd", b"\x11abcdefgh", b"\x30\x05", b"\x3d1234", b"\x40\x05", b"\x0d1234"]
)  # elements of a known field in a form that it has not
def test_a_field_in_another_form_than_its_own_says_nothing(odd):
    told = with_contents("INT32", [2], odd + field(2, b"\1\2") + odd)
    theirs = message("ModelInferRequest").FromString(told).inputs[0].contents
    assert list(theirs.int_contents) == [1, 2]
    assert parse(model(dtype="INT32"), told)[1][0][3] == struct.pack("<2i", 1, 2)


@pytest.mark.parametrize(
    ("datatype", "coded", "values"),
    [
        ("BOOL", b"\x80\x01\x00\x02", [True, False, True]),  # any number but 0 is true
        ("INT32", varint(1 << 32 | 5) + varint((1 << 64) - 1), [5, -1]),  # the low 32 bits count
        ("UINT32", varint(1 << 40 | 7), [7]),
        ("INT32", b"\x81\x80\x80\x80\x00", [1]),  # more bytes than it takes
        ("UINT64", b"\xff" * 9 + b"\x01", [(1 << 64) - 1]),
    ],
)
def test_numbers_in_unusual_forms_mean_what_protobuf_says(datatype, coded, values):
    told = with_contents(datatype, [len(values)], field(NUMBER_OF[FIELD_OF[datatype]], coded))
    theirs = message("ModelInferRequest").FromString(told).inputs[0].contents
    assert list(getattr(theirs, FIELD_OF[datatype])) == values
    assert parse(model(dtype=datatype), told)[1][0][3] == tensor_bytes(datatype, values)


# ---- what is refused


@pytest.mark.parametrize("kind", sorted(TYPE_OF))
@pytest.mark.parametrize("datatype", [name for name in BY_WIRE if name not in ("FP16", "BF16")])
def test_elements_belong_to_their_type(kind, datatype):
    values = SAMPLE.get(kind, [1])
    told = request(inputs=[tensor("I", (1,), datatype, contents={kind: values})])
    if FIELD_OF[datatype] == kind:
        assert len(parse(model(dtype=datatype), told)[1]) == 1
        return
    assert refused(told, model(dtype=datatype)) == (
        BadRequest,
        f"unexpected explicit tensor data for input tensor 'I' for model 'm' of type '{TYPE_OF[kind]}', expected datatype '{datatype}'",
    )


@pytest.mark.parametrize("kind", sorted(TYPE_OF))
@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP31"])
def test_a_type_without_typed_contents_has_none(kind, datatype):
    error, text = refused(
        request(inputs=[tensor("I", (1,), datatype, contents={kind: SAMPLE.get(kind, [1])})]), model()
    )
    assert error is BadRequest and text.endswith(f"of type '{TYPE_OF[kind]}', expected datatype '{datatype}'")


KINDS = sorted(TYPE_OF, key=NUMBER_OF.get)


@pytest.mark.parametrize(("first", "second"), [(a, b) for i, a in enumerate(KINDS) for b in KINDS[i + 1 :]])
def test_elements_of_two_types_are_one_too_many(first, second):
    datatype = TYPE_OF[first]
    contents = {kind: SAMPLE.get(kind, [1]) for kind in (first, second)}
    assert refused(request(inputs=[tensor("I", (1,), datatype, contents=contents)]), model(dtype=datatype)) == (
        BadRequest,
        "unexpected explicit tensor data for input tensor 'I' for model 'm', binary data was already supplied. "
        f"(as {datatype}, and as {TYPE_OF[second]} again)",
    )


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("INT8", 128), ("INT8", -129), ("INT8", 1 << 30), ("INT16", 1 << 15), ("INT16", -(1 << 15) - 1), ("UINT8", 256),
     ("UINT8", (1 << 32) - 1), ("UINT16", 1 << 16)],
)  # fmt: skip
def test_a_small_integer_has_its_bounds(datatype, value):
    for values in ([value], [0, value], [value, 0]):
        assert refused(sent(datatype, values), model(dtype=datatype)) == (
            BadRequest, f"value {value} of input tensor 'I' does not fit its datatype {datatype}")  # fmt: skip


@pytest.mark.parametrize(
    ("datatype", "values", "shape", "text"),
    [
        ("INT32", [1], (2,), WHO + "input byte size mismatch for input 'I' for model 'm'. Expected 8, got 4"),
        ("INT32", [1, 2, 3], (2,), WHO + "input byte size mismatch for input 'I' for model 'm'. Expected 8, got 12"),
        ("FP64", [], (1,), WHO + "input byte size mismatch for input 'I' for model 'm'. Expected 8, got 0"),
        ("BOOL", [True], (0,), WHO + "input byte size mismatch for input 'I' for model 'm'. Expected 0, got 1"),
        ("BYTES", [b"a"], (2,), WHO + "expected 2 string elements for inference input 'I' for model 'm', got 1"),
        (
            "BYTES",
            [b"a", b"b"],
            (1,),
            WHO + "unexpected number of string elements 2 for inference input 'I' for model 'm', expecting 1",
        ),
    ],
)
def test_elements_fill_the_shape(datatype, values, shape, text):
    assert refused(sent(datatype, values, shape), model(dtype=datatype)) == (BadRequest, text)


@pytest.mark.parametrize(
    "coded",
    [
        field(2, b"\x80"),  # a number that ends early
        field(2, b"\1\2\x80"),
        field(2, b"\xff" * 11 + b"\x01"),  # one of more than ten bytes
        field(6, b"abc"),  # a part of a float
        field(6, b"abcde"),
        field(7, b"abcdefg"),
        b"\x12\x05\1",  # longer than there is
        b"\x10",
        b"\x10\x80",
        b"\x35abc",
        b"\x39abcdefg",
        b"\x14",  # the end of a group that has not begun
        b"\x13\x08\x01",  # a group without end
        b"\x13\x1c",
        b"\x16\x01",  # no such form
        b"\x00\x01",  # no such field
    ],
)
def test_what_is_no_contents_is_no_request(coded):
    for told in (with_contents("INT32", [1], coded), with_contents("INT32", [1], field(2, b"\1"), coded)):
        assert refused(told, model(dtype="INT32")) == (Internal, "Unable to parse request")


def test_contents_have_a_bound_as_tensors():
    told = sent("INT64", [1, 2, 3]).SerializeToString()
    assert parse(model(dtype="INT64"), told, max_input_bytes=24)[1][0][3] == struct.pack("<3q", 1, 2, 3)
    with pytest.raises(BadRequest) as caught:
        infer.parse(model(dtype="INT64"), PLACE, told, max_input_bytes=23)
    assert caught.value.message == (
        "contents of input 'I' have 24 bytes as a tensor, 23 is the limit; send it as raw_input_contents")  # fmt: skip
    assert PLACE.used_blocks == 0


def test_typed_and_raw_inputs_are_not_mixed():
    told = request(
        inputs=[tensor("I", contents={"fp32_contents": [1, 2, 3]}), tensor("J")], raw_input_contents=[bytes(12)]
    )
    assert refused(told, model(inputs="IJ")) == (
        BadRequest, "contents field must not be specified when using raw_input_contents for 'I' for model 'm'")  # fmt: skip


def test_strings_of_contents_are_those_of_a_raw_tensor():
    texts = [b"", b"a", b"x" * 300]
    typed = parse(model(dtype="BYTES"), sent("BYTES", texts))
    raw = parse(
        model(dtype="BYTES"), request(inputs=[tensor("I", (3,), "BYTES")], raw_input_contents=[strings(*texts)])
    )
    assert typed == raw
