"""What ONNX Runtime is told of tensors on a GPU, with the host's memory in place of the GPU's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

import ml_dtypes  # noqa: E402 - comes with onnx
from tisfast_worker.device_batches import DeviceArray  # noqa: E402
from tisfast_worker.serve import backend_module  # noqa: E402

from tests.system import onnx_models as made  # noqa: E402
from tests.workers.device_parts import Join, Space, content, model, part, parts  # noqa: E402

A, B = np.random.default_rng(1).standard_normal((2, 4, 16)).astype(np.float32)


@pytest.fixture
def opened(tmp_path):
    """opened(graph, inputs, outputs): the backend of a graph, for which the host is the GPU; `joins`: of batches."""

    def start(graph, inputs, outputs):
        made.save(graph, tmp_path / "m")
        backend = backend_module("onnxruntime").Backend(model(tmp_path / "m", "onnxruntime", inputs, outputs))
        backend.load()
        backend.initialize()
        runtime = __import__("onnxruntime")
        backend._gpu = backend_module("onnxruntime_gpu").GpuTensors(runtime, "cpu", (joins := Join()).join)
        backend.joins = joins
        return backend

    return start


def sums(opened):
    names = [[(f"{side}{at}", "FP32", [16]) for at in (0, 1)] for side in ("INPUT", "OUTPUT")]
    return opened(made.add_sub(), *names)


@pytest.mark.parametrize("shift", [0, 16, 4])
def test_one_tensor_is_bound_where_it_lies_and_outputs_stay(opened, shift):
    backend = sums(opened)
    backend.space = Space(stays={"OUTPUT0"}, wants={"OUTPUT1"})
    found = backend.execute_arrays({"INPUT0": parts(part(A, shift=shift)), "INPUT1": B})
    assert found["OUTPUT0"].__class__ is DeviceArray
    assert (content(found["OUTPUT0"]) == A + B).all()
    assert (found["OUTPUT1"] == A - B).all()
    assert backend.joins.joined == (shift % 16 > 0)  # of which it needs a copy


def test_what_nobody_asks_for_is_left_out(opened):
    backend = sums(opened)
    backend.space = Space(stays={"OUTPUT1"})
    found = backend.execute_arrays({"INPUT0": A, "INPUT1": parts(part(B))})
    assert list(found) == ["OUTPUT1"]
    assert (content(found["OUTPUT1"]) == A - B).all()


def test_a_batch_from_the_gpu_and_the_host_is_joined(opened):
    backend = sums(opened)
    backend.space = Space(wants={"OUTPUT0", "OUTPUT1"})
    given = {"INPUT0": parts(part(A[:1]), A[1:3], part(A[3:])), "INPUT1": parts(B[:2], part(B[2:]))}
    found = backend.execute_arrays(given)
    assert (found["OUTPUT0"] == A + B).all()
    assert (found["OUTPUT1"] == A - B).all()


KINDS = ["BOOL", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "FP16", "FP64", "UINT32", "UINT64"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type(opened, kind):
    array = np.array([[0, 1, 2]]).astype({"BOOL": "?", "FP16": "e", "FP64": "d"}.get(kind, kind.lower()))
    backend = opened(made.identity(kind), [("X", kind, [-1])], [("Y", kind, [-1])])
    backend.space = Space(stays={"Y"})
    for given in (parts(part(array, kind)), parts(part(array, kind), array)):
        found = content(backend.execute_arrays({"X": given})["Y"], array.dtype)
        assert found.tolist() == array.tolist() * len(given.parts)


def test_bfloat16(opened):
    array = np.array([[0, -1.5, 3]], ml_dtypes.bfloat16)
    backend = opened(made.identity("BF16"), [("X", "BF16", [-1])], [("Y", "BF16", [-1])])
    for space in (Space(stays={"Y"}), Space(wants={"Y"})):
        backend.space = space
        found = backend.execute_arrays({"X": parts(part(array, "BF16"), array.view("<u2"))})["Y"]
        bits = content(found, "<u2") if found.__class__ is DeviceArray else found
        assert bits.view(ml_dtypes.bfloat16).tolist() == array.tolist() * 2


def test_only_host_tensors_go_the_usual_way(opened):
    backend = sums(opened)
    backend.space = Space(wants={"OUTPUT0", "OUTPUT1"})
    assert (backend.execute_arrays({"INPUT0": A, "INPUT1": B})["OUTPUT0"] == A + B).all()
