"""Decoupled models in a worker: senders from any thread, ends, cancellation, limits; and senders of other models."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter

import pytest

from tests.workers.driver import FP32, floats
from tests.workers.models import ANSWER, ERROR, FINAL, RELEASE, RETAINED, both, model

CLOSED, EXECUTED = 5, 6
EARLY = 4
END = FINAL | RETAINED
SAID = """
import threading, time
import triton_python_backend_utils as pb_utils
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
def said(call):
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def tell(s, call):
    s.send(pb_utils.InferenceResponse([], error=pb_utils.TritonError(said(call))))
"""


def streaming(body: str, more: str = "") -> str:
    """A decoupled model whose execute is `body` (s: the first request's sender)."""
    return SAID + model("s = r.get_response_sender()\n" + body, more)


@pytest.fixture
def stream(serve):
    """Start a decoupled model; the instance."""
    return lambda body, more="", **options: serve(streaming(body, more), decoupled=True, **options)


def slots(instance, until_executed: int = 1, finals: int = 1) -> list:
    """All slots up to the ends of so many executions and requests, but for the releases."""
    found = []
    while until_executed > sum(a.kind == EXECUTED for a in found) or finals > sum(a.flags & FINAL for a in found):
        found.append(instance.plane.next())
    return [answer for answer in found if answer.kind != RELEASE]


def short(answers: list) -> list[tuple]:
    return [(a.kind, a.flags, floats(a.outputs[0][4]) if a.outputs else a.text) for a in answers]


@both
def test_many_answers_then_the_end_of_execute(stream):
    instance = stream("s.send(answer(arr(r))); s.send(answer(arr(r) * 2), FINAL)")
    (ticket,) = instance.plane.push([instance.record([1, 2], [0])])
    found = slots(instance)
    assert short(found) == [(ANSWER, 0, [1, 2]), (ANSWER, END, [2, 4]), (EXECUTED, 0, "")]
    assert {a.request for a in found} == {ticket} and [a.batch for a in found] == [0, 0, 1]
    taken, start, end, done = found[1].times
    assert 0 < taken <= start <= end <= done and found[2].times[3] >= done
    assert instance.plane.next().kind == RELEASE


def test_an_output_is_a_copy_even_of_an_input(stream):
    instance = stream("a = arr(r); s.send(answer(a)); a += 1; s.send(answer(a)); s.send(flags=FINAL)")
    instance.plane.push([instance.record([1] * 40000, [0])])
    found = slots(instance)
    assert [floats(a.outputs[0][4])[0] for a in found[:2]] == [1, 2] and found[0].outputs[0][3] == 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("s.send(None)", "must be provided when the response flags is set to zero."),
        ("s.send(answer(arr(r)), flags=2)", "Unable to send response. Unsupported flag provided."),
        ("s.send(None, 2)", "Unable to send response. Unsupported flag provided."),
        ("s.send(3)", "TypeError: send(): response must be an InferenceResponse or None, not an object of type int"),
        ("s.send(answer(arr(r)), flags='x')", "TypeError: send(): flags must be an integer, not an object of type str"),
        ("r.get_response_sender() is s", "True"),
        ("(s.is_cancelled(), r.is_cancelled())", "(False, False)"),
        ("r.set_release_flags(1)", "None"),
    ],
)
def test_what_a_sender_says_to_its_model(stream, call, text):
    instance = stream(f"tell(s, lambda: {call}); s.send(flags=FINAL)")
    instance.plane.push([instance.record([1], [0])])
    found = slots(instance)
    assert found[0].text.endswith(text) and (found[1].kind, found[1].status) == (CLOSED, 0)


def test_a_closed_sender_refuses_more(stream):
    closed = "TritonModelException: Unable to send response. Response sender has been closed."
    instance = stream(
        "s.send(flags=FINAL); said_ = [said(lambda: s.send(answer(arr(r)))), said(lambda: s.send(flags=FINAL))]\n"
        f"assert said_ == [{closed!r}] * 2, said_\nassert not s.is_cancelled()"
    )
    instance.plane.push([instance.record([1], [0])])
    assert short(slots(instance)) == [(CLOSED, END, ""), (EXECUTED, 0, "")]
    assert instance.plane.next().kind == RELEASE


@both
@pytest.mark.parametrize("body", ["pass", "s = None", "cycle = [s, r]; cycle.append(cycle)"])
def test_a_lost_sender_closes_its_stream(stream, body):
    instance = stream(body + "\nif r.request_id(): gc.collect()")
    instance.plane.push([instance.record([1], [0])])
    if "cycle" in body:
        assert instance.plane.next().kind == EXECUTED
        instance.plane.push([instance.record([1], [0], id="collect")])
    found = slots(instance)
    closed = next(a for a in found if a.kind == CLOSED)
    assert (closed.flags, closed.status) == (END, 2)


