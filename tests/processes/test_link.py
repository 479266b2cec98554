"""Decoupled models from the engine's face to real workers and back, without fronts."""

import asyncio
import gc
import os
import random
import signal
import struct
import sys

import pytest

from tests.processes.streams import CONFIG, MODEL
from tests.unkillable import is_held, unkillable
from tests.waiting import Gate, until
from tisfast import limits, tuning
from tisfast.config.settings import WorkerSettings
from tisfast.engine.testing import StreamSink, cancel, expect, place_input, submit
from tisfast.native.memory import now_ns
from tisfast.processes.instance import InstanceState
from tisfast.processes.link import RingLink
from tisfast.types import Status

TWO = "instance_group [ { count: 2 kind: KIND_CPU } ]"
SUBMIT_SLOTS = limits.SUBMIT_SLOTS

@pytest.mark.parametrize("digits", [1, 5, 6, 5000])
@pytest.mark.parametrize("decoupled", ["true", "false"])
def test_a_model_s_text_that_looks_like_the_name_of_a_region_is_answered_and_logged(
    streams, run, caplog, decoupled, digits
):
    """int() takes 4300 digits: many models say their inputs in their errors."""
    m = streams(config=CONFIG.replace("true", decoupled))
    text = f'"the client\'s region (share " + "1" * {digits} + ")"'
    failing = {"true": f"s.send(failed({text}), FINAL)", "false": f"returned = [failed({text})]"}[decoupled]
    for count in range(1, 4):
        m.ask(f"pb.Logger.log_error({text}); {failing}")
        status, told, final = m.until_final(count)[-1]
        known = f"the client's region (share {'1' * digits})" if digits > 5 else "a client's region"
        assert (status, final) == (Status.INTERNAL, True) and known in told
    run(until(lambda: sum(known in each for each in caplog.messages) == 3))
    assert m.runtime.arena.used_blocks == 0


class Fails:
    """Status, where answers that are errors cannot be read."""

    INTERNAL, UNAVAILABLE = Status.INTERNAL, Status.UNAVAILABLE

    def __init__(self, error):
        self._error = error

    @property
    def UNKNOWN(self):  # noqa: N802
        raise self._error


@pytest.mark.parametrize("decoupled", ["true", "false"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            MemoryError(),
            (Status.UNAVAILABLE, "the server has no memory to read the answer of instance m_0; try again"),
        ),
        (
            ValueError(),
            (Status.INTERNAL, "the answer of instance m_0 met a bug of the server (ValueError()): see its log"),
        ),
    ],
)
def test_who_asked_is_told_where_an_answer_cannot_be_read(streams, run, monkeypatch, caplog, decoupled, error, told):  # noqa: PLR0917
    m = streams(config=CONFIG.replace("true", decoupled))
    failing = {"true": "s.send(failed('no'), FINAL)", "false": "returned = [failed('no')]"}[decoupled]
    with monkeypatch.context() as patched:
        patched.setattr("tisfast.processes.link.Status", Fails(error))
        m.ask(failing)
        assert m.until_final(1)[-1] == (*told, True)
    assert caplog.messages.count("the answer of m_0 cannot be read, which its client is told") == 1
    run(until(lambda: m.runtime.arena.used_blocks == 0))  # a decoupled model gives its input back behind its answer


