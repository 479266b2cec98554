"""The test double answers as a server does."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from tests.client.models import write_models
from tisfast.client import BadRequest, ClientClosed, Internal, NotFound, Unsupported
from tisfast.client.testing import LocalModel

A = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


def test_it_is_called_as_a_model_of_a_server(repository):
    with LocalModel(repository / "add_sub") as model:
        total, difference = model(A, A)
        assert total.tolist() == [0, 2, 4, 6] and difference.tolist() == [0] * 4
        assert model(INPUT0=A, INPUT1=A).names == ("OUTPUT0", "OUTPUT1")
        assert model.infer([A, A], outputs=["OUTPUT1"]).names == ("OUTPUT1",)
        assert model.submit(A, A).result()[0].tolist() == [0, 2, 4, 6]
        assert model.ready() and model.config()["backend"] == "python"
        with pytest.raises(BadRequest, match=r"'INPUT1' of model 'add_sub' wants the shape \[4\]"):
            model(A, A[:2])
        with pytest.raises(Unsupported, match="it has no server"):
            model.statistics()


def test_the_same_answers_as_from_the_server(repository, client):
    for name, values in (("types", {"IN_STRING": ["a", "ü"], "IN_FP16": A.astype("f2")}), ("add_one", {"A": A})):
        with LocalModel(repository / name) as local:
            here, there = local.infer(values), client.model(name).infer(values)
        assert here.names == there.names
        assert all(a.tolist() == b.tolist() and a.dtype == b.dtype for a, b in zip(here, there, strict=True))
    with LocalModel(repository / "batched") as local:
        assert local.metadata().inputs == client.model("batched").metadata().inputs
        assert local.sample([1, 2]).tolist() == [2, 3]
        assert local.batches(np.zeros((9, 2), np.float32)).B.shape == (9, 2)


def test_errors_streams_and_sequences(repository, tmp_path):
    with LocalModel(repository / "failing") as model, pytest.raises(Internal, match="no luck"):
        model(A)
    with LocalModel(repository / "repeat_int32") as model:
        assert [answer.OUT.item() for answer in model.stream([3, 1], [0, 0], [0])] == [3, 1]
    with LocalModel(repository / "facts") as model, model.sequence(7) as ask:
        assert b'"flags": 1' in ask(A).item() and b'"correlation": 7' in ask(A).item()
    with pytest.raises(NotFound, match="is no model"):
        LocalModel(tmp_path / "none")


def test_a_model_that_is_closed_refuses_to_be_asked(repository):
    with LocalModel(repository / "repeat_int32") as model:
        pass
    model.close()
    told = "^the LocalModel 'repeat_int32' is closed; make another one$"
    with pytest.raises(ClientClosed, match=told):
        model([3], [0], [0])
    with pytest.raises(ClientClosed, match=told):
        list(model.stream([3], [0], [0]))
    assert not model.ready()
    with pytest.raises(ClientClosed, match="is closed"):
        model.submit([3], [0], [0])


def test_closing_again_finalizes_once(tmp_path):
    model = LocalModel(write_counting(tmp_path / "counting"))
    model.close()
    model.close()
    assert (tmp_path / "counting/ended").read_text() == "1"


def test_an_asynchronous_execute_and_its_tasks_are_run(tmp_path):
    with LocalModel(write_counting(tmp_path / "counting")) as model:
        assert [answer.B.tolist() for answer in model.stream(A)] == [(A + 1).tolist(), (A + 2).tolist()]


COUNTING = """
import asyncio
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    async def execute(self, requests):
        self.tasks = [asyncio.ensure_future(self.answer(request)) for request in requests]

    async def answer(self, request):
        a, sender = pb_utils.get_input_tensor_by_name(request, "A").as_numpy(), request.get_response_sender()
        for number in (1, 2):
            await asyncio.sleep(0)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("B", a + number)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        with open(ENDED, "a") as file:
            file.write("1")
"""


def write_counting(folder):
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(f"ENDED = {str(folder / 'ended')!r}\n{COUNTING}")
    (folder / "config.pbtxt").write_text(
        'backend: "python"\nmodel_transaction_policy { decoupled: true }\n'
        'input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    )
    return folder


def test_the_callers_array_is_not_written_to(tmp_path):
    folder = tmp_path / "spoil" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(SPOIL)
    (folder.parent / "config.pbtxt").write_text(
        'backend: "python"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    )
    mine = A.copy()
    with LocalModel(folder.parent) as model:
        assert model(mine).tolist() == [7, 7, 7, 7] and np.array_equal(mine, A)


SPOIL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        a[:] = 7
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", a)])]
"""


LATE = """
from __future__ import annotations
from dataclasses import dataclass
import triton_python_backend_utils as pb_utils

@dataclass
class State:
    n: int = 0

class TritonPythonModel:
    def execute(self, requests):
        from helper import NUMBER
        a = pb_utils.get_input_tensor_by_name(requests[0], "A").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", a * 0 + NUMBER)])]
"""


def write_late(folder, number: int):
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(LATE)
    (folder / "1/helper.py").write_text(f"NUMBER = {number}\n")
    (folder / "config.pbtxt").write_text(
        'backend: "python"\ninput [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    )
    return folder


def test_each_model_has_its_own_helper_which_it_may_import_late(tmp_path):
    path, modules = list(sys.path), set(sys.modules)
    for name, number in (("first", 3), ("second", 5)):
        with LocalModel(write_late(tmp_path / name, number)) as model:
            assert model([1, 2]).tolist() == [number, number]
            with pytest.raises(BadRequest):
                model(["a"])
    with LocalModel(tmp_path / "first") as first, LocalModel(tmp_path / "second") as second:
        assert second([1]).tolist() == [5] and second.batches  # the one that was opened last imports first
        assert first.name == "first"
    assert [each for each in sys.path if str(tmp_path) in each] == [] and "helper" not in sys.modules
    assert path == [each for each in sys.path if each in path] and "helper" not in modules


class Asleep(ModuleType):
    """A module that is loaded when it is used, which must not be now."""

    def __getattribute__(self, name):
        raise ImportError(f"nobody should ask for {name}")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_models_that_are_closed_in_any_order_leave_the_programs_modules(tmp_path, monkeypatch, order):
    mine = ModuleType("helper")
    monkeypatch.setitem(sys.modules, "helper", mine)
    monkeypatch.setitem(sys.modules, "asleep", Asleep("asleep"))
    models = []
    for number, name in enumerate(("first", "second", "third")):
        models.append(LocalModel(write_late(tmp_path / name, number)))
        assert models[-1]([1]).tolist() == [number]
    there = [0, 1, 2]
    for closed in order:
        models[closed].close()
        there.remove(closed)
        if there:  # the one that was opened last imports first
            assert models[there[-1]]([1]).tolist() == [there[-1]]
    assert sys.modules["helper"] is mine and [each for each in sys.path if str(tmp_path) in each] == []
