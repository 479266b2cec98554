"""What is known of CUDA IPC when the server starts, and what is said when a handle does not work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from uuid import UUID

import numpy as np
import psutil
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE, run
from tests.gpu.gpu_models import (
    CONFIG,
    FLOATS,
    GPU,
    IDENTITY,
    NBYTES,
    STAYS,
    WHERE,
    asked,
    copies,
    ensemble,
    register,
)  # fmt: skip
from tests.gpu.stand_in_driver import INVALID_CONTEXT, LAUNCH_FAILED, OUT_OF_MEMORY, logged
from tests.system.helpers import ROOT, until
from tests.waiting import has_ended
from tisfast.models.gpu_placement import Placement
from tisfast.native import cuda_look
from tisfast.native.cuda import Cuda
from tisfast.native.cuda_sharing import SeenGpu, Unseen, is_wsl, seen_gpus, sentences

VALUES = np.arange(NBYTES // 4, dtype=np.float32)
PLAIN = SeenGpu("Card", bytes(16), ipc=True, integrated=False, part=False)


def lines(server, text):
    return [record for record in server.log if text in record["message"]]


# ---- what is seen


def test_the_driver_is_asked_without_a_context(stand_in):
    stand_in.describe(integrated=True)
    before = stand_in.counted()
    seen = seen_gpus()
    assert [(gpu.name, gpu.ipc, gpu.integrated, gpu.part) for gpu in seen] == [("Stand-in", True, True, False)] * 2
    assert [gpu.uuid[-1] for gpu in seen] == [0, 1]
    assert stand_in.counted() == before


@pytest.mark.parametrize(("ipc", "told"), [(0, False), (1, True), (-1, None)])
def test_an_older_driver_does_not_know_whether_it_supports_ipc(stand_in, ipc, told):
    stand_in.describe(ipc=ipc)
    assert [gpu.ipc for gpu in seen_gpus()] == [told] * 2


def test_a_part_of_mig_has_a_uuid_of_its_own(stand_in):
    stand_in.describe(parts=True)
    seen = seen_gpus()
    assert [(gpu.part, gpu.uuid[-2:]) for gpu in seen] == [(True, bytes([1, 0])), (True, bytes([1, 1]))]
    assert seen[1].logged == "MIG-57a4d140-0000-0000-0000-000000000101 (Stand-in)"


def test_who_resets_a_gpu_is_told_its_own_uuid_and_not_that_of_a_part(stand_in):
    stand_in.describe(parts=True)
    cuda = Cuda(str(stand_in.library))
    used = threading.Event()
    cuda.lane(1).post(used.set)
    assert used.wait(60)
    assert [f"GPU {each.device} ({each.uuid})" for each in cuda.conditions()] == [logged(1)]


def test_a_driver_that_refuses_says_why(stand_in):
    stand_in.fail("cuInit", 100)
    assert seen_gpus() == Unseen("cuInit: no CUDA-capable device is detected")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.kill(os.getpid(), 11)", Unseen("a trial of it ended with exit status -11", True)),
        ("raise SystemExit(3)", Unseen("a trial of it ended with exit status 3", is_open=True)),
        (
            "import threading; threading.Event().wait()",
            Unseen("a trial of it has not ended within 0.5 s", is_open=True),
        ),
    ],
)
def test_a_trial_that_goes_wrong_is_told(tmp_path, code, expected):
    (tmp_path / "trial.py").write_text(code)
    assert seen_gpus(str(tmp_path / "trial.py"), 0.5 if "wait" in code else 30) == expected


class Stuck:
    """A process in the driver, which no signal ends."""

    pid, stdout = 7, None

    def __init__(self, *_, **__):
        self.killed = 0

    def communicate(self, timeout):
        raise subprocess.TimeoutExpired("trial", timeout)

    def kill(self):
        self.killed += 1


def test_a_trial_that_cannot_be_killed_is_left_behind():
    made = Stuck()
    found = seen_gpus(seconds=0.5, start=lambda *_, **__: made)
    text = "the driver does not answer: a trial of it, process 7, has not ended within 0.5 s, nor within 0.5 s after it"
    assert found == Unseen(f"{text} was killed", is_open=True)
    assert made.killed == 1


def test_a_trial_that_says_nothing_is_told(tmp_path):
    (tmp_path / "silent.py").write_text("")
    assert isinstance(seen_gpus(str(tmp_path / "silent.py")), Unseen)


def test_wsl_is_known_by_its_kernel(tmp_path):
    kernel = tmp_path / "osrelease"
    assert not is_wsl(kernel)
    kernel.write_text("6.6.87.2-microsoft-standard-WSL2\n")
    assert is_wsl(kernel)
    kernel.write_text("6.8.0-45-generic\n")
    assert not is_wsl(kernel)


# ---- what is said of it


def test_nothing_is_said_where_all_is_well():
    assert sentences([PLAIN, PLAIN._replace(ipc=None, integrated=None)], wsl=False) == []


@pytest.mark.parametrize(
    ("gpu", "wsl", "why", "follows"),
    [
        (PLAIN._replace(ipc=False), False, "supports no CUDA IPC", "CUDA regions on it are refused"),
        (PLAIN._replace(ipc=False), True, "supports no CUDA IPC", "CUDA regions on it are refused"),
        (PLAIN._replace(part=True), False, "part of MIG", "CUDA regions are tried"),
        (PLAIN, True, "this is WSL2", "CUDA regions are tried"),
        (PLAIN._replace(integrated=True), False, "Tegra shares that", "CUDA regions are tried"),
    ],
)
def test_each_reason_is_one_sentence_with_what_follows_and_the_remedy(gpu, wsl, why, follows):
    (said,) = sentences([gpu, gpu], wsl=wsl)
    assert said.startswith("GPU 0 (Card), 1 (Card): ")
    for part in (why, follows, "by way of host memory", "'tisfast docs gpu'"):
        assert part in said


A, B, C = (bytes([each]) * 16 for each in range(3))


class Nvml:
    """Of so many GPUs, A first."""

    def count(self):
        return 3

    def uuid(self, name):
        return (A, B, C)[int(name)]

    def facts(self, name):
        return None


@pytest.mark.parametrize(
    ("visible", "shown", "said", "hidden"),
    [
        ("01", (A, B), "", ""),
        ("01", (C, B), "GPU 0 (Card): the server sees it and ", f"not see GPU 0 (GPU-{UUID(bytes=A)}) of in"),
        ("0", (C,), "GPU 0 (Card): the server sees it and ", f"not see GPU 0 (GPU-{UUID(bytes=A)}) of in"),
        ("012", (C, B, A), "", ""),
    ],
)
def test_where_the_server_sees_other_gpus_than_instances_both_are_named(visible, shown, said, hidden):
    seen = [PLAIN._replace(uuid=uuid) for uuid in shown]
    found = sentences(seen, wsl=False, instances=Placement(visible, Nvml()))
    assert len(found) == bool(said)
    assert all(each.startswith(said) and hidden in each and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in each for each in found)
    with_wsl = sentences(seen, wsl=True, instances=Placement(visible, Nvml()))
    assert ["this is WSL2" in each for each in with_wsl] == [True, *[False] * bool(said)]


def test_where_the_uuid_of_an_instance_s_gpu_is_not_known_nothing_is_said():
    class Partly(Nvml):
        def uuid(self, name):
            return None if name == "0" else super().uuid(name)

    seen = [PLAIN._replace(uuid=uuid) for uuid in (B, A)]
    assert sentences(seen, wsl=False, instances=Placement("01", Partly())) == []


def test_gpus_without_ipc_and_parts_of_mig_have_a_reason_of_their_own():
    seen = [PLAIN._replace(uuid=C, ipc=False), PLAIN._replace(uuid=B, part=True)]
    found = sentences(seen, wsl=False, instances=Placement("0", Nvml()))
    assert ["supports no CUDA IPC" in each for each in found] == [True, False] and "part of MIG" in found[1]


def test_regions_are_tried_where_nothing_is_known():
    (said,) = sentences(Unseen("a trial of it has not ended within 30 s", is_open=True), wsl=False)
    assert "not ended within 30 s" in said and "CUDA regions are tried" in said
    assert "CUDA regions are refused" not in said


def test_a_driver_that_cannot_be_used_is_said():
    (said,) = sentences(Unseen("cuInit: unknown error"), wsl=False)
    assert "cuInit: unknown error" in said and "CUDA regions are refused" in said and "nvidia-smi" in said


def test_a_part_of_mig_is_to_be_named_to_the_server():
    (said,) = sentences([PLAIN._replace(part=True)], wsl=False)
    assert "Unless CUDA_VISIBLE_DEVICES=MIG-... names the part to the server, all tensors go by way of host" in said
    assert "client and models must be on the same one, best named to both in this way" in said


# ---- the server


@pytest.fixture
def started(stand_in, serve, write_model, connect):
    """started(code, config): (server, a client of it)."""

    def start(code, config=CONFIG + GPU + STAYS, fault=""):
        write_model("m", code, config)
        server = serve("--allow-client-shm=true", fault=fault).ready()
        return server, connect(server, tritonclient.http)

    return start


def trials_of(pid):
    """Processes of this one's that ask the driver what it knows."""
    return [each for each in psutil.Process(pid).children() if cuda_look.__file__ in each.cmdline()]


