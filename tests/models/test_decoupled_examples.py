"""The models of examples/decoupled, served as they lie there, without fronts."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until
from tisfast.engine.testing import StreamSink, place_input, submit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/decoupled"
INT32, UINT32 = 8, 4


@pytest.fixture
def ask(tmp_path, supervise, registry, run):
    """One request to a model of the examples; what came back, up to the final answer."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    supervise()

    def request(model: str, *arrays: tuple[int, list[int]], rank: int = 1):
        calls: list = []
        runtime = registry.resolve(model)
        tensors = []
        for index, (code, values) in enumerate(arrays):
            data = np.array(values, np.int32 if code == INT32 else np.uint32)
            tensors.append((index, code, (1,) * (rank - 1) + data.shape, data.tobytes()))
        submit(runtime, place_input(runtime, "r", tensors), StreamSink(calls))
        run(until(lambda: calls and calls[-1][3]))
        return [
            (status, what if status else {name: list(np.frombuffer(data, "i4")) for name, _, _, data in what or ()})
            for _, status, what, _ in calls
        ]

    return request


def test_repeat(ask):
    found = ask("repeat_int32", (INT32, [4, 2, 9]), (UINT32, [0, 1, 0]), (UINT32, [0]))
    assert found == [(0, {"OUT": [v], "IDX": [i]}) for i, v in enumerate([4, 2, 9])] + [(0, {})]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_square(ask, number):
    assert ask("square_int32", (INT32, [number]), rank=2) == [(0, {"OUT": [number]})] * number + [(0, {})]
