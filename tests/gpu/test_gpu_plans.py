"""Plans on stand-ins for TensorRT and the driver: tensors of a framework stay on the GPU, with every copy counted.

What they do not show is in test_gpu_backends.py: that a real framework takes what it is given here.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import BATCHED, CONFIG, GPU, IDENTITY, ROWS, STAYS
from tests.gpu.stand_in_driver import OUT_OF_MEMORY
from tests.system.array_calls import executions
from tests.system.helpers import ROOT
from tests.system.tensorrt_plans import doubler, parameters, plan, tensor


def there(asked, name, rows, offset=0, wanted=0):
    """Ask from region to region; what is there then.  offset, wanted: where the input is, and where the output goes."""
    call = asked.asked({"X": rows}, {"X": offset}, {"Y": (wanted, rows.nbytes)})
    asked.copied()
    asked.client.infer(name, **call)
    copied = asked.copied()
    return np.frombuffer(asked.wanted.read(wanted + rows.nbytes)[wanted:], np.float32).tolist(), copied


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_an_input_is_read_where_it_lies_and_an_output_goes_to_the_client_s_region(caller, write_plan, module):
    write_plan("m", doubler())
    asked = caller(module)
    asked.given.write(ROWS.tobytes())
    for first, last in ((0, 8), (4, 8), (0, 3)):
        rows = ROWS[first:last]
        found, copied = there(asked, "m", rows, 16 * first)
        assert found == (rows * 2).ravel().tolist()
        # To the client's region; and first to where TensorRT takes it, as its address is to be a multiple of 256.
        assert copied == [0, 0, 2 if first else 1]


def test_copies_are_as_many_as_it_takes(caller, write_plan):
    write_plan("m", doubler())
    asked = caller()
    asked.given.write(ROWS.tobytes())
    rows = ROWS[:8]
    ways = {
        ("region", "region"): [0, 0, 1], ("region", "answer"): [0, 1, 0], ("host", "region"): [1, 0, 1],
        ("host", "answer"): [1, 1, 0],
    }  # fmt: skip
    for (source, target), expected in ways.items():
        places = {"X": 0} if source == "region" else {}
        call = asked.asked({"X": rows}, places, {"Y": (0, rows.nbytes) if target == "region" else None})
        asked.copied()
        answer = asked.client.infer("m", **call)
        assert asked.copied() == expected, (source, target)
        memory = np.frombuffer(asked.wanted.read(rows.nbytes), np.float32)
        found = answer.as_numpy("Y") if target == "answer" else memory
        assert found.ravel().tolist() == (rows * 2).ravel().tolist()


def test_requests_of_a_batch_come_from_region_and_host_and_go_to_either(caller, write_plan):
    write_plan("m", doubler(), BATCHED)
    asked = caller()
    asked.given.write(ROWS.tobytes())
    calls = []
    for at in range(8):
        places = {"X": 16 * at} if at % 2 else {}
        calls.append(asked.asked({"X": ROWS[at : at + 1]}, places, {"Y": (16 * at, 16) if at % 3 else None}))
    asked.copied()
    answers = asked.infer_at_once("m", calls)
    assert asked.copied() == [4, 3, 4 + 5]  # in: four of each kind; out: three to the host, five to the region
    assert executions(asked.server, "m") == (8, 1)
    found = np.frombuffer(asked.wanted.read(8 * 16), np.float32).reshape(8, 4)
    for at, answer in enumerate(answers):
        got = found[at] if at % 3 else answer.as_numpy("Y")[0]
        assert got.tolist() == (ROWS[at] * 2).tolist()


def test_requests_of_several_rows(caller, write_plan):
    write_plan("m", doubler(), BATCHED)
    asked = caller()
    asked.given.write(ROWS.tobytes())
    parts = [(0, 3), (3, 4), (4, 8)]
    calls = [
        asked.asked({"X": ROWS[begin:end]}, {"X": 16 * begin}, {"Y": (16 * begin, 16 * (end - begin))})
        for begin, end in parts
    ]
    asked.copied()
    asked.infer_at_once("m", calls)
    assert asked.copied() == [0, 0, 6]
    assert np.frombuffer(asked.wanted.read(8 * 16), np.float32).tolist() == (ROWS[:8] * 2).ravel().tolist()


RAGGED = """
max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 200000 }
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_FP32 source_input: "X" }
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
batch_output { target_name: "Y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "X" }
"""


def test_ragged_requests_are_joined_and_scattered_on_the_gpu(caller, write_plan):
    inputs = [tensor("X", [-1], ([1], [8], [64])), tensor("ENDS", [-1], ([1], [2], [8]))]
    sums = "np.add.reduceat(X, np.r_[0, ENDS[:-1]].astype(int) % len(X)).reshape(-1, 1)"
    write_plan("m", plan(inputs, [tensor("SUM", [-1, 1], make=sums), tensor("Y", [-1], make="X * 2")]), RAGGED)
    asked = caller()
    parts = [np.arange(1, 1 + size, dtype=np.float32)[None] for size in (1, 5, 2, 7)]
    asked.given.write(b"".join(part.tobytes().ljust(64, b"\0") for part in parts))
    places = [{"X": 0}, {"X": 64}, {}, {"X": 192}]
    wanted = [(64 * at, part.nbytes) for at, part in enumerate(parts)]
    calls = [asked.asked({"X": part}, places[at], {"Y": wanted[at], "SUM": None}) for at, part in enumerate(parts)]
    answers = asked.infer_at_once("m", calls)
    memory = asked.wanted.read(256)
    for part, (at, nbytes), answer in zip(parts, wanted, answers, strict=True):
        assert np.frombuffer(memory[at : at + nbytes], np.float32).tolist() == (part * 2).ravel().tolist()
        assert answer.as_numpy("SUM").tolist() == [[part.sum()]]


STEP = """step {{
    model_name: "m{}" model_version: -1 input_map {{ key: "{}" value: "{}" }} output_map {{ key: "{}" value: "{}" }}
}}"""


@pytest.mark.parametrize(("last", "config", "copies"), [
    (IDENTITY, GPU + STAYS, [0, 0, 3]),  # m0 to m1, m1 to m2, m2 to the client
    (IDENTITY.replace("assert not any", "assert all"), "", [1, 1, 1]),
])  # fmt: skip
def test_steps_of_an_ensemble_hand_tensors_on(caller, write_plan, write_model, last, config, copies):
    for name in ("m0", "m1"):
        write_plan(name, doubler(), "max_batch_size: 0\ninput { name: \"X\" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n"
                   'output { name: "Y" data_type: TYPE_FP32 dims: [ -1, 4 ] }')  # fmt: skip
    write_model("m2", last, CONFIG.replace("-1", "-1, 4") + config)
    steps = [("0", "X", "X", "Y", "p"), ("1", "X", "p", "Y", "q"), ("2", "A", "q", "B", "Y")]
    folder = write_model("m", "", f"""
platform: "ensemble"
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] }} ]
output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1, 4 ] }} ]
ensemble_scheduling {{ {" ".join(STEP.format(*each) for each in steps)} }}
""")  # fmt: skip
    (folder / "1/model.py").unlink()
    asked = caller()
    asked.given.write(ROWS.tobytes())
    for _ in range(3):
        found, copied = there(asked, "m", ROWS[:8])
        assert found == (ROWS[:8] * 4).ravel().tolist()
    assert copied == copies


@pytest.mark.parametrize(("config", "copies"), [
    (GPU + parameters(FORCE_CPU_ONLY_INPUT_TENSORS="yes"), [1, 1, 1]),
    (GPU.replace("0", "0, 1"), [2, 2, 0]),  # instances on two GPUs: outputs go by way of the host, too
])  # fmt: skip
def test_others_get_inputs_in_host_memory(caller, write_plan, config, copies):
    write_plan("m", doubler(), config)
    asked = caller()
    asked.given.write(ROWS.tobytes())
    found, copied = there(asked, "m", ROWS[:8])
    assert found == (ROWS[:8] * 2).ravel().tolist()
    assert copied == copies


def test_an_output_that_lies_where_an_input_lies_leaves_the_client_s_memory_alone(caller, write_plan):
    inputs = [tensor("X", [-1, 4], ([1, 4], [8, 4], [8, 4]))]
    write_plan("m", plan(inputs, [tensor("Y", [-1, 4], make="X * 2", alias="X")]))
    asked = caller()
    asked.given.write(ROWS.tobytes())
    found, copied = there(asked, "m", ROWS[:8])
    assert found == (ROWS[:8] * 2).ravel().tolist()
    assert copied == [0, 0, 2]
    assert asked.given.read(128) == ROWS[:8].tobytes()


def test_the_memory_of_outputs_is_free_again_for_the_next_execution(caller, write_plan, stand_in):
    write_plan("m", doubler())
    asked = caller()
    asked.given.write(ROWS.tobytes())
    before = stand_in.allocated()
    for factor in range(1, 6):
        asked.given.write((ROWS * factor).tobytes())
        found, _ = there(asked, "m", ROWS[:8], wanted=256)
        assert found == (ROWS[:8] * factor * 2).ravel().tolist()
    assert stand_in.allocated() == before
    with pytest.raises(InferenceServerException):
        asked.client.infer("m", **asked.asked({"X": ROWS[:9]}, {"X": 0}, {"Y": (0, 144)}))
    assert there(asked, "m", ROWS[:2])[0] == (ROWS[:2] * 10).ravel().tolist()
    assert stand_in.counted()["used_after_free"] == 0


@pytest.mark.parametrize(("rows", "columns", "copies"), [(1, 20000, 4), (2, 20000, 4), (2, 100, 1)])
def test_large_inputs_in_host_memory_are_joined_on_the_gpu(caller, write_plan, rows, columns, copies):
    shapes = [rows, columns], [8, columns], [8, columns]
    plan_of_rows = plan([tensor("X", [-1, columns], shapes)], [tensor("Y", [-1, columns], make="X + X")])
    write_plan("m", plan_of_rows, BATCHED)
    asked = caller()
    values = np.arange(4 * rows * columns, dtype=np.float32).reshape(4, rows, columns)
    calls = [asked.asked({"X": each}, {}, {"Y": None}) for each in values]
    asked.copied()
    answers = asked.infer_at_once("m", calls)
    assert executions(asked.server, "m") == (4 * rows, 1)
    assert asked.copied() == [copies, 1, 0]
    for each, answer in zip(values, answers, strict=True):
        assert (answer.as_numpy("Y") == each * 2).all()


ARRAYS = """
class TritonPythonModel:
    def execute_batch(self, inputs):
        return {"B": inputs["A"] + 1}