def ends(trial):
    """Long before the time that it has by itself."""
    return until(lambda: has_ended(trial), "the trial has ended", cuda_look.SECONDS_MAX / 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_trial_of_a_driver_that_hangs_ends_with_the_server(stand_in, serve, write_model, number):
    write_model("m", WHERE, CONFIG)
    with stand_in.hanging("cuInit") as begun:
        server = serve().ready()
        until(begun, "the driver is asked")
        (trial,) = trials_of(server.process.pid)
        server.end(number)
        assert ends(trial)


def test_a_trial_of_a_driver_that_hangs_ends_with_the_check(stand_in, write_model):
    repository = write_model("m", IDENTITY, CONFIG + GPU).parent
    code = (
        "import signal, sys; from tisfast.cli import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # a shell's background jobs ignore it
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "check", str(repository)]
    with stand_in.hanging("cuInit") as begun, subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT) as check:
        until(begun, "the driver is asked")
        (trial,) = trials_of(check.pid)
        check.send_signal(signal.SIGINT)
        check.communicate()
        assert ends(trial)


def test_a_trial_whose_server_has_ended_before_it_begins_asks_nobody(stand_in):
    command = [sys.executable, "-I", cuda_look.__file__, str(os.getppid())]
    with stand_in.hanging("cuInit"):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "whoever asked has ended\n")


