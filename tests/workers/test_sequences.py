"""Sequences in a worker: control tensors, null requests, implicit state, rescheduling."""

from __future__ import annotations

import os
import struct

import pytest

from tests.workers.driver import BYTES, FP32, floats, record
from tests.workers.models import ANSWER, ERROR, FINAL, RELEASE, RETAINED, both, model

START, END = 1, 2
INT32, INT64, UINT32, UINT64, INT8, BOOL, BF16 = 8, 9, 4, 5, 6, 1, 14
CLOSED, EXECUTED, RESCHEDULE = 5, 6, 10
CONTROLS = [["S", "START", INT32, 0, 1], ["E", "END", FP32, -1.0, 1.0], ["R", "READY", BOOL, False, True]]
TELL = """
def told(q):
    return {t.name(): [t.shape(), t.as_numpy().dtype.char, t.as_numpy().ravel().tolist()] for t in q.inputs()}
def tell(q):
    import json
    said = [told(q), q.correlation_id(), q.flags(), q.request_id(), q.timeout(), q.parameters(),
            sorted(q.requested_output_names()), q.is_cancelled()]
    return pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(said, default=repr)))
"""
AGAIN = "pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"


def sequence(strategy: str = "oldest", *, iterative: bool = False, controls=(), states=(), slots: int = 4) -> dict:
    """The keys of a load message that speak of sequences."""
    spec = {"slots": slots, "strategy": strategy, "iterative": iterative}
    return {"sequence": spec, "controls": list(controls), "states": list(states)}


def telling(body: str = "return [tell(q) for q in rs]") -> str:
    return TELL + model(body)


def ask(instance, values=(1.0,), slot: int = 0, **options):
    instance.plane.push([instance.record(list(values), [0], **options)], [(slot, False)])
    return instance.plane.next()


def inputs_of(answer) -> dict:
    import json

    return json.loads(answer.text)[0]


# ---- control tensors


@both
def test_control_tensors_come_before_the_inputs(serve):
    corrid = ["C", "CORRID", UINT64, 0, 0]
    instance = serve(telling(), **sequence(controls=[*CONTROLS, corrid]))
    found = inputs_of(ask(instance, flags=START, correlation=2**63 + 5))
    assert list(found) == ["S", "E", "R", "C", "A", "B"]
    assert found["S"] == [[1], "i", [1]] and found["E"] == [[1], "f", [-1.0]] and found["R"] == [[1], "?", [True]]
    assert found["C"][2] == [2**63 + 5] and found["A"] == [[1], "f", [1.0]]
    found = inputs_of(ask(instance, flags=END, correlation=7))
    assert [found[name][2] for name in "SERC"] == [[0], [1.0], [True], [7]]


@pytest.mark.parametrize(
    ("code", "correlation", "seen"),
    [
        (UINT32, 2**32 + 5, 5),
        (INT32, 2**32 - 1, -1),
        (INT64, 2**63 + 5, 5 - 2**63),
        (BYTES, "é1", "b'\\xc3\\xa91'"),
        (BYTES, 12, "b'12'"),
    ],
)
def test_sequence_ids_of_every_type(serve, code, correlation, seen):
    instance = serve(telling(), **sequence(controls=[["C", "CORRID", code, 0, 0]]))
    assert inputs_of(ask(instance, flags=START, correlation=correlation))["C"][2] == [seen]


def test_an_id_of_text_is_refused_where_numbers_are_wanted(serve):
    instance = serve(telling(), **sequence(controls=[["C", "CORRID", UINT64, 0, 0]]))
    found = ask(instance, correlation="text")
    assert "sequence id 'text' is text, and the model's control input takes numbers" in found.text


def test_batching_models_see_one_row(serve):
    instance = serve(telling(), max_batch_size=4, **sequence(controls=CONTROLS))
    found = inputs_of(ask(instance, flags=START, shape=(1, 1)))
    assert [found[name][0] for name in "SER"] == [[1, 1]] * 3


def test_control_tensors_are_the_models_own(serve):
    body = "t = pb_utils.get_input_tensor_by_name(r, 'S'); t.as_numpy()[:] = 9; return [tell(q) for q in rs]"
    instance = serve(telling(body), **sequence(controls=CONTROLS))
    assert inputs_of(ask(instance, flags=START))["S"][2] == [9]
    assert inputs_of(ask(instance))["S"][2] == [9]  # of this request: written to before it was told


