"""The client's direction of the HTTP codec: its requests and responses mean what the server and tritonclient mean."""

from __future__ import annotations

import contextlib
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.helpers import answer, arena, model, read_record, strings
from tisfast.errors import BadRequest, BadResponse
from tisfast.types import BY_CODE, BY_WIRE
from tisfast.wire import client_response, infer, respond
from tisfast.wire.buffer_tensor import BufferTensor, pack_strings
from tisfast.wire.client_request import RequestBody, WantedOutput, WantedOutputs, infer_target
from tisfast.wire.client_response import ResponseReader
from tisfast.wire.signature import ModelSignature

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SHAPES = st.lists(st.integers(0, 3), max_size=3)
SPELLED = [name for name in BY_WIRE if name not in ("FP16", "BF16")]


@st.composite
def tensors(draw, name="I", datatypes=tuple(BY_WIRE), text=False):
    datatype = draw(st.sampled_from(datatypes))
    shape = draw(SHAPES)
    count = math.prod(shape)
    if datatype == "BYTES":
        kind = (
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(str.encode)
            if text
            else st.binary(max_size=5)
        )
        data = pack_strings(draw(st.lists(kind, min_size=count, max_size=count)))
    elif datatype == "BOOL":
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        size = BY_WIRE[datatype].size * count
        data = draw(st.binary(min_size=size, max_size=size))
    return BufferTensor(name, datatype, shape, data)


def means(request):
    """(id, parameters, inputs as (name, datatype, shape, bytes)) of what the server read."""
    head, full, texts = read_record(request)
    inputs = [
        (request.model.inputs[index].name, BY_CODE[dtype].wire, tuple(shape), data)
        for index, dtype, shape, data in full
    ]
    return request.id, json.loads(texts[1] or b"{}"), inputs, head


def same(datatype, a, b):
    """Equal bytes; of floats that went through JSON, equal numbers."""
    if datatype not in ("FP32", "FP64"):
        return a == b
    dtype = BY_WIRE[datatype].numpy
    return np.array_equal(np.frombuffer(a, dtype), np.frombuffer(b, dtype), equal_nan=True)


@settings(max_examples=200)
@given(st.data())
def test_the_server_reads_what_the_client_writes(data):
    binary = data.draw(st.booleans())
    names = data.draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    sent = [data.draw(tensors(name, tuple(BY_WIRE if binary else SPELLED), not binary)) for name in names]
    parameters = data.draw(
        st.dictionaries(st.sampled_from("abc"), st.booleans() | st.integers(-9, 9) | st.text(max_size=3))
    )
    id = data.draw(NAMES | st.just(""))
    signature = taking(sent)
    body = RequestBody()
    for _ in range(2):  # the server remembers what it has read
        pieces = body.render(sent, parameters=parameters, id=id, binary=binary)
        whole = b"".join(pieces)
        assert len(whole) == body.nbytes
        got = means(infer.parse(signature, arena(), whole, body.json_bytes))
        assert got[:2] == (id, parameters)
        for tensor, (name, datatype, shape, bytes_) in zip(sent, got[2], strict=True):
            assert (name, datatype, shape) == (tensor.name, tensor.datatype, tensor.shape)
            assert same(datatype, bytes_, bytes(tensor.buffer()))


def taking(sent):
    """A model that has these tensors as inputs."""
    inputs = [(t.name, BY_WIRE[t.datatype].code, (-1,) * len(t.shape), False, False) for t in sent]
    return ModelSignature("m", "1", 0, False, inputs, [("O", 11, (-1,))])


def test_what_is_asked_of_outputs_and_the_request_is_read():
    outputs = WantedOutputs([WantedOutput("O", binary=False, classes=3)])
    body = RequestBody()
    floats = BufferTensor("I", "FP32", [2], struct.pack("<2f", 1, 2))
    pieces = body.render([floats], outputs=outputs, parameters={"timeout": 5, "sequence_id": 7, "sequence_start": True})
    request = infer.parse(model(), arena(), b"".join(pieces), body.json_bytes)
    assert (request.timeout_us, request.correlation, request.sequence_flags) == (5, 7, 1)
    assert request.outputs.ways[0].classes == 3


@settings(max_examples=100)
@given(st.data())
def test_the_client_reads_what_the_server_writes(data):
    binary = data.draw(st.booleans())
    tensor = data.draw(tensors("O", tuple(BY_WIRE if binary else SPELLED), not binary))
    id = data.draw(st.sampled_from(["", "7", 'a"b', "\N{SNOWMAN}"]))
    reader = ResponseReader()
    for number in range(2):
        answer = served(tensor, id and id + str(number), binary)
        text, tail = respond.render(answer)
        response = reader.infer(text + tail, len(text) if tail else -1)
        (output,) = response.outputs
        assert (response.model, response.version, response.id) == ("m", "1", id and id + str(number))
        assert (output.name, output.datatype, output.shape) == ("O", tensor.datatype, tensor.shape)
        assert same(tensor.datatype, bytes(output.buffer()), bytes(tensor.buffer()))