def test_answers_from_many_threads(stream):
    body = """
def work(s, n):
    for i in range(20):
        s.send(answer(np.full(4, n, 'f4')))
    s.send(flags=FINAL)
for n, q in enumerate(rs):
    threading.Thread(target=work, args=(q.get_response_sender(), n)).start()
"""
    instance = stream(body)
    tickets = instance.plane.push([instance.record([1], [0]) for _ in range(8)])
    found = slots(instance, finals=8)
    for n, ticket in enumerate(tickets):
        own = [a for a in found if a.request == ticket and a.kind != EXECUTED]
        assert [floats(a.outputs[0][4]) for a in own[:-1]] == [[n] * 4] * 20 and own[-1].kind == CLOSED
    assert next(a for a in found if a.kind == EXECUTED).batch == 8


def test_an_asynchronous_execute_runs_on_beside_the_next(serve):
    execute = """    async def execute(self, rs):
        r, s = rs[0], rs[0].get_response_sender()
        if r.request_id() == "a":
            self.event = asyncio.Event()
            await self.event.wait()
            s.send(flags=FINAL)
            return
        self.event.set()
        await asyncio.sleep(0)
        raise ValueError("later")
"""
    instance = serve(streaming("pass").split("    def execute")[0] + execute, decoupled=True)
    instance.plane.push([instance.record([1], [0], id="a")])
    instance.plane.push([instance.record([1], [0], id="b")])
    found = [a for a in slots(instance, 2, 2) if a.kind != EXECUTED]
    assert [a.request for a in found] == [0, 1]
    assert found[1].kind == ERROR and "message: ValueError: later" in found[1].text


def test_the_server_says_that_a_client_has_left(stream):
    body = """
def watch(s, r):
    s.send(answer(np.zeros(1, 'f4')))
    while not s.is_cancelled() or not r.is_cancelled():
        time.sleep(0)
    s.send(pb_utils.InferenceResponse([], error=pb_utils.TritonError('gone', pb_utils.TritonError.CANCELLED)), FINAL)
threading.Thread(target=watch, args=(s, r)).start()
"""
    instance = stream(body)
    instance.plane.push([instance.record([1], [0])])
    assert {instance.plane.next().kind, instance.plane.next().kind} == {ANSWER, EXECUTED}
    cancel(instance)
    assert (found := instance.plane.next()).status == 8 and found.flags == END


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_request_whose_client_left_before_it_was_taken_does_not_run(serve, decoupled):
    instance = serve(SAID + model("os._exit(3)"), decoupled=decoupled)
    record = bytearray(instance.record([1], [0]))
    record[6] |= 8
    instance.plane.push([bytes(record)])
    found = instance.plane.next()
    assert (found.kind, found.status, found.flags) == (ERROR, 8, FINAL) and "client left" in found.text


def cancel(instance) -> None:
    """Set bit 3 of the flags in the record of the last request."""
    memory, tail = instance.plane.channel.memory, instance.plane.tickets - 1
    slots_at = struct.unpack_from("<I", memory, 128 + 132)[0]
    at = struct.unpack_from("<Q", memory, slots_at + (tail & 255) * 64 + 16)[0]
    instance.plane.inputs.memory[at + 6] |= 8


def test_a_client_that_does_not_read_stops_its_own_stream_only(stream):
    body = """
if r.request_id() == 'slow':
    def work(s):
        for _ in range(1100):
            s.send(answer(np.zeros(1, 'f4')))
        s.send(flags=FINAL)
    threading.Thread(target=work, args=(s,)).start()
else:
    s.send(answer(np.ones(1, 'f4')), FINAL)
r = rs = s = None
"""
    instance = stream(body)
    (slow,) = instance.plane.push([instance.record([1], [0], id="slow")])
    held = []
    while len(held) < 1024:
        found = instance.plane.next()
        if found.kind == ANSWER:
            held.append(found)
    instance.plane.push([instance.record([1], [0], id="quick")])
    assert any(a.kind == ANSWER and a.flags == END for a in slots(instance))
    for answer in held:
        instance.plane.give_back(answer.block)
    rest = []
    while not rest or rest[-1].kind != CLOSED:
        rest.append(instance.plane.next())
    assert sum(a.request == slow and a.kind == ANSWER for a in rest) == 76