# ---- null requests


NULLED = """
    def execute(self, rs):
        import json
        seen = json.dumps([told(q) for q in rs])
        ids = json.dumps([[q.request_id(), q.correlation_id(), q.flags(), q.timeout(), q.parameters(),
                           sorted(q.requested_output_names()), q.is_cancelled()] for q in rs])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("X", arr(q) + 1)], parameters={"seen": seen, "ids": ids})
                for q in rs]
"""


@both
def test_nulls_fill_the_slots_of_the_direct_strategy(serve):
    import json

    source = TELL + model("pass").replace("    def execute(self, rs):\n        r = rs[0]\n        pass\n", NULLED)
    instance = serve(source, **sequence("direct", controls=CONTROLS))
    real = [instance.record([5, 6], [0], id=i, correlation=9, timeout=3) for i in ("one", "three")]
    tickets = instance.plane.push([real[0], real[0], real[1], real[0]], [(0, True), (1, False), (2, False), (3, True)])
    answers = [instance.plane.next() for _ in range(2)]
    assert [a.request for a in answers] == tickets[1:3] and [a.flags for a in answers] == [FINAL] * 2
    assert [a.batch for a in answers] == [2, 0] and floats(answers[0].outputs[0][4]) == [6, 7]
    seen, ids = (json.loads(json.loads(answers[0].parameters)[name]) for name in ("seen", "ids"))
    assert [entry["R"][2] for entry in seen] == [[False], [True], [True], [False]]
    assert seen[0]["A"] == [[2], "f", [0, 0]] and seen[0]["S"][2] == [0] and seen[0]["E"][2] == [-1]
    assert ids[0] == ids[3] == ["", 0, 0, 0, "{}", [], False]
    assert ids[1] == ["one", 9, 0, 3, "{}", ["X", "Y"], False]
    instance.plane.push([real[0]], [(1, False)])
    assert instance.plane.next().kind == ANSWER


def test_a_cancelled_request_leaves_a_null_in_its_slot(serve):
    instance = serve(model("return [answer(np.full(1, len(rs), 'f4')) for q in rs]"), **sequence("direct"))
    good, gone = instance.record([1], [0]), instance.record([1], [0], flags=8)
    tickets = instance.plane.push([gone, good], [(0, False), (1, False)])
    answers = {a.request: a for a in (instance.plane.next(), instance.plane.next())}
    assert floats(answers[tickets[1]].outputs[0][4]) == [2] and answers[tickets[0]].kind == ERROR


def test_nulls_of_text_and_other_types(serve):
    spec = {"inputs": [["A", BYTES, [-1], None], ["B", BF16, [-1], None]], "outputs": [["X", BYTES, [-1], None]]}
    body = "assert rs[0].inputs()[1].shape() == [3]; return [answer(arr(q)) for q in rs[::-1]]"
    instance = serve(model(body), **sequence("direct"), **spec)
    text, halves = instance.plane.place(b"\1\0\0\0a\0\0\0\0"), instance.plane.place(b"abcdef")
    places = [(0, BYTES, (2,), text), (1, BF16, (3,), halves)]
    instance.plane.push([record(places)] * 2, [(0, True), (1, False)])
    assert instance.plane.next().outputs[0][4] == bytes(8)  # the null's answer is dropped: this is the swapped one


def test_the_senders_of_nulls_reach_nobody(serve):
    body = "s = [q.get_response_sender() for q in rs]; [t.send(answer(arr(q)), 1) for q, t in zip(rs, s)]; return None"
    instance = serve(model(body), **sequence("direct"))
    data = instance.record([3], [0])
    instance.plane.push([data, data], [(0, True), (1, False)])
    assert floats(instance.plane.next().outputs[0][4]) == [3]
    decoupled = serve(model(body), decoupled=True, **sequence("direct"))
    data = decoupled.record([3], [0])
    decoupled.plane.push([data, data], [(0, True), (1, False)])
    found = [decoupled.plane.next() for _ in range(3)]
    assert sorted(a.kind for a in found) == [ANSWER, 4, EXECUTED]


# ---- implicit state

