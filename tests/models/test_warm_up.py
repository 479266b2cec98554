"""Warm-up with real workers: what a model is given before it is ready, and what makes its load fail."""

# ruff: noqa: E501  (tables: one case, one line)
import json
import os
import signal
import sys

import pytest

from tests.waiting import until
from tisfast.config.settings import WorkerSettings
from tisfast.processes.instance import InstanceState

SECONDS_MAX = 0.5
MODEL = """
import json, os, time
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        self.args = args
    def execute(self, requests):
        told = [[[t.name(), str(t.as_numpy().dtype), list(t.as_numpy().shape), t.as_numpy().reshape(-1)[:3].tolist()]
                 for t in r.inputs()] for r in requests]
        with open(os.path.join(self.args["model_repository"], "told"), "a") as file:
            file.write(json.dumps([self.args["model_instance_name"], told], default=bytes.decode) + "\\n")
        answers = [self.answer(r) for r in requests]
        return answers if any(answers) else None
    def answer(self, r):
        BODY
"""
GOOD = 'return pb.InferenceResponse([pb.Tensor("B", np.zeros([1] * (1 + BATCHES), "f4"))])'
IO = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def given(name="A", dtype="TYPE_FP32", dims="[ 3 ]", data="zero_data: true"):
    return f'inputs {{ key: "{name}" value: {{ data_type: {dtype} dims: {dims} {data} }} }}'


def sample(*inputs, name="s", batch_size=1, count=0):
    return f'model_warmup [ {{ name: "{name}" batch_size: {batch_size} count: {count} {" ".join(inputs)} }} ]\n'


@pytest.fixture
def warm(write, supervise, registry):
    """Load one model; its supervisor, with what the model was given in `told`."""

    class Warm:
        def __init__(self, config, body=GOOD, io=IO, batch=0, files=(), seconds_max=600.0):
            code = MODEL.replace("BODY", body.replace("BATCHES", str(int(batch > 0))))
            self.folder = write("m", code, io + f"max_batch_size: {batch}\n" + config)
            for name, data in files:
                path = self.folder / "warmup" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            self.supervisor = supervise(workers=WorkerSettings(sys.executable, execution_seconds_max=seconds_max))
            [self.entry] = registry.models()

        @property
        def told(self):
            """(instance, requests) of each execution; of a request (name, dtype, shape, first elements) of each input."""
            path = self.folder / "told"
            return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

        @property
        def runtime(self):
            return self.supervisor.served[0].runtime

    return Warm


ZEROS = ["A", "float32", [3], [0.0, 0.0, 0.0]]


def test_an_instance_executes_its_samples_before_it_is_ready(warm):
    w = warm(sample(given()) + sample(given(dims="[ 2 ]"), name="t", count=2))
    assert w.entry.state == "READY"
    assert w.told == [("m_0", [[ZEROS]])] + [("m_0", [[["A", "float32", [2], [0.0, 0.0]]]])] * 2


def test_every_instance_is_warmed_up(warm):
    w = warm(sample(given()) + "instance_group [ { count: 3 kind: KIND_CPU } ]")
    assert sorted(name for name, _ in w.told) == ["m_0_0", "m_0_1", "m_0_2"]


def test_a_batch_of_several_is_that_many_requests(warm):
    w = warm(sample(given(), batch_size=3), batch=4)
    assert w.told == [("m_0", [[["A", "float32", [1, 3], [0.0, 0.0, 0.0]]]] * 3)]


@pytest.mark.parametrize("batch_size", ["0", "0 count: 5"])
def test_a_batch_of_none_is_skipped(warm, batch_size):
    w = warm(f'model_warmup [ {{ name: "s" batch_size: {batch_size} {given(dims="[ -1 ]", data="")} }} ]')
    assert w.entry.state == "READY" and w.told == []


def test_the_counters_count_as_triton_s_do(warm):
    runtime = warm(sample(given(), batch_size=3, count=2), batch=4).runtime
    assert (runtime.stats.inference_count, runtime.stats.execution_count, runtime.stats.pending) == (6, 2, 0)


