"""What is told of a GPU that the server loses, or that hangs, and of its return: the log and the metrics."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, STAYS, WHERE, asked, register
from tests.gpu.stand_in_driver import INVALID_CONTEXT, LAUNCH_FAILED, OUT_OF_MEMORY, logged
from tests.system.helpers import until

NBYTES = 4096
GPU_0 = logged(0)
LABELS = "0", GPU_0.partition("(")[2][:-1]
SOON = "from tisfast import limits\nlimits.GPU_TOLD_SECONDS = 1"
LOST = (
    ": unspecified launch failure): CUDA regions there must be unregistered and registered again. Most likely a client "
    "has freed memory that it had not unregistered; else look at the GPU itself (nvidia-smi, dmesg)"
)
COPY = "a copy of at most 1048576 bytes; for tensor 'A' of model 'm', in region 'given'"
RESETS = "cuDevicePrimaryCtxReset_v2"
OPENS, READS, WRITES = "cuIpcOpenMemHandle_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"


@pytest.fixture
def served(stand_in, serve, write_model, connect):
    """served(model, config): (server, client)."""

    def start(model=WHERE, config=CONFIG, fault=SOON):
        write_model("m", model, config)
        server = serve("--allow-client-shm=true", fault=fault).ready()
        return server, connect(server, tritonclient.http)

    return start


def gpu_metrics(server):
    """{the name and the labels' values: value} of what the server tells of the GPUs that it uses."""
    lines = re.findall(r"^tisfast_gpu_(losses_total|down)\{([^}]*)\} (\S+)$", server.metrics(), re.MULTILINE)
    return {(name, *re.findall(r'"([^"]+)"', labels)): float(value) for name, labels, value in lines}


def figures(losses, **down):
    """Of GPU 0, as of gpu_metrics.  down: the reasons for which it is."""
    gauge = {("down", *LABELS, reason): down.get(reason, 0) for reason in ("lost", "unusable", "hangs")}
    return {("losses_total", *LABELS): losses, **gauge}


def told(server, text):
    """The lines of the log that have it."""
    return [record["message"] for record in server.log if text in record["message"]]


def fails(client, **call):
    with pytest.raises(InferenceServerException, match="launch failure"):
        client.infer("m", **call)


def test_a_loss_and_its_end_are_told_once_each(served, stand_in, export):
    server, client = served()
    assert "tisfast_gpu" not in server.metrics()
    memory = export(NBYTES)
    register(client, "given", memory)
    assert gpu_metrics(server) == figures(0)
    stand_in.fail(READS, LAUNCH_FAILED, times=1, pid=server.process.pid)
    for _ in range(3):
        fails(client, **asked(tritonclient.http, NBYTES))
    loss = f"the server has lost {GPU_0}, found in a call for tensor 'A' of model 'm', in region 'given' ({READS}{LOST}"
    assert server.says(f"the server has lost {GPU_0}")["message"] == loss
    assert gpu_metrics(server) == figures(1, lost=1)
    client.unregister_cuda_shared_memory("given")
    assert gpu_metrics(server) == figures(1, lost=1)  # nobody has used it again
    register(client, "given", memory)
    again = server.says(f"the server uses {GPU_0} again")["message"]
    assert re.fullmatch(
        rf"the server uses {re.escape(GPU_0)} again, \d+\.\d s after it had lost it: new CUDA regions can be "
        "registered there, and memory is lent. Regions of before the loss stay unusable until their clients "
        "unregister them and register them again", again,
    )  # fmt: skip
    assert gpu_metrics(server) == figures(1)
    client.infer("m", **asked(tritonclient.http, NBYTES))
    register(client, "more", export(NBYTES))
    assert (told(server, "has lost GPU"), told(server, "uses GPU")) == ([loss], [again])


@pytest.mark.parametrize("call", [RESETS, "cuDevicePrimaryCtxRetain", "cuStreamCreate"])
def test_a_lost_gpu_that_cannot_be_used_again_is_told_once_for_each_reason(served, stand_in, export, call):  # noqa: PLR0917
    server, client = served()
    memory, pid = export(NBYTES), server.process.pid
    register(client, "given", memory)
    stand_in.fail(READS, LAUNCH_FAILED, times=1, pid=pid)
    stand_in.fail(call, LAUNCH_FAILED, pid=pid)
    fails(client, **asked(tritonclient.http, NBYTES))

    def refused(reason):
        with pytest.raises(InferenceServerException, match=f"the server cannot use GPU 0: {call}: {reason}"):
            register(client, "more", memory)

    def unusable(reason):
        return (
            f"the server has lost {GPU_0} and cannot use it again ({call}: {reason}): it refuses CUDA regions and "
            "lends no memory there. It tries again when somebody registers a region there or an instance needs memory. "
            "This is said once for each reason. If it goes on, start the server again"
        )

    for _ in range(3):
        refused("unspecified launch failure")
    record = server.says("cannot use it again")
    assert (record["level"], record["message"]) == ("error", unusable("unspecified launch failure"))
    stand_in.fail(call, INVALID_CONTEXT, pid=pid)
    for _ in range(2):
        refused("invalid device context")
    server.says(unusable("invalid device context"))
    assert len(told(server, "cannot use it again")) == 2
    stand_in.fail(call, 0)
    register(client, "more", memory)
    server.says(f"the server uses {GPU_0} again")
    assert len(told(server, "cannot use it again")) == 2


def test_a_lost_gpu_that_cannot_be_reset_is_told_also_where_a_region_is_unregistered(served, stand_in, export):
    server, client = served()
    pid = server.process.pid
    register(client, "given", export(NBYTES))
    stand_in.fail(READS, LAUNCH_FAILED, times=1, pid=pid)
    stand_in.fail(RESETS, LAUNCH_FAILED, pid=pid)
    fails(client, **asked(tritonclient.http, NBYTES))
    with pytest.raises(InferenceServerException, match=f"refuses that in the server .{RESETS}: unspecified"):
        client.unregister_cuda_shared_memory("given")
    server.says(f"the server has lost {GPU_0} and cannot use it again ({RESETS}: unspecified launch failure): it ")


@pytest.mark.parametrize(
    ("code", "reason"), [(INVALID_CONTEXT, "invalid device context"), (OUT_OF_MEMORY, "out of memory")]
)
def test_a_gpu_that_could_not_be_used_at_first_is_told_once_and_so_is_its_end(served, stand_in, export, code, reason):  # noqa: PLR0917
    server, client = served()
    memory = export(NBYTES)
    stand_in.fail("cuDevicePrimaryCtxRetain", code, pid=server.process.pid)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match=f"cuDevicePrimaryCtxRetain: {reason}"):
            register(client, "given", memory)
    server.says(f"the server cannot use {GPU_0} (cuDevicePrimaryCtxRetain: {reason}): it refuses CUDA")
    assert gpu_metrics(server) == figures(0, unusable=1)
    stand_in.fail("cuDevicePrimaryCtxRetain", 0)
    gone = export(NBYTES)
    gone.free()
    with pytest.raises(InferenceServerException, match="invalid resource handle"):
        register(client, "given", gone)  # whatever the handle is: the GPU works
    server.says(f"the server can use {GPU_0} now")
    assert gpu_metrics(server) == figures(0)
    assert len(told(server, "the server cannot use GPU 0")) == 1


