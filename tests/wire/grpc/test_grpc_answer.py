"""Answers become messages that protobuf's own runtime reads."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.helpers import F3, PACKED, message, simple
from tests.wire.helpers import answer, arena, model, strings
from tisfast import tuning
from tisfast.errors import Internal
from tisfast.types import BY_WIRE
from tisfast.wire.grpc import infer, respond

UNARY, STREAMED = range(2)
PLACE = arena()
OUT = arena()
LARGE = tuning.GRPC_COPIED_OUTPUT_BYTES_MAX


def asked(served=None, **fields):
    return infer.parse(served or model(), PLACE, simple(**fields).SerializeToString())


def read(data):
    return message("ModelInferResponse").FromString(data)


def streamed(data):
    return message("ModelStreamInferResponse").FromString(data)


def kept(response):
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in response.parameters.items()}


SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 17]), max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.text(st.characters(codec="utf-8"), max_size=300))
def test_an_answer_is_read_as_it_was_given(data, name):
    types = data.draw(st.lists(st.sampled_from([*PACKED, "FP16", "BF16", "BYTES"]), min_size=1, max_size=4))
    shapes = [data.draw(SHAPES) for _ in types]
    served = type(model())(
        "m" * data.draw(st.sampled_from([1, 130])), "12", 0, False, [("I", 11, (-1,), False, False)],
        [(f"é{i}", BY_WIRE[t].code, (-1,) * len(s)) for i, (t, s) in enumerate(zip(types, shapes, strict=True))],
    )  # fmt: skip
    tensors = [elements(t, s) for t, s in zip(types, shapes, strict=True)]
    told = answer(
        infer.parse(served, PLACE, simple(model_name=served.name, id=name).SerializeToString()),
        [(i, BY_WIRE[t].code, s, b) for i, (t, s, b) in enumerate(zip(types, shapes, tensors, strict=True))], of=OUT,
    )  # fmt: skip
    body = respond.GrpcBody()
    for _ in range(2):  # one buffer for one answer after the other
        got = read(respond.render(told, body=body))
        assert (got.model_name, got.model_version, got.id) == (served.name, "12", name)
        assert [(o.name, o.datatype, list(o.shape)) for o in got.outputs] == [
            (f"é{i}", t, s) for i, (t, s) in enumerate(zip(types, shapes, strict=True))
        ]
        assert list(got.raw_output_contents) == tensors
        wrapped = streamed(respond.render(told, STREAMED, final=False, body=body))
        assert kept(wrapped.infer_response) == {"triton_final_response": False}
        del wrapped.infer_response.parameters["triton_final_response"]
        assert wrapped == message("ModelStreamInferResponse")(infer_response=got)


def elements(datatype, shape):
    count = 1
    for dim in shape:
        count *= dim
    if datatype == "BYTES":
        return (
            strings(*[b"x" * (i % 5) for i in range(min(count, 5000))]) + strings() + b"\0" * 4 * max(count - 5000, 0)
        )
    if datatype not in PACKED:
        return bytes(2 * count)
    return bytes(range(256)) * (count * struct.calcsize(PACKED[datatype]) // 256) + bytes(
        count * struct.calcsize(PACKED[datatype]) % 256
    )


@pytest.mark.parametrize("nbytes", [LARGE - 4, LARGE, LARGE + 4, 4 * LARGE])
def test_small_and_large_tensors_side_by_side(nbytes):
    served = model(outputs=("O", "P", "Q"))
    big = b"\7" * nbytes
    outputs = [(0, 11, (len(big) // 4,), big), (1, 11, (3,), F3), (2, 11, (len(big) // 4,), big)]
    told = answer(asked(served), outputs)
    assert list(read(respond.render(told)).raw_output_contents) == [big, F3, big]
    one = answer(asked(served, outputs=[{"name": "P"}]), outputs)
    got = read(respond.render(one))
    assert ([o.name for o in got.outputs], list(got.raw_output_contents)) == (["P"], [F3])


def test_parameters_have_the_kind_of_their_value():
    values = {"b": True, "n": -3, "s": "é", "f": 1.5, "u": 2**63, "long": "x" * 200}
    told = answer(asked(), [(0, 11, (3,), F3)], parameters=json.dumps(values).encode())
    got = read(respond.render(told))
    assert kept(got) == values
    assert got.parameters["u"].WhichOneof("parameter_choice") == "uint64_param"
    assert kept(streamed(respond.render(told, STREAMED)).infer_response) == {**values, "triton_final_response": True}


def test_the_end_of_a_decoupled_request():
    got = streamed(respond.render_empty_final(asked(id="7")))
    response = got.infer_response
    assert (got.error_message, response.model_name, response.model_version, response.id) == ("", "m", "1", "7")
    assert (kept(response), len(response.outputs)) == ({"triton_final_response": True}, 0)


def test_errors_in_a_stream():
    got = streamed(respond.render_stream_error("bad" * 100, "7"))
    assert got == message("ModelStreamInferResponse")(error_message="bad" * 100, infer_response={"id": "7"})
    bare = streamed(respond.render_stream_error("half \ud800", ""))
    assert (bare.error_message, bare.HasField("infer_response")) == ("half \\ud800", True)
    named = streamed(respond.render_stream_error("bad", "", "m", "1"))
    assert (named.infer_response.model_name, named.infer_response.model_version) == ("m", "1")
    failed = streamed(respond.render_stream_failure("bad", asked(id="7"), final=False))
    assert (failed.error_message, failed.infer_response.id) == ("bad", "7")
    assert kept(failed.infer_response) == {"triton_final_response": False}


def test_classes_instead_of_a_tensor():
    served = model(outputs=("O", "P"))
    told = answer(
        asked(served, outputs=[{"name": "O", "parameters": {"classification": {"int64_param": 2}}}, {"name": "P"}]),
        [(0, 11, (3,), F3), (1, 11, (3,), F3)],
    )
    got = read(respond.render(told))
    assert [(o.name, o.datatype, list(o.shape)) for o in got.outputs] == [("O", "BYTES", [2]), ("P", "FP32", [3])]
    assert list(got.raw_output_contents) == [strings(b"3.000000:2", b"2.000000:1"), F3]


@pytest.mark.parametrize(
    "parameters",
    [
        b'{"n": 18446744073709551616}',
        b'{"n": -9223372036854775809}',
        b'{"n": [1]}',
        b'{"n": null}',
        b'{"n": ' + b"1" * 5000 + b"}",
    ],
)
def test_parameters_that_grpc_cannot_carry_are_refused(parameters):
    told = answer(asked(), [(0, 11, (3,), F3)], parameters=parameters)
    for mode in (UNARY, STREAMED):
        with pytest.raises(Internal, match="response parameter"):
            respond.render(told, mode)


def test_the_lowest_number_is_kept_and_half_a_surrogate_pair_is_refused():
    told = answer(asked(), [(0, 11, (3,), F3)], parameters=b'{"low": -9223372036854775808}')
    assert kept(read(respond.render(told))) == {"low": -(2**63)}
    for parameters in (b'{"a\\ud800": 1}', b'{"b": "\\udfff"}'):  # no text that the message could hold
        with pytest.raises(Internal, match="its parameters are no text: .* is half a surrogate pair"):
            answer(asked(), [(0, 11, (3,), F3)], parameters=parameters)


def test_an_output_is_told_as_what_it_is():
    got = read(respond.render(answer(asked(), [(0, 9, [1, 1], struct.pack("<q", 7))])))
    (output,) = got.outputs
    assert (output.datatype, list(output.shape), got.raw_output_contents[0]) == ("INT64", [1, 1], struct.pack("<q", 7))
