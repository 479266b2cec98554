"""What a model does wrong, and how it is told."""

from __future__ import annotations

import os
import re

import pytest
from tisfast_worker import answer_record

from tests.workers.driver import BYTES, FP32, floats
from tests.workers.models import ANSWER, ERROR, model

# What a field of ours that was never set is to the interpreted writer, and to the compiled one.
UNSET = "TypeError" if answer_record.__file__.endswith(".so") else "AttributeError"

BOTH = """
    @staticmethod
    def both(r):
        return pb_utils.InferenceResponse([pb_utils.Tensor(n, arr(r)) for n in "XY"])
"""


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("answer(arr(r), 'NOPE')", "model 'm' returned output 'NOPE', which its config does not have; it has 'X', 'Y'"),
        ("answer(arr(r).astype('f8'))", "model 'm' returned output 'X' with data type FP64, its config says FP32"),
        ("answer(np.zeros((2, 2), 'f4'))", "unexpected shape for output 'X' for model 'm'. Expected [-1], got [2,2]"),
        (
            "pb_utils.InferenceResponse([pb_utils.Tensor('X', arr(r))] * 2)",
            "model 'm' returned output 'X' twice in one response",
        ),
    ],
)
def test_outputs_that_the_config_does_not_have(serve, router, response, text):
    instance = serve(model(f"return [{response}, self.both(rs[1])]", BOTH), strict_outputs=True)
    instance.plane.push([instance.record([1], [0], id="r7"), instance.record([2], [0], id="r8")])
    bad, good = instance.plane.next(), instance.plane.next()
    assert (bad.kind, bad.status, bad.text) == (ERROR, 2, text)
    assert floats(good.outputs[0][4]) == [2]
    instance.stop()
    assert router.receive() == {"t": "trace", "requests": ["r7"], "traceback": "", "error": text}
    assert router.receive()["t"] == "stopped", "logged once, and nothing of the good answer"


@pytest.mark.parametrize("nursery", ["this", "oldest"], indirect=True)
def test_a_response_of_a_stream_that_the_config_does_not_have_is_logged(serve, router, nursery):
    body = "s = r.get_response_sender(); del r, rs[:]; s.send(answer(np.zeros(1, 'f4'), 'NOPE')); s.send(flags=1)"
    instance = serve(model(body), decoupled=True, strict_outputs=True)
    text = "model 'm' returned output 'NOPE', which its config does not have; it has 'X', 'Y'"
    assert instance.ask([1], [0], id="é7").text == text
    instance.stop()
    assert router.receive() == {"t": "trace", "requests": ["é7"], "traceback": "", "error": text}
    assert router.receive()["t"] == "stopped"


def test_an_error_that_the_model_answers_with_is_not_logged(serve, router):
    instance = serve(model("return [pb_utils.InferenceResponse([], error=pb_utils.TritonError('no'))]"))
    assert instance.ask([1], [0]).text == "no"
    instance.stop()
    assert router.receive()["t"] == "stopped"


def test_a_flood_of_wrong_responses_never_blocks(serve, router):
    instance = serve(model("return [answer(arr(q), 'NOPE' * 8000) for q in rs]"), strict_outputs=True)
    for _ in range(600):  # 20 MB of log that nobody reads
        found = instance.ask([1], [0])
        assert found.status == 2
        instance.plane.give_back(found.block)
    assert router.receive()["t"] == "trace"


def test_what_the_log_is_told_is_bounded(serve, router):
    assert serve(model("return [answer(arr(r), 'NOPE' * 500000)]"), strict_outputs=True).ask([1], [0]).status == 2
    error = router.receive()["error"]
    assert error.startswith("model 'm' returned output 'NOPENOPE") and error.endswith(" ... (cut)")
    assert len(error) < 70000


def test_what_cannot_be_encoded_is_that_requests_error(serve, router):
    more = """
    class Bad:
        def __str__(self): raise ValueError("no text")
    class Raw(pb_utils.InferenceResponse):
        def __init__(self): pass
"""
    body = "bad = {'text': lambda: answer(np.array([self.Bad()], dtype=object)), 'raw': self.Raw}"
    instance = serve(model(body + "; return [bad[r.request_id()]()]", more), outputs=[["X", BYTES, [-1], None]])
    for name, error in (("text", "ValueError: no text"), ("raw", f"{UNSET}: .")):
        text = instance.ask([1], [2], id=name).text
        assert re.match(f"a response of model 'm' cannot be encoded: {error}", text)
        trace = router.receive()
        assert (trace["t"], trace["requests"], trace["error"]) == ("trace", [name], text)
        assert ('raise ValueError("no text")' in trace["traceback"]) is (name == "text")