@pytest.mark.parametrize(
    ("dtype", "dims", "data", "kind", "first"),
    [
        ("TYPE_INT32", "[ 2, 2 ]", "zero_data: true", "int32", [0, 0, 0]),
        ("TYPE_INT32", "[ 2, 2 ]", "zero_data: false", "int32", [0, 0, 0]),
        ("TYPE_STRING", "[ 2, 2 ]", "random_data: true", "object", ["", "", ""]),
        ("TYPE_STRING", "[ 2, 2 ]", "zero_data: true", "object", ["", "", ""]),
        ("TYPE_INT16", "[ 2, 2 ]", 'input_data_file: "d"', "int16", [1, 2, 3]),
        ("TYPE_INT16", "[ 3, 1 ]", 'input_data_file: "sub/e"', "int16", [4, 5, 6]),
        ("TYPE_STRING", "[ 1, 2 ]", 'input_data_file: "words"', "object", ["abc", "x"]),
        ("TYPE_FP32", "[ 0, 2 ]", "zero_data: true", "float32", []),
    ],
)
def test_data(warm, dtype, dims, data, kind, first):
    files = [
        ("d", b"\1\0\2\0\3\0\4\0"), ("sub/e", b"\4\0\5\0\6\0 and more"), ("words", b"\3\0\0\0abc\1\0\0\0x"),
    ]  # fmt: skip
    w = warm(
        sample(given(dtype=dtype, dims=dims, data=data)),
        io=IO.replace("TYPE_FP32 dims: [ -1 ]", f"{dtype} dims: [ -1, -1 ]", 1),
        files=files,
    )
    [(_, [[[_, found, shape, values]]])] = w.told
    assert (found, shape, values) == (kind, json.loads(dims), first)


@pytest.mark.parametrize("dtype", ["TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_INT8", "TYPE_UINT64", "TYPE_BOOL"])
def test_random_data_are_values_that_models_can_take(warm, dtype):
    body = (
        'a = pb.get_input_tensor_by_name(r, "A").as_numpy(); assert len(np.unique(a)) > 1\n'
        "        assert a.dtype.kind != 'f' or ((a >= 1) & (a < 2)).all()\n"
        "        assert a.dtype != bool or set(np.unique(a.view(np.uint8))) == {0, 1}\n"
        f"        {GOOD}"
    )
    io = IO.replace("TYPE_FP32", dtype, 1)
    w = warm(sample(given(dtype=dtype, dims="[ 1000 ]", data="random_data: true")), body, io=io)
    assert w.entry.reason == ""


def test_a_large_tensor_is_shared_by_all_its_requests(warm):
    body = 'a = pb.get_input_tensor_by_name(r, "A").as_numpy(); assert not a.any(); a += 1; ' + GOOD
    w = warm(sample(given(dims="[ 200000 ]"), batch_size=4, count=3), body, batch=4)
    assert w.entry.reason == "" and len(w.told) == 3
    assert w.runtime.arena.used_blocks == 0


STREAM = 's = r.get_response_sender(); s.send(pb.InferenceResponse([pb.Tensor("B", np.zeros(1, "f4"))])); '
DECOUPLED = "model_transaction_policy { decoupled: true }"


def test_a_decoupled_model(warm):
    w = warm(DECOUPLED + sample(given(), count=2), STREAM + "s.send(flags=1)")
    assert w.entry.state == "READY" and w.told == [("m_0", [[ZEROS]])] * 2
    assert w.runtime.stats.execution_count == 2


def test_an_error_in_a_stream_fails_the_load(warm):
    error = 's.send(pb.InferenceResponse([], error=pb.TritonError("bad stream")), flags=1)'
    w = warm(DECOUPLED + sample(given()), STREAM + error)
    assert w.entry.reason == "Invalid argument: failed to run warmup sample 's': bad stream; "


SEQUENCE = """
sequence_batching { control_input [ {
  name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ]
} ] }
"""


@pytest.mark.parametrize("start", ["", given("START", "TYPE_INT32", "[ 1 ]")])
def test_a_sequence_model_is_given_neutral_controls(warm, start):
    w = warm(SEQUENCE + sample(given(), start, batch_size=2), batch=2)
    assert w.entry.reason == ""
    [(_, requests)] = w.told
    assert [sorted(each)[0] for each in requests] == [["A", "float32", [1, 3], [0.0, 0.0, 0.0]]] * 2
    assert [sorted(each)[1][0::3] for each in requests] == [["START", [0]]] * 2


def test_other_data_for_a_control_input_is_refused(warm):
    w = warm(SEQUENCE + sample(given(), given("START", "TYPE_INT32", "[ 1 ]", "random_data: true")), batch=2)
    assert "the control input 'START' other data than zero_data" in w.entry.reason


def test_a_restarted_worker_is_warmed_up_again_before_it_is_ready(warm, run):
    w = warm(sample(given()))
    [instance] = w.supervisor.served[0].instances
    os.kill(instance.pid, signal.SIGKILL)
    run(until(lambda: instance.restarts == 1 and instance.state is InstanceState.READY))
    assert w.told == [("m_0", [[ZEROS]])] * 2