"""


def test_arrays_of_a_python_model_come_in_host_memory(caller, write_model):
    config = CONFIG + GPU + STAYS + BATCHED
    write_model("m", ARRAYS, config)
    asked = caller()
    asked.given.write(ROWS.tobytes())
    calls = [asked.asked({"A": ROWS[at : at + 1]}, {"A": 16 * at} if at else {}, {"B": None}) for at in range(3)]
    for at, answer in enumerate(asked.infer_at_once("m", calls)):
        assert answer.as_numpy("B").tolist() == [(ROWS[at] + 1).tolist()]


JOINED = """
import ctypes, sys
sys.path.insert(0, "workers")
import numpy as np
from tisfast_worker import cuda
from tisfast_worker.device_tensor import DeviceInput

class Memory:
    def __init__(self, nbytes):
        self.pointer, self.shape = ctypes.c_uint64(), (nbytes // 4,)
        call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(nbytes))
        self.address = self.pointer.value

def call(name, *arguments):
    assert getattr(library, name)(*arguments) == 0, name

library = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
library.cuMemcpyDtoH_v2.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)
rows = np.arange(24, dtype=np.float32).reshape(6, 4)
given, joined = Memory(32), Memory(96)
cuda.join(given.address, [rows[3:5]])
cuda.join(joined.address, [rows[:3], DeviceInput("X", 11, given), rows[::5][1:]])
found = np.empty_like(rows)
call("cuMemcpyDtoH_v2", found.ctypes.data, joined.address, 96)
assert (found == rows).all(), found
"""


def test_arrays_and_tensors_on_the_gpu_are_joined_for_a_framework_that_does_not(gpu):
    subprocess.run([sys.executable, "-c", JOINED], check=True, cwd=ROOT, timeout=60)


STREAMED = (
    JOINED[: JOINED.index("rows =")]
    + """