ADDS = """
state = r.inputs()[0].as_numpy()
rows = [answer(np.concatenate([q.inputs()[0].as_numpy().ravel(), arr(q)])) for q in rs]
for q, response in zip(rs, rows):
    s = q.inputs()[0].as_numpy()
    response._tensors.append(pb_utils.Tensor("OUT_STATE", (s + arr(q).sum()).astype(s.dtype)))
return rows
"""


def state(code=FP32, dims=(2,), *, same=False, growable=False, initial=None) -> list:
    return ["IN_STATE", "OUT_STATE", code, list(dims), same, growable, initial]


@both
@pytest.mark.parametrize("same", [False, True])
def test_state_belongs_to_a_slot_and_begins_anew(serve, same):
    instance = serve(model(ADDS), **sequence(states=[state(same=same)]))
    assert floats(ask(instance, [1], 0, flags=START).outputs[0][4]) == [0, 0, 1]
    assert floats(ask(instance, [2], 1, flags=START).outputs[0][4]) == [0, 0, 2]
    assert floats(ask(instance, [3], 0).outputs[0][4]) == [1, 1, 3]
    assert floats(ask(instance, [4], 1, flags=END).outputs[0][4]) == [2, 2, 4]
    assert floats(ask(instance, [5], 0).outputs[0][4]) == [4, 4, 5]
    assert floats(ask(instance, [1], 0, flags=START).outputs[0][4]) == [0, 0, 1]
    assert floats(ask(instance, [1], 1, flags=START).outputs[0][4]) == [0, 0, 1]


def test_initial_states_of_files_and_zeros(serve, tmp_path):
    file = tmp_path / "initial"
    file.write_bytes(struct.pack("<3f", 7, 8, 9))
    instance = serve(model(ADDS), **sequence(states=[state(initial=[[2], str(file)])]))
    for _ in range(2):
        assert floats(ask(instance, [1], flags=START).outputs[0][4]) == [7, 8, 1]
        assert floats(ask(instance, [1]).outputs[0][4]) == [8, 9, 1]
    instance = serve(model(ADDS), **sequence(states=[state(dims=[-1], initial=[[3], ""])]))
    assert floats(ask(instance, [1], flags=START).outputs[0][4]) == [0, 0, 0, 1]


def test_an_initial_state_that_is_too_short_fails_the_load(load, tmp_path):
    file = tmp_path / "short"
    file.write_bytes(b"abc")
    _, reply = load(model("pass"), **sequence(states=[state(initial=[[2], str(file)])]))
    assert reply["t"] == "failed" and "holds 3 bytes; the initial state of 'IN_STATE' takes 8" in reply["error"]


@pytest.mark.parametrize("same", [False, True])
def test_states_of_variable_dimensions_grow(serve, same):
    body = """
s = r.inputs()[0].as_numpy()
return [pb_utils.InferenceResponse([pb_utils.Tensor("X", s), pb_utils.Tensor("OUT_STATE", np.append(s, arr(r)))])]
"""
    instance = serve(model(body), **sequence(states=[state(dims=[-1], same=same, growable=True)]))
    assert floats(ask(instance, [1], flags=START).outputs[0][4]) == [0]
    assert floats(ask(instance, [2]).outputs[0][4]) == [0, 1]
    assert floats(ask(instance, [3]).outputs[0][4]) == [0, 1, 2]


def test_what_a_model_does_to_its_arrays_later_is_no_state(serve):
    body = """
mine = self.__dict__.setdefault("mine", np.zeros(2, "f4"))
mine.fill(99)
s = r.inputs()[0].as_numpy().copy()
mine.fill(arr(r)[0])
return [pb_utils.InferenceResponse([pb_utils.Tensor("X", s), pb_utils.Tensor("OUT_STATE", mine)])]
"""
    instance = serve(model(body), **sequence(states=[state()]))
    assert floats(ask(instance, [1], flags=START).outputs[0][4]) == [0, 0]
    assert floats(ask(instance, [1]).outputs[0][4]) == [1, 1]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        ("np.zeros(2, 'f8')", "returned state 'OUT_STATE' with data type FP64, its config says FP32"),
        ("np.zeros(3, 'f4')", "unexpected shape for state 'OUT_STATE' for model 'm'. Expected [2], got [3]"),
    ],
)
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_state_must_be_what_the_configuration_says(serve, router, array, text, decoupled):
    made = f"pb_utils.InferenceResponse([pb_utils.Tensor('X', arr(r)), pb_utils.Tensor('OUT_STATE', {array})])"
    body = f"r.get_response_sender().send({made}, 1)" if decoupled else f"return [{made}]"
    instance = serve(model(body), decoupled=decoupled, **sequence(states=[state()]))
    answer = ask(instance, flags=START, id="r7")
    assert text in answer.text
    trace = router.receive()
    assert (trace["t"], trace["requests"], trace["traceback"], trace["error"]) == ("trace", ["r7"], "", answer.text)


