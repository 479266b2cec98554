"""Coroutines of asynchronous callables that end before anybody has begun them.

A coroutine that is neither begun nor closed says so when it goes, and warnings are errors here.
"""

import asyncio
import gc

import pytest

from tests.pytriton.bound import bind, requests
from tisfast.pytriton.batch_outputs import follow
from tisfast.pytriton.decorators import batch, group_by_keys


async def cancelled(coroutine):
    """Made a task, which is cancelled before its first step."""
    task = asyncio.ensure_future(coroutine)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def closed(coroutine):
    coroutine.close()


def cancel(coroutine):
    asyncio.run(cancelled(coroutine))


def begun(calls):
    async def function(**inputs):
        calls.append(inputs)
        return inputs

    return function


@pytest.mark.parametrize("end", [closed, cancel])
def test_what_follows_a_coroutine_is_told_of_its_end(end):
    calls, told = [], []
    end(follow(begun(calls), lambda outputs: outputs, told.append))
    gc.collect()
    assert (calls, told) == ([], [None])


@pytest.mark.parametrize("end", [closed, cancel])
def test_coroutines_of_groups_end_together(end):
    calls = []
    grouped = bind(group_by_keys(batch(begun(calls))))
    end(grouped(requests({"a": [1]}, {"a": [1], "b": [2]})))
    gc.collect()
    assert calls == []
