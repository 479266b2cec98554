"""Ensembles: which step runs when, what comes back, and what it costs."""

from __future__ import annotations

import contextlib
import gc

import pytest

from tests.engine.ensemble_helpers import Ensemble, chain, step
from tests.engine.helpers import MS
from tisfast import tuning
from tisfast.config.sequence_settings import SequenceSettings
from tisfast.engine.testing import expect
from tisfast.errors import Unavailable
from tisfast.types import Status
from tisfast.wire.compose import ComposeFields

INTERNAL, UNAVAILABLE, CANCELLED, INVALID = 13, Status.UNAVAILABLE, Status.CANCELLED, Status.INVALID_ARG


def plus(name, number):
    return {"name": name, "compute": lambda values: {"B": values["A"] + number}}


def adder(name="add", **more):
    return {"name": name, "inputs": ("A", "B"), "outputs": ("SUM",), **more}


def stream(name="rep", **more):
    return {"name": name, "decoupled": True, **more}


# ---- which step runs when


def test_a_chain_runs_one_step_after_the_other():
    e = Ensemble(chain("x", "y", "z"), plus("x", 1), plus("y", 10), plus("z", 100))
    e.send(IN=5)
    assert [e[name].waiting for name in "xyz"] == [1, 0, 0]
    e["x"].run()
    assert [e[name].waiting for name in "xyz"] == [0, 1, 0]
    e["y"].run()
    e["z"].run()
    assert e.told() == [({"OUT": 116}, True)]


def test_a_request_that_is_nearly_there_is_told_to_the_first_step():
    e = Ensemble(chain("x", "y"), plus("x", 1), plus("y", 10))
    expect(e.runtime, tuning.BODY_NEAR_BYTES + 1)
    assert [e[name].link.expected for name in "xy"] == [0, 0]
    expect(e.runtime, tuning.BODY_NEAR_BYTES)
    assert [e[name].link.expected for name in "xy"] == [1, 0]


def test_independent_steps_run_at_once_and_a_step_waits_for_all_its_inputs():
    steps = step("x", "A=IN", "B=a") + step("y", "A=IN", "B=b") + step("add", "A=a B=b", "SUM=OUT")
    e = Ensemble(steps, plus("x", 1), plus("y", 10), adder())
    e.send(IN=5)
    assert [e["x"].waiting, e["y"].waiting] == [1, 1]
    e["y"].run()
    assert e["add"].waiting == 0
    e["x"].run()
    e["add"].run()
    assert e.told() == [({"OUT": 21}, True)]


def test_one_tensor_for_two_inputs_of_a_step():
    e = Ensemble(step("add", "A=IN B=IN", "SUM=OUT"), adder())
    e.send(IN=4)
    e["add"].run()
    assert e.told() == [({"OUT": 8}, True)]


def test_only_what_requested_outputs_need_is_run():
    steps = step("x", "A=IN", "B=OUT") + step("y", "A=IN", "B=b") + step("z", "A=b", "B=OUT2")
    e = Ensemble(steps, "x", "y", "z", outputs="OUT OUT2")
    e.send(IN=1, outputs=["OUT"])
    assert [e[name].waiting for name in "xyz"] == [1, 0, 0]
    e["x"].run()
    assert e.told() == [({"OUT": 1}, True)]


def test_an_output_that_is_an_input_needs_no_step():
    e = Ensemble(step("x", "A=IN", "B=OUT"), "x", outputs="OUT IN")
    e.send(IN=3, outputs=["IN"])
    assert e.told() == [({"IN": 3}, True)]
    assert e["x"].waiting == 0


def test_the_same_model_twice():
    e = Ensemble(chain("x", "x"), plus("x", 1))
    e.send(IN=1)
    e["x"].run()
    e["x"].run()
    assert e.told() == [({"OUT": 3}, True)]


# ---- optional tensors


def optional(**more):
    return {"name": "opt", "inputs": ("A", "B"), "outputs": ("SUM", "MORE"), "optional": ("B",), **more}


def test_an_optional_input_that_the_client_leaves_out_is_left_out_of_the_step():
    e = Ensemble(step("opt", "A=IN B=X", "SUM=OUT"), optional(), inputs="IN X", optional="X")
    e.send(IN=1)
    e["opt"].run()
    e.send("with", IN=1, X=2)
    e["opt"].run()
    assert e.told() == [({"OUT": 1}, True)]
    assert e.told("with") == [({"OUT": 3}, True)]