def served(tensor, id, binary):
    """The answer of a model that gives this tensor, to a request of ours."""
    code = BY_WIRE[tensor.datatype].code
    shape = (-1,) * len(tensor.shape)
    signature = ModelSignature("m", "1", 0, False, [("I", 11, (-1,), False, False)], [("O", code, shape)])
    body = RequestBody()
    wanted = WantedOutputs([WantedOutput("O", binary=binary)])
    sent = b"".join(body.render([BufferTensor("I", "FP32", [1], bytes(4))], outputs=wanted, id=id))
    request = infer.parse(signature, arena(), sent, body.json_bytes)
    return answer(request, [(0, code, tensor.shape, bytes(tensor.buffer()))])


def as_numpy(tensor):
    if tensor.datatype == "BYTES":
        return np.array(tensor.strings(), object).reshape(tensor.shape)
    return np.frombuffer(tensor.buffer(), BY_WIRE[tensor.datatype].numpy).reshape(tensor.shape)


TRITON = tuple(name for name in BY_WIRE if name != "BF16")


@settings(max_examples=100)
@given(tensors("I", TRITON), st.sampled_from(["", "a1"]))
def test_tritonclient_writes_the_same_request(tensor, id):
    http = pytest.importorskip("tritonclient.http")
    theirs = http.InferInput("I", list(tensor.shape), tensor.datatype)
    theirs.set_data_from_numpy(as_numpy(tensor))
    wanted = http.InferRequestedOutput("O", binary_data=True)
    text, json_bytes = http.InferenceServerClient.generate_request_body([theirs], outputs=[wanted], request_id=id)
    body = RequestBody()
    ours = b"".join(body.render([tensor], outputs=WantedOutputs([WantedOutput("O")]), id=id))
    json_bytes = len(text) if json_bytes is None else json_bytes
    ours_bytes = len(ours) if body.json_bytes < 0 else body.json_bytes
    assert json.loads(ours[:ours_bytes]) == json.loads(text[:json_bytes])
    assert ours[ours_bytes:] == text[json_bytes:]


@settings(max_examples=100)
@given(tensors("O", TRITON), st.booleans())
def test_tritonclient_reads_the_same_from_an_answer(tensor, binary):
    http = pytest.importorskip("tritonclient.http")
    if not binary and tensor.datatype in ("FP16", "BYTES"):
        binary = True
    text, tail = respond.render(served(tensor, "", binary))
    length = len(text) if tail else None
    theirs = http.InferenceServerClient.parse_response_body(text + tail, header_length=length).as_numpy("O")
    ours = ResponseReader().infer(text + tail, len(text) if tail else -1).output("O")
    assert theirs.shape == ours.shape and np.array_equal(theirs, as_numpy(ours), equal_nan=theirs.dtype.kind == "f")


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("I", "FP31", [1], b"abcd"), "FP31"),
        (("I", "FP32", [2], b"abcd"), "8 bytes, its buffer has 4"),
        (("I", "FP32", [-1], b"abcd"), "integers from 0"),
        (("I", "FP32", [1.5], b"abcd"), "integers from 0"),
        (("I", "FP32", [1] * 300, b"abcd"), "dimensions"),
        (("I", "INT8", [1 << 40, 1 << 40], b""), "elements"),
        (("I", "FP64", [1 << 62], b""), "bytes"),
        (("I", "BYTES", [1], b"\5\0\0\0abc"), "no sequence of elements"),
        (("I", "BYTES", [1], b"abc"), "no sequence of elements"),
        (("I", "BYTES", [2], strings(b"a")), "2 elements, its buffer has 1"),
        (("\ud800", "FP32", [1], b"abcd"), "no name of a tensor"),
        (("I", "FP32", [1], "abcd"), "one contiguous buffer"),
        (("I", "FP32", [2], np.zeros(4, np.float32)[::2]), "one contiguous buffer"),
    ],
)
def test_a_tensor_whose_parts_do_not_belong_together_is_refused(arguments, culprit):
    with pytest.raises(BadRequest, match=culprit):
        BufferTensor(*arguments)


def test_what_json_cannot_say_is_refused():
    body = RequestBody()
    with pytest.raises(BadRequest, match="FP16 cannot be written as JSON"):
        body.render([BufferTensor("I", "FP16", [1], b"ab")], binary=False)
    with pytest.raises(BadRequest, match="not UTF-8"):
        body.render([BufferTensor("I", "BYTES", [1], pack_strings([b"\xff"]))], binary=False)
    with pytest.raises(BadRequest, match="must be bool"):
        body.render([], parameters={"a": object()})
    with pytest.raises(BadRequest, match="cannot be classified"):
        WantedOutputs([WantedOutput("O", classes=1, region="r")])


