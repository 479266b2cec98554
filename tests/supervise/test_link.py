"""Decoupled models from the engine's face to real workers and back, without fronts."""

import asyncio
import os
import random
import signal
import struct

import pytest

from tests.supervise.conftest import until
from tisfast import limits
from tisfast.engine.testing import StreamReply, cancel, expect, place_input, submit
from tisfast.native.memory import now_ns
from tisfast.supervise.instance import InstanceState
from tisfast.types import Status

CONFIG = """
backend: "python"
input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
model_transaction_policy { decoupled: true }
"""
MODEL = """
import os, threading, time
import numpy as np
import triton_python_backend_utils as pb
FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL
def answer(*values):
    return pb.InferenceResponse([pb.Tensor("OUT", np.array(values, np.int32))])
def failed(text):
    return pb.InferenceResponse([], error=pb.TritonError(text))
class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            code = pb.get_input_tensor_by_name(r, "CODE").as_numpy().reshape(-1)[0].decode()
            names = dict(globals(), r=r, s=r.get_response_sender(), state=self)
            r = None
            exec(code, names)
            if "returned" in names:
                return names["returned"]
"""


@pytest.fixture
def streams(write, supervise, run):
    """A decoupled model; `ask(code)` sends one request, `calls` has what came back."""

    class Streams:
        def __init__(self, code=MODEL, config=CONFIG):
            write("m", code, config)
            self.supervisor = supervise()
            assert self.supervisor.served, supervise
            self.runtime = self.supervisor.served[0].runtime
            self.instance = self.supervisor.served[0].instances[0]
            self.calls = []

        def ask(self, code, id="r"):
            data = struct.pack("<I", len(code.encode())) + code.encode()
            return submit(self.runtime, place_input(self.runtime, id, [(0, 13, (1,), data)]), StreamReply(self.calls))

        def finals(self):
            return sum(call[3] for call in self.calls)

        def until_final(self, count=1):
            run(until(lambda: self.finals() >= count))
            return self.told()

        def told(self):
            return [self._short(call) for call in self.calls]

        @staticmethod
        def _short(call):
            _, status, what, final = call
            if isinstance(what, list):
                what = [list(struct.unpack(f"<{len(data) // 4}i", data)) for *_, data in what]
            return (status, what, final)

    return Streams


def test_responses_come_in_order_and_the_flag_ends_the_stream(streams):
    m = streams()
    m.ask("s.send(answer(1, 2)); s.send(answer()); s.send(answer(3)); s.send(flags=FINAL)")
    assert m.until_final() == [(0, [[1, 2]], False), (0, [[]], False), (0, [[3]], False), (0, None, True)]


def test_the_loop_stays_awake_for_a_request_that_is_nearly_there(streams, run):
    m = streams()
    poller = m.runtime.links[0].poller
    run(until(lambda: not poller.scheduled))
    expect(m.runtime, limits.BODY_NEAR_BYTES + 1)
    assert not poller.scheduled
    expect(m.runtime, limits.BODY_NEAR_BYTES)
    assert poller.scheduled
    run(until(lambda: not poller.scheduled))


def test_a_response_may_carry_the_final_flag(streams):
    m = streams()
    m.ask("s.send(answer(1), FINAL)")
    assert m.until_final() == [(0, [[1]], True)]


def test_no_response_at_all(streams):
    m = streams()
    m.ask("s.send(flags=FINAL)")
    assert m.until_final() == [(0, None, True)]


def test_answers_from_a_thread_after_execute_has_returned(streams, run):
    m = streams()
    m.ask("state.go = threading.Event()\n"
          "def later(s=s, go=state.go):\n    go.wait(); s.send(answer(7)); s.send(flags=FINAL)\n"
          "threading.Thread(target=later).start()", "slow")  # fmt: skip
    m.ask("s.send(answer(1), FINAL)", "quick")
    m.until_final(1)
    assert [call[0] for call in m.calls] == ["quick"] and m.runtime.inflight == 1
    m.ask("state.go.set(); s.send(flags=FINAL)", "go")
    m.until_final(3)
    assert [call[0] for call in m.calls if call[0] == "slow"] == ["slow", "slow"]
    run(until(lambda: m.runtime.stats.execution_count == 3))
    assert m.runtime.inflight == 0 and m.runtime.stats.inference_count == 3


