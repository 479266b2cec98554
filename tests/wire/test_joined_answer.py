"""Answers made of tensors that lie in several places."""

from __future__ import annotations

import gc
import struct

import pytest

from tests.wire.helpers import FP32, arena, model
from tisfast.errors import Internal
from tisfast.native.memory import Arena
from tisfast.wire.compose import answer_tensors, compose_request
from tisfast.wire.grpc.respond import render as render_grpc
from tisfast.wire.joined_answer import join
from tisfast.wire.respond import render
from tisfast.wire.tensors import in_block

BYTES = 13


def tensor(name, values, *, of=None, shape=None, dtype=FP32):
    block = (of or arena()).take_block(64 + 4 * len(values))
    memoryview(block)[64:] = struct.pack(f"<{len(values)}f", *values)
    return in_block(name, dtype, (len(values),) if shape is None else shape, block, 64, 4 * len(values))


def request(outputs=("O", "P"), **how):
    return compose_request(model(("I",), outputs, **how), arena(), [tensor("I", [0])])


def test_outputs_lie_where_they_were_made():
    asked = request()
    answer = join(asked, [tensor("P", [1, 2]), tensor("O", [3])], b'{"x":1}')
    assert [answer.output(i)[0::3] for i in range(answer.count)] == [
        ("P", struct.pack("<2f", 1, 2)),
        ("O", struct.pack("<f", 3)),
    ]
    assert (answer.parameters, answer.input) == (b'{"x":1}', asked)


def test_it_is_rendered_like_any_other():
    answer = join(request(), [tensor("O", [3])])
    text, tail = render(answer)
    assert b'"outputs":[{"name":"O","datatype":"FP32","shape":[1]' in text
    assert tail == b"" and b"3.0" in text
    assert struct.pack("<f", 3) in render_grpc(answer)


def test_it_may_have_no_outputs():
    text, _ = render(join(request(), []))
    assert text.endswith(b'"outputs":[]}')


def test_its_tensors_go_on():
    first = tensor("O", [1, 2])
    (again,) = answer_tensors(join(request(), [first]))
    assert (again.name, again.offset, again.bytes()) == ("O", first.offset, first.bytes())


def test_it_keeps_its_memory():
    place = Arena("one", 1 << 20, 1 << 20)
    answer = join(request(), [tensor("O", [1], of=place)])
    gc.collect()
    assert place.used_blocks == 1
    del answer
    gc.collect()
    assert place.used_blocks == 0


@pytest.mark.parametrize(
    ("odd", "output"),
    [
        (tensor("O", [1], dtype=8), ("INT32", [1])),
        (tensor("O", [1], shape=(1, 1)), ("FP32", [1, 1])),
    ],
)
def test_what_the_configuration_does_not_say_is_joined_as_it_is(odd, output):
    assert join(request(), [odd]).output(0)[1:3] == output


def test_a_tensor_of_other_bytes_than_its_shape_has_is_refused():
    with pytest.raises(Internal, match="has 12 bytes, its shape asks for 8"):
        join(request(), [tensor("O", [1, 2, 3], shape=(2,))])