SHARING = "sharing GPU memory with other processes"


def test_a_gpu_without_ipc_is_said_at_the_start_and_nothing_is_tried(started, export, stand_in):
    stand_in.describe(ipc=0)
    server, client = started(IDENTITY)
    server.says("GPU 0 (Stand-in), 1 (Stand-in): its driver supports no CUDA IPC here")
    allocated, before = stand_in.allocated(), stand_in.counted()
    given = export(NBYTES)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="GPU 0 does not support CUDA IPC, .* use system"):
            register(client, "given", given)
    assert stand_in.counted()["streams_made"] == before["streams_made"]  # no context of the server's
    assert stand_in.allocated() - allocated == NBYTES
    assert len(lines(server, SHARING)) == 1


@pytest.mark.parametrize(("ipc", "notes"), [(0, 1), (1, 0)])
def test_check_tells_the_same_and_finds_no_error_in_it(stand_in, write_model, ipc, notes):
    stand_in.describe(ipc=ipc)
    repository = write_model("m", IDENTITY, CONFIG + GPU).parent
    command = [sys.executable, "-m", "tisfast", "check", str(repository)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stdout.count("note: GPU 0 (Stand-in), 1 (Stand-in): its driver")) == (0, notes)
    assert ran.stdout.endswith("1 model(s), no errors\n")


