"""Groups of requests and of rows."""

import asyncio
import inspect

import numpy as np
import pytest

from tests.pytriton.bound import bind, requests, values
from tisfast.pytriton.decorators import ConstantPadder, batch, group_by_keys, group_by_values
from tisfast.pytriton.exceptions import PyTritonRuntimeError

MIXED = ({"a": [1]}, {"b": [2]}, {"a": [3]}, {"b": [4], "a": [5]}, {"a": [6], "b": [7]})


def test_requests_with_the_same_inputs_come_together_and_keep_their_order():
    calls = []

    @group_by_keys
    def f(requests):
        calls.append(len(requests))
        return [{"o": next(iter(request.values()))} for request in requests]

    assert values(f(requests(*MIXED))) == [{"o": [1]}, {"o": [2]}, {"o": [3]}, {"o": [4]}, {"o": [6]}]
    assert sorted(calls) == [1, 2, 2]


def test_groups_are_batches():
    f = group_by_keys(batch(lambda **inputs: {"o": sum(inputs.values())}))
    assert values(f(requests(*MIXED))) == [{"o": [1]}, {"o": [2]}, {"o": [3]}, {"o": [9]}, {"o": [13]}]


def test_groups_of_coroutines_are_awaited():
    @group_by_keys
    @batch
    async def f(**inputs):
        return {"o": sum(inputs.values())}

    assert values(asyncio.run(f(requests(*MIXED)))) == [{"o": [1]}, {"o": [2]}, {"o": [3]}, {"o": [9]}, {"o": [13]}]


def test_groups_behind_one_that_fails_are_ended():
    made = []

    async def answer(inputs):
        if "b" in inputs:
            raise ValueError("no b")
        return {"o": inputs["a"]}

    @group_by_keys
    @batch
    def f(**inputs):
        made.append(answer(inputs))
        return made[-1]

    with pytest.raises(ValueError, match="no b"):
        asyncio.run(f(requests({"b": [1]}, {"a": [2]}, {"a": [3], "b": [4]})))
    assert [inspect.getcoroutinestate(each) for each in made] == [inspect.CORO_CLOSED] * 3


def test_what_generators_yield_for_several_groups_cannot_be_put_together():
    @group_by_keys
    @batch
    def f(**inputs):
        yield {"o": sum(inputs.values())}

    assert [values(item) for item in f(requests({"a": [1]}, {"a": [2]}))] == [[{"o": [1]}, {"o": [2]}]]
    with pytest.raises(PyTritonRuntimeError, match="group_by_keys .* 3 groups"):
        f(requests(*MIXED))


def test_rows_with_equal_values_come_together_and_go_back_to_their_places():
    calls = []

    @batch
    @group_by_values("b")
    def f(a, b):
        calls.append((a.ravel().tolist(), b.ravel().tolist()))
        return [a + b, a]

    bind(f)
    assert values(f(requests({"a": [1, 2], "b": [3, 1]}, {"a": [5], "b": [3]}))) == [
        {"o": [4, 3], "p": [1, 2]},
        {"o": [8], "p": [5]},
    ]
    assert calls == [([1, 5], [3, 3]), ([2], [1])]  # 3.0 has the smaller bytes


def test_groups_may_be_of_several_inputs_and_strings():
    calls = []

    @group_by_values("a", "b")
    def f(a, b):
        calls.append(a.ravel().tolist())
        return {"o": b}

    text = np.array([[b"x"], [b"ab"], [b"x"], [b"x"]], object)
    assert f(a=text, b=np.array([[1], [1], [2], [1]]))["o"].ravel().tolist() == [1, 1, 2, 1]
    assert sorted(map(len, calls)) == [1, 1, 2]


def test_strings_of_groups_are_not_cut():
    f = group_by_values("a")(lambda a: {"o": np.array([[b"long" * int(value[0])] for value in a])})
    assert f(a=np.array([[2], [1]]))["o"].ravel().tolist() == [b"longlong", b"long"]


def test_results_of_different_shapes_are_padded():
    def ones(a):
        count = int(a[0, 0])
        return {"o": np.ones((len(a), count), np.int32), "p": np.array([[b"x"] * count] * len(a))}

    f = batch(group_by_values("a", pad_fn=ConstantPadder(7))(ones))
    first, second = f(requests({"a": [1, 2]}, {"a": [3]}))
    assert first["o"].tolist() == [[1, 7, 7], [1, 1, 7]]
    assert first["p"].tolist() == [[b"x", b"", b""], [b"x", b"x", b""]]
    assert second["o"].tolist() == [[1, 1, 1]]


def test_a_padder_refuses_different_types():
    with pytest.raises(PyTritonRuntimeError, match="All input arrays for given input name must have the same dtype."):
        ConstantPadder()([{"o": np.ones((1, 1), np.float32)}, {"o": np.ones((1, 1), np.int32)}])


def test_groups_of_values_are_made_of_batches():
    with pytest.raises(PyTritonRuntimeError, match="must be used after the @batch decorator."):
        group_by_values("b")(batch(lambda a, b: {"o": a}))(requests({"a": [1], "b": [1]}))