@pytest.mark.parametrize("decoupled", ["true", "false"])
def test_what_a_dead_instance_had_ahead_may_be_cancelled_while_its_death_is_told(
    write, supervise, run, tmp_path, decoupled
):
    """As an ensemble does with its other steps, and a stream with its other requests."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write("m", MODEL, CONFIG.replace("true", decoupled))
    served = supervise().served[0]
    runtime, told, ahead = served.runtime, [], []

    def ask(code, id, on_call=lambda: None):
        data = struct.pack("<I", len(code)) + code.encode()
        return submit(runtime, place_input(runtime, id, [(0, 13, (1,), data)]), StreamSink(told, on_call))

    begun = tmp_path / "begun"
    code = f"open({str(begun)!r}, 'w').close(); open({str(gate)!r}).read()"
    ask(code, "busy", lambda: cancel(runtime, ahead[0]))
    ahead.append(ask("s.send(answer(1), FINAL)", "ahead"))
    run(until(begun.exists))
    os.kill(served.instances[0].pid, signal.SIGKILL)
    run(until(lambda: len(told) == 2))
    assert [call[1] for call in told] == [Status.UNAVAILABLE, Status.CANCELLED]
    run(until(lambda: runtime.links and runtime.links[0].up))
    gc.collect()
    assert all(each.up for each in gc.get_objects() if isinstance(each, RingLink))  # the dead one is let go


def test_responses_come_in_order_and_the_flag_ends_the_stream(streams):
    m = streams()
    m.ask("s.send(answer(1, 2)); s.send(answer()); s.send(answer(3)); s.send(flags=FINAL)")
    assert m.until_final() == [(0, [[1, 2]], False), (0, [[]], False), (0, [[3]], False), (0, None, True)]


def test_the_loop_stays_awake_for_a_request_that_is_nearly_there(streams, run):
    m = streams()
    poller = m.runtime.links[0].poller
    run(until(lambda: not poller.scheduled))
    expect(m.runtime, tuning.BODY_NEAR_BYTES + 1)
    assert not poller.scheduled
    expect(m.runtime, tuning.BODY_NEAR_BYTES)
    assert poller.scheduled
    run(until(lambda: not poller.scheduled))


def test_without_yielding_the_loop_sleeps_and_answers_ring(streams):
    m = streams(workers=WorkerSettings(sys.executable, spin_us=0))
    poller = m.runtime.links[0].poller
    for count in (1, 2):
        m.ask("s.send(answer(1), FINAL)")
        assert not poller.scheduled
        m.until_final(count)
        assert not poller.scheduled
    expect(m.runtime, tuning.BODY_NEAR_BYTES)
    assert not poller.scheduled


def test_where_most_waits_are_long_the_loop_sleeps_at_once(streams, run, tmp_path):
    m = streams(config=CONFIG.replace("true", "false"))  # one answer to a request, and nothing else, wakes the loop
    poller = m.runtime.links[0].poller
    for count in range(1, 20):  # each wait for an answer is longer than defaults.SPIN_US
        gate = Gate(tmp_path / f"gate{count}")
        m.ask(f"{gate.wait}; returned = [answer(1)]")
        run(until(lambda: not poller.scheduled))
        gate.open()
        m.until_final(count)
        run(until(lambda: not poller.scheduled))
    m.ask("returned = [answer(1)]")
    assert not poller.scheduled
    m.until_final(20)


def test_a_model_that_begins_to_call_others_is_looked_at_though_waiting_awake_does_not_pay(streams, run):
    """Its first call may have come before anybody knew that it calls, and has rung no bell then."""
    m = streams()
    (link,) = m.runtime.links
    poller = link.poller
    for _ in range(20):  # waits for a request that does not come
        expect(m.runtime, tuning.BODY_NEAR_BYTES)
        run(until(lambda: not poller.scheduled))
    expect(m.runtime, tuning.BODY_NEAR_BYTES)
    assert not poller.scheduled
    link.listen()
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
    (_, status, text, final) = m.until_final() and m.calls[-1]
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


@pytest.mark.parametrize("code", ["state.s = s", "state.r = r; s.send(answer(1), FINAL)"], ids=["executes", "keeps"])
def test_inputs_of_a_killed_process_that_does_not_end_are_used_again_when_it_has(streams, run, monkeypatch, code):
    """A call that it hangs in may still write to them."""
    monkeypatch.setattr(limits, "KILL_SECONDS_MAX", 0.2)
    monkeypatch.setattr(limits, "WATCHDOG_SECONDS_MAX", 0.02)
    m = streams()
    m.ask(code)
    run(until(lambda: m.runtime.stats.execution_count == 1))
    pid, blocks = m.instance.pid, m.runtime.arena.used_blocks
    assert blocks > 0
    with unkillable(pid):
        os.kill(pid, signal.SIGKILL)
        run(until(lambda: is_held(pid)))
        run(until(lambda: m.instance.state is InstanceState.READY and m.instance.pid != pid))
        assert m.finals() == 1 and m.runtime.arena.used_blocks == blocks
        m.ask("s.send(answer(2), FINAL)")
        m.until_final(2)
        run(until(lambda: m.runtime.arena.used_blocks == blocks))
    run(until(lambda: m.runtime.arena.used_blocks == 0))


def test_a_model_sees_that_its_client_has_left(streams, run):
    m = streams()
    request = m.ask(
        "def watch(s=s, r=r):\n"
        "    s.send(answer(r.is_cancelled(), s.is_cancelled()))\n"
        "    while not (r.is_cancelled() and s.is_cancelled()): time.sleep(0)\n"
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
    m.ask(" state.e, state.f = asyncio.Event(), asyncio.Event(); s.send(answer(1)); await state.e.wait();"
          " s.send(answer(2), FINAL); state.f.set()", "a")  # fmt: skip
    m.ask(" state.e.set(); await state.f.wait(); s.send(flags=FINAL)", "b")
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
    began = now_ns()
    m.ask("s.send(answer(1)); s.send(failed('x')); end = time.monotonic() + .02\n"
          "while time.monotonic() < end: pass\n"
          "s.send(answer(2)); s.send(flags=FINAL)")  # fmt: skip
    m.until_final()
    run(until(lambda: m.runtime.stats.execution_count == 1))
    times = {i: found["compute_infer"]["ns"] for i, found in m.runtime.stats.response_stats().items()}
    assert times["2"] >= 20_000_000 and sum(times.values()) <= now_ns() - began  # no time counts twice
    m.ask("s.send(answer(1), FINAL)")
    m.until_final(2)
    run(until(lambda: m.runtime.stats.execution_count == 2))
    found = m.runtime.stats.response_stats()
    assert sorted(found) == ["0", "1", "2", "3"]
    assert [found[i]["success"]["count"] for i in "0123"] == [2, 0, 1, 0]
    assert [found[i]["fail"]["count"] for i in "0123"] == [0, 1, 0, 0]
    assert [found[i]["empty_response"]["count"] for i in "0123"] == [0, 0, 0, 1]
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
    m.ask("s.send(answer(2)); threading.Event().wait()", "hung")
    run(until(lambda: m.calls[-1][0] == "hung"))
    m.instance.look_for_hang(later, 600)
    m.until_final(3)
    assert {(call[0], call[1]) for call in m.calls[3:]} == {("open", 5), ("hung", 5)}
    assert all("took longer than the limit" in call[2] for call in m.calls[3:])


async def some_turns():
    for _ in range(20):
        await asyncio.sleep(0)


def test_every_request_ends_once_whatever_happens(streams, run):
    """Random streams, deaths and clients that leave, over two instances."""
    m = streams(config=CONFIG + "instance_group [ { count: 2 kind: KIND_CPU } ]")
    chance = random.Random(11)
    codes = [
        "[s.send(answer(i)) for i in range(5)]; s.send(flags=FINAL)",
        "def f(s=s):\n    time.sleep(0); s.send(answer(1)); s.send(answer(2), FINAL)\n"
        "threading.Thread(target=f).start()",
        "s.send(answer(1)); s.send(failed('x'))",
        "s.send(answer(1)); raise ValueError('boom')",
        "until = time.monotonic() + .02\n"
        "while not s.is_cancelled() and time.monotonic() < until: time.sleep(0)\ns.send(flags=FINAL)",
        "s.send(answer(1)); os._exit(3)",
    ]
    sent = []
    for i in range(300):
        code = chance.choices(codes, (20, 20, 5, 5, 5, 1))[0]
        sent.append(m.ask(code, f"r{i}"))
        if chance.random() < 0.2:
            cancel(m.runtime, chance.choice(sent))
        if chance.random() < 0.1:
            run(some_turns())
    run(until(lambda: m.finals() >= len(sent)))
    ended = set()
    for name, _, _, final in m.calls:
        assert name not in ended
        ended |= {name} if final else set()
    assert len(ended) == len(sent) and m.runtime.inflight == m.runtime.queued == 0


HASTY = MODEL.replace(
    "class TritonPythonModel:",
    """class TritonPythonModel:
    def initialize(self, args):
        import itertools
        self.sleep, made_up = time.sleep, itertools.cycle([1 << 62, 5, 4, -(1 << 62)])
        time.monotonic_ns = lambda: next(made_up)
