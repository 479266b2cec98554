"""Outputs by name, whatever they are called."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from tests.client.helpers import answering, in_turn, respond
from tisfast.client import Client, NotFound

A = np.ones((1, 1), np.float32)
NAMES = ("count", "index", "id", "model", "names", "items", "keys", "asdict", "mapped", "plain")


@pytest.fixture(params=["call", "batches", "sample"])
def result(request):
    """Of a model whose outputs have the names of what a Result has itself; the n-th output is n."""
    tensor = {"datatype": "FP32", "shape": [-1, 1]}
    metadata = {
        "name": "m",
        "inputs": [{"name": "A", **tensor}],
        "outputs": [{"name": name, **tensor} for name in NAMES],
    }
    outputs = [
        {"name": name, "datatype": "FP32", "shape": [1, 1], "data": [float(at)]} for at, name in enumerate(NAMES)
    ]
    answer = respond(json.dumps({"model_name": "m", "model_version": "1", "id": "7", "outputs": outputs}).encode())
    with (
        answering(in_turn(respond(json.dumps(metadata).encode()), answer)) as address,
        Client(address, connections=1) as client,
    ):
        model = client.model("m")
        if request.param == "batches":
            yield model.batches(A, size=1)
        elif request.param == "sample":
            yield model.sample(A[0])
        else:
            yield model(A=A)


def test_an_output_wins_over_what_a_result_has_of_that_name(result):
    for number, name in enumerate(NAMES):
        assert result[name].item() == getattr(result, name).item() == result[number].item() == number
    assert result.version == "1"
    with pytest.raises(NotFound, match="the answer has no output 'other', it has count, index, id, model"):
        result["other"]
    with pytest.raises(AttributeError, match="no output 'other'"):
        result.other  # noqa: B018 - it raises
    assert repr(result).startswith("Result(count=float32[")


def test_a_copy_has_the_same_outputs(result):
    for other in (copy.copy(result), pickle.loads(pickle.dumps(result))):
        assert [other[name].item() for name in NAMES] == [getattr(other, name).item() for name in NAMES] == [*range(10)]
