"""Asking a model from Python: answers as they come, errors, clients that leave."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.engine.helpers import Model
from tisfast.engine.asking import ask
from tisfast.engine.testing import make_input
from tisfast.errors import Internal, Unavailable
from tisfast.types import Status


def streams():
    return Model(decoupled=True, dynamic=False)


def asked(model, id="a"):
    return ask(model.runtime, make_input(model.signature, id))


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def read(answers):
    """What comes, an error as its text."""
    found = []
    while True:
        try:
            await anext(answers)
            found.append("answer")
        except StopAsyncIteration:
            return found
        except Internal as error:
            found.append(error.message)


def test_one_answer():
    async def scenario():
        model = Model()
        answers = asked(model)
        waiting = asyncio.ensure_future(answers.only())
        await asyncio.sleep(0)
        model.links[0].execute(answer=lambda _: an_answer())
        assert await waiting is not None
        assert await read(answers) == []

    run(scenario)


def an_answer():
    from tisfast.wire.record import Answer

    return Answer.__new__(Answer)


def test_answers_of_a_decoupled_model_come_in_order_and_an_error_does_not_end_them():
    async def scenario():
        model = streams()
        answers = asked(model)
        link = model.links[0]
        (request,) = link.dispatched[0]
        link.respond(request)
        link.execute_streams()
        reading = asyncio.ensure_future(read(answers))
        await asyncio.sleep(0)
        link.respond(request, status=Status.INTERNAL)
        link.respond(request)
        link.respond(request, final=True)
        assert await reading == ["answer", "model says no", "answer"]

    run(scenario)


def test_a_refusal_is_the_only_answer():
    async def scenario():
        model = Model(max_queue_size=1)
        kept = [asked(model, str(i)) for i in range(20)]
        with pytest.raises(Unavailable):
            await kept[-1].only()

    run(scenario)


def test_a_model_that_ends_without_an_answer():
    async def scenario():
        model = streams()
        answers = asked(model)
        (request,) = model.links[0].execute_streams()
        model.links[0].respond(request, final=True)
        with pytest.raises(Internal, match="without an answer"):
            await answers.only()

    run(scenario)


def test_who_lets_go_of_the_answers_has_left():
    async def scenario():
        model = Model(max_batch_size=1)
        running, waiting = asked(model, "a"), asked(model, "b")
        assert model.runtime.queued + model.runtime.pending > 0
        del waiting
        gc.collect()
        model.links[0].execute()
        assert model.links[0].ids() == [] and model.runtime.queued == 0
        assert await read(running) == []
        assert model.runtime.stats.pending == 0

    run(scenario)


def test_cancelled_answers_end():
    async def scenario():
        model = streams()
        answers = asked(model)
        (request,) = model.links[0].execute_streams()
        model.links[0].respond(request)
        answers.cancel()
        assert request.cancelled
        model.links[0].respond(request)
        model.links[0].respond(request, final=True)
        assert await read(answers) == []

    run(scenario)


def test_two_readers_are_one_too_many():
    async def scenario():
        model = Model()
        answers = asked(model)
        first = asyncio.ensure_future(answers.only())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="two tasks"):
            await answers.only()
        model.links[0].execute(answer=lambda _: an_answer())
        await first

    run(scenario)
