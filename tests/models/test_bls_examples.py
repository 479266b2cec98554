"""The models of examples/bls, served as they lie there, without fronts; and what deaths do to calls."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.waiting import until
from tisfast.engine.testing import StreamSink, place_input, submit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/bls"
FP32, INT32, UNAVAILABLE = 11, 8, 5


@pytest.fixture
def ask(tmp_path, supervise, registry, run):
    """One request to a model of the examples; what came back."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    supervisor = supervise()

    def begin(model: str, code: int, *arrays: list) -> list:
        calls: list = []
        runtime = registry.resolve(model)
        tensors = []
        for index, values in enumerate(arrays):
            data = np.array(values, "f4" if code == FP32 else "i4")
            tensors.append((index, code, data.shape, data.tobytes()))
        submit(runtime, place_input(runtime, "r", tensors), StreamSink(calls))
        return calls

    def request(model: str, code: int, *arrays: list):
        calls = begin(model, code, *arrays)
        run(until(lambda: calls and calls[-1][3]))
        _, status, what, _ = calls[0]
        kind = "f4" if code == FP32 else "i4"
        return (status, what) if status else {name: np.frombuffer(data, kind).tolist() for name, _, _, data in what}

    request.begin, request.supervisor, request.registry = begin, supervisor, registry
    return request


@pytest.mark.parametrize("model", ["bls_sync", "bls_async"])
def test_there_and_back(ask, model):
    for _ in range(3):
        found = ask(model, FP32, [1, 2, 3, 4], [10, 20, 30, 40])
        assert found == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [1, 2, 3, 4]}
    assert ask.registry.resolve("bls_add_sub").stats.inference_count == 12


@pytest.mark.parametrize("count", [0, 1, 100, 3000])
def test_a_decoupled_model_s_responses_add_up(ask, count):
    assert ask("bls_decoupled", INT32, [count]) == {"SUM": [count * (count + 1) // 2]}


def pid_of(supervisor, model: str) -> int:
    return next(s.instances[0].pid for s in supervisor.served if s.runtime.signature.name == model)


def test_deaths_on_either_side(tmp_path, ask, run):
    registry, supervisor = ask.registry, ask.supervisor
    other = registry.resolve("bls_add_sub")
    os.kill(pid_of(supervisor, "bls_add_sub"), signal.SIGSTOP)
    calls = ask.begin("bls_sync", FP32, [1, 2, 3, 4], [1, 1, 1, 1])
    run(until(lambda: other.inflight))
    os.kill(pid_of(supervisor, "bls_add_sub"), signal.SIGKILL)
    run(until(lambda: calls))
    # Taken before it died: an error.  Not taken: the next worker answers it, and nobody notices.
    assert calls[0][1] == 0 or "bls_add_sub_0" in calls[0][2]
    run(until(lambda: other.ready))
    os.kill(pid_of(supervisor, "bls_add_sub"), signal.SIGSTOP)
    calls = ask.begin("bls_sync", FP32, [1, 2, 3, 4], [1, 1, 1, 1])
    run(until(lambda: other.inflight))
    os.kill(pid_of(supervisor, "bls_sync"), signal.SIGKILL)
    run(until(lambda: calls))
    assert calls[0][1] == UNAVAILABLE and "was killed by signal 9" in calls[0][2]
    os.kill(pid_of(supervisor, "bls_add_sub"), signal.SIGCONT)
    run(until(lambda: not other.inflight and registry.resolve("bls_sync").ready))
    assert ask("bls_sync", FP32, [1, 2, 3, 4], [1, 1, 1, 1])["OUTPUT0"] == [1, 2, 3, 4]
    run(until(lambda: other.arena.used_blocks == 0 and registry.resolve("bls_sync").arena.used_blocks == 0))