def test_a_list_of_tensors_may_be_used_again(serve):
    body = """
outs, answers = [], []
for q in rs:
    outs.clear()
    outs.append(pb_utils.Tensor("X", arr(q) + 1))
    answers.append(pb_utils.InferenceResponse(outs))
return answers
"""
    instance = serve(model(body))
    instance.plane.push([instance.record([i], [0]) for i in range(3)])
    assert [floats(instance.plane.next().outputs[0][4]) for _ in range(3)] == [[1], [2], [3]]


def test_the_batch_dimension_is_checked(serve):
    instance = serve(
        model("return [answer(np.zeros((3, 4), 'f4'))]"), outputs=[["X", FP32, [4], None]], max_batch_size=8,
        strict_outputs=True,
    )  # fmt: skip
    text = instance.ask([0] * 8, shape=(2, 4), batch=2).text
    assert (
        text == "unexpected shape for output 'X' for model 'm'. Expected [2,4], got [3,4]: the first dimension is the "
        "request's batch"
    )


def test_an_error_for_one_request(serve):
    instance = serve(
        model(
            "return [pb_utils.InferenceResponse([], error=pb_utils.TritonError('no such é', "
            "pb_utils.TritonError.NOT_FOUND)), answer(arr(rs[1]))]"
        )
    )
    instance.plane.push([instance.record([1], [0]), instance.record([2], [0])])
    bad, good = instance.plane.next(), instance.plane.next()
    assert (bad.kind, bad.status, bad.text) == (ERROR, 3, "no such é") and good.kind == ANSWER


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("return None", "Expected a list in the execute return, found type '<class 'NoneType'>'."),
        (
            "return []",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "return [3]",
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'.",
        ),
        ("raise TypeError('bad')", "TypeError: bad\n\nAt:\n  MODEL(14): execute\n"),
        ("raise ValueError()", "ValueError: <EMPTY MESSAGE>\n\nAt:\n  MODEL(14): execute\n"),
        ("raise KeyError('x')", "KeyError: 'x'\n\nAt:\n  MODEL(14): execute\n"),
        ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine\n\nAt:\n  MODEL(14): execute\n"),
        ("raise SystemExit(3)", "SystemExit: 3\n\nAt:\n  MODEL(14): execute\n"),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>\n\nAt:\n  MODEL(14): execute\n"),
        (
            "def f():\n    raise ValueError('deep\\nline')\nf()",
            "ValueError: deep\nline\n\nAt:\n  MODEL(15): f\n  MODEL(16): execute\n",
        ),
        ("pb_utils.Tensor('', arr(r))", "TritonModelException: Tensor name cannot be an empty string."),
    ],
)
def test_failed_executions_are_told_in_tritons_words(serve, router, body, message):
    """Each text was asked of the real Triton 2.51, but for None (which it waits for) and the last."""
    instance = serve(model(body))
    text = instance.ask([1], [2], id="r7").text
    start = "Failed to process the request(s) for model 'm_0_0', message: "
    wanted = message.replace("MODEL", os.path.join(instance.load["version_dir"], "model.py"))
    assert text.startswith(start + wanted) and (text == start + wanted or not message.endswith(("\n", "'.")))
    trace = router.receive()
    assert (trace["t"], trace["requests"]) == ("trace", ["r7"])
    assert trace["error"].startswith(message.split("\n\nAt")[0])
    instance.plane.push([instance.record([1], [2])])
    assert instance.plane.next().status == 2, "it serves on"


def test_a_model_without_execute(serve):
    text = serve("class TritonPythonModel:\n    pass\n").ask([1], [2]).text
    assert "message: Python model " in text and text.endswith("1/model.py does not implement `execute` method.")


def test_the_traceback_begins_with_the_models_own_frame(serve, router):
    serve(model("raise ValueError('why')")).ask([1], [2])
    lines = router.receive()["traceback"].splitlines()
    assert (
        lines[0] == "Traceback (most recent call last):" and "model.py" in lines[1] and lines[-1] == "ValueError: why"
    )


def test_exit_in_a_model_is_a_death_with_its_status(serve):
    instance = serve(model("os._exit(7)"))
    instance.plane.push([instance.record([1], [2])])
    assert os.WEXITSTATUS(instance.exit_status()) == 7
