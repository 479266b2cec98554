"""Decorators that are written wrongly say so, at the decoration where it can be seen there."""

import re

import numpy as np
import pytest

from tests.pytriton.bound import bind, requests, values
from tisfast.pytriton import decorators
from tisfast.pytriton.decorators import ConstantPadder, batch, fill_optionals, first_value, group_by_values
from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError

PLAIN = ["batch", "sample", "group_by_keys", "pad_batch", "triton_context"]


def swap(a, b):
    return [b, a]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("given", [(), (3,), ("a",)])
def test_a_decorator_without_arguments_is_written_bare(name, given):
    value = repr(given[0] if given else None)
    told = f"@{name} decorates a callable, not {value}: write @{name} above it, without"
    with pytest.raises(PyTritonBadParameterError, match=re.escape(told)):
        getattr(decorators, name)(*given)


@pytest.mark.parametrize("make", [lambda: first_value("a"), lambda: group_by_values("a"), fill_optionals])
def test_what_cannot_be_called_is_not_decorated(make):
    with pytest.raises(PyTritonBadParameterError, match=r"^@(first|group|fill)_\w+ decorates a callable, not 4$"):
        make()(4)


@pytest.mark.parametrize("made", [first_value, group_by_values])
@pytest.mark.parametrize("key", [swap, 3, ["a"], None])
def test_names_of_inputs_are_text(made, key):
    with pytest.raises(PyTritonBadParameterError, match=f"takes names of inputs as text, not {re.escape(repr(key))}: "):
        made(key)


def test_groups_need_a_name():
    with pytest.raises(PyTritonBadParameterError, match="needs inputs to group by"):
        group_by_values()


@pytest.mark.parametrize("pad_fn", [3, ConstantPadder])
def test_a_padder_can_be_called_with_results(pad_fn):
    with pytest.raises(PyTritonBadParameterError, match=r"must be a callable, like ConstantPadder\(0\), not "):
        group_by_values("a", pad_fn=pad_fn)


@pytest.mark.parametrize("value", ["x", None, b"0"])
def test_what_pads_is_a_number(value):
    with pytest.raises(PyTritonBadParameterError, match=f"must be a number, not {re.escape(repr(value))}$"):
        ConstantPadder(value)
    assert ConstantPadder(np.float32(1)) and ConstantPadder(-1)


def test_groups_by_an_input_that_is_not_there_name_it():
    with pytest.raises(PyTritonRuntimeError, match="^@group_by_values groups by c, and the inputs .* are a, b.$"):
        bind(batch(group_by_values("c")(swap)))(requests({"a": [1], "b": [2]}))


def test_a_first_value_that_is_no_input_is_warned_of_once(caplog):
    f = bind(batch(first_value("a", "c", "b")(lambda **inputs: [np.ones((1, 1)), np.ones((1, 1))])))
    for _ in range(2):
        f(requests({"a": [1]}))  # b may be left out
    said = [each.getMessage() for each in caplog.records]
    assert said == ["model 'm': @first_value names c, which is left out, as the inputs of the model are a, b"]


@pytest.mark.parametrize("name", ["batch", "sample", "group_by_keys"])
def test_what_takes_requests_stands_above_what_takes_inputs(name):
    f = bind(batch(getattr(decorators, name)(swap)))
    with pytest.raises(PyTritonRuntimeError, match=f"The @{name} decorator takes a list of requests, and got none"):
        f(requests({"a": [1], "b": [2]}))


def test_padding_is_of_batches():
    with pytest.raises(PyTritonRuntimeError, match="@pad_batch decorator must be used after the @batch"):
        bind(decorators.pad_batch(swap))(requests({"a": [1], "b": [2]}))


def test_class_methods_and_objects_can_be_decorated():
    class Model:
        @batch
        @classmethod
        def swapped(cls, a, b):
            return {"o": b, "p": a}

        def __call__(self, a, b):
            return {"o": a, "p": b}

    assert values(Model.swapped(requests({"a": [1], "b": [2]}))) == [{"o": [2], "p": [1]}]
    assert values(batch(Model())(requests({"a": [1], "b": [2]}))) == [{"o": [1], "p": [2]}]