def test_a_tensor_that_a_step_does_not_give_is_left_out_where_it_is_optional():
    e = Ensemble(step("opt", "A=IN", "SUM=a MORE=b") + step("opt", "A=a B=b", "SUM=OUT"), optional())
    e.send(IN=1)
    e["opt"].run(made={"SUM": 7})
    e["opt"].run()
    assert e.told() == [({"OUT": 7}, True)]


def test_and_is_missed_where_it_is_required():
    e = Ensemble(step("opt", "A=IN", "SUM=a MORE=b") + step("add", "A=a B=b", "SUM=OUT"), optional(), adder())
    e.send("oo", IN=1)
    e["opt"].run(made={"SUM": 7})
    (((status, message), final),) = e.told("oo")
    assert (status, final) == (INVALID, True)
    assert message.startswith("in ensemble 'e', [request id: oo] expected 2 inputs but got 1 inputs for model 'add'. ")


def test_an_output_that_no_step_gives_is_left_out_of_the_answer():
    e = Ensemble(step("opt", "A=IN", "SUM=OUT MORE=OUT2"), optional(), outputs="OUT OUT2")
    e.send(IN=1)
    e["opt"].run(made={"SUM": 7})
    assert e.told() == [({"OUT": 7}, True)]


# ---- errors and cancellation


def test_a_failed_step_fails_the_request_and_stops_the_rest():
    steps = step("x", "A=IN", "B=a") + step("y", "A=IN", "B=b") + step("add", "A=a B=b", "SUM=OUT")
    e = Ensemble(steps, "x", {"name": "y"}, adder())
    e.send(IN=5)
    e["x"].fail()
    assert e.told() == [((INTERNAL, "in ensemble 'e', model says no"), True)]
    e["y"].run()  # it was under way: its answer is dropped
    assert e["add"].waiting == 0
    assert len(e.told()) == 1


def test_a_step_that_still_waits_when_another_fails_is_never_run():
    steps = step("x", "A=IN", "B=a") + step("y", "A=IN", "B=b") + step("add", "A=a B=b", "SUM=OUT")
    e = Ensemble(steps, "x", "y", adder())
    e["y"].link.die()
    e.send(IN=5)
    assert e["y"].runtime.queued == 1
    e["x"].fail()
    assert e["y"].runtime.queued == 0
    assert e["y"].runtime.stats.canceled == 1


def test_what_a_step_refuses_comes_back_with_the_ensembles_name():
    e = Ensemble(chain("x"), {"name": "x", "max_queue_size": 1})
    for number in range(3):
        e.send(f"r{number}", IN=1)
    assert e.told("r2") == [((UNAVAILABLE, "in ensemble 'e', [request id: r2] Exceeds maximum queue size"), True)]


def test_a_model_that_is_gone():
    e = Ensemble(chain("x", "y"), "x", "y")
    e.send(IN=1)
    e.registry.remove(e["y"].runtime)
    e["x"].run()
    text = "in ensemble 'e', Request for unknown model: 'y' has no available versions"
    assert e.told() == [((Status.NOT_FOUND, text), True)]


def test_a_cancelled_request_is_answered_and_its_steps_are_cancelled():
    e = Ensemble(chain("x", "y"), "x", "y")
    request = e.send(IN=1)
    running = e["x"].link.dispatched[0][0]
    e.cancel(request)
    (((status, message), final),) = e.told()
    assert (status, final) == (CANCELLED, True)
    assert message.startswith("in ensemble 'e', Request cancelled")
    assert running.cancelled and request.cancelled
    e["x"].run()
    assert e["y"].waiting == 0
    e.cancel(request)  # late
    assert len(e.told()) == 1
    assert (e.runtime.stats.canceled, e.runtime.inflight) == (1, 0)


def test_steps_know_on_whose_behalf_they_run():
    e = Ensemble(chain("x"), "x")
    request = e.send(IN=1)
    assert e["x"].link.dispatched[0][0].parent is request


def test_a_stopping_ensemble_refuses():
    e = Ensemble(chain("x"), "x")
    e.runtime.refuse("it stops")
    e.send(IN=1)
    assert e.told() == [((UNAVAILABLE, "in ensemble 'e', it stops"), True)]


def test_ready_when_its_models_are():
    e = Ensemble(chain("x", "y"), "x", "y")
    assert (e.runtime.ready, e.runtime.reason) == (True, "")
    e["y"].runtime.set_state(False, "being restarted")
    assert (e.runtime.ready, e.runtime.reason) == (False, "its model 'y' is not ready: being restarted")
    e.registry.remove(e["x"].runtime)
    assert e.runtime.reason == "Request for unknown model: 'x' has no available versions"


# ---- what goes along


