"""What is known of CUDA IPC when the server starts, and what is said when a handle does not work."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, NBYTES, STAYS, asked, register
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
    assert [(gpu.part, gpu.uuid[-2:]) for gpu in seen_gpus()] == [(True, bytes([1, 0])), (True, bytes([1, 1]))]


def test_a_driver_that_refuses_says_why(stand_in):
    stand_in.fail("cuInit", 100)
    assert seen_gpus() == Unseen("cuInit: no CUDA-capable device is detected")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.kill(os.getpid(), 11)", Unseen("a trial of it ended with exit status -11", True)),
        ("raise SystemExit(3)", Unseen("a trial of it ended with exit status 3")),
        ("import threading; threading.Event().wait()", Unseen("a trial of it has not ended within 0.5 s")),
    ],
)
def test_a_trial_that_goes_wrong_is_told(tmp_path, code, expected):
    (tmp_path / "trial.py").write_text(code)
    assert seen_gpus(str(tmp_path / "trial.py"), 0.5 if "wait" in code else 30) == expected


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
        (PLAIN._replace(integrated=True), False, "as Tegra's", "CUDA regions are tried"),
    ],
)
def test_each_reason_is_one_sentence_with_what_follows_and_the_remedy(gpu, wsl, why, follows):
    (said,) = sentences([gpu, gpu], wsl=wsl)
    assert said.startswith("GPU 0 (Card), 1 (Card): ")
    for part in (why, follows, "by way of pinned host memory", "docs/gpu.md"):
        assert part in said


def test_a_driver_that_cannot_be_used_is_said():
    (said,) = sentences(Unseen("cuInit: unknown error"), wsl=False)
    assert "cuInit: unknown error" in said and "CUDA regions are refused" in said and "nvidia-smi" in said


# ---- the server


@pytest.fixture
def started(stand_in, serve, write_model, connect):
    """started(code, config): (server, a client of it)."""

    def start(code, config=CONFIG + GPU + STAYS):
        write_model("m", code, config)
        server = serve("--allow-client-shm=true").ready()
        return server, connect(server, tritonclient.http)

    return start


SHARING = "sharing GPU memory with other processes"


def test_a_gpu_without_ipc_is_said_at_the_start_and_nothing_is_tried(started, export, stand_in):
    stand_in.describe(ipc=0)
    server, client = started(IDENTITY)
    server.says("GPU 0 (Stand-in), 1 (Stand-in): its driver supports no CUDA IPC here")
    allocated, before = stand_in.allocated(), stand_in.counted()
    given = export(NBYTES)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="the NVIDIA driver supports no CUDA IPC on GPU 0"):
            register(client, "given", given)
    assert stand_in.counted()["streams_made"] == before["streams_made"]  # no context of the server's
    assert stand_in.allocated() - allocated == NBYTES
    assert len(lines(server, SHARING)) == 1


def test_a_healthy_gpu_is_not_worth_a_line(started, export):
    server, client = started(IDENTITY)
    given = export(NBYTES)
    given.write(VALUES.tobytes())
    register(client, "given", given)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    assert not lines(server, SHARING)