import triton_python_backend_utils as pb_utils
from tisfast_worker import dlpack

class Made(Memory):
    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream):
        assert stream == 1
        return dlpack.capsule_of(self, self.address, self.shape, 11, (2, 0))

stream, found = ctypes.c_void_p(), np.zeros(4, np.uint8)
call("cuStreamCreate", ctypes.byref(stream), 1)
for value, take in enumerate((lambda t: t.__dlpack__(stream=stream.value), lambda t: t.to_dlpack()), 7):
    made = Made(4)
    for each in (1, 2, value):  # one behind the other, so a copy in another stream comes before the last
        call("cuMemsetD8Async", made.pointer, ctypes.c_ubyte(each), ctypes.c_size_t(4), None)
    capsule = take(pb_utils.Tensor.from_dlpack("X", made))
    host = found.ctypes.data_as(ctypes.c_void_p)
    call("cuMemcpyDtoHAsync_v2", host, made.pointer, ctypes.c_size_t(4), stream)
    call("cuStreamSynchronize", stream)
    assert found.tolist() == [value] * 4, found
"""
)


def test_a_consumer_in_another_stream_sees_what_was_queued(stand_in):
    stand_in.set(delay_us=200_000)
    subprocess.run([sys.executable, "-c", STREAMED], check=True, cwd=ROOT, timeout=60)


REFUSED = (
    JOINED[: JOINED.index("rows =")]
    + """
from tisfast_worker.errors import TritonModelException

given, joined = Memory(32), Memory(64)
try:
    cuda.join(joined.address, [DeviceInput("X", 11, given), np.ones(8, np.float32)])
    raise AssertionError("nothing was refused")
except TritonModelException as error:
    assert "cuMemcpyHtoDAsync_v2" in str(error), error
call("cuMemFree_v2", joined.pointer)
call("cuCtxSynchronize")  # tells of what was queued for memory that is there no more
"""
)


def test_what_was_queued_before_a_refusal_is_done_when_it_is_told(stand_in):
    stand_in.set(delay_us=200_000)
    stand_in.fail("cuMemcpyHtoDAsync_v2", OUT_OF_MEMORY, times=1)
    subprocess.run([sys.executable, "-c", REFUSED], check=True, cwd=ROOT, timeout=60)