def test_what_is_sent_early_keeps_its_state(serve, tmp_path):
    """Whatever `execute` does then."""
    os.mkfifo(tmp_path / "gate")
    body = """
before = r.inputs()[0].as_numpy()
tensors = [pb_utils.Tensor("X", before), pb_utils.Tensor("OUT_STATE", before + arr(r))]
r.get_response_sender().send(pb_utils.InferenceResponse(tensors), 1)
if arr(r)[0] > 2: open(os.environ["GATE"]).read()
raise ValueError("later")
"""
    gate = tmp_path / "gate"
    instance = serve(model(body), env={"GATE": str(gate)}, **sequence(states=[state()]))
    early = ask(instance, [5, 6], flags=START)
    assert floats(early.outputs[0][4]) == [0, 0], "execute has not returned"
    gate.write_text("")
    found = []
    for values, flags in (([1, 1], 0), ([1, 1], END), ([2, 2], START)):
        answer = ask(instance, values, flags=flags)
        while answer.kind == RELEASE:
            answer = instance.plane.next()
        found.append(floats(answer.outputs[0][4]))
    assert found == [[5, 6], [6, 7], [0, 0]]


def test_errors_and_silence_leave_a_state_as_it_was(serve):
    body = """
if arr(r)[0] < 0: return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT_STATE", np.full(2, 9, "f4"))],
                                                     error=pb_utils.TritonError("no"))]
if arr(r)[0] == 0: return [answer(r.inputs()[0].as_numpy())]
return [pb_utils.InferenceResponse([pb_utils.Tensor("X", r.inputs()[0].as_numpy()),
                                    pb_utils.Tensor("OUT_STATE", np.full(2, arr(r)[0], "f4"))])]
"""
    instance = serve(model(body), **sequence(states=[state()]))
    assert floats(ask(instance, [5], flags=START).outputs[0][4]) == [0, 0]
    assert ask(instance, [-1]).text == "no"
    assert floats(ask(instance, [0]).outputs[0][4]) == [5, 5]
    assert floats(ask(instance, [0]).outputs[0][4]) == [5, 5]


def test_a_state_that_is_an_output_too_is_answered(serve):
    spec = {"outputs": [["X", FP32, [-1], None], ["OUT_STATE", FP32, [-1], None]]}
    instance = serve(model(ADDS), **sequence(states=[state()]), **spec)
    assert [floats(o[4]) for o in ask(instance, [1], flags=START).outputs] == [[0, 0, 1], [1, 1]]
    assert [floats(o[4]) for o in ask(instance, [1]).outputs] == [[1, 1, 1], [2, 2]]


def test_states_of_text_and_of_types_that_numpy_lacks(serve, tmp_path):
    file = tmp_path / "text"
    file.write_bytes(b"\1\0\0\0a\2\0\0\0bc")
    body = """
t, h = pb_utils.get_input_tensor_by_name(r, "T"), pb_utils.get_input_tensor_by_name(r, "H")
tensors = [pb_utils.Tensor("X", np.array([len(b"".join(t.as_numpy()))], "f4")),
           pb_utils.Tensor("T2", t.as_numpy() + b"x"), pb_utils.Tensor.from_dlpack("H2", h.to_dlpack())]
assert h.shape() == [3]
return [pb_utils.InferenceResponse(tensors)]
"""
    states = [["T", "T2", BYTES, [2], False, False, [[2], str(file)]], ["H", "H2", BF16, [3], False, False, None]]
    instance = serve(model(body), **sequence(states=states))
    assert [floats(ask(instance, flags=f).outputs[0][4]) for f in (START, 0, 0, START)] == [[3], [5], [7], [3]]