def test_stop_waits_for_open_streams(stream, router):
    instance = stream("threading.Timer(0.1, s.send, (answer(arr(r)), FINAL)).start()")
    instance.plane.push([instance.record([1], [0])])
    instance.stop()
    assert len(slots(instance)) == 2 and router.until("stopped")


def test_random_streams_end_exactly_once(stream):
    """Sends, errors, ends and losses on random threads; each request has one final slot, and it is the last."""
    body = """
import os
import random
for q in rs:
    how = random.Random(int(q.request_id()))
    def work(s, how=how):
        for _ in range(how.randrange(6)):
            error = pb_utils.InferenceResponse([], error=pb_utils.TritonError('e'))
            s.send(how.choice([answer(np.zeros(how.randrange(200), 'f4')), error]))
        end = how.randrange(4)
        if end == 0:
            s.send(flags=FINAL)
        elif end == 1:
            s.send(answer(np.zeros(1, 'f4')), FINAL)
        elif end == 2:
            raise SystemExit
    s = q.get_response_sender()
    if how.random() < .5:
        threading.Thread(target=work, args=(s,)).start()
    else:
        try:
            work(s)
        except SystemExit:
            if how.random() < .3: raise
    s = q = work = None
"""
    instance = stream(body)
    chance = random.Random(7)
    for _ in range(60):
        size = chance.randrange(1, 6)
        records = [instance.record([1], [0], id=str(chance.randrange(10**6))) for _ in range(size)]
        instance.plane.push(records)
        finals, ended = Counter(), 0
        while ended < 1 or sum(finals.values()) < size:
            found = instance.plane.next()
            ended += found.kind == EXECUTED
            if found.kind in (RELEASE, EXECUTED):
                continue
            assert not finals[found.request], "nothing follows the final slot"
            finals[found.request] += found.flags & FINAL
            if found.block:
                instance.plane.give_back(found.block)


# ---- senders of models that are not decoupled


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("s.send(answer(arr(r)), FINAL)", [3]),
        ("s.send(answer(arr(r)), FINAL); return []", [3]),
        ("s.send(answer(arr(r)), FINAL); return [None]", [3]),
        ("s.send(answer(arr(r))); s.send(flags=FINAL); return [None]", [3]),
        ("threading.Timer(0.05, s.send, (answer(arr(r)), FINAL)).start()", [3]),
        ("return [answer(arr(r))]", [3]),
        ("return [answer(np.array([s.is_cancelled(), 5], 'f4'))]", [0, 5]),
    ],
)
def test_a_single_answer_through_a_sender(serve, body, values):
    instance = serve(streaming(body))
    for _ in range(2):
        found = instance.ask([3], [0])
        while found.kind == RELEASE:
            found = instance.plane.next()
        assert floats(found.outputs[0][4]) == values and found.flags & FINAL


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("s.send(flags=FINAL)", "Non-decoupled model cannot send complete final before sending a response."),
        ("return [None]", "the model let go of this request's response sender without a response"),
        ("s = None", "the model let go of this request's response sender without a response"),
    ],
)
def test_misuse_of_a_single_sender(serve, body, text):
    assert text in serve(streaming(body)).ask([3], [0]).text


@pytest.mark.parametrize(
    ("body", "logged"),
    [
        ("s.send(answer(arr(r))); s.send(answer(arr(r)))", "Non-decoupled model cannot send more than one response."),
        ("s.send(answer(arr(r)), FINAL); s.send(flags=FINAL)", "Response sender has been closed."),
        ("s.send(answer(arr(r)), FINAL); return [answer(2 * arr(r))]", ""),
        ("s.send(answer(arr(r)), FINAL); raise ValueError('later')", "ValueError: later"),
        ("s.send(answer(arr(r))); raise ValueError('later')", "ValueError: later"),
        ("s.send(answer(arr(r)), FINAL); return [1, 2]", "Number of InferenceResponse objects do not match"),
        ("s.send(answer(arr(r))); return 3", "Expected a list in the execute return"),
    ],
)
def test_what_was_sent_stays_the_answer_whatever_execute_does_then(serve, router, body, logged):
    instance = serve(streaming(body), outputs=[["X", FP32, [-1], None]])
    for _ in range(2):
        assert floats(answer_of(instance, instance.plane.push([instance.record([3], [0])])[0]).outputs[0][4]) == [3]
    instance.stop()
    traces = []
    while (message := router.receive())["t"] != "stopped":
        traces.append(message["error"])
    assert len(traces) == (2 if logged else 0) and all(logged in text for text in traces)


def answer_of(instance, ticket):
    """The answer to one request, past the releases of others."""
    while (found := instance.plane.next()).kind == RELEASE or found.request != ticket:
        pass
    return found