def test_an_error_response_does_not_end_a_stream(streams):
    m = streams()
    m.ask("s.send(failed('one')); s.send(answer(1)); s.send(failed('two'), FINAL)")
    assert m.until_final() == [(2, "one", False), (0, [[1]], False), (2, "two", True)]


@pytest.mark.parametrize("code", ["pass", "s.send(answer(1))", "state.kept = s; state.kept = None"])
def test_a_sender_that_nobody_has_any_more_ends_in_an_error(streams, code):
    m = streams()
    m.ask(code)
    status, text, final = m.until_final()[-1]
    assert (status, final) == (Status.INTERNAL, True)
    assert "instance m_0 " in text and "TRITONSERVER_RESPONSE_COMPLETE_FINAL was not sent" in text


def test_an_exception_ends_what_is_open(streams):
    m = streams()
    m.ask("s.send(answer(1)); raise ValueError('boom')")
    (_, status, text, final) = (m.until_final() and m.calls[-1])
    assert (status, final) == (Status.INTERNAL, True)
    assert text.startswith("Failed to process the request(s) for model 'm_0', message: ValueError: boom")
    m.ask("s.send(answer(1), FINAL); raise ValueError('boom')")
    assert m.until_final(2)[-1] == (0, [[1]], True)


def test_execute_must_return_none(streams):
    m = streams()
    m.ask("returned = []")
    assert m.until_final() == [
        (
            Status.INTERNAL,
            "Failed to process the request(s) for model 'm_0', message: Python model 'm_0' is using the decoupled "
            "mode and the execute function must return None.",
            True,
        )
    ]


def test_a_worker_killed_in_the_middle_of_a_stream_ends_it_retryably(streams, run):
    m = streams()
    m.ask("s.send(answer(1)); state.s = s", "open")
    run(until(lambda: m.calls and m.runtime.stats.execution_count == 1))
    os.kill(m.instance.pid, signal.SIGKILL)
    told = m.until_final()
    assert told[0] == (0, [[1]], False) and told[1][0] == Status.UNAVAILABLE and told[1][2]
    assert "SIGKILL" in told[1][1] and "retrying is safe" in told[1][1]
    run(until(lambda: m.instance.state is InstanceState.READY))
    m.ask("s.send(answer(2), FINAL)")
    assert m.until_final(2)[-1] == (0, [[2]], True)


def test_a_model_sees_that_its_client_has_left(streams, run):
    m = streams()
    request = m.ask(
        "def watch(s=s, r=r):\n"
        "    s.send(answer(r.is_cancelled(), s.is_cancelled()))\n"
        "    while not (r.is_cancelled() and s.is_cancelled()): time.sleep(.001)\n"
        "    s.send(flags=FINAL)\n"
        "threading.Thread(target=watch).start()"
    )
    run(until(lambda: m.calls))
    cancel(m.runtime, request)
    assert m.until_final() == [(0, [[0, 0]], False), (0, None, True)]


def test_asynchronous_executions_overlap(streams):
    m = streams(
        MODEL.replace("    def execute", "    async def execute")
        .replace("exec(code, names)", "exec('async def f():\\n' + code, names); await names['f']()")
        .replace("import os", "import asyncio, os")
    )
    m.ask(" state.e = asyncio.Event(); s.send(answer(1)); await state.e.wait(); s.send(answer(2), FINAL)", "a")
    m.ask(" state.e.set(); await asyncio.sleep(0.01); s.send(flags=FINAL)", "b")
    m.until_final(2)
    assert [(call[0], call[3]) for call in m.calls] == [("a", False), ("a", True), ("b", True)]
    m.ask(" await asyncio.sleep(0); raise ValueError('late')", "c")
    status, text, final = m.until_final(3)[-1]
    assert (status, final) == (2, True) and text.startswith("Failed to process the request(s)") and "late" in text


def test_stopping_waits_for_open_streams(streams, run):
    m = streams()
    m.ask("state.go = threading.Event()\n"
          "def later(s=s, go=state.go):\n    go.wait(); s.send(answer(7), FINAL)\n"
          "threading.Thread(target=later).start()\nthreading.Timer(.1, state.go.set).start()")  # fmt: skip
    run(until(lambda: m.runtime.stats.execution_count == 1))
    run(m.supervisor.stop(10))
    assert m.told() == [(0, [[7]], True)]


