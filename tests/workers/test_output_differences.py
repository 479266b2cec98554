"""Outputs that are not what the configuration says: sent as they are, told once each, or refused on demand."""

from __future__ import annotations

import pytest

from tests.workers.driver import FP32, floats
from tests.workers.models import ANSWER, ERROR, both, model

ALL = 2**64 - 1
X = [["X", FP32, [2], None]]
OUT = "return [pb_utils.InferenceResponse([pb_utils.Tensor(n, a) for n, a in ({},)]) for r in rs]"


def told(instance, router) -> list[str]:
    """What it logs until it ends."""
    instance.stop()
    found = []
    while (message := router.receive())["t"] != "stopped":
        assert (message["t"], message["level"]) == ("log", "WARN")
        found.append(message["msg"])
    return found


@both
@pytest.mark.parametrize(
    ("made", "sent", "says"),
    [
        ("np.array([1, 2])", (9, (2,)), "INT64 [2], but its configuration says FP32 [2]"),
        ("np.zeros(2, 'f2')", (10, (2,)), "FP16 [2], but its configuration says FP32 [2]"),
        ("np.array([b'a', b''], object)", (13, (2,)), "BYTES [2], but its configuration says FP32 [2]"),
        ("np.array(1.0)", (12, ()), "FP64 [], but its configuration says FP32 [2]"),
        ("np.zeros((1, 1, 2), 'f4')", (FP32, (1, 1, 2)), "FP32 [1,1,2], but its configuration says FP32 [2]"),
        ("np.zeros((0,), 'f4')", (FP32, (0,)), "FP32 [0], but its configuration says FP32 [2]"),
    ],
)
def test_an_output_is_sent_as_it_was_returned(serve, router, nursery, made, sent, says):
    instance = serve(model(OUT.format(f"('X', {made})")), outputs=X)
    for _ in range(3):
        answer = instance.ask([1, 2])
        assert answer.kind == ANSWER and answer.outputs[0][1:3] == sent
    (text,) = told(instance, router)
    assert text.startswith(f"model 'm' returned output 'X' as {says}: it is sent as it was returned")
    assert "To mend it: " in text and "--strict-outputs" in text


@pytest.mark.parametrize("shape", ["(2,)", "(3, 2)", "()", "(1, 2, 1)"])
def test_no_batch_dimension_or_another_one(serve, router, shape):
    instance = serve(model(OUT.format(f"('X', np.zeros({shape}, 'f4'))")), outputs=X, max_batch_size=8)
    answer = instance.ask([0] * 2, shape=(1, 2), batch=1)
    assert answer.kind == ANSWER, answer.text
    assert answer.outputs[0][2] == eval(shape)
    (text,) = told(instance, router)
    assert "but its configuration says FP32 [1,2] for a request of batch size 1" in text


def test_how_to_mend_it(serve, router):
    instance = serve(model(OUT.format("('X', np.zeros((2, 2), 'i8'))")), outputs=X, max_batch_size=8)
    instance.ask([0] * 2, shape=(1, 2), batch=1)
    (text,) = told(instance, router)
    assert "convert the array with astype('float32'), or write data_type: TYPE_INT64 in config.pbtxt" in text
    instance = serve(model(OUT.format("('X', np.zeros((3,), 'f4'))")), outputs=X)
    instance.ask([0] * 2)
    assert "write the output's dims as they are ([3], -1 for any)" in told(instance, router)[0]


def test_an_output_that_the_configuration_does_not_have_is_dropped(serve, router):
    source = model(OUT.format("('X', arr(r)), ('NOPE', arr(r)), ('NO', arr(r))"))
    instance = serve(source, outputs=X)
    for requested in (1, ALL):
        answer = instance.ask([1, 2], requested=requested)
        assert [floats(output[4]) for output in answer.outputs] == [[1, 2]]
    assert [text.split(":")[0] for text in told(instance, router)] == [
        f"model 'm' returned output '{name}', which its config does not have; it has 'X'" for name in ("NOPE", "NO")
    ]


def test_an_output_that_is_there_twice_is_sent_twice(serve, router):
    instance = serve(model(OUT.format("('X', arr(r)), ('X', arr(r) + 1)")), outputs=X)
    answer = instance.ask([1, 2])
    assert [floats(output[4]) for output in answer.outputs] == [[1, 2], [2, 3]]
    assert "returned output 'X' twice in one response: both are sent" in told(instance, router)[0]


def test_what_is_missing_is_told_of_what_was_asked_for(serve, router):
    instance = serve(model("return [answer(arr(q)) for q in rs]"))  # X, and no Y
    assert len(instance.ask([1], requested=1).outputs) == 1
    assert [len(instance.ask([1], requested=requested).outputs) for requested in (2, 3, ALL)] == [0, 1, 1]
    (text,) = told(instance, router)
    assert text.startswith("model 'm' did not return output 'Y', which its config has: the answer goes without it")


def test_responses_of_a_stream_may_have_some_of_the_outputs(serve, router):
    body = "s = r.get_response_sender(); s.send(answer(arr(r))); s.send(flags=1); del r, rs[:], s"
    instance = serve(model(body), decoupled=True, strict_outputs=True)
    assert instance.ask([1]).kind == ANSWER
    assert told(instance, router) == []


def test_a_missing_output_is_an_error_where_that_is_wanted(serve):
    instance = serve(model("return [answer(arr(q)) for q in rs]"), strict_outputs=True)
    answer = instance.ask([1])
    assert (answer.kind, answer.text) == (ERROR, "model 'm' did not return output 'Y', which its config has")


@pytest.mark.parametrize(
    ("dims", "reshape", "returned", "wire"),
    [
        ([2], [1, 2], "(1, 2)", (2,)),
        ([2], [1, 2], "(2,)", (2,)),  # as many elements
        ([2], [1, 2], "(3,)", None),
        ([-1], [1, -1], "(1, 3)", (3,)),
        ([-1], [1, -1], "(3,)", None),  # nobody can tell
        ([-1], [1, -1], "(2, 3)", None),
    ],
)
def test_a_reshape_never_tells_a_shape_of_other_elements(serve, dims, reshape, returned, wire):
    instance = serve(model(OUT.format(f"('X', np.zeros({returned}, 'f4'))")), outputs=[["X", FP32, dims, reshape]])
    answer = instance.ask([1])
    if wire is None:
        assert answer.text.startswith("output tensor shape does not match size of output for 'X': model 'm' returned")
    else:
        assert answer.outputs[0][2] == wire


def test_more_outputs_than_an_answer_can_have(serve):
    instance = serve(model(OUT.format("*[('X', arr(r))] * 65")), outputs=X)
    assert instance.ask([1, 2]).text == "model 'm' returned 65 outputs in one response; 64 is the limit"


def test_what_is_told_is_bounded(serve, router):
    body = """
self.kept.append(0)
return [pb_utils.InferenceResponse([pb_utils.Tensor("X", arr(r)), pb_utils.Tensor(f"N{len(self.kept)}", arr(r))])]
"""
    instance = serve(model(body), outputs=X)
    for _ in range(200):
        instance.plane.give_back(instance.ask([1, 2]).block)
    assert len(told(instance, router)) == 128
