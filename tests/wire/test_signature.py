"""What the codecs know of a model follows from its configuration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.helpers import answer, model, request_for, tensor
from tisfast.errors import BadRequest
from tisfast.limits import OUTPUTS_MAX
from tisfast.types import BY_CODE, BY_WIRE, NAMESPACE_SIGN
from tisfast.wire import respond
from tisfast.wire.signature import ModelSignature, TensorSpec

FP32, BYTES = 11, 13


def of(*inputs, outputs=(), max_batch=0, decoupled=False):
    return ModelSignature("m", "1", max_batch, decoupled, inputs, outputs)


def input_of(name="I", dtype=FP32, dims=(2,), optional=False, ragged=False):
    return name, dtype, dims, optional, ragged


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_a_tensor_has_the_name_of_its_type(code):
    spec = TensorSpec("I", 3, code, [-1, 2], labels=[b"a"])
    assert (spec.name, spec.index, spec.dtype, spec.datatype) == ("I", 3, code, BY_CODE[code].wire)
    assert (spec.dims, spec.labels, spec.optional, spec.ragged) == ((-1, 2), (b"a",), False, False)
    assert repr(spec) == f"TensorSpec('I', {BY_CODE[code].wire}, [-1, 2])"


@pytest.mark.parametrize("code", [0, 15, -1, 255])
def test_a_type_that_there_is_not_is_refused(code):
    with pytest.raises(BadRequest) as caught:
        TensorSpec("I", 0, code, [1])
    assert caught.value.message == f"tensor 'I' has data type code {code}; known codes are 1 to 14"
    with pytest.raises(BadRequest, match="data type code"):
        of(input_of(dtype=code))


def test_a_model_knows_its_tensors_by_name_and_place():
    outputs = [("O", FP32, (1,)), ("P", FP32, (2,), (b"x", b"y"))]
    given_ = of(input_of("A"), input_of("B", BYTES, (-1,)), outputs=outputs)
    assert [(spec.name, spec.index) for spec in given_.inputs] == [("A", 0), ("B", 1)]
    assert [(spec.name, spec.index, spec.labels) for spec in given_.outputs] == [("O", 0, ()), ("P", 1, (b"x", b"y"))]
    assert given_.input_by_name == {"A": given_.inputs[0], "B": given_.inputs[1]}
    assert given_.output_by_name == {"O": given_.outputs[0], "P": given_.outputs[1]}
    assert (given_.all_outputs, given_.has_strings, of(input_of()).has_strings) == (3, True, False)
    assert repr(given_) == (
        "ModelSignature('m', '1', inputs=[TensorSpec('A', FP32, [2]), TensorSpec('B', BYTES, [-1])], "
        "outputs=[TensorSpec('O', FP32, [1]), TensorSpec('P', FP32, [2])])"
    )


@pytest.mark.parametrize(("namespace", "identity"), [("", "m"), ("shop", f"shop{NAMESPACE_SIGN}m")])
def test_a_model_of_a_namespace_has_it_in_its_identity(namespace, identity):
    given_ = of(input_of())
    given_.namespace = namespace
    assert given_.identity == identity


@pytest.mark.parametrize(
    ("inputs", "required", "vary"),
    [
        ([], 0, False),
        ([input_of()], 1, False),
        ([input_of(), input_of("J", optional=True)], 1, True),
        ([input_of(dims=(-1,))], 1, True),
        ([input_of(dims=(-1,), ragged=True)], 1, False),
        ([input_of(dims=(-1,), ragged=True, optional=True)], 0, True),
    ],
)
def test_which_requests_may_differ_within_a_batch(inputs, required, vary):
    given_ = of(*inputs)
    assert (given_.required_inputs, given_.batches_vary) == (required, vary)


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_decoupled_model_gets_copies_of_clients_memory(decoupled):
    made = of(input_of(), decoupled=decoupled)
    assert made.copies_regions is decoupled
    assert not made.copies_devices  # of their GPU memory it gets none


@given(st.lists(st.lists(st.just(1), max_size=8), max_size=20))
def test_the_usual_record_has_room_in_front_of_the_body(shapes):
    """The record of a request with a short id fits before what was received, so nothing else is taken for it."""
    names = [f"I{i}" for i in range(len(shapes))]
    given_ = of(*[input_of(name, dims=shape) for name, shape in zip(names, shapes, strict=True)], max_batch=4)
    if shapes:
        entries = [tensor(name, [1, *shape], data=[1]) for name, shape in zip(names, shapes, strict=True)]
        assert len(request_for(given_, *entries, id="x" * 200).record) <= given_.record_room


def test_the_number_of_outputs_is_bounded():
    outputs = [(f"O{i}", FP32, (1,)) for i in range(OUTPUTS_MAX + 1)]
    assert of(input_of(), outputs=outputs[:-1]).all_outputs == (1 << OUTPUTS_MAX) - 1
    with pytest.raises(BadRequest) as caught:
        of(input_of(), outputs=outputs)
    assert caught.value.message == f"model 'm' has {OUTPUTS_MAX + 1} outputs; at most {OUTPUTS_MAX} are served"


def test_an_answer_of_as_many_outputs_as_there_may_be():
    names = [f"O{i}" for i in range(OUTPUTS_MAX)]
    request = request_for(model(outputs=names), tensor(data=[1, 2, 3]))
    made = [(i, BY_WIRE["INT8"].code, [1], bytes([i])) for i in range(OUTPUTS_MAX)]
    outputs = json.loads(respond.render(answer(request, made))[0])["outputs"]
    assert [(each["name"], each["data"]) for each in outputs] == [(name, [i]) for i, name in enumerate(names)]


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), st.integers(1, 2**63 - 1))
def test_every_answer_names_model_and_version(name, version):
    signature = ModelSignature(name, str(version), 0, False, [input_of("I", FP32, (-1,))], [("O", FP32, (-1,))])
    text, _ = respond.render(answer(request_for(signature, tensor(data=[1, 2, 3])), []))
    assert json.loads(text) == {"model_name": name, "model_version": str(version), "outputs": []}