@pytest.mark.parametrize(("flags", "code"), [((), 1), (("--min-supported-compute-capability=5.0",), 0)])
def test_check_takes_the_least_capability_of_the_server(stand_in, write_model, flags, code):
    stand_in.set(devices=1)
    stand_in.describe(capability=5.2)
    repository = write_model("m", IDENTITY, CONFIG + GPU).parent
    command = [sys.executable, "-m", "tisfast", "check", *flags, str(repository)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, "leaves out GPU 0" in ran.stdout) == (code, bool(code))


@pytest.mark.parametrize("value", ["0", ""])
def test_check_sees_no_gpu_where_the_server_would_see_none(stand_in, write_model, monkeypatch, value):
    monkeypatch.setenv("TRITON_SERVER_CPU_ONLY", value)
    stand_in.describe(ipc=0)
    repository = write_model("m", IDENTITY, CONFIG + GPU).parent
    command = [sys.executable, "-m", "tisfast", "check", str(repository)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stdout.count("note: ")) == (1, 0)
    assert "instance group m_0 of model m specifies invalid or unsupported gpu id 0" in ran.stdout
    assert "TRITON_SERVER_CPU_ONLY is set, and any value of it leaves the server no GPU; unset it" in ran.stdout


NOWHERE = "GPU 0 (Stand-in): the server sees it and instances do not, so all tensors in CUDA regions on it are copied. "


@pytest.mark.parametrize(("order", "times"), [("", 1), ("PCI_BUS_ID", 0)])
def test_a_gpu_that_only_the_server_sees_is_warned_of(started, stand_in, shares, monkeypatch, order, times):
    stand_in.set(unlike=True)  # CUDA counts from the last one of the bus
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    if order:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    server, client = started(WHERE if times else IDENTITY)  # which answers to host memory alone, to none
    said = server.says("GPUs by CUDA's numbers")["message"]
    assert said.endswith(f"; the server does not see {logged(1)[7:-1]}, GPU 0 of instance_group" if times else "_group")
    shares(client)
    assert where(client)
    found = lines(server, f"{SHARING}: {NOWHERE}")
    assert [each["level"] for each in found] == ["warning"] * times