def test_what_a_request_says_goes_to_every_step():
    e = Ensemble(chain("x", "y"), "x", "y")
    fields = ComposeFields()
    fields.priority, fields.timeout_us, fields.correlation, fields.sequence_flags = 2, 77, 5, 1
    fields.parameters = b'{"mine":"v"}'
    e.send("abc", fields=fields, IN=1)
    for name in "xy":
        given = e[name].link.dispatched[0][0].input
        assert (given.id, given.priority, given.timeout_us, given.correlation) == ("abc", 2, 77, 5)
        assert given.sequence_flags == 1
        assert b'{"mine":"v"}' in given.record
        e[name].run()
    assert e.parameters("abc") == [{"sequence_id": 5, "sequence_start": True, "sequence_end": False}]


def test_a_step_may_name_another_sequence_for_the_steps_behind_it():
    e = Ensemble(chain("x", "y"), "x", "y")
    e.send(IN=1)
    e["x"].run(parameters=b'{"sequence_id":42,"sequence_end":true,"foo":"bar"}')
    given = e["y"].link.dispatched[0][0].input
    assert (given.correlation, given.sequence_flags) == (42, 2)
    e["y"].run()
    assert e.parameters() == [{"sequence_id": 42, "sequence_start": False, "sequence_end": True}]


@pytest.mark.parametrize("parameters", [b'{"sequence_id":1.5}', b'{"sequence_start":1}', b'{"sequence_end":"yes"}'])
def test_and_must_say_it_in_the_right_type(parameters):
    e = Ensemble(chain("x", "y"), "x", "y")
    e.send(IN=1)
    e["x"].run(parameters=parameters)
    (((status, message), _),) = e.told()
    assert status == INVALID
    assert message.startswith("in ensemble 'e', expect")


def test_an_answer_says_of_the_sequence_what_tritons_does():
    e = Ensemble(chain("x"), "x")
    e.send(IN=1)
    e["x"].run(parameters=b'{"foo":"bar"}')
    assert e.parameters() == [{"sequence_id": 0, "sequence_start": False, "sequence_end": False}]


# ---- decoupled steps


def test_a_step_behind_a_decoupled_one_runs_once_for_each_response():
    e = Ensemble(chain("rep", "x"), stream(), plus("x", 100))
    e.send(IN=1)
    request = e["rep"].open()
    for value in (1, 2, 3):
        e["rep"].respond(request, value)
    e["x"].run()
    e["x"].run()
    assert e.told() == [({"OUT": 101}, False), ({"OUT": 102}, False)]
    e["rep"].end(request)
    e["x"].run()
    assert e.told()[2:] == [({"OUT": 103}, True)]


def test_the_end_of_a_stream_that_comes_last_is_told_by_itself():
    e = Ensemble(chain("rep"), stream())
    e.send(IN=1)
    request = e["rep"].open()
    e["rep"].respond(request, 1)
    e["rep"].end(request)
    assert e.told() == [({"OUT": 1}, False), (None, True)]


def test_a_last_response_that_is_marked_is_the_end():
    e = Ensemble(chain("rep"), stream())
    e.send(IN=1)
    e["rep"].respond(e["rep"].open(), 1, final=True)
    assert e.told() == [({"OUT": 1}, True)]


def test_a_stream_without_responses():
    e = Ensemble(chain("rep", "x"), stream(), "x")
    e.send(IN=1)
    e["rep"].end(e["rep"].open())
    assert e.told() == [(None, True)]
    assert e.runtime.stats.inference_stats()["success"]["count"] == 1


def test_responses_keep_the_order_of_their_origin():
    e = Ensemble(chain("rep", "x"), stream(), "x")
    second = type(e["x"].link)("x_1", e["x"].runtime, e.clock)
    e["x"].runtime.add_link(second)
    e.send(IN=1)
    request = e["rep"].open()
    e["rep"].respond(request, 1)
    e["rep"].respond(request, 2)
    second.execute(answer=e["x"].answer)
    assert e.told() == []
    e["x"].run()
    assert e.told() == [({"OUT": 1}, False), ({"OUT": 2}, False)]


def test_streams_of_streams_come_one_after_the_other():
    e = Ensemble(chain("rep", "again"), stream(), stream("again"))
    e.send(IN=1)
    outer = e["rep"].open()
    e["rep"].respond(outer, 1)
    e["rep"].respond(outer, 2)
    first, second = e["again"].open(), e["again"].open()
    e["again"].respond(second, 20)
    assert e.told() == []
    e["again"].respond(first, 10)
    e["again"].end(first)
    assert e.told() == [({"OUT": 10}, False), ({"OUT": 20}, False)]
    e["again"].end(second)
    e["rep"].end(outer)
    assert e.told()[2:] == [(None, True)]