def test_regions_are_named_and_not_sent():
    body = RequestBody()
    wanted = WantedOutputs([WantedOutput("O", region="out", nbytes=8, offset=16)])
    (text,) = body.render([BufferTensor.in_region("I", "FP32", [2], "in", 8, 4)], outputs=wanted)
    said = json.loads(text)
    assert body.json_bytes == -1
    assert said["inputs"][0]["parameters"] == {
        "shared_memory_region": "in", "shared_memory_byte_size": 8, "shared_memory_offset": 4,
    }  # fmt: skip
    assert said["outputs"][0]["parameters"] == {
        "shared_memory_region": "out", "shared_memory_byte_size": 8, "shared_memory_offset": 16,
    }  # fmt: skip
    assert "parameters" not in said
    answer_text = b'{"model_name":"m","outputs":[{"name":"O","datatype":"FP32","shape":[2]}]}'
    assert ResponseReader().infer(answer_text).output("O").region == ""


REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
OUTPUT = {"name": "O", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}


@pytest.mark.parametrize(
    ("doc", "tail", "culprit"),
    [
        ([], b"", "no JSON object"),
        ({"error": "no such model"}, b"", "no such model"),
        ({"outputs": {}}, b"", "'outputs' of the response"),
        ({"id": 3}, b"", "'id' of the response"),
        ({"outputs": [3]}, b"", "an output of the response is 3"),
        ({"outputs": [{**OUTPUT, "name": None}]}, b"", "'name' of an output"),
        ({"outputs": [{**OUTPUT, "datatype": "X"}]}, b"", "datatype 'X'"),
        ({"outputs": [{**OUTPUT, "shape": [-1]}]}, bytes(8), "integers from 0"),
        ({"outputs": [{**OUTPUT, "shape": [0.5], "parameters": REGION}]}, b"", "integers from 0"),
        ({"outputs": [OUTPUT]}, bytes(7), "7 are left"),
        ({"outputs": [OUTPUT]}, bytes(9), "1 bytes behind"),
        ({"outputs": [{**OUTPUT, "shape": [3]}]}, bytes(8), "12 bytes, its buffer has 8"),
        ({"outputs": [{**OUTPUT, "parameters": {"binary_data_size": -1}}]}, b"", "binary_data_size"),
        ({"outputs": [{"name": "O", "datatype": "FP32", "shape": [1 << 40], "data": [1]}]}, b"", "in a JSON of"),
        ({"outputs": [{"name": "O", "datatype": "FP32", "shape": [2], "data": [1]}]}, b"", "elements"),
        ({"outputs": [{"name": "O", "datatype": "FP32", "shape": [1], "data": ["x"]}]}, b"", "cannot be read"),
        ({"outputs": [{"name": "O", "datatype": "FP16", "shape": [1], "data": [1]}]}, b"", "no such numbers"),
    ],
)
def test_a_response_that_cannot_be_one_is_refused_with_the_culprit(doc, tail, culprit):
    text = json.dumps(doc).encode()
    with pytest.raises(BadResponse, match=culprit):
        ResponseReader().infer(text + tail, len(text) if tail else -1)


PIECES = [
    b"{", b"}", b"[", b"]", b",", b'"outputs":[', b'"name":"O"', b'"datatype":"FP32"', b'"shape":[2]', b'"data":[1,2]',
    b'"parameters":{"binary_data_size":8}', b'{"id":"a",', b'"id":"b"', b"NaN", b"\\", bytes(8), b"\xff",
    b'"model_name":"m"',
]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), max_size=3), st.integers(-1, 200))
def test_rubbish_is_a_response_or_refused(bodies, json_bytes):
    reader = ResponseReader()
    for body in bodies:
        with contextlib.suppress(BadResponse):
            reader.infer(body, json_bytes)


@given(st.text(st.sampled_from('a"\\{}id: ,'), max_size=8), st.text(st.sampled_from("ab"), max_size=3))
def test_a_remembered_head_is_of_no_other_answer(first, second):
    """Ids that look like JSON, with and without, one after the other."""
    reader = ResponseReader()
    rest = {"model_name": "m", "outputs": [OUTPUT]}
    for id in (first, second, None, first):
        doc = rest if id is None else {"id": id, **rest}
        text = json.dumps(doc, separators=(",", ":")).encode()
        assert reader.infer(text + bytes(8), len(text)).id == (id or "")


def test_errors_are_read_as_they_come():
    assert client_response.error_text(b'{"error":"no such model"}') == "no such model"
    assert client_response.error_text(b"<html>\xff") == "<html>\ufffd"
    assert client_response.error_text(b'{"error":3}') == '{"error":3}'


def test_targets_are_quoted():
    assert infer_target("a/b \N{SNOWMAN}", "2") == "/v2/models/a%2Fb%20%E2%98%83/versions/2/infer"
    assert infer_target("m", call="generate_stream") == "/v2/models/m/generate_stream"
