"""Executions that run out of memory: what is tried again, what is answered, and that the worker lives on."""

from __future__ import annotations

import json

import pytest

from tests.workers.batch_helpers import ONE, arrays, push, row
from tests.workers.driver import FP32, floats
from tests.workers.models import ANSWER, ERROR, FINAL, RETAINED, model

UNAVAILABLE = 5  # TritonError.UNAVAILABLE on the wire
OUT = """
class OutOfMemoryError(RuntimeError):
    pass
calls = []
class Cuda:
    @staticmethod
    def is_initialized():
        return True
    @staticmethod
    def empty_cache():
        calls.append("emptied")
class Torch:
    cuda = Cuda
sys.modules["torch"] = Torch
"""
MORE_THAN = """
calls.append(len(rs))
if len(rs) > {most}:
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
return [answer(arr(r) + len(calls) * 0) for r in rs]
"""
BATCHED = {"max_batch_size": 8, "inputs": [["A", FP32, [1], None]], "outputs": [["X", FP32, [1], None]]}


def source(body: str) -> str:
    text = model(body)
    return text.replace("class TritonPythonModel", OUT + "class TritonPythonModel", 1)


def batch(instance, *values: float) -> list:
    """Send them as one batch; the answers in order."""
    tickets = instance.plane.push([instance.record([value], shape=(1, 1)) for value in values])
    found = {}
    for _ in tickets:
        answer = instance.plane.next()
        found[answer.request] = answer
    return [found[ticket] for ticket in tickets]


def traces(instance) -> list[dict]:
    """Log and trace records until the worker has ended."""
    instance.stop()
    found = []
    while (message := instance.router.receive())["t"] != "stopped":
        found.append(message)
    return found


def test_without_leave_nothing_is_executed_again(serve):
    instance = serve(source(MORE_THAN.format(most=1)), **BATCHED)
    first = batch(instance, 1, 2)
    assert [(answer.kind, answer.status) for answer in first] == [(ERROR, UNAVAILABLE)] * 2
    text = first[0].text
    assert text.startswith(
        "Failed to process the request(s) for model 'm_0_0', message: instance m_0_0 of model 'm' ran out of GPU "
        "memory (2.0 GiB were asked for) executing a batch of 2; the caches of torch were emptied; retry later"
    )
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n\nAt:\n" in text
    assert [floats(answer.outputs[0][4]) for answer in batch(instance, 3)] == [[3]]
    (trace,) = traces(instance)
    assert trace["t"] == "trace" and "ran out of GPU memory" in trace["error"] and "execute" in trace["traceback"]


def test_once_again_after_the_caches_are_empty(serve):
    body = """
if 'emptied' not in calls:
    raise OutOfMemoryError('out')
return [answer(arr(r)) for r in rs]
"""
    instance = serve(source(body), retry="once", **BATCHED)
    answers = batch(instance, 1, 2)
    assert [(answer.kind, floats(answer.outputs[0][4])) for answer in answers] == [(ANSWER, [1]), (ANSWER, [2])]
    assert all(answer.flags == FINAL for answer in answers)  # nothing is kept: neither the requests nor their memory
    (log,) = traces(instance)
    assert log["t"] == "log" and log["level"] == "WARN" and "the batch is executed again" in log["msg"]


def test_once_again_and_no_more(serve):
    instance = serve(source("calls.append('run')\nraise OutOfMemoryError('out')"), retry="once", **BATCHED)
    assert [answer.status for answer in batch(instance, 1, 2)] == [UNAVAILABLE] * 2
    assert [message["t"] for message in traces(instance)] == ["log", "trace"]


def test_halves_down_to_what_fits(serve):
    instance = serve(source(MORE_THAN.format(most=2)), retry="halves", **BATCHED)
    answers = batch(instance, *range(7))
    assert [floats(answer.outputs[0][4]) for answer in answers] == [[n] for n in range(7)]
    assert all(answer.flags == FINAL for answer in answers)


def test_what_does_not_fit_alone_is_answered_alone(serve):
    body = """
if len(rs) > 1 or arr(rs[0])[0] == 2:
    np.empty(1 << 60, np.uint8)
return [answer(arr(r)) for r in rs]
"""
    instance = serve(source(body), retry="halves", **BATCHED)
    answers = batch(instance, 1, 2, 3)
    assert [answer.kind for answer in answers] == [ANSWER, ERROR, ANSWER]
    assert answers[1].status == UNAVAILABLE and "executing a batch of 1" in answers[1].text
    assert "(1048576.0 TiB were asked for)" in answers[1].text and "ran out of memory" in answers[1].text


def test_another_error_in_a_half_is_that_half_s(serve):
    body = """
if len(rs) > 2:
    raise MemoryError
if arr(rs[0])[0] == 0:
    raise ValueError("no zeros")
return [answer(arr(r)) for r in rs]
"""
    answers = batch(serve(source(body), retry="halves", **BATCHED), 0, 1, 2, 3)
    assert [answer.kind for answer in answers] == [ERROR, ERROR, ANSWER, ANSWER]
    assert "ValueError: no zeros" in answers[0].text and answers[0].status == 2


def test_inputs_that_the_model_keeps_stay(serve):
    body = """
calls.append(1)
if len(calls) == 1:
    raise MemoryError
self.kept.append(arr(r))
return [answer(arr(r)) for r in rs]
"""
    (answer,) = batch(serve(source(body), retry="once", **BATCHED), 1)
    assert answer.flags == FINAL | RETAINED


def test_arrays_of_a_batch_in_halves(serve):
    body = """
if len(a) > 2:
    raise MemoryError
self.kept.append(a)
return {'X': a + 1}
"""
    instance = serve(arrays(body), retry="halves", **ONE)
    tickets = push(instance, *[row(instance, float(n), *[0.0] * 15) for n in range(4)])
    found = {}
    for _ in tickets:
        answer = instance.plane.next()
        assert answer.kind == ANSWER, answer.text
        found[answer.request] = floats(answer.outputs[0][4])[0]
    assert [found[ticket] for ticket in tickets] == [1, 2, 3, 4]


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_decoupled_model_is_told_so_once(serve, coroutine):
    body = "raise OutOfMemoryError('CUDA out of memory. Tried to allocate 1.00 GiB')"
    text = source(body)
    if coroutine:
        text = text.replace("def execute", "async def execute")
    instance = serve(text, decoupled=True, retry="never", **BATCHED)
    instance.plane.push([instance.record([1], shape=(1, 1))])
    slots = [instance.plane.next() for _ in range(2)]
    (error,) = [slot for slot in slots if slot.kind == ERROR]
    assert error.status == UNAVAILABLE and "ran out of GPU memory (1.0 GiB were asked for)" in error.text


def test_a_load_that_runs_out_of_memory_says_so(load):
    setup = """
    def initialize(self, args):
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        self.weights = np.ones(1 << 31, np.uint8)
"""
    _, reply = load(model("return []", setup))
    assert (reply["t"], reply["kind"]) == ("failed", "memory")
    assert reply["shortage"] == "ran out of memory (2.0 GiB were asked for)"
    assert "Unable to allocate 2.00 GiB" in reply["error"]
    assert json.dumps(reply["traceback"]).count("initialize") == 1


def test_a_worker_goes_before_the_server_when_memory_runs_out(load):
    instance, reply = load(model("return []"))
    assert reply["t"] == "ready"
    with open(f"/proc/{instance.nursery.process.pid}/oom_score_adj") as nursery:
        base = int(nursery.read())
    with open(f"/proc/{instance.pid}/oom_score_adj") as worker:
        assert int(worker.read()) == min(1000, base + 200)