WAITING = """
s.send(answer(arr(r)), FINAL)
with open(os.environ["GATE"]) as gate:
    gate.read()
return [None, answer(arr(rs[1]))]
"""


def test_an_answer_with_the_final_flag_leaves_while_execute_goes_on(serve, tmp_path):
    os.mkfifo(tmp_path / "gate")
    instance = serve("import os\n" + streaming(WAITING), env={"GATE": str(tmp_path / "gate")})
    first, second = instance.plane.push([instance.record([3], [0]), instance.record([4], [0])])
    early = instance.plane.next()
    assert (early.request, early.flags, early.batch, floats(early.outputs[0][4])) == (first, END | EARLY, 0, [3])
    with open(tmp_path / "gate", "w"):  # execute goes on
        pass
    released, late = instance.plane.next(), instance.plane.next()
    assert (released.kind, released.request, late.request) == (RELEASE, first, second)
    assert (late.batch, floats(late.outputs[0][4])) == (2, [4])
    assert late.times[1] == early.times[1] and late.times[2] >= early.times[2]
    assert instance.ask([1], [0]).kind == ANSWER
    over = instance.plane.over[0]
    assert (over.request, over.batch, over.times[1]) == (second, 0, early.times[1]), "the execution is counted once"


def test_an_execution_whose_answers_have_all_left_early_is_told_when_it_ends(serve, tmp_path):
    os.mkfifo(tmp_path / "gate")
    body = """
for q in rs:
    q.get_response_sender().send(answer(arr(q)), FINAL)
open(os.environ["GATE"]).read()
"""
    instance = serve("import os\n" + SAID + model(body), env={"GATE": str(tmp_path / "gate")})
    tickets = instance.plane.push([instance.record([3], [0]), instance.record([4], [0])])
    assert [instance.plane.next().request for _ in tickets] == tickets and not instance.plane.over
    open(tmp_path / "gate", "w").close()
    assert [instance.plane.next().kind for _ in tickets] == [RELEASE, RELEASE]
    instance.plane.push([instance.record([5], [0])])
    assert floats(instance.plane.next().outputs[0][4]) == [5]
    open(tmp_path / "gate", "w").close()
    assert [(over.request, over.batch) for over in instance.plane.over] == [(tickets[1], 2)]


def test_what_is_sent_early_is_a_copy(serve, tmp_path):
    """The model may go on writing to its input, which the client would read."""
    os.mkfifo(tmp_path / "gate")
    body = """
a = arr(r)
s.send(answer(a), FINAL)
a[...] = 9
open(os.environ["GATE"]).read()
"""
    instance = serve("import os\n" + streaming(body), env={"GATE": str(tmp_path / "gate")})
    instance.plane.push([instance.record([3] * 100000, [0])])
    early = instance.plane.next()
    assert set(floats(early.outputs[0][4])) == {3} and early.outputs[0][3] == 1
    open(tmp_path / "gate", "w").close()


def test_an_early_answer_that_cannot_be_encoded_is_that_requests_error(serve, router):
    more = """
    class Bad:
        def __str__(self): raise ValueError("no text")
"""
    instance = serve(streaming("s.send(answer(np.array([self.Bad()], dtype=object)), FINAL)", more))
    assert instance.ask([3], [0]).text == "a response of model 'm' cannot be encoded: ValueError: no text"


def test_early_answers_from_many_threads(serve):
    body = """
def work(q, at):
    q.get_response_sender().send(answer(arr(q) + at), FINAL)
threads = [threading.Thread(target=work, args=(q, at)) for at, q in enumerate(rs)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    instance = serve(SAID + model(body))
    for _ in range(50):
        tickets = instance.plane.push([instance.record([10], [0]) for _ in range(8)])
        found = {}
        while len(found) < 8:
            slot = instance.plane.next()
            if slot.kind != RELEASE:
                found[slot.request] = floats(slot.outputs[0][4])
                instance.plane.give_back(slot.block)
        assert [found[ticket] for ticket in tickets] == [[10 + at] for at in range(8)]


def test_sending_from_within_a_send_is_refused_and_does_not_hang(stream):
    body = """
import triton_python_backend_utils as pb_utils
class Nested(pb_utils.TritonError):
    def message(self):
        return said(lambda: s.send(flags=FINAL))
s.send(pb_utils.InferenceResponse([], error=Nested("x")))
s.send(flags=FINAL)
"""
    instance = stream(body)
    instance.plane.push([instance.record([1], [0])])
    found = slots(instance)
    assert [a.kind for a in found] == [ERROR, CLOSED, EXECUTED] and "send() was called while" in found[0].text