""",
)


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


def test_a_request_that_has_been_begun_is_not_taken_for_one_that_has_its_slot_of_the_ring_now(streams, run, tmp_path):
    m = streams()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    opened = m.ask("self_ = state; self_.open = s", "open")
    for i in range(SUBMIT_SLOTS - 2):
        m.ask("s.send(answer(1), FINAL)", f"quick {i}")
    m.until_final(SUBMIT_SLOTS - 2)
    m.ask(f"open({str(gate)!r}).read(); s.send(answer(7), FINAL)", "busy")
    waiting = m.ask("s.send(answer(8), FINAL)", "waiting")
    cancel(m.runtime, opened)  # the ring has come round: its slot is the waiting one's
    assert not opened.done and not waiting.done
    open(gate, "w").close()
    m.until_final(SUBMIT_SLOTS)
    assert waiting.done and not opened.done
    m.ask("state.open.send(flags=FINAL); s.send(flags=FINAL)", "end")
    m.until_final(SUBMIT_SLOTS + 2)
    assert m.runtime.inflight == 0 and m.runtime.queued == 0


def test_of_several_waiting_batches_the_right_one_is_taken_back(streams, run, tmp_path):
    m = streams()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    m.ask(f"open({str(gate)!r}).read(); s.send(answer(7), FINAL)", "busy")
    waiting = [m.ask(f"s.send(answer({i}), FINAL)", f"w{i}") for i in range(3)]
    for request in waiting[:2]:
        cancel(m.runtime, request)
    assert m.told() == [(Status.CANCELLED, "Request cancelled: the client left the queue", True)] * 2
    open(gate, "w").close()
    assert m.until_final(4)[2:] == [(0, [7], False), (0, None, True), (0, [2], True)] or m.finals() == 4
    assert m.runtime.inflight == 0


def test_an_instance_that_has_answered_early_is_busy_until_its_execution_ends(write, supervise, run, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write("m", MODEL, CONFIG.replace("decoupled: true", "decoupled: false") + TWO)
    runtime, told = supervise().served[0].runtime, []

    def ask(code, id):
        data = struct.pack("<I", len(code)) + code.encode()
        return submit(runtime, place_input(runtime, id, [(0, 13, (1,), data)]), StreamSink(told))

    ask(f"s.send(answer(1), FINAL); open({str(gate)!r}).read()", "early")
    run(until(lambda: len(told) == 1))
    for i in range(8):  # all go to the other instance, though the first one owes nobody an answer
        ask(f"s.send(answer({i}), FINAL)", f"q{i}")
        run(until(lambda i=i: len(told) == 2 + i))
    assert sorted(link.inflight for link in runtime.links) == [0, 1]
    open(gate, "w").close()
    run(until(lambda: all(link.inflight == 0 for link in runtime.links)))
    assert runtime.stats.execution_count == 9