def test_states_of_decoupled_models_follow_each_response(serve):
    body = """
s = r.get_response_sender()
a = r.inputs()[0].as_numpy()
for i in (1, 2):
    s.send(pb_utils.InferenceResponse([pb_utils.Tensor("X", a), pb_utils.Tensor("OUT_STATE", a + i)]))
s.send(flags=1)
"""
    instance = serve(model(body), decoupled=True, **sequence(states=[state()]))
    for flags, expected in ((START, [0, 0]), (0, [2, 2])):
        instance.plane.push([instance.record([1], [0], flags=flags)], [(0, False)])
        found = [instance.plane.next() for _ in range(5)]
        assert [floats(a.outputs[0][4]) for a in found if a.kind == ANSWER] == [expected] * 2


def test_a_stream_that_outlasts_its_sequence_leaves_the_next_ones_state_alone(serve):
    body = """
s, a = r.get_response_sender(), r.inputs()[0].as_numpy()
if r.correlation_id() == 1:
    self.late = s
    return None
s.send(pb_utils.InferenceResponse([pb_utils.Tensor("X", a), pb_utils.Tensor("OUT_STATE", a + 1)]), 1)
if hasattr(self, "late"):
    self.late.send(pb_utils.InferenceResponse([pb_utils.Tensor("X", a), pb_utils.Tensor("OUT_STATE", a + 100)]), 1)
    del self.late
"""
    instance = serve(model(body), decoupled=True, **sequence(states=[state()]))
    first = instance.record([1], [0], flags=START | END, correlation=1)
    second, third = (instance.record([1], [0], flags=flags, correlation=2) for flags in (START, 0))
    tickets = [instance.plane.push([data], [(0, False)])[0] for data in (first, second, third)]
    found = [instance.plane.next() for _ in range(9)]
    answers = [(a.request, floats(a.outputs[0][4])) for a in found if a.kind == ANSWER]
    assert answers == [(tickets[1], [0, 0]), (tickets[0], [0, 0]), (tickets[2], [1, 1])]


# ---- rescheduling