def test_a_worker_that_fails_its_warm_up_does_not_come_back(warm, run, tmp_path):
    w = warm(sample(given()), f'assert not os.path.exists({str(tmp_path / "bad")!r}), "no weights"; ' + GOOD)
    [instance] = w.supervisor.served[0].instances
    (tmp_path / "bad").touch()
    os.kill(instance.pid, signal.SIGKILL)
    run(until(lambda: instance.state is InstanceState.BROKEN))
    assert "failed to run warmup sample 's'" in instance.reason and "no weights" in instance.reason
    (tmp_path / "bad").unlink()
    run(until(lambda: instance.state is InstanceState.READY))


STRINGS = IO.replace("TYPE_FP32", "TYPE_STRING", 1)
FAILS = {
    "the model raises": ((sample(given()), 'raise ValueError("no weights")'), {}, "no weights"),
    "the model answers with an error": (
        (sample(given()), 'return pb.InferenceResponse([], error=pb.TritonError("not now"))'), {},
        "failed to run warmup sample 's': not now; ",
    ),
    "both of a batch": (
        (sample(given(), batch_size=2), 'return pb.InferenceResponse([], error=pb.TritonError("not now"))'), {"batch": 4},
        "failed to run warmup sample 's': not now; not now; ",
    ),
    "more than fit a batch": (
        (sample(given(), batch_size=3),), {"batch": 2},
        "failed to run warmup sample 's': " + 3 * "batch size 3 for 'm_0', max allowed is 2; ",
    ),
    "two for a model that does not batch": (
        (sample(given(), batch_size=2),), {},
        "failed to run warmup sample 's': " + 2 * "batch size 2 for 'm_0', max allowed is 0; ",
    ),
    "the worker dies": ((sample(given()), "os._exit(3)"), {}, "the worker process of m_0 exited with code 3"),
    "the worker hangs": ((sample(given()), "import threading; threading.Event().wait()"), {"seconds_max": SECONDS_MAX}, "was not done within 0.5 s"),
    "a file that is not there": ((sample(given(data='input_data_file: "x"')),), {}, "failed to open text file for read "),
    "a file that is too short": (
        (sample(given(data='input_data_file: "d"')),), {"files": [("d", bytes(8))]},
        "warmup setting expects 12 bytes, but the data provided from d only has 8 bytes",
    ),
    "too few strings": (
        (sample(given(dtype="TYPE_STRING", data='input_data_file: "d"')),), {"io": STRINGS, "files": [("d", b"\1\0\0\0x")]},
        "expected 3 string elements for inference input 'A' for model 'm', got 1",
    ),
    "half a string": (
        (sample(given(dtype="TYPE_STRING", data='input_data_file: "d"')),), {"io": STRINGS, "files": [("d", b"\x09\0\0\0abc")]},
        "incomplete string data for inference input 'A', expecting string of length 9 but only 3 bytes available",
    ),
    "a wrong type": (
        (sample(given(dtype="TYPE_INT32")),), {}, "inference input 'A' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    "a wrong shape": ((sample(given(dims="[ 2, 2 ]")),), {}, "unexpected shape for input 'A' for model 'm'. Expected [-1], got [2,2]"),
    "a batch dimension of its own": (
        (sample(given(dims="[ 1, 2 ]")),), {"batch": 4},
        "unexpected shape for input 'A' for model 'm'. Expected [-1,-1], got [1,1,2]; give dims without the batch dimension",
    ),
    "no inputs": ((sample(),), {}, "expected 1 inputs but got 0 inputs for model 'm'"),
    "an unknown input": ((sample(given(), given("Z")),), {}, "'Z'"),
    "a variable size": ((sample(given(dims="[ -1 ]")),), {}, "warmup setting expects all variable-size dimensions are specified for input 'A'"),
    "no data": ((sample(given(data="")),), {}, "warmup setting expects input 'A' to have input_data_type set"),
    "a file elsewhere": ((sample(given(data='input_data_file: "../config.pbtxt"')),), {}, "is not in the folder 'warmup'"),
    "too many at once": ((sample(given(), batch_size=300),), {"batch": 300}, "asks for 300 requests in one execution, more than 256"),
    "too large": ((sample(given(dims="[ 1000000000 ]")),), {}, "asks for 1000000000 elements"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILS)
def test_a_failed_warm_up_fails_the_load(warm, name):
    arguments, options, text = FAILS[name]
    w = warm(*arguments, **options)
    assert w.entry.state == "UNAVAILABLE" and text in w.entry.reason
    if text.startswith("failed to run"):
        assert w.entry.reason.startswith("Invalid argument: " + text)
    assert w.supervisor.served == []
