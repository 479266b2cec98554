"""The client's direction of the gRPC codec, beside protobuf's own runtime, our server's codec and tritonclient's."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.helpers import message
from tests.wire.helpers import answer, arena, read_record, strings
from tisfast import limits, tuning
from tisfast.errors import BadRequest, BadResponse
from tisfast.types import BY_CODE, BY_WIRE
from tisfast.wire.buffer_tensor import BufferTensor, pack_strings
from tisfast.wire.client_request import WantedOutput, WantedOutputs
from tisfast.wire.grpc import infer, respond
from tisfast.wire.grpc.client_codec import RequestMessage, read_infer_response, read_stream_response
from tisfast.wire.signature import ModelSignature

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
TYPED = tuple(name for name in BY_WIRE if name not in ("FP16", "BF16"))
LARGE = tuning.GRPC_COPIED_OUTPUT_BYTES_MAX


@st.composite
def tensors(draw, name="I", datatypes=tuple(BY_WIRE)):
    datatype = draw(st.sampled_from(datatypes))
    shape = draw(st.lists(st.integers(0, 3), max_size=3) | st.just([LARGE + 1]))
    count = math.prod(shape)
    if datatype == "BYTES":
        few = draw(st.lists(st.binary(max_size=5), min_size=min(count, 9), max_size=min(count, 9)))
        data = pack_strings([few[i % len(few)] for i in range(count)])
    else:
        few = draw(st.binary(min_size=8, max_size=8))
        data = (few * count)[: BY_WIRE[datatype].size * count]
        if datatype == "BOOL":
            data = bytes(byte & 1 for byte in data)
    return BufferTensor(name, datatype, shape, data)


def joined(parts):
    return b"".join(part if isinstance(part, bytes) else bytes(part.buffer()) for part in parts)


def taking(sent):
    inputs = [(t.name, BY_WIRE[t.datatype].code, (-1,) * len(t.shape), False, False) for t in sent]
    return ModelSignature("m", "1", 0, False, inputs, [("O", 11, (-1,))])


@settings(max_examples=200)
@given(st.data())
def test_the_server_and_protobuf_read_what_the_client_writes(data):
    raw = data.draw(st.booleans())
    names = data.draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    sent = [data.draw(tensors(name, tuple(BY_WIRE) if raw else TYPED)) for name in names]
    if not raw:  # of a tensor without elements nothing is said, which only a raw one may leave open
        sent = [t for t in sent if 0 not in t.shape] or [BufferTensor("I", "INT8", [1], b"a")]
    parameters = data.draw(
        st.dictionaries(st.sampled_from("abc"), st.booleans() | st.integers(-9, 9) | st.text(max_size=3))
    )
    id = data.draw(NAMES | st.just(""))
    signature, writer = taking(sent), RequestMessage()
    for _ in range(2):  # the server remembers what it has read
        whole = joined(writer.render("m", sent, parameters=parameters, id=id, raw=raw))
        assert message("ModelInferRequest").FromString(whole).id == id
        got = infer.parse(signature, arena(), whole)
        _, full, texts = read_record(got)
        assert (got.id, json.loads(texts[1] or b"{}")) == (id, parameters)
        assert [
            (signature.inputs[i].name, BY_CODE[code].wire, tuple(shape), data) for i, code, shape, data in full
        ] == [(t.name, t.datatype, t.shape, bytes(t.buffer())) for t in sent]


def test_what_is_asked_of_outputs_and_the_request_is_read():
    outputs = WantedOutputs([WantedOutput("O", classes=3)])
    sent = BufferTensor("I", "FP32", [1], bytes(4))
    parameters = {"timeout": 5, "priority": 1 << 63, "sequence_id": (1 << 64) - 2, "sequence_end": True}
    got = infer.parse(
        taking([sent]), arena(), joined(RequestMessage().render("m", [sent], outputs=outputs, parameters=parameters))
    )
    assert (got.timeout_us, got.priority, got.correlation, got.sequence_flags) == (5, 1 << 63, (1 << 64) - 2, 2)
    assert got.outputs.ways[0].classes == 3


def served(tensor, id):
    """The answer of a model that gives this tensor."""
    code = BY_WIRE[tensor.datatype].code
    shape = (-1,) * len(tensor.shape)
    signature = ModelSignature("m", "1", 0, False, [("I", 11, (-1,), False, False)], [("O", code, shape)])
    sent = joined(RequestMessage().render("m", [BufferTensor("I", "FP32", [1], bytes(4))], id=id))
    return answer(
        infer.parse(signature, arena(), sent),
        [(0, code, tensor.shape, bytes(tensor.buffer()))],
        parameters=b'{"p":1.5}',
    )


@settings(max_examples=100)
@given(tensors("O"), NAMES | st.just(""), st.booleans())
def test_the_client_reads_what_the_server_writes(tensor, id, final):
    whole = respond.render(served(tensor, id))
    error, streamed = read_stream_response(respond.render(served(tensor, id), 1, final=final))
    assert error == "" and streamed.final is final
    for response in (read_infer_response(whole), streamed):
        (output,) = response.outputs
        assert (response.model, response.version, response.id, response.parameters["p"]) == ("m", "1", id, 1.5)
        assert (output.name, output.datatype, output.shape) == ("O", tensor.datatype, tensor.shape)
        assert bytes(output.buffer()) == bytes(tensor.buffer())


def test_a_stream_tells_of_errors():
    error, response = read_stream_response(respond.render_stream_error("no such model", "7", "m", "1"))
    assert (error, response.id, response.model) == ("no such model", "7", "m")


@given(tensors("O", TYPED))
def test_typed_contents_are_read(tensor):
    """Of servers that write them: what a client writes for an input says the same of an output."""
    sent = message("ModelInferRequest").FromString(joined(RequestMessage().render("m", [tensor], raw=False)))
    response = message("ModelInferResponse")(model_name="m")
    response.outputs.add().ParseFromString(sent.inputs[0].SerializeToString())
    if 0 in tensor.shape or tensor.nbytes == 0:
        return
    (output,) = read_infer_response(response.SerializeToString()).outputs
    assert bytes(output.buffer()) == bytes(tensor.buffer())


@settings(max_examples=60)
@given(tensors("I", tuple(name for name in BY_WIRE if name != "BF16")), st.sampled_from(["", "a1"]))
def test_tritonclient_means_the_same(tensor, id):
    grpc = pytest.importorskip("tritonclient.grpc")
    utils = pytest.importorskip("tritonclient.grpc._utils")
    theirs = grpc.InferInput("I", list(tensor.shape), tensor.datatype)
    array = (
        np.array(tensor.strings(), object).reshape(tensor.shape)
        if tensor.datatype == "BYTES"
        else np.frombuffer(tensor.buffer(), BY_WIRE[tensor.datatype].numpy).reshape(tensor.shape)
    )
    theirs.set_data_from_numpy(array)
    request = utils._get_inference_request(
        model_name="m", inputs=[theirs], model_version="", outputs=[grpc.InferRequestedOutput("O")], request_id=id,
        sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None, parameters={"a": 1},
    )  # fmt: skip
    ours = joined(
        RequestMessage().render("m", [tensor], outputs=WantedOutputs([WantedOutput("O")]), id=id, parameters={"a": 1})
    )
    assert message("ModelInferRequest").FromString(ours) == message("ModelInferRequest").FromString(
        request.SerializeToString()
    )


def test_regions_are_named_and_not_sent():
    wanted = WantedOutputs([WantedOutput("O", region="out", nbytes=8, offset=16)])
    whole = joined(RequestMessage().render("m", [BufferTensor.in_region("I", "FP32", [2], "in", 8, 4)], outputs=wanted))
    said = message("ModelInferRequest").FromString(whole)
    assert not said.raw_input_contents
    assert said.inputs[0].parameters["shared_memory_offset"].int64_param == 4
    assert said.outputs[0].parameters["shared_memory_region"].string_param == "out"


def test_what_a_message_cannot_say_is_refused():
    with pytest.raises(BadRequest, match="no typed contents"):
        RequestMessage().render("m", [BufferTensor("I", "FP16", [1], b"ab")], raw=False)
    with pytest.raises(BadRequest, match="must be bool"):
        RequestMessage().render("m", [], parameters={"a": 1 << 64})
    with pytest.raises(BadRequest, match="no text"):
        RequestMessage().render("\ud800", [])


def response(**fields):
    return message("ModelInferResponse")(**fields).SerializeToString()


OUTPUT = {"name": "O", "datatype": "FP32", "shape": [2]}


def test_an_output_without_bytes_is_in_a_region_that_the_server_does_not_name():
    (tensor,) = read_infer_response(response(outputs=[OUTPUT], raw_output_contents=[b""])).outputs
    assert (tensor.region, tensor.nbytes) == ("", 0)


@pytest.mark.parametrize(
    ("data", "culprit"),
    [
        (b"\xff\xff", "no ModelInferResponse"),
        (response(outputs=[OUTPUT], raw_output_contents=[bytes(7)]), "8 bytes, its buffer has 7"),
        (response(outputs=[OUTPUT], raw_output_contents=[bytes(8), b""]), "2 raw contents for 1 outputs"),
        (response(outputs=[OUTPUT]), "8 bytes, its buffer has 0"),
        (response(outputs=[{**OUTPUT, "datatype": "X"}]), "datatype 'X'"),
        (response(outputs=[{**OUTPUT, "shape": [-1]}], raw_output_contents=[b""]), "integers from 0"),
        (response(outputs=[{**OUTPUT, "shape": [1] * 300}]), "dimensions"),
        (response(outputs=[{**OUTPUT, "contents": {"int_contents": [1, 2]}}]), "cannot be read"),
        (response(outputs=[OUTPUT] * (limits.CLIENT_OUTPUTS_MAX + 1)), "more than"),
        (response(outputs=[{**OUTPUT, "datatype": "BYTES"}], raw_output_contents=[strings(b"a")]), "2 elements"),
    ],
)
def test_a_message_that_cannot_be_a_response_is_refused_with_the_culprit(data, culprit):
    with pytest.raises(BadResponse, match=culprit):
        read_infer_response(data)


PIECES = [
    b"\x0a\x01m", b"\x12\x011", b"\x1a\x01x", b"\x22\x03\x0a\x01a", b"\x2a\x00", b"\x2a\x09\x0a\x01O\x12\x04FP32",
    b"\x2a\x0c\x0a\x01O\x12\x04FP32\x1a\x01\x01", b"\x32\x04abcd", b"\x32\x00", b"\x80", b"\xff", b"\x0b", b"\x08\x01",
    b"\x2a\x04\x1a\x02\xff\xff", b"\x2a\x04\x2a\x02\x32\x00", b"\x12\x02\x0a\x00",
]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=10).map(b"".join))
def test_rubbish_is_a_response_or_refused(data):
    for read in (read_infer_response, read_stream_response):
        with contextlib.suppress(BadResponse):
            read(data)
