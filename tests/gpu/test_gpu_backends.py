"""Models of frameworks on a GPU: PyTorch, ONNX Runtime and TensorRT, from CUDA region to CUDA region.

These run on hardware only: a framework computes on no stand-in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.backend_calls import ONLY_ON_THE_GPU, ROWS, Caller, doubling_plan, gpu_bytes, network
from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, STAYS
from tests.system.array_calls import executions
from tests.system.helpers import client_of_thread, until

X, OUT = "x", "OUTPUT__0"
BATCHED = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 }"
SHM = "--allow-client-shm=true"


@pytest.fixture
def made(real_cuda):
    """The modules of the tests of PyTorch."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.version.cuda:
        pytest.skip(f"torch {torch.__version__} was built without CUDA")
    from tests.system import torch_models  # noqa: PLC0415 - needs torch

    return torch_models


@pytest.fixture
def caller(serve, connect, export):
    """caller(module, flags, fault): a Caller of a server that is started now."""

    def start(module=tritonclient.grpc, *flags, fault=""):
        server = serve(SHM, *flags, fault=fault).ready()
        found = Caller(connect(server, module), module, export)
        found.server = server
        return found

    return start


def of_network(made, more="max_batch_size: 8", rows=""):
    given, returned = made.tensor("input", dims=f"{rows}3, 16, 16"), made.tensor(OUT, dims=f"{rows}10")
    return made.config([given], [returned], f"{more} {GPU}")


def configured(made, dims="-1", more="max_batch_size: 8", dtype="FP32", out=None):
    out = dims if out is None else out
    return made.config([made.tensor(X, dtype, dims)], [made.tensor(OUT, dtype, out)], f"{more} {GPU}")


# ---- PyTorch


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_a_network_s_tensors_stay_on_the_gpu(made, caller, tmp_path, module):
    net, expected = network(made.torch)
    made.save(net, tmp_path / "models/m", of_network(made))
    asked = caller(module, fault=ONLY_ON_THE_GPU)
    for rows in (8, 1, 3):
        found = asked.infer("m", {"input": ROWS[:rows]}, {OUT: expected[:rows]})[OUT]
        assert np.allclose(found, expected[:rows], atol=1e-2), rows
        travels = asked.client.infer("m", **asked.asked({"input": ROWS[:rows]}, {}, {OUT: None})).as_numpy(OUT)
        assert np.allclose(travels, expected[:rows], atol=1e-2), rows


def test_every_type_is_passed_on_as_it_is(made, caller, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="numpy has no BF16 without ml_dtypes")
    kinds = ["FP16", "FP32", "FP64", "BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "BF16"]
    for kind in kinds:
        made.save(made.Identity(), tmp_path / "models" / kind, configured(made, dtype=kind))
    asked = caller(fault=ONLY_ON_THE_GPU)
    for kind in kinds:
        dtype = ml_dtypes.bfloat16 if kind == "BF16" else tritonclient.utils.triton_to_np_dtype(kind)
        values = np.array([[0, 1, 2], [1, 0, 100]]).astype(dtype)
        assert asked.infer(kind, {X: values}, {OUT: values})[OUT].tolist() == values.tolist(), kind


def test_an_input_may_begin_anywhere_in_its_region(made, caller, tmp_path):
    made.save(made.Network(), tmp_path / "models/m", configured(made, "64", out="10"))
    values = np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32)
    asked = caller(fault=ONLY_ON_THE_GPU)
    travels = asked.client.infer("m", **asked.asked({X: values}, {}, {OUT: None})).as_numpy(OUT)
    for offset in (0, 4, 12, 1, 2):
        asked.given.write(bytes(offset) + values.tobytes())
        asked.client.infer("m", **asked.asked({X: values}, {X: offset}, {OUT: (0, 80)}))
        found = np.frombuffer(asked.wanted.read(80), np.float32)
        assert np.allclose(found, travels.ravel(), atol=1e-3), offset


