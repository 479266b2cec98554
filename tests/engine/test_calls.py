"""What models ask of each other: answers, refusals, bounds, deadlocks, cancellation, and whose memory it is."""

from __future__ import annotations

import struct

import pytest

from tests.engine.call_helpers import (
    ANY_NUMBER,
    FLOATS,
    FROM_ANSWER,
    FROM_CALL,
    FROM_REQUEST,
    Model,
    World,
)
from tests.wire.call_record_helpers import NOBODY, record
from tisfast import limits
from tisfast.engine.testing import cancel as client_leaves
from tisfast.engine.testing_calls import call, cancel, close, done, flush
from tisfast.types import Status


@pytest.fixture
def world():
    return World(caller=1, other=1)


@pytest.fixture
def caller(world):
    """An instance that executes a request."""
    world.ask("caller")
    return world.models["caller"].instances[0]


OWN = [("I", (4,), (FROM_REQUEST, 0, 0, 16))]
COPIED = [("I", (4,), (FROM_CALL, 0, 0, 16))]


def own_input(world, instance):
    """The input of the request that an instance executes, as a call's."""
    place = instance.link.dispatched[0][0].input
    offset = struct.unpack_from("<Q", place.record, 48 + 16)[0]
    return [("I", (4,), (FROM_REQUEST, 0, offset, 16))]


def say(instance, model, tensors, number=1, **options):
    call(instance.calls, number, instance.output, record(model, tensors, **options))


def test_a_call_is_a_request_of_the_other_model_and_its_answer_comes_back(world, caller):
    say(caller, "other", own_input(world, caller), id="my id", timeout=7, parameters=b'{"a":1}')
    other = world.models["other"].instances[0]
    (request,) = other.link.dispatched[0]
    assert request.input.id == "my id" and request.input.timeout_us == 7 and b'{"a":1}' in request.input.record
    assert caller.port.sent == [] and caller.calls.open_calls == 1
    other.link.execute()
    assert caller.port.sent == [(1, 0, [], True, 0)] and caller.calls.open_calls == 0
    caller.link.execute()
    assert [status for _, status, *_ in world.told] == [0]


def test_its_parent_is_the_request_that_is_executed(world, caller):
    say(caller, "other", own_input(world, caller))
    (request,) = world.models["other"].instances[0].link.dispatched[0]
    assert request.parent is caller.link.dispatched[0][0]