def test_an_error_of_a_stream_comes_after_the_responses_before_it():
    e = Ensemble(chain("rep", "x"), stream(), "x")
    e.send(IN=1)
    request = e["rep"].open()
    e["rep"].respond(request, 1)
    e["rep"].end(request, status=INTERNAL)
    assert e.told() == []
    e["x"].run()
    assert e.told() == [({"OUT": 1}, False), ((INTERNAL, "in ensemble 'e', model says no"), True)]


def test_an_error_for_one_response_ends_the_request_in_its_turn():
    e = Ensemble(chain("rep", "x"), stream(), "x")
    e.send(IN=1)
    request = e["rep"].open()
    e["rep"].respond(request, 1)
    e["rep"].respond(request, 2)
    e["x"].run()
    e["x"].fail()
    assert e.told() == [({"OUT": 1}, False), ((INTERNAL, "in ensemble 'e', model says no"), True)]
    assert request.cancelled
    e["rep"].respond(request, 3)
    e["rep"].end(request)
    assert len(e.told()) == 2


@pytest.mark.parametrize(
    ("models", "moves"),
    [
        (("rep", "rep"), [True, False]),
        (("rep", "x", "rep"), [True, True, False]),
        (("x", "rep", "x", "rep"), [False, True, True, False]),
        (("rep", "x"), [False, False]),
        (("x", "rep"), [False, False]),
        (("x", "x", "rep"), [False, False, False]),
    ],
)
def test_what_waits_for_the_instance_that_makes_it_is_moved_out_of_its_memory(models, moves):
    e = Ensemble(chain(*models), "x", stream())
    assert [each.moves for each in e.runtime.graph.steps] == moves


def test_a_stream_through_its_own_model():
    e = Ensemble(chain("rep", "rep"), stream())
    e.send(IN=1)
    first = e["rep"].open()
    for value in (10, 20):
        e["rep"].respond(first, value)
    e["rep"].end(first)
    for value in (10, 20):
        inner = e["rep"].open()
        e["rep"].respond(inner, value + 1)
        e["rep"].end(inner)
    assert e.told() == [({"OUT": 11}, False), ({"OUT": 21}, False), (None, True)]
    e.forget()
    gc.collect()
    assert e.used_blocks == 0


def test_what_of_a_stream_finds_no_room_is_told_in_its_turn():
    e = Ensemble(chain("rep", "rep"), stream())
    e.send(IN=1)
    first = e["rep"].open()
    e["rep"].respond(first, 10)
    held = []
    with contextlib.suppress(Unavailable):
        while True:
            held.append(e.arena.take_block(512))
    e["rep"].respond(first, 20)
    e["rep"].end(first)
    inner = e["rep"].open()
    e["rep"].respond(inner, 11)
    e["rep"].end(inner)
    (good, _), ((status, message), final) = e.told()
    assert (good, status, final) == ({"OUT": 11}, UNAVAILABLE, True)
    assert "wait for an instance of the model that gives them" in message
    del held


def test_the_first_answer_of_a_step_counts():
    """A model that is reloaded may have become a decoupled one."""
    e = Ensemble(chain("x"), "x")
    e.send(IN=1)
    request = e["x"].link.dispatched.pop(0)[0]
    e["x"].link.respond(request, answer=e["x"].answer(request.input))
    e["x"].link.respond(request, answer=e["x"].answer(request.input))
    e["x"].link.respond(request, final=True)
    assert e.told() == [({"OUT": 1}, True)]


# ---- max_inflight_requests


def test_a_step_runs_no_more_often_at_a_time_than_its_limit():
    e = Ensemble(chain("rep", "x"), stream(), "x", most=2)
    e.send(IN=1)
    request = e["rep"].open()
    for value in range(5):
        e["rep"].respond(request, value)
    assert e["x"].runtime.inflight + e["x"].runtime.queued == 2
    for _ in range(5):
        assert e["x"].runtime.inflight + e["x"].runtime.queued <= 2
        e["x"].run()
    e["rep"].end(request)
    assert [outputs for outputs, _ in e.told()] == [*({"OUT": value} for value in range(5)), None]


def test_the_limit_is_shared_by_all_requests_first_come_first_served():
    e = Ensemble(chain("x"), "x", most=1)
    for number in range(3):
        e.send(f"r{number}", IN=number)
    assert e["x"].link.ids() == [["r0"]]
    e["x"].run()
    assert e["x"].link.ids() == [["r1"]]
    e["x"].run()
    e["x"].run()
    assert [e.told(f"r{number}") for number in range(3)] == [[({"OUT": number}, True)] for number in range(3)]