@pytest.mark.parametrize("finds", ["registering", "an output", "a copy for an instance"])
def test_a_loss_names_what_has_found_it(served, stand_in, export, finds):
    passes = finds == "a copy for an instance"
    server, client = served(IDENTITY if passes else WHERE, CONFIG + (GPU + STAYS if passes else ""))
    pid, memory, call = server.process.pid, export(NBYTES), asked(tritonclient.http, NBYTES)
    if finds == "registering":
        stand_in.fail(OPENS, LAUNCH_FAILED, times=1, pid=pid)
        with pytest.raises(InferenceServerException, match="launch failure"):
            register(client, "given", memory)
        what, name = "region 'given'", OPENS
    elif passes:
        register(client, "given", memory)
        stand_in.fail(OPENS, INVALID_CONTEXT, pid=server.worker("m_0_0"))
        stand_in.fail(READS, LAUNCH_FAILED, times=1, pid=pid)
        fails(client, **call)
        what, name = "a copy for instance m_0_0 of model 'm', of region 'given'", READS
    else:
        register(client, "wanted", memory)
        call = asked(tritonclient.http, NBYTES, output="wanted")
        call["inputs"] = [tritonclient.http.InferInput("A", [4], "FP32")]
        call["inputs"][0].set_data_from_numpy(np.zeros(4, np.float32))
        stand_in.fail(WRITES, LAUNCH_FAILED, times=1, pid=pid)
        fails(client, **call)
        what, name = "output 'B' of model 'm', into region 'wanted'", WRITES
    said = server.says(f"the server has lost {GPU_0}")["message"]
    assert said == f"the server has lost {GPU_0}, found in a call for {what} ({name}{LOST}"


def test_a_hang_and_its_end_are_told_once_each(served, stand_in, export):
    server, client = served()
    register(client, "given", export(NBYTES))
    held, port = stand_in.counted()["operations_held"], server.port

    def infer():
        with tritonclient.http.InferenceServerClient(f"localhost:{port}") as own:
            return own.infer("m", **asked(tritonclient.http, NBYTES))

    with ThreadPoolExecutor(1) as threads:
        with stand_in.holding(device=0):
            answer = threads.submit(infer)
            until(lambda: stand_in.counted()["operations_held"] > held, "the copy hangs")
            server.says(f"{GPU_0} has not ended a call ({COPY}) for 1 s, and no other calls wait: ")
            assert gpu_metrics(server) == figures(0, hangs=1)
        answer.result(60)
    over = server.says(f"{GPU_0} has ended the call")["message"]
    ended = re.escape(f"{GPU_0} has ended the call ({COPY}) that it hung at, after ")
    assert re.fullmatch(ended + r"[\d.]+ s: what waits for it goes on", over)
    until(lambda: gpu_metrics(server) == figures(0), "it hangs no more")
    client.infer("m", **asked(tritonclient.http, NBYTES))
    assert len(told(server, "has not ended a call")) == len(told(server, "has ended the call")) == 1


def test_a_hang_that_ends_in_a_loss_is_not_said_to_go_on(served, stand_in, export):
    server, client = served()
    register(client, "given", export(NBYTES))
    port, pid = server.port, server.process.pid

    def infer():
        with tritonclient.http.InferenceServerClient(f"localhost:{port}") as own:
            fails(own, **asked(tritonclient.http, NBYTES))

    with ThreadPoolExecutor(1) as threads, stand_in.hanging("cuStreamSynchronize", pid=pid) as begun:
        answer = threads.submit(infer)
        until(begun, "it hangs")
        server.says(f"{GPU_0} has not ended a call")
        assert gpu_metrics(server) == figures(0, hangs=1)
        stand_in.fail("cuStreamSynchronize", LAUNCH_FAILED, times=1, pid=pid)  # what the hung call returns, too
        answer.result(60)
    assert "that it hung at" in server.says("s: the server has lost it")["message"]
    until(lambda: gpu_metrics(server) == figures(1, lost=1), "it hangs no more")
    assert len(told(server, "the server has lost GPU 0")) == 1