def exported(made, net, folder):
    batch = made.torch.export.Dim("batch", min=1, max=8)
    return made.export(net, folder, (made.torch.from_numpy(ROWS[:2]),), ({0: batch},))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_exported_program(made, caller, tmp_path, compiled):
    net, expected = network(made.torch)
    folder = exported(made, net, tmp_path / "models/m")
    more = ""
    if compiled:
        if not shutil.which("gcc") or not Path(sysconfig.get_path("include"), "Python.h").exists():
            pytest.skip("torch.compile needs a C compiler and the interpreter's headers on a GPU")
        pytest.importorskip("triton", reason="torch.compile needs OpenAI's triton on a GPU")
        more = 'parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS" value { string_value: "{}" } }'
    (folder / "config.pbtxt").write_text(f'backend: "pytorch" {GPU} {more}')
    asked = caller(fault=ONLY_ON_THE_GPU)
    entry = asked.server.ask("GET", "/v2/models/m/config")[1]
    names = entry["input"][0]["name"], entry["output"][0]["name"]
    for rows in (8, 2, 1):
        found = asked.infer("m", {names[0]: ROWS[:rows]}, {names[1]: expected[:rows]})[names[1]]
        assert np.allclose(found, expected[:rows], atol=1e-2), rows


PACKAGED = """
import sys
import numpy, torch
from tests.gpu.backend_calls import ROWS, network
net, _ = network(torch)
batch = torch.export.Dim("batch", min=1, max=8)
with torch.no_grad():
    program = torch.export.export(net.cuda(), (torch.from_numpy(ROWS[:2]).cuda(),), dynamic_shapes=({0: batch},))
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
torch._inductor.aoti_load_package(sys.argv[1])
"""