def test_check_warns_of_a_gpu_that_only_the_server_sees(stand_in, write_model, monkeypatch):
    stand_in.set(unlike=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    repository = write_model("m", IDENTITY, CONFIG + GPU).parent
    command = [sys.executable, "-m", "tisfast", "check", str(repository)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ran.returncode, ran.stdout.count(f"note: {NOWHERE}")) == (0, 1)


def test_a_healthy_gpu_is_not_worth_a_line(started, export):
    server, client = started(IDENTITY)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    assert not lines(server, SHARING)


# ---- a handle that does not work


CANNOT = "instance {0} of model '{1}' (pid {2}) cannot open {3} (cuIpcOpenMemHandle_v2: {4}): {5}"
THROUGH_HOST = (
    "the server copies its tensors through host memory until the region is registered again. Most likely the client "
    "has freed this memory, or has ended. Else: Processes in several containers need "
)
OPENS = "cuIpcOpenMemHandle_v2"


@pytest.fixture
def shares(export):
    """shares(client, name): a client's region with VALUES in it."""

    def make(client, name="given"):
        memory = export(NBYTES)
        memory.write(VALUES.tobytes())
        register(client, name, memory)
        return memory

    return make


def where(client, model="m"):
    """The answer of WHERE, which is the region's."""
    return client.infer(model, **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()


def test_a_region_that_the_server_cannot_open_is_logged_once_with_the_remedy(started, export, stand_in):
    server, client = started(IDENTITY)
    stand_in.fail(OPENS, INVALID_CONTEXT)
    for _ in range(3):
        text = r"cuIpcOpenMemHandle_v2: invalid device context\): most likely the client has freed this memory"
        with pytest.raises(InferenceServerException, match=text):
            register(client, "given", export(NBYTES))
    said = server.says(
        "region 'given' of GPU 0 was refused (cuIpcOpenMemHandle_v2: invalid device context): its client is told so. "
    )
    likely, containers = "client has freed this memory, or has ended. Else: ", "docker run --ipc=host --pid=host"
    assert containers in said["message"].partition(likely)[2]
    assert len(lines(server, "was refused")) == 1


@pytest.mark.parametrize("config", ["", "max_batch_size: 8 dynamic_batching { }"])
def test_where_a_worker_cannot_open_a_region_its_inputs_come_in_host_memory(started, shares, stand_in, config):
    server, client = started(WHERE, CONFIG + GPU + STAYS + config)
    shares(client)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"))
    before = stand_in.counted()["faults_met"]
    request = asked(tritonclient.http)
    if config:
        request["inputs"][0].set_shape([1, NBYTES // 4])
    for _ in range(3):
        assert client.infer("m", **request).as_numpy("B").reshape(-1).tolist() == VALUES.tolist()
    server.says("on the CPU: [True]")
    assert stand_in.counted()["faults_met"] - before == 1  # the driver was asked once
    region, reason = "region 'given' of GPU 0", "invalid device context"
    server.says(CANNOT.format("m_0_0", "m", server.worker("m_0_0"), region, reason, THROUGH_HOST))


def test_a_region_that_is_registered_again_is_tried_again(started, shares, stand_in):
    server, client = started(WHERE)
    shares(client)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"), times=1)
    assert where(client)
    client.unregister_cuda_shared_memory("given")
    shares(client)
    with pytest.raises(InferenceServerException, match="Tensor is stored in GPU"):
        where(client)


def test_the_reason_is_logged_once_for_all_models_instances_and_restarts(stand_in, serve, write_model, connect, shares):
    for name in ("one", "other"):
        write_model(name, WHERE, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server, tritonclient.http)
    shares(client)
    shares(client, "more")
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=-server.process.pid)
    assert where(client, "one") and where(client, "other")
    worker = server.worker("one_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker("one_0_0") != worker and client.is_model_ready("one"), "it is back")
    client.infer("one", **asked(tritonclient.http, region="more"))
    assert stand_in.counted()["faults_met"] == 2  # of each region
    assert len(lines(server, " cannot open region ")) == 1


def test_an_output_for_a_region_that_the_worker_cannot_open_is_written_by_the_server(started, shares, stand_in):
    server, client = started(IDENTITY)
    shares(client)
    wanted = shares(client, "wanted")
    wanted.write(bytes(NBYTES))
    client.infer("m", **asked(tritonclient.http))  # the input is open
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"))
    before = stand_in.counted()["faults_met"]
    for _ in range(3):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    assert wanted.read(NBYTES) == VALUES.tobytes()
    assert stand_in.counted()["faults_met"] - before == 1
    region, reason = "region 'wanted' of GPU 0", "invalid device context"
    server.says(CANNOT.format("m_0_0", "m", server.worker("m_0_0"), region, reason, THROUGH_HOST))


@pytest.fixture
def chain(started_chain):
    """(server, client) of a chain whose second model reads on the host."""
    return started_chain()


def passed_on(client, name="A"):
    tensor = tritonclient.http.InferInput(name, list(VALUES.shape), "FP32")
    tensor.set_data_from_numpy(VALUES)
    return client.infer("m", [tensor]).as_numpy("B").tolist() == VALUES.tolist()


def test_a_model_that_cannot_open_what_is_lent_gets_its_inputs_in_host_memory(chain, stand_in):
    server, client = chain
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m1_0_0"))
    assert passed_on(client)
    memory, reason = "memory of GPU 0 that the server has lent to another instance", "invalid device context"
    follows = "all inputs of its model come in host memory for 10 minutes. Processes in several containers need "
    server.says(CANNOT.format("m1_0_0", "m1", server.worker("m1_0_0"), memory, reason, follows))
    before = stand_in.counted()
    assert passed_on(client) and passed_on(client)
    assert copies(stand_in, before) == [2, 2, 0]  # m0's own, and to the host: nothing goes by lent memory
    assert stand_in.counted()["faults_met"] == before["faults_met"] == 1


def test_a_model_that_cannot_open_what_it_is_lent_gives_it_back_and_asks_no_more(chain, stand_in):
    server, client = chain
    allocated = stand_in.allocated()
    stand_in.fail(OPENS, OUT_OF_MEMORY, pid=server.worker("m0_0_0"))
    assert passed_on(client) and passed_on(client)
    memory, reason = "memory of GPU 0 that the server has lent it", "out of memory"
    follows = "it asks for none for 10 minutes, and its tensors go to other models through host memory"
    server.says(CANNOT.format("m0_0_0", "m0", server.worker("m0_0_0"), memory, reason, follows))
    assert stand_in.counted()["faults_met"] == 1
    until(lambda: stand_in.allocated() == allocated, "what was lent has been given back to the GPU")
    assert passed_on(client)  # the model was idle meanwhile
    assert stand_in.counted()["faults_met"] == 1


SAYS = """
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "B") for request in requests]
        answers = [pb_utils.Tensor("B", numpy.full(1, t.is_cpu(), numpy.float32)) for t in tensors]
        return [pb_utils.InferenceResponse([answer]) for answer in answers]
"""


def test_inputs_come_on_the_gpu_again_after_a_while_also_behind_an_ensemble_that_was_loaded_meanwhile(
    stand_in, started_chain, write_model, shares
):
    folder = write_model("late", "", ensemble("B", ("A", "B")).replace('"m0"', '"m1"'))
    (folder / "1/model.py").unlink()
    flags = ("--model-control-mode=explicit", "--load-model=m", "--allow-client-shm=true")
    server, client = started_chain(SAYS, *flags, fault="from tisfast import limits; limits.LENT_REFUSED_SECONDS = 10")
    shares(client)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m1_0_0"), times=1)

    def on_the_cpu(model, name):
        return client.infer(model, **asked(tritonclient.http, name=name)).as_numpy("B").tolist() == [1.0]

    tensor = tritonclient.http.InferInput("A", [4], "FP32")
    tensor.set_data_from_numpy(VALUES[:4])
    assert client.infer("m", [tensor]).as_numpy("B").tolist() == [1.0]  # what m0 was lent cannot be opened
    assert on_the_cpu("m1", "B")
    client.load_model("late")
    assert on_the_cpu("late", "A")
    until(lambda: not on_the_cpu("m1", "B"), "the model has its inputs on the GPU again")
    assert not on_the_cpu("late", "A")


@pytest.mark.parametrize("most", [0, 1])
def test_copies_for_an_instance_that_cannot_open_memory_are_bounded(started, shares, stand_in, most):
    server, client = started(WHERE, fault=f"from tisfast import limits; limits.GPU_COPIES_MAX = {most}")
    shares(client)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"))
    if not most:
        text = "the server cannot copy it: 0 copies of GPU memory wait for this instance, which is the limit"
        with pytest.raises(InferenceServerException, match=text):
            where(client)
    for _ in range(3):  # what is taken makes room; the server itself copies from then on
        assert where(client)


def test_where_the_driver_supports_no_ipc_nothing_is_lent_and_the_driver_is_not_asked(stand_in, started_chain):
    stand_in.describe(ipc=0)
    server, client = started_chain()
    server.says("its driver supports no CUDA IPC here")
    stand_in.fail("cuIpcGetMemHandle", OUT_OF_MEMORY)
    allocated = stand_in.allocated()
    before = stand_in.counted()
    assert passed_on(client) and passed_on(client)
    assert copies(stand_in, before) == [2, 2, 0]
    assert (stand_in.allocated() - allocated, stand_in.counted()["faults_met"]) == (0, before["faults_met"])
    assert len(lines(server, "by way of")) == 1  # what was said at the start


def test_where_the_server_can_export_nothing_it_is_asked_once_while_there_are_requests(chain, stand_in):
    server, client = chain
    stand_in.fail("cuIpcGetMemHandle", OUT_OF_MEMORY)
    for _ in range(2):  # within the 10 s in which it is not asked again
        assert passed_on(client)
    assert stand_in.counted()["faults_met"] == 1
    told = server.says("there is no memory of GPU 0 for tensors between models (allocating 16777216 bytes")["message"]
    assert told.endswith(
        "out of memory): tensors go from model to model by way of host memory. Free memory on GPU 0, or have the "
        "server lend less than 67108864 bytes of it: --cuda-memory-pool-byte-size=0:BYTES"
    )
    assert len(lines(server, "by way of")) == 1


def test_an_answer_to_a_call_that_the_caller_cannot_open_comes_in_host_memory(stand_in, serve, write_model, connect):
    for name in ("caller", "other"):
        write_model(name, NODE, FLOATS + GPU + STAYS)
    server = serve().ready()
    client = connect(server, tritonclient.http)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("caller_0_0"))
    for _ in range(2):
        steps = ["call", "other", [["made", 1]]], ["is_cpu", True]
        assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 1).tolist()
    assert stand_in.counted()["faults_met"] == 1


def test_a_copy_that_fails_refuses_the_request_with_both_reasons(started, shares, stand_in):
    server, client = started(WHERE)
    shares(client)
    stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"))
    stand_in.fail("cuMemcpyDtoHAsync_v2", OUT_OF_MEMORY, times=1)
    text = (
        r"tensor 'A' lies in GPU memory of another process, which instance m_0_0 cannot open "
        r"\(cuIpcOpenMemHandle_v2: invalid device context\), and the server cannot copy it: it is the client's region "
        r"'given', and copying \d+ bytes of GPU memory failed: cuMemcpyDtoHAsync_v2: out of memory. GPU 0 .* has no "
        r"room for what the driver needs: free memory there, and try again"
    )
    with pytest.raises(InferenceServerException, match=text):
        where(client)
    assert where(client)


def test_an_instance_that_loses_its_gpu_when_it_opens_memory_says_so_and_is_started_again(started, shares, stand_in):
    server, client = started(WHERE)
    shares(client)
    worker = server.worker("m_0_0")
    stand_in.fail(OPENS, LAUNCH_FAILED, pid=worker)
    text = (
        r"tensor 'A' lies in region 'given', and instance m_0_0 has lost its GPU "
        r"\(cuIpcOpenMemHandle_v2: unspecified launch failure\). It ends, and the server starts it again"
    )
    with pytest.raises(InferenceServerException, match=text):
        where(client)
    server.says(
        f"instance m_0_0 of model 'm' (pid {worker}) ends, as its process can use the GPU no more: opening region "
        "'given' for tensor 'A' failed: cuIpcOpenMemHandle_v2: unspecified launch failure. Look for the error in the "
        "model's own kernels"
    )
    until(lambda: server.worker("m_0_0") != worker and server.model_ready("m"), "the model is back")
    with pytest.raises(InferenceServerException, match="Tensor is stored in GPU"):  # it has been opened there
        where(client)