def test_statistics_of_responses(streams, run):
    m = streams()
    m.ask("s.send(answer(1)); s.send(failed('x')); time.sleep(.02); s.send(answer(2)); s.send(flags=FINAL)")
    m.until_final()
    m.ask("s.send(answer(1), FINAL)")
    m.until_final(2)
    run(until(lambda: m.runtime.stats.execution_count == 2))
    found = m.runtime.stats.response_stats()
    assert sorted(found) == ["0", "1", "2", "3"]
    assert [found[i]["success"]["count"] for i in "0123"] == [2, 0, 1, 0]
    assert [found[i]["fail"]["count"] for i in "0123"] == [0, 1, 0, 0]
    assert [found[i]["empty_response"]["count"] for i in "0123"] == [0, 0, 0, 1]
    assert found["2"]["compute_infer"]["ns"] >= 20_000_000 > found["0"]["compute_infer"]["ns"]
    assert m.runtime.stats.inference_stats()["success"]["count"] == 2


def test_no_memory_is_lost_over_many_streams(streams, run):
    m = streams()
    for i in range(300):
        m.ask("[s.send(answer(*range(300))) for _ in range(10)]; s.send(flags=FINAL)", f"r{i}")
    m.until_final(300)
    assert len(m.calls) == 3300
    run(until(lambda: m.runtime.arena.used_blocks == 0))


def test_an_execute_that_hangs_is_ended_and_an_open_stream_is_not(streams, run):
    m = streams()
    m.ask("s.send(answer(1)); state.s = s", "open")
    run(until(lambda: m.runtime.stats.execution_count == 1))
    pid, later = m.instance.pid, now_ns() + 10**15
    m.instance.look_for_hang(later, 600)
    m.ask("s.send(flags=FINAL)", "alive")
    m.until_final()
    assert m.instance.pid == pid and m.calls[-1][0] == "alive"
    m.ask("s.send(answer(2)); time.sleep(600)", "hung")
    run(until(lambda: m.calls[-1][0] == "hung"))
    m.instance.look_for_hang(later, 600)
    m.until_final(3)
    assert {(call[0], call[1]) for call in m.calls[3:]} == {("open", 5), ("hung", 5)}
    assert all("took longer than the limit" in call[2] for call in m.calls[3:])


def test_every_request_ends_once_whatever_happens(streams, run):
    """Random streams, deaths and clients that leave, over two instances."""
    m = streams(config=CONFIG + "instance_group [ { count: 2 kind: KIND_CPU } ]")
    chance = random.Random(11)
    codes = [
        "[s.send(answer(i)) for i in range(5)]; s.send(flags=FINAL)",
        "def f(s=s):\n    time.sleep(.002); s.send(answer(1)); s.send(answer(2), FINAL)\n"
        "threading.Thread(target=f).start()",
        "s.send(answer(1)); s.send(failed('x'))",
        "s.send(answer(1)); raise ValueError('boom')",
        "until = time.monotonic() + .02\n"
        "while not s.is_cancelled() and time.monotonic() < until: time.sleep(.001)\ns.send(flags=FINAL)",
        "s.send(answer(1)); os._exit(3)",
    ]
    sent = []
    for i in range(300):
        code = chance.choices(codes, (20, 20, 5, 5, 5, 1))[0]
        sent.append(m.ask(code, f"r{i}"))
        if chance.random() < 0.2:
            cancel(m.runtime, chance.choice(sent))
        if chance.random() < 0.1:
            run(asyncio.sleep(0.002))
    run(until(lambda: m.finals() >= len(sent)))
    ended = set()
    for name, _, _, final in m.calls:
        assert name not in ended
        ended |= {name} if final else set()
    assert len(ended) == len(sent) and m.runtime.inflight == m.runtime.queued == 0


HASTY = MODEL.replace("class TritonPythonModel:", """class TritonPythonModel:
    def initialize(self, args):
        import itertools
        self.sleep, made_up = time.sleep, itertools.cycle([1 << 62, 5, 4, -(1 << 62)])
        time.monotonic_ns = lambda: next(made_up)
""")


def test_times_that_a_worker_makes_up_stay_within_those_of_the_server(streams, run):
    began = now_ns()
    m = streams(HASTY)
    for i in range(20):
        m.ask("s.send(answer(1), FINAL)", f"r{i}")
    m.until_final(20)
    run(until(lambda: m.runtime.stats.execution_count == 20))
    found = m.runtime.stats.inference_stats()
    assert found["success"]["count"] == 20
    for what in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert 0 <= found[what]["ns"] <= 20 * (now_ns() - began)