def test_a_compiled_package(made, caller, tmp_path):
    _, expected = network(made.torch)
    folder = tmp_path / "models/m"
    (folder / "1").mkdir(parents=True)
    command = [sys.executable, "-c", PACKAGED, str(folder / "1/model.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if done.returncode:
        pytest.skip(f"torch compiles and loads no package for a GPU here ({done.returncode}): {done.stderr[-300:]}")
    tensors = '[ {{ name: "{}" data_type: TYPE_FP32 dims: [ {} ] }} ]'
    (folder / "config.pbtxt").write_text(
        f'backend: "pytorch" max_batch_size: 8 {GPU} input {tensors.format("INPUT__0", "3, 16, 16")} '
        f"output {tensors.format(OUT, '10')}"
    )
    asked = caller(fault=ONLY_ON_THE_GPU)
    for rows in (8, 2):
        found = asked.infer("m", {"INPUT__0": ROWS[:rows]}, {OUT: expected[:rows]})[OUT]
        assert np.allclose(found, expected[:rows], atol=1e-2), rows


MODULE = """
import torch

class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("two", torch.tensor(2.0))

    def forward(self, x):
        assert x.is_cuda and self.two.is_cuda and torch.cuda.device_count() == 1
        return x * self.two
"""


def test_a_module_in_a_model_py(made, caller, tmp_path):
    folder = tmp_path / "models/m"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(MODULE)
    (folder / "config.pbtxt").write_text('runtime: "model.py" ' + configured(made))
    asked = caller(fault=ONLY_ON_THE_GPU)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (asked.infer("m", {X: values}, {OUT: values})[OUT] == values * 2).all()


@pytest.mark.parametrize("count", [1, 2])
def test_requests_of_a_batch_come_from_region_and_host_and_go_to_either(made, caller, tmp_path, count):
    config = configured(made, more=BATCHED).replace("kind: KIND_GPU", f"count: {count} kind: KIND_GPU")
    made.save(made.InPlace(), tmp_path / "models/m", config)
    asked = caller()
    values = np.arange(16 * 1024, dtype=np.float32).reshape(16, 1, 1024)
    for _ in range(3):
        asked.given.write(values.tobytes())
        calls = []
        for at in range(16):
            places = {X: at * 4096} if at % 2 else {}
            calls.append(asked.asked({X: values[at]}, places, {OUT: (at * 4096, 4096) if at % 3 else None}))
        answers = asked.infer_at_once("m", calls)
        found = np.frombuffer(asked.wanted.read(16 * 4096), np.float32).reshape(16, 1, 1024)
        for at, answer in enumerate(answers):
            got = found[at] if at % 3 else answer.as_numpy(OUT)
            assert (got == values[at] + 1).all(), at
    requests, batches = executions(asked.server, "m")
    assert requests == 48
    assert batches < 48


def test_text_beside_a_tensor_on_the_gpu(made, caller, tmp_path):
    words, loud = (made.tensor(name, "STRING", "1", "reshape { shape: [ ] }") for name in ("words", "loud"))
    config = made.config([words, made.tensor("times")], [loud, made.tensor("twice")], f"max_batch_size: 8 {GPU}")
    made.save(made.Words(), tmp_path / "models/m", config)
    asked = caller()
    text, times = np.array([[b"a"], [b"b"]], np.object_), np.ones((2, 3), np.float32)
    asked.given.write(times.tobytes())
    call = asked.asked({"words": text, "times": times}, {"times": 0}, {"loud": None, "twice": (0, times.nbytes)})
    assert asked.client.infer("m", **call).as_numpy("loud").tolist() == [[b"a!"], [b"b!"]]
    assert (np.frombuffer(asked.wanted.read(times.nbytes), np.float32) == 2).all()


def test_ragged_inputs_are_joined_on_the_gpu(made, caller, tmp_path):
    ragged = made.tensor(X, more="allow_ragged_batch: true")
    config = made.config([ragged], [made.tensor(OUT, dims="1")], f"{BATCHED} {GPU}")
    counts = ('batch_input [ { kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_FP32 '
              'source_input: "x" } ]')  # fmt: skip
    made.save(Sums(made.torch), tmp_path / "models/m", config + counts)
    asked = caller()
    parts = [np.arange(1, size + 1, dtype=np.float32).reshape(1, -1) for size in (1, 5, 2, 7)]
    asked.given.write(b"".join(part.tobytes().ljust(64, b"\0") for part in parts))
    places = [{X: 0}, {X: 64}, {}, {X: 192}]
    calls = [asked.asked({X: part}, places[at], {OUT: (4 * at, 4)}) for at, part in enumerate(parts)]
    asked.infer_at_once("m", calls)
    found = np.frombuffer(asked.wanted.read(16), np.float32)
    assert found.tolist() == [part.sum() for part in parts]


def Sums(torch):  # noqa: N802 - makes a module
    class Module(torch.nn.Module):
        """The sum of each request's elements."""

        def forward(self, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            whose = torch.arange(counts.size(0), device=x.device)
            which = torch.repeat_interleave(whose, counts.reshape(-1).to(torch.int64))
            return torch.zeros([counts.size(0), 1], device=x.device).index_add_(0, which, x.reshape(-1, 1))

    return Module()


def test_state_of_sequences(made, caller, tmp_path):
    inputs, outputs = [made.tensor("x")], [made.tensor("OUTPUT__0"), made.tensor("OUTPUT__1", "UINT64", "1")]
    control = 'control_input [ {{ name: "{}" control [ {{ {} }} ] }} ]'
    sequences = (
        f"sequence_batching {{ {control.format('start', 'kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ]')} "
        f"{control.format('who', 'kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64')} "
        'state [ { input_name: "before" output_name: "OUTPUT__2" data_type: TYPE_FP32 dims: [ 3 ] } ] }'
    )
    config = made.config(inputs, outputs, f"max_batch_size: 8 {GPU} {sequences}").replace("dims: [ -1 ]", "dims: [ 3 ]")
    made.save(made.Accumulator(), tmp_path / "models/m", config)
    asked = caller()
    x = np.ones((1, 3), np.float32)
    for step in (1, 2, 3):
        found = asked.infer("m", {"x": x}, {OUT: x}, sequence_id=5, sequence_start=step == 1, sequence_end=step == 3)
        assert (found[OUT] == step).all()


def test_an_ensemble_of_frameworks_hands_tensors_on_where_they_lie(made, caller, tmp_path, write_model):
    net, expected = network(made.torch)
    made.save(net, tmp_path / "models/m0", of_network(made, "max_batch_size: 0", "8, "))
    made.save(made.InPlace(), tmp_path / "models/m1", configured(made, "8, 10", "max_batch_size: 0"))
    write_model("m2", IDENTITY, CONFIG.replace("-1", "8, 10") + GPU + STAYS)
    maps = 'input_map {{ key: "{}" value: "{}" }} output_map {{ key: "{}" value: "{}" }}'
    step = f'step {{{{ model_name: "m{{}}" model_version: -1 {maps} }}}}'
    steps = [("0", "input", "A", OUT, "x"), ("1", X, "x", OUT, "y"), ("2", "A", "y", "B", "B")]
    folder = write_model("m", "", f"""
platform: "ensemble"
input [ {{ name: "A" data_type: TYPE_FP32 dims: [ 8, 3, 16, 16 ] }} ]
output [ {{ name: "B" data_type: TYPE_FP32 dims: [ 8, 10 ] }} ]
ensemble_scheduling {{ {" ".join(step.format(*each) for each in steps)} }}
""")  # fmt: skip
    (folder / "1/model.py").unlink()
    asked = caller(fault=ONLY_ON_THE_GPU)
    for _ in range(3):
        found = asked.infer("m", {"A": ROWS}, {"B": expected})["B"]
        assert np.allclose(found, expected + 1, atol=1e-2)


class TestMemory:
    """Real allocations, which take nearly all memory of the GPU: nothing else is to run there meanwhile."""

    def test_weights_are_on_the_gpu_once(self, made, serve, tmp_path):
        class Heavy(made.torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("weight", made.torch.zeros(1 << 28))  # a gibibyte

            def forward(self, x):
                return x + self.weight[:1]

        folder = tmp_path / "models/m"
        (folder / "1").mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions would rather have it exported
            traced = made.torch.jit.trace(Heavy(), made.torch.zeros(1, 3), check_trace=False)
            traced.save(str(folder / "1/model.pt"))
        (folder / "config.pbtxt").write_text(configured(made))
        before = gpu_bytes()[0]
        server = serve().ready()
        assert 1 << 30 <= gpu_bytes()[0] - before < (1 << 30) + (900 << 20)  # and a context
        assert server.worker("m_0_0")

    def test_a_model_that_runs_out_is_answered_and_serves_on(self, made, caller, tmp_path):
        made.save(Fills(made.torch), tmp_path / "models/m", configured(made, "1", "max_batch_size: 8", "INT64"))
        asked = caller()
        gib = np.array([[gpu_bytes()[1] >> 29]])  # twice what there is
        asked.given.write(gib.tobytes())
        text = r"ran out of GPU memory \(.* were asked for\) executing a batch of 1; the caches of torch were emptied"
        with pytest.raises(InferenceServerException, match=text):
            asked.client.infer("m", **asked.asked({X: gib}, {X: 0}, {OUT: (0, 8)}))
        assert asked.infer("m", {X: gib * 0}, {OUT: gib})[OUT].tolist() == [[0]]

    def test_a_batch_that_runs_out_is_halved(self, made, caller, tmp_path):
        halves = 'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "halves" } }'
        made.save(Fills(made.torch), tmp_path / "models/m", configured(made, "1", f"{BATCHED} {halves}", "INT64"))
        asked = caller()
        used, total = gpu_bytes()
        each = np.array([[((total - used) >> 30) * 2 // 5]])  # two have room, three have not
        asked.given.write(each.tobytes())
        calls = [asked.asked({X: each}, {X: 0} if at % 2 else {}, {OUT: (8 * at, 8)}) for at in range(4)]
        asked.infer_at_once("m", calls)
        assert np.frombuffer(asked.wanted.read(32), np.int64).tolist() == [each[0, 0]] * 4
        asked.server.says("its halves are executed")

    def test_caches_are_given_back_where_the_configuration_says_so(self, made, caller, tmp_path):
        cleans = 'parameters { key: "ENABLE_CACHE_CLEANING" value { string_value: "true" } }'
        config = configured(made, "1", f"max_batch_size: 8 {cleans}", "INT64")
        made.save(Fills(made.torch), tmp_path / "models/m", config)
        asked = caller()
        four = np.array([[4]])
        asked.infer("m", {X: four}, {OUT: four})
        before = gpu_bytes()[0]
        asked.infer("m", {X: four}, {OUT: four})
        assert gpu_bytes()[0] - before < 1 << 30


def Fills(torch):  # noqa: N802 - makes a module
    class Module(torch.nn.Module):
        """Allocates as many gibibytes as its rows say, and returns them."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            room = torch.empty([int(x.sum()), 1 << 30], dtype=torch.uint8, device=x.device)
            return x + 0 * room.size(0)

    return Module()


def Picks(torch):  # noqa: N802 - makes a module
    class Module(torch.nn.Module):
        """An index beyond the end is an assertion in a kernel, after which the process can use its GPU no more."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, x[0]]

    return Module()


def test_an_instance_that_a_kernel_s_error_has_broken_is_started_again(made, caller, tmp_path):
    made.save(Picks(made.torch), tmp_path / "models/m", configured(made, dtype="INT64"))
    asked = caller()
    good, bad = np.array([[1, 0]]), np.array([[1 << 40, 0]])
    assert asked.infer("m", {X: good}, {OUT: good})[OUT].tolist() == [[0, 1]]
    for wanted in ((0, 16), None):
        worker = asked.server.worker("m_0_0")
        with pytest.raises(InferenceServerException):
            asked.client.infer("m", **asked.asked({X: bad}, {}, {OUT: wanted}))
        until(lambda was=worker: asked.server.worker("m_0_0") != was, "it is started again")
        until(lambda: asked.client.is_model_ready("m"), "the model is back")
        assert asked.infer("m", {X: good}, {OUT: good})[OUT].tolist() == [[0, 1]]


def test_two_models_and_many_clients(made, caller, tmp_path, connect, export):
    net, expected = network(made.torch)
    for name in ("m", "n"):
        made.save(net, tmp_path / "models" / name, of_network(made, BATCHED.replace("200000", "1000")))
    asked, wrong = caller(), []

    def client(at):
        name, rows = "mn"[at % 2], 1 + at % 3
        with client_of_thread(f"127.0.0.1:{asked.server.port}") as own:
            for _ in range(20):
                call = http_call(ROWS[:rows])
                found = own.infer(name, **call).as_numpy(OUT)
                if not np.allclose(found, expected[:rows], atol=1e-2):
                    wrong.append(at)

    threads = [threading.Thread(target=client, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        found = asked.infer("m", {"input": ROWS}, {OUT: expected})[OUT]
        assert np.allclose(found, expected, atol=1e-2)
    for thread in threads:
        thread.join(90)
    assert wrong == []


def http_call(rows):
    tensor = tritonclient.http.InferInput("input", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    return {"inputs": [tensor], "outputs": [tritonclient.http.InferRequestedOutput(OUT)]}


# ---- ONNX Runtime


@pytest.fixture
def graphs(real_cuda):
    """The graphs of the tests of ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    there = runtime.get_available_providers()
    if "CUDAExecutionProvider" not in there:
        pytest.skip(f"onnxruntime {runtime.__version__} here has no provider for CUDA, but {', '.join(there)}")
    from tests.system import onnx_models  # noqa: PLC0415 - needs onnx

    return onnx_models


def test_a_graph_s_tensors_stay_on_the_gpu(graphs, caller, tmp_path):
    graphs.save(graphs.add_sub(), tmp_path / "models/m", f'backend: "onnxruntime" max_batch_size: 4 {GPU}')
    asked = caller(fault=ONLY_ON_THE_GPU)
    a, b = np.random.default_rng(1).standard_normal((2, 3, 16)).astype(np.float32)
    for rows in (3, 1):
        given, wanted = {"INPUT0": a[:rows], "INPUT1": b[:rows]}, {"OUTPUT0": a[:rows], "OUTPUT1": a[:rows]}
        found = asked.infer("m", given, wanted)
        assert (found["OUTPUT0"] == a[:rows] + b[:rows]).all()
        assert (found["OUTPUT1"] == a[:rows] - b[:rows]).all()


def test_requests_of_a_graph_s_batch_come_from_region_and_host(graphs, caller, tmp_path):
    config = f'backend: "onnxruntime" {BATCHED} {GPU}'.replace(": 8", ": 4")
    graphs.save(graphs.add_sub(), tmp_path / "models/m", config)
    asked = caller()
    rows = np.arange(8 * 16, dtype=np.float32).reshape(8, 1, 16)
    asked.given.write(rows.tobytes())
    calls = [
        asked.asked(
            {"INPUT0": rows[at], "INPUT1": rows[at]},
            {"INPUT0": at * 64} if at % 2 else {"INPUT0": at * 64, "INPUT1": at * 64} if at % 3 else {},
            {"OUTPUT0": (at * 64, 64) if at % 4 else None, "OUTPUT1": None},
        )
        for at in range(8)
    ]
    answers = asked.infer_at_once("m", calls)
    found = np.frombuffer(asked.wanted.read(8 * 64), np.float32).reshape(8, 1, 16)
    for at, answer in enumerate(answers):
        assert ((found[at] if at % 4 else answer.as_numpy("OUTPUT0")) == 2 * rows[at]).all()
        assert (answer.as_numpy("OUTPUT1") == 0).all()


# ---- TensorRT


def test_a_plan_s_tensors_stay_on_the_gpu(real_cuda, caller, tmp_path):
    trt = pytest.importorskip("tensorrt", reason="TensorRT is not installed")
    folder = tmp_path / "models/m/1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(doubling_plan(trt))
    (folder.parent / "config.pbtxt").write_text('backend: "tensorrt"')
    asked = caller(fault=ONLY_ON_THE_GPU)
    for rows in (1, 5, 8, 3):
        values = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        assert (asked.infer("m", {"X": values}, {"Y": values})["Y"] == 2 * values).all()
