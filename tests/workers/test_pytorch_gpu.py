"""Tensors of PyTorch on a GPU, with the host's memory in place of the GPU's (make test-torch)."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

import ml_dtypes  # noqa: E402 - comes with onnx
from tisfast_worker.device_batches import DeviceArray, pieces  # noqa: E402
from tisfast_worker.serve import backend_module  # noqa: E402

from tests.workers.device_parts import CODES, Space, content, model, part, parts  # noqa: E402

CPU = torch.device("cpu")
A = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)


class Host:
    """torch, for which the host is the GPU.  waited: how often its stream was waited for."""

    def __init__(self):
        self.waited = self.emptied = 0
        self.cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(synchronize=self._wait))
        self.cuda.empty_cache = self._empty

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *arguments, pin_memory=False, **more):
        return torch.empty(*arguments, **more)

    def _wait(self):
        self.waited += 1

    def _empty(self):
        self.emptied += 1


@pytest.fixture
def tensors(tmp_path):
    """tensors(kind): (reader, writer, torch) of a model from X to Y."""

    def start(kind="FP32", cleans=False):
        host, gpu = Host(), backend_module("pytorch_gpu")
        of = model(tmp_path, "pytorch", [("X", kind, [-1])], [("Y", kind, [-1])], "GPU")
        return gpu.GpuReader(host, of, CPU), gpu.GpuWriter(host, of, CPU, cleans), host

    return start


@pytest.mark.parametrize("shift", [0, 16, 4, 1])
def test_one_tensor_is_taken_where_it_lies(tensors, shift):
    reader, _, _ = tensors()
    given = part(A, shift=shift)
    found = reader.read("X", parts(given))
    assert found.numpy().tolist() == A.tolist()
    assert (found.data_ptr() == given.address()) == (shift % 16 == 0)


def test_what_it_is_taken_from_lives_as_long_as_the_tensor(tensors):
    reader, _, _ = tensors()
    given = part(A)
    memory = given._memory.bytes
    found = reader.read("X", parts(given))
    del given
    memory[:] = 0
    assert (found == 0).all()


def test_a_batch_from_the_gpu_and_the_host_is_joined(tensors):
    reader, _, _ = tensors()
    assert reader.read("X", parts(part(A[:1]), A[1:3], part(A[3:], shift=4))).tolist() == A.tolist()
    assert reader.read("X", parts(A[::2], part(A))).tolist() == [*A[::2].tolist(), *A.tolist()]
    ragged = parts(part(A), part(A[:1])).ravel()
    assert reader.read("X", ragged).tolist() == [*A.ravel().tolist(), *A[0].tolist()]


def test_large_rows_that_lie_apart_are_copied_from_where_they_are(tensors):
    reader, _, _ = tensors()
    memory = np.arange(3 * 20000, dtype=np.float32).reshape(3, 20000)
    for columns in (19000, 3):  # large, and not
        assert reader.read("X", memory[:, :columns]).tolist() == memory[:, :columns].tolist()
    assert [each.nbytes for each in pieces(memory[:, :19000])] == [76000] * 3
    assert len(pieces(memory[:, :3])) == len(pieces(memory)) == 1


KINDS = ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP64"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type(tensors, kind):
    reader, writer, _ = tensors(kind)
    array = np.array([[0, 1, 2]]).astype({"BOOL": "?", "FP16": "e", "FP64": "d"}.get(kind, kind.lower()))
    read = reader.read("X", parts(part(array, kind), array))
    for space in (Space(stays={"Y"}), Space(wants={"Y"})):
        found = writer.outputs({"Y": read}, {"Y": CODES[kind]}, space)["Y"]
        got = content(found, array.dtype) if found.__class__ is DeviceArray else found
        assert got.tolist() == array.tolist() * 2


def test_bfloat16(tensors):
    reader, writer, _ = tensors("BF16")
    array = np.array([[0, -1.5, 3]], ml_dtypes.bfloat16)
    read = reader.read("X", parts(part(array, "BF16"), array.view("<u2")))
    assert read.dtype == torch.bfloat16
    for space in (Space(stays={"Y"}), Space(wants={"Y"})):
        found = writer.outputs({"Y": read}, {"Y": CODES["BF16"]}, space)["Y"]
        bits = content(found, "<u2") if found.__class__ is DeviceArray else found
        assert bits.view(ml_dtypes.bfloat16).tolist() == array.tolist() * 2


def test_outputs_go_where_they_are_wanted_and_are_waited_for(tensors):
    _, writer, host = tensors(cleans=True)
    value = torch.from_numpy(A)
    left = writer.outputs({"Y": value}, {"Y": CODES["FP32"]}, Space(stays={"Y"}))["Y"]
    assert left.address == value.data_ptr()
    across = writer.outputs({"Y": value.t()}, {"Y": CODES["FP32"]}, Space(stays={"Y"}))["Y"]
    assert content(across).tolist() == A.T.tolist()
    assert writer.outputs({"Y": value}, {"Y": CODES["FP32"]}, Space()) == {}
    place = np.zeros_like(A)
    space = Space(wants={"Y"})
    space.take = lambda shapes: {"Y": place}
    assert writer.outputs({"Y": value}, {"Y": CODES["FP32"]}, space)["Y"] is place
    assert place.tolist() == A.tolist()
    assert (host.waited, host.emptied) == (4, 4)


def test_text_and_wrong_types(tensors):
    _, writer, _ = tensors()
    found = writer.outputs({"Y": ["a", "b"]}, {"Y": CODES["BYTES"]}, Space(wants={"Y"}))
    assert found["Y"].tolist() == ["a", "b"]
    for wrong in (torch.ones(2, dtype=torch.int64), torch.tensor(1.0)):
        with pytest.raises(Exception, match=r"configuration expects datatype|is a scalar"):
            writer.outputs({"Y": wrong}, {"Y": CODES["FP32"]}, Space(stays={"Y"}))


def test_rows_of_an_output_that_stays(tensors):
    _, writer, _ = tensors()
    left = writer.outputs({"Y": torch.from_numpy(A)}, {"Y": CODES["FP32"]}, Space(stays={"Y"}))["Y"]
    assert content(left[1:3]).tolist() == A[1:3].tolist()
    assert content(left.reshape(-1)[2:7].reshape((1, 5))).tolist() == [A.ravel()[2:7].tolist()]
    assert (len(left), left.ndim, left.size) == (4, 2, 12)