def test_who_leaves_while_it_waits_gives_its_place_up():
    e = Ensemble(chain("x"), "x", most=1)
    e.send("r0", IN=0)
    gone = e.send("r1", IN=1)
    e.send("r2", IN=2)
    e.cancel(gone)
    e["x"].run()
    assert e["x"].link.ids() == [["r2"]]


def test_a_failed_step_gives_its_place_up():
    e = Ensemble(chain("x"), "x", most=1)
    e.send("r0", IN=0)
    e.send("r1", IN=1)
    e["x"].fail()
    assert e["x"].link.ids() == [["r1"]]


# ---- batches


def test_a_batch_goes_through_models_with_batches():
    e = Ensemble(chain("x", "y"), {"name": "x", "max_batch_size": 4}, "y", mbs=4)
    e.send(IN=3)
    assert e["x"].link.dispatched[0][0].input.batch == 1
    e["x"].run()
    e["y"].run()
    assert e.told() == [({"OUT": 3}, True)]


# ---- counters


def counts(runtime):
    return {key: value["count"] for key, value in runtime.stats.inference_stats().items() if value["count"]}


def test_an_ensemble_counts_requests_and_the_computing_of_its_steps():
    e = Ensemble(chain("x", "y"), "x", "y")
    e.send(IN=1)
    e["x"].link.execute(took_ns=3000, answer=e["x"].answer)
    e["y"].link.execute(took_ns=5000, answer=e["y"].answer)
    stats = e.runtime.stats
    all_of_them = ["success", "queue", "compute_input", "compute_infer", "compute_output"]
    assert counts(e.runtime) == dict.fromkeys(all_of_them, 1)
    assert stats.inference_stats()["compute_infer"]["ns"] == 8000
    assert (stats.inference_count, stats.execution_count) == (1, 1)
    assert [entry["batch_size"] for entry in stats.batches()] == [1]
    assert counts(e["x"].runtime)["success"] == 1


def test_a_failed_request_counts_once():
    e = Ensemble(chain("x", "y"), "x", "y")
    e.send(IN=1)
    e["x"].fail()
    assert counts(e.runtime) == {"fail": 1}
    assert (e.runtime.stats.other_failed, e.runtime.inflight) == (1, 0)


# ---- memory


def test_no_block_is_kept_whatever_happens():
    e = Ensemble(chain("rep", "x", "y"), stream(), "x", "y", most=1)
    gc.disable()
    try:
        for end in ("good", "cancel", "fail"):
            request = e.send(IN=1)
            opened = e["rep"].open()
            for value in range(3):
                e["rep"].respond(opened, value)
            e["x"].run()
            if end == "cancel":
                e.cancel(request)
            elif end == "fail":
                e["y"].fail()
            for _ in range(3):
                for name in "xy":
                    while e[name].waiting:
                        e[name].run()
            e["rep"].end(opened)
            del request, opened
        e.forget()
        assert e.used_blocks == 0
    finally:
        gc.enable()


def test_a_tensor_is_kept_only_as_long_as_a_step_or_the_answer_needs_it():
    e = Ensemble(chain("x", "y", "z"), "x", "y", "z")
    e.send(IN=1)
    e["x"].run()
    e["y"].run()
    assert (e["x"].output.used_blocks, e["y"].output.used_blocks) == (0, 0)  # small: copied for the next step
    e["z"].run()
    assert e["z"].output.used_blocks == 1


# ---- whether a model may have executed it


@pytest.mark.parametrize("rounds", [0, 2])
def test_a_step_that_waits_to_be_executed_again_was_executed(rounds):
    iterative = SequenceSettings(slots=2, oldest=True, iterative=True, idle_ns=1000 * MS)
    steps = step("x", "A=IN", "B=OUT") + step("y", "A=IN", "B=MORE")
    x = {"name": "x", "sequence": iterative, "max_batch_size": 1}
    e = Ensemble(steps, x, {"name": "y", "max_batch_size": 1}, outputs="OUT MORE", mbs=1)
    e["x"].link.slots = e["y"].link.slots = 1
    e.send(id="other", IN=1)
    request = e.send(IN=1)
    for _ in range(rounds):  # the other one, then this one
        e["x"].link.reschedule()
    assert e["x"].link.ids() == e["y"].link.ids() == [["other"]]
    assert request.executed is False
    e["y"].runtime.refuse("it is gone")
    [((status, message), _)] = e.told()
    assert status == UNAVAILABLE and "it is gone" in message
    assert request.executed is bool(rounds)
