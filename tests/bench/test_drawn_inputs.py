"""Random and zero inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tisfast.bench.drawn_inputs import Drawn, Strings
from tisfast.client import ModelMetadata, TensorMetadata
from tisfast.errors import BadRequest

INPUTS = (TensorMetadata("A", "FP32", (-1, 3)), TensorMetadata("T", "BYTES", (-1, 2)))
MODEL = ModelMetadata("m", ("1",), "", INPUTS, ())


def test_a_batch_has_its_dimension_in_front():
    first, second = Drawn(MODEL, 8, 4, {}).tensors()
    assert (first.name, first.datatype, first.shape) == ("A", "FP32", (4, 3))
    assert (second.shape, [len(each) for each in second.strings()]) == ((4, 2), [128] * 8)


def test_zero_is_zero_and_random_is_the_same_for_a_seed():
    assert not np.frombuffer(Drawn(MODEL, 8, 1, {}, zero=True).tensors()[0].buffer(), np.float32).any()
    once, again, other = (bytes(Drawn(MODEL, 8, 1, {}, seed=seed).tensors()[0].buffer()) for seed in (1, 1, 2))
    assert once == again != other


def test_strings_are_as_long_as_was_said_or_what_was_said():
    assert {len(each) for each in Drawn(MODEL, 8, 1, {}, strings=Strings(5)).tensors()[1].strings()} == {5}
    assert set(Drawn(MODEL, 8, 1, {}, strings=Strings(5, "hello")).tensors()[1].strings()) == {b"hello"}


def test_a_shape_that_nobody_knows_is_asked_for():
    with pytest.raises(BadRequest, match=r"provide shapes to send along with the request: --shape A:4,3"):
        Drawn(MODEL, 0, 1, {"T": (1, 2)}).tensors()
    assert Drawn(MODEL, 0, 1, {"A": (5, 3), "T": (1, 2)}).tensors()[0].shape == (5, 3)


@pytest.mark.parametrize("tokens", [2**40, (2**64 + 2) // 3, 10**20])
def test_a_shape_that_is_too_large_is_refused(tokens):
    """Also where its bytes, in 64 bits, come to a small number again."""
    with pytest.raises(BadRequest, match=rf"input 'A' of shape \[{tokens}, 3\] has more than \d+ bytes"):
        Drawn(MODEL, 0, 1, {"A": (tokens, 3), "T": (1, 2)}).tensors()


@pytest.mark.parametrize("shape", [(5,), (5, 4)])
def test_a_shape_that_does_not_fit_is_refused(shape):
    with pytest.raises(BadRequest, match=r"does not fit the input, shaped \[-1, 3\]"):
        Drawn(MODEL, 0, 1, {"A": shape, "T": (1, 2)}).tensors()


def test_an_input_that_there_is_not_is_named():
    with pytest.raises(BadRequest, match="the input 'B', which model 'm' does not have; its inputs are A, T"):
        Drawn(MODEL, 0, 1, {"B": (1,)})