def test_a_rescheduled_request_is_not_answered(serve):
    body = f"""
out = []
for q in rs:
    if arr(q)[0] > 0:
        q.set_release_flags({AGAIN}); out.append(None)
    else:
        out.append(answer(arr(q)))
return out
"""
    instance = serve(model(body), **sequence(iterative=True))
    data = [instance.record([v], [0]) for v in (1, 0, 2)]
    tickets = instance.plane.push(data, [(i, False) for i in range(3)])
    found = [instance.plane.next() for _ in range(3)]
    kinds = (RESCHEDULE, ANSWER, RESCHEDULE)
    assert [(a.request, a.kind) for a in found] == list(zip(tickets, kinds, strict=True))
    assert [a.batch for a in found] == [3, 0, 0] and len({a.times for a in found}) == 1
    assert ask(instance, [0]).kind == ANSWER


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"r.set_release_flags({AGAIN}); return [answer(arr(r))]",
         "Expected a None object in the execute function return list for reschduled request, found type '<class "),
        ("return [None]", "Expected an 'InferenceResponse' object in the execute function return list, found type"),
        ("r.set_release_flags(7)", "TritonModelException: set_release_flags(7): TRITONSERVER_REQUEST_RELEASE_ALL or"),
        ("r.set_release_flags('x')", "TypeError: set_release_flags(): flags must be an integer, not an object"),
        (f"r.set_release_flags({AGAIN}); raise ValueError('boom')", "ValueError: boom"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("spec", [sequence(iterative=True), {}])
def test_what_is_wrong_with_rescheduling_is_said(serve, body, text, spec):
    instance = serve(model(f"if arr(r)[0] == 0: return [answer(arr(r))]\n{body}"), **spec)
    assert text in ask(instance, [1]).text
    assert ask(instance, [0]).kind == ANSWER  # nothing of it is left


def test_release_flags_may_be_taken_back(serve):
    body = f"r.set_release_flags({AGAIN}); r.set_release_flags(1); return [answer(arr(r))]"
    assert ask(serve(model(body), **sequence(iterative=True))).kind == ANSWER


@pytest.mark.parametrize("spec", [sequence(), {}])
def test_a_model_that_is_not_iterative_cannot_reschedule(serve, spec):
    body = f"rs[0].set_release_flags({AGAIN}); return [None] + [answer(arr(q)) for q in rs[1:]]"
    instance = serve(model(body), **spec)
    instance.plane.push([instance.record([1], [0])] * 2)
    first, second = instance.plane.next(), instance.plane.next()
    assert first.text == (
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle "
        "such a flag."
    )
    assert second.kind == ANSWER


def test_what_a_rescheduled_request_keeps_is_retained(serve):
    body = f"self.kept.append(arr(r)); r.set_release_flags({AGAIN}); return [None]"
    found = ask(serve(model(body), **sequence(iterative=True)))
    assert (found.kind, found.flags) == (RESCHEDULE, FINAL | RETAINED)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_decoupled_models_reschedule_after_some_responses(serve, kind):
    body = f"""
s = r.get_response_sender()
s.send(answer(arr(r)))
if arr(r)[0] > 0: r.set_release_flags({AGAIN})
else: s.send(flags=1)
"""
    source = model(body).replace("    def execute", f"    {kind} execute")
    instance = serve(source, decoupled=True, **sequence(iterative=True))
    instance.plane.push([instance.record([1], [0])])
    found = [instance.plane.next() for _ in range(4)]
    kinds = [a.kind for a in found]
    assert sorted(kinds) == [ANSWER, 4, EXECUTED, RESCHEDULE]
    assert kinds.index(ANSWER) < kinds.index(RESCHEDULE) and not any(a.flags & FINAL for a in found)
    instance.plane.push([instance.record([0], [0])])
    found = [instance.plane.next() for _ in range(4)]
    assert sorted(a.kind for a in found) == [ANSWER, 4, CLOSED, EXECUTED]


def test_decoupled_models_that_cannot_reschedule_end_in_an_error(serve):
    instance = serve(model(f"r.set_release_flags({AGAIN})"), decoupled=True)
    instance.plane.push([instance.record([1], [0])])
    found = next(a for a in (instance.plane.next() for _ in range(3)) if a.kind == ERROR)
    assert "while the model is not configured to handle such a flag." in found.text


def test_the_sender_of_a_rescheduled_request_ends_with_its_execution(serve):
    """What is sent through it later is not the answer of the next execution."""
    body = f"""
if arr(r)[0] == 0:
    try: self.kept[0].send(answer(np.float32([7])), 1)
    except pb_utils.TritonModelException as error:
        return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(error)))]
self.kept.append(r.get_response_sender())
r.set_release_flags({AGAIN})
return [None]
"""
    instance = serve(model(body), **sequence(iterative=True))
    assert ask(instance, [1]).kind == RESCHEDULE
    found = ask(instance, [0])
    assert (found.kind, found.text) == (ERROR, "Unable to send response. Response sender has been closed.")


def test_a_request_that_was_answered_cannot_be_rescheduled(serve):
    body = f"""
s = r.get_response_sender(); s.send(answer(arr(r)), 1)
try: r.set_release_flags({AGAIN})
except pb_utils.TritonModelException as error: pb_utils.Logger.log_info(str(error))
"""
    instance = serve(model(body), decoupled=True, **sequence(iterative=True))
    instance.plane.push([instance.record([1], [0])])
    assert instance.router.receive()["msg"] == "set_release_flags(): this request has had its final response"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_null_before_a_request_of_a_decoupled_model(serve, kind):
    body = "for q in rs: q.get_response_sender().send(answer(np.zeros(1, 'f4')), 1)"
    source = model(body).replace("    def execute", f"    {kind} execute")
    instance = serve(source, decoupled=True, **sequence("direct"))
    data = instance.record([3], [0])
    instance.plane.push([data, data], [(0, True), (1, False)])
    found = [instance.plane.next().kind for _ in range(3)]
    assert ANSWER in found and ERROR not in found


def test_a_coroutine_that_raises_ends_the_requests_behind_a_null(serve):
    source = model("import asyncio; await asyncio.sleep(0); raise ValueError('no')")
    source = source.replace("    def execute", "    async def execute")
    instance = serve(source, decoupled=True, **sequence("direct"))
    data = instance.record([3], [0])
    instance.plane.push([data, data, data], [(0, False), (1, True), (2, False)])
    found = [instance.plane.next() for _ in range(5)]
    assert ["no" in answer.text for answer in found if answer.kind == ERROR] == [True, True]