@pytest.mark.parametrize(
    ("model", "tensors", "options", "status", "text"),
    [
        ("nope", OWN, {}, Status.NOT_FOUND, "Failed for execute the inference request. Model 'nope' is not ready."),
        ("other", OWN, {"version": 9}, Status.NOT_FOUND, "version 9 is not found"),
        ("other", [], {}, Status.INVALID_ARG, "expected 1 inputs but got 0 inputs for model 'other'"),
        ("other", [("X", (4,), (FROM_CALL, 0, 0, 16))], {}, Status.INVALID_ARG, "unexpected inference input 'X'"),
        ("other", [("I", (5,), (FROM_CALL, 0, 0, 20))], {}, Status.INVALID_ARG, "unexpected shape for input 'I'"),
        ("other", [("I", (4,), (FROM_CALL, 0, 0, 12))], {}, Status.INVALID_ARG, "Expected 16, got 12"),
        ("other", COPIED, {"requested": ("Y",)}, Status.INVALID_ARG, "unexpected inference output 'Y'"),
        ("other", COPIED * 2, {}, Status.INVALID_ARG, "input 'I' already exists in request"),
        ("other", [("I", (4,), (FROM_CALL, 0, 1 << 40, 16))], {}, Status.INTERNAL, "what instance caller_0_0 has"),
        ("other", [("I", (4,), (FROM_REQUEST, 5, 0, 16))], {}, Status.INTERNAL, "lies outside"),
        ("other", [("I", (4,), (FROM_ANSWER, 1, 0, 16))], {}, Status.INTERNAL, "lies outside"),
        ("other", [("I", (4,), (3, 0, 0, 16))], {}, Status.INTERNAL, "what instance caller_0_0 has"),  # lent: nothing
        ("other", [("I", (4,), (77, 0, 0, 16))], {}, Status.INTERNAL, "lies outside"),
        ("other", OWN, {"id": "x" * 5000}, Status.INVALID_ARG, "request id of 5000 characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_call_is_its_answer(  # noqa: PLR0917 - a table
    world, caller, model, tensors, options, status, text
):
    say(caller, model, tensors, **options)
    ((number, found, message, final, answer),) = caller.port.sent
    assert (number, found, final) == (1, status, True) and text in message and answer
    done(caller.calls, answer)
    assert caller.output.used_blocks == 0 and caller.calls.held_answers == caller.calls.open_calls == 0


@pytest.mark.parametrize("cut", [0, 10, 60, 100, 130])
def test_a_record_that_is_cut_is_a_lie_and_costs_nothing(world, caller, cut):
    call(caller.calls, 1, caller.output, record("other", OWN)[:cut] or b"x")
    ((_, status, message, final, _),) = caller.port.sent
    assert status == Status.INTERNAL and final and "a call that an instance made cannot be read" in message


def test_a_decoupled_model_wants_an_iterator(world, caller):
    world.models["stream"] = Model(world, "stream", 1, decoupled=True)
    say(caller, "stream", own_input(world, caller))
    assert "Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls" in caller.port.sent[0][2]
    say(caller, "stream", own_input(world, caller), number=2, flags=ANY_NUMBER)
    link = world.models["stream"].instances[0].link
    (request,) = link.execute_streams()
    link.respond(request)
    link.respond(request, status=Status.NOT_FOUND)
    link.respond(request, final=True)
    assert [(number, status, final) for number, status, _, final, _ in caller.port.sent[1:]] == [
        (2, 0, False), (2, Status.NOT_FOUND, False), (2, 0, True),
    ]  # fmt: skip


def test_calls_are_bounded(world, caller):
    for number in range(limits.BLS_CALLS_MAX + 1):
        say(caller, "other", own_input(world, caller), number=number)
    ((number, status, message, final, _),) = caller.port.sent
    assert (number, status, final) == (limits.BLS_CALLS_MAX, Status.UNAVAILABLE, True)
    assert "1024 is the limit" in message


def test_answers_wait_for_room_and_keep_their_order(world, caller):
    caller.port.room = 1
    for number in range(3):
        say(caller, "other", own_input(world, caller), number=number)
    other = world.models["other"].instances[0].link
    for _ in range(3):
        other.execute()
    assert [sent[0] for sent in caller.port.sent] == [0]
    caller.port.room = 10
    flush(caller.calls)
    assert [sent[0] for sent in caller.port.sent] == [0, 1, 2]


def test_a_model_that_answers_faster_than_anybody_takes_is_cancelled(world, caller, monkeypatch):
    world.models["stream"] = Model(world, "stream", 1, decoupled=True)
    say(caller, "stream", own_input(world, caller), flags=ANY_NUMBER)
    caller.port.room = 0
    link = world.models["stream"].instances[0].link
    (request,) = link.execute_streams()
    for _ in range(limits.BLS_REPLIES_UNSENT_MAX + 5):
        link.respond(request)
    assert request.cancelled and caller.calls.open_calls == 0
    caller.port.room = 1 << 20
    flush(caller.calls)
    assert len(caller.port.sent) == limits.BLS_REPLIES_UNSENT_MAX + 1
    assert caller.port.sent[-1][3] and "answers faster than instance caller_0_0 takes" in caller.port.sent[-1][2]


# ---- deadlocks


def test_a_call_of_its_own_only_instance_is_refused(world, caller):
    say(caller, "caller", own_input(world, caller))
    ((_, status, message, final, _),) = caller.port.sent
    assert status == Status.UNAVAILABLE and final
    assert "every instance of model 'caller' (caller_0_0) waits" in message and "instance_group" in message


def test_a_second_instance_answers_it():
    world = World(caller=2)
    world.ask("caller")
    first, second = world.models["caller"].instances
    say(first, "caller", own_input(world, first))
    assert first.port.sent == [] and len(second.link.dispatched) == 1


def test_a_circle_is_refused_where_it_closes(world, caller):
    say(caller, "other", own_input(world, caller))
    other = world.models["other"].instances[0]
    say(other, "caller", own_input(world, other))
    assert "every instance of model 'caller' (caller_0_0) waits" in other.port.sent[0][2]
    other.link.execute()
    assert caller.port.sent[0][:2] == (1, 0)


def test_two_instances_that_wait_for_each_other_are_refused_where_the_circle_closes():
    world = World(caller=2)
    world.ask("caller")
    world.ask("caller")
    first, second = world.models["caller"].instances
    say(first, "caller", own_input(world, first))
    assert first.port.sent == []
    say(second, "caller", own_input(world, second))
    assert "(caller_0_0, caller_0_1) waits" in second.port.sent[0][2]
    second.link.execute()  # and now it has time for the first one's call
    second.link.execute()
    assert first.port.sent[0][:2] == (1, 0)


def test_a_call_that_nobody_waits_for_is_never_refused(world, caller):
    say(caller, "caller", own_input(world, caller), flags=0)
    assert caller.port.sent == []
    caller.link.execute()
    caller.link.execute()
    assert caller.port.sent[0][:2] == (1, 0)


def test_nothing_waits_behind_an_execution_that_may_wait_itself():
    world = World(caller=2, other=1)
    world.ask("caller")
    first, second = world.models["caller"].instances
    say(first, "other", own_input(world, first))
    for _ in range(5):
        world.ask("caller")
    assert len(first.link.dispatched) == len(second.link.dispatched) == 1 and world.models["caller"].runtime.queued == 4


# ---- who has left


def test_a_client_that_leaves_takes_the_calls_on_its_behalf_along(world):
    parent = world.ask("caller")
    caller = world.models["caller"].instances[0]
    say(caller, "other", own_input(world, caller))
    (request,) = world.models["other"].instances[0].link.dispatched[0]
    client_leaves(world.models["caller"].runtime, parent)
    assert request.cancelled
    world.models["other"].instances[0].link.execute(status=Status.CANCELLED)
    assert caller.port.sent[0][:2] == (1, Status.CANCELLED)


def test_a_call_of_a_batch_goes_on_while_one_client_is_there():
    world = World(other=1)
    world.models["caller"] = Model(world, "caller", 1, max_batch_size=4, dynamic=True)
    caller = world.models["caller"].instances[0]
    _, one, two = (world.ask("caller") for _ in range(3))
    caller.link.execute()
    assert caller.link.dispatched == [[one, two]]
    say(caller, "other", [("I", (4,), (FROM_CALL, 0, 0, 16))])
    (request,) = world.models["other"].instances[0].link.dispatched[0]
    client_leaves(world.models["caller"].runtime, one)
    assert not request.cancelled
    client_leaves(world.models["caller"].runtime, two)
    assert request.cancelled


def test_cancelling_a_call_tells_the_other_model(world, caller):
    say(caller, "other", own_input(world, caller))
    say(caller, "other", own_input(world, caller), number=2)
    other = world.models["other"].instances[0].link
    cancel(caller.calls, 1)
    cancel(caller.calls, 2)  # in the queue still, or in the ring
    cancel(caller.calls, 77)
    assert other.dispatched[0][0].cancelled
    while other.dispatched:
        other.execute(status=Status.CANCELLED)
    assert sorted(sent[:2] for sent in caller.port.sent) == [(1, Status.CANCELLED), (2, Status.CANCELLED)]


def test_a_call_that_is_forgotten_is_not_answered(world, caller):
    say(caller, "other", own_input(world, caller))
    other = world.models["other"].instances[0].link
    cancel(caller.calls, 1, forget=True)
    assert caller.calls.open_calls == 0 and other.dispatched[0][0].cancelled
    other.execute()
    assert caller.port.sent == [] and caller.output.used_blocks == 0


def test_a_dead_caller_s_calls_are_cancelled_and_its_memory_is_free(world, caller):
    say(caller, "other", [("I", (4,), (FROM_CALL, 0, 0, 16))])
    say(caller, "nope", [], number=2)
    other = world.models["other"].instances[0].link
    assert caller.calls.held_answers == 1
    close(caller.calls)
    assert other.dispatched[0][0].cancelled and caller.calls.held_answers == caller.calls.open_calls == 0
    other.execute()
    assert [sent[0] for sent in caller.port.sent] == [2] and caller.output.used_blocks == 0


def test_a_dead_callee_is_an_error(world, caller):
    say(caller, "other", own_input(world, caller))
    world.models["other"].instances[0].link.die()
    ((number, status, message, final, _),) = caller.port.sent
    assert (number, status, final) == (1, Status.UNAVAILABLE, True) and message == "other_0_0 died"


def test_a_model_that_refuses_says_so_at_once(world, caller):
    world.models["other"].runtime.refuse("other is down")
    say(caller, "other", own_input(world, caller))
    assert caller.port.sent[0][1:3] == (
        Status.UNAVAILABLE, "Model other - Error when running inference: other is down",
    )  # fmt: skip


def test_the_caller_s_block_stays_until_the_other_model_let_go(world, caller):
    say(caller, "other", [("I", (4,), (FROM_CALL, 0, 0, 16))], parent=NOBODY)
    assert caller.output.used_blocks in (0, 1)  # what is small was copied
    world.models["other"].instances[0].link.execute()
    assert caller.output.used_blocks == 0 and len(FLOATS) == 16
