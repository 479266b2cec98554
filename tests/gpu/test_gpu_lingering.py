"""A killed instance whose process does not end: it has clients' GPU memory open still, and who unregisters is told."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import tritonclient.http

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, NBYTES, STAYS, asked, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.operations.helpers import BY_NAME
from tests.system.helpers import until
from tests.unkillable import SOON, is_held, unkillable
from tisfast.operations.region_words import TO_ITS_END

HANGS = IDENTITY.replace(
    "        found", """        import os
        while os.path.exists("FOLDER/hang") and requests[0].request_id() == "hangs":
            open("FOLDER/begun", "w").close()
        found""", 1,
)  # fmt: skip
LOOK = (
    "Look whether 'nvidia-smi' answers; if requests for it go on failing, reset it (nvidia-smi --gpu-reset -i UUID; "
    "see 'nvidia-smi -L' and the server's log) and start the server again"
)
CLOSES = "cuIpcCloseMemHandle"
UNREGISTER = "/v2/cudasharedmemory/region/given/unregister"
ALL = "/v2/cudasharedmemory/unregister"


@pytest.fixture
def started(stand_in, serve, write_model, connect, region, tmp_path):
    """started(): (server, client) of a model whose instance has the client's region "given" open."""

    def start(*flags, seconds=3, more=""):
        write_model("m", HANGS.replace("FOLDER", str(tmp_path)), CONFIG + GPU + STAYS)
        flags = ("--model-control-mode=explicit", "--load-model=m", "--allow-client-shm=true", *flags)
        server = serve(*flags, fault=f"{SOON}limits.GPU_REGION_SECONDS_MAX = {seconds}\n{more}")
        client = connect(server.ready(), tritonclient.http)
        region(client, "given")
        client.infer("m", **asked(tritonclient.http))
        return server, client

    return start


def kill_nursery(server, client, tmp_path):
    os.kill(psutil.Process(server.worker("m_0_0")).ppid(), signal.SIGKILL)


def unload(server, client, tmp_path):
    client.unload_model("m")


def hang(server, client, tmp_path):
    """Its execution takes longer than it may."""
    (tmp_path / "hang").touch()
    tensor = tritonclient.http.InferInput("A", [NBYTES // 4], "FP32").set_shared_memory("other", NBYTES)
    client.async_infer("m", [tensor], request_id="hangs")


def kill_it(server, client, tmp_path):
    """As an operator does, or the kernel for want of memory."""
    os.kill(server.worker("m_0_0"), signal.SIGKILL)


def lose_gpu(server, client, tmp_path, stand_in):
    """It ends by itself, and the server is not told when it has not."""
    stand_in.fail("cuCtxSynchronize", LAUNCH_FAILED, times=1, pid=server.worker("m_0_0"))
    with pytest.raises(tritonclient.utils.InferenceServerException, match="launch failure"):
        client.infer("m", **asked(tritonclient.http))


def lingers(server, pid, how="was killed"):
    """What the log says when the server goes on without it."""
    return server.says(
        f"instance m_0_0 of model 'm' (pid {pid}) {how} and has not ended within 0.5 s: most likely it hangs in its "
        "GPU's driver"
    )


@pytest.mark.parametrize("end", [kill_nursery, unload, hang, kill_it, lose_gpu])
def test_a_killed_process_that_does_not_end_has_the_memory_until_it_has(started, stand_in, region, tmp_path, end):
    server, client = started("--execution-timeout-secs=1")
    pid = server.worker("m_0_0")
    region(client, "other")
    with unkillable(pid):
        end(server, client, tmp_path, *((stand_in,) if end is lose_gpu else ()))
        lingers(server, pid, "began to end" if end in (kill_it, lose_gpu) else "was killed")
        assert is_held(pid)
        if end is unload:
            until(lambda: not client.is_model_ready("m"), "it is unloaded")
            client.load_model("m")
        until(lambda: server.worker("m_0_0") != pid, "there is another one")
        client.infer("m", **asked(tritonclient.http, region="other"))  # the model goes on
        for path in (UNREGISTER, UNREGISTER, ALL):
            status, answer = server.ask("POST", path, {})
            assert status == 503
            # Of the other one it has the memory, too.
            which = "regions 'given' and 'other'" if path == ALL and end is hang else "region 'given'"
            assert answer["error"] == (
                f"shared memory {which} unregistered, but not closed within 3 s; do not free the memory "
                f"yet, and unregister again to wait again: instance m_0_0 of model 'm' (pid {pid}) has it open still: "
                "killed, but not ended, most likely in a call of a GPU's driver that hangs. Free the memory when this "
                f"process has ended. {LOOK}{BY_NAME if path == ALL else ''}"
            )
    assert server.ask("POST", UNREGISTER, {}) == (200, {})
    ends = {kill_nursery: "", unload: ": ", lose_gpu: ": exited with code 1"}
    how = ends.get(end, ": was killed by signal 9 (SIGKILL)")
    server.says(f"instance m_0_0 of model 'm' (pid {pid}) has ended{how}")
    assert server.ask("POST", ALL, {}) == (200, {})
    assert server.end() == 0
    ends = [each for each in server.log if ") has ended" in each["message"]]
    assert len(ends) == 1  # the log says nothing of those that end when they are told to


def test_a_killed_process_that_does_not_end_hides_no_instance_that_uses_the_memory(started, tmp_path):
    """The instance goes on with the region: who frees that loses it."""
    server, client = started()
    pid = server.worker("m_0_0")
    with unkillable(pid):
        kill_it(server, client, tmp_path)
        lingers(server, pid, "began to end")
        until(lambda: server.worker("m_0_0") != pid, "there is another one")
        (tmp_path / "hang").touch()
        answer = client.async_infer("m", **asked(tritonclient.http), request_id="hangs")
        until((tmp_path / "begun").exists, "it executes")
        status, told = server.ask("POST", UNREGISTER, {})
        (tmp_path / "hang").unlink()
        answer.get_result()
        assert status == 503
        assert told["error"].partition("to wait again: ")[2] == (
            f"requests use it in instance m_0_0 of model 'm' (pid {server.worker('m_0_0')}); instance m_0_0 of model "
            f"'m' (pid {pid}) has it open still: killed, but not ended, most likely in a call of a GPU's driver that "
            f"hangs. {TO_ITS_END}. {LOOK}"
        )
    assert server.ask("POST", UNREGISTER, {}) == (200, {})


def test_who_waits_when_the_process_ends_at_last_is_told_that_all_is_closed(started, tmp_path):
    server, client = started(seconds=60)
    pid = server.worker("m_0_0")
    with ThreadPoolExecutor(1) as threads:
        with unkillable(pid):
            kill_nursery(server, client, tmp_path)
            lingers(server, pid)
            waits = threads.submit(server.ask, "POST", UNREGISTER, {})
            said = server.says("shared memory region 'given' unregistered, but not closed within 0.5 s")["message"]
            assert f"instance m_0_0 of model 'm' (pid {pid}) has it open still" in said
            assert not waits.done()
        assert waits.result(60) == (200, {})


@pytest.mark.parametrize("path", [UNREGISTER, ALL])
def test_a_refusal_to_close_holds_until_the_process_has_ended(started, stand_in, tmp_path, path):
    server, client = started()
    pid = server.worker("m_0_0")
    stand_in.fail(CLOSES, 217, pid=pid)
    status, answer = server.ask("POST", UNREGISTER, {})
    refuses = f"refuses that in instance m_0_0 of model 'm' (pid {pid}) ({CLOSES}: error 217). Do not"
    assert status == 500 and refuses in answer["error"]
    with unkillable(pid):
        kill_nursery(server, client, tmp_path)
        lingers(server, pid)
        until(lambda: server.worker("m_0_0") != pid, "there is another one")
        for _ in range(2):
            status, answer = server.ask("POST", path, {})
            assert status == 500
            assert answer["error"] == (
                "shared memory region 'given' unregistered, but not closed: the driver refuses that in instance m_0_0 "
                f"of model 'm' (pid {pid}), which was killed and has not ended ({CLOSES}: error 217). Do not free the "
                "memory before this process has ended: what was killed and has not ended does not end by an unload, "
                f"nor with the server. {LOOK}{BY_NAME if path == ALL else ''}"
            )
    until(lambda: server.ask("POST", path, {}) == (200, {}), "it went with the process")


def test_memory_that_was_lent_to_a_process_that_does_not_end_is_lent_to_nobody_else(started_chain):
    def parts():
        return float(server.metrics().partition('tisfast_gpu_lent_parts{gpu="0",state="lent"} ')[2].partition("\n")[0])

    server, client = started_chain(IDENTITY.replace('"A"', '"B"'), fault=SOON)
    tensor = tritonclient.http.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    client.infer("m", [tensor])
    pid = server.worker("m0_0_0")
    assert parts() == 1
    with unkillable(pid):
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        server.says(f"instance m0_0_0 of model 'm0' (pid {pid}) was killed and has not ended")
        until(lambda: client.is_model_ready("m"), "it is back")
        client.infer("m", [tensor])
        assert parts() == 2
    until(lambda: parts() == 1, "it is free")


def test_a_lost_gpu_says_which_killed_process_keeps_it(started_chain, stand_in, export):
    fault = f"{SOON}limits.GPU_LOST_SECONDS_MAX = 2\n"
    server, client = started_chain(IDENTITY.replace('"A"', '"B"'), "--allow-client-shm=true", fault=fault)
    tensor = tritonclient.http.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.ones(1, np.float32))
    client.infer("m", [tensor])
    pid = server.worker("m0_0_0")
    with unkillable(pid):
        os.kill(pid, signal.SIGKILL)
        server.says(f"instance m0_0_0 of model 'm0' (pid {pid}) began to end and has not ended")
        stand_in.fail("cuIpcOpenMemHandle_v2", LAUNCH_FAILED, times=1, pid=server.process.pid)
        who = f"instance m0_0_0 of model 'm0' (pid {pid}), which was killed and has not ended"
        for said in ("launch failure", f"it begins anew when {who}, has. {LOOK}"):
            with pytest.raises(tritonclient.utils.InferenceServerException) as failed:
                register(client, "given", export(NBYTES))
            assert said in str(failed.value)
    until(lambda: client.is_model_ready("m"), "all are back")
    register(client, "given", export(NBYTES))


def test_a_killed_process_without_a_gpu_is_not_said_to_hang_in_its_driver(serve, write_model):
    write_model("m")
    server = serve(fault=SOON).ready()
    pid = server.worker("m_0")
    with unkillable(pid):
        os.kill(pid, signal.SIGKILL)
        said = server.says(f"instance m_0 of model 'm' (pid {pid}) began to end and has not ended within 0.5 s: ")
        assert said["message"].partition("0.5 s: ")[2] == (
            "a file system that does not answer, a debugger, or much memory that it gives back may hold it, or a "
            f"device that the model uses ('ps -L -o stat,wchan:40 -p {pid}' says what it waits for). The server goes "
            "on without it. Until it ends, its memory stays taken"
        )
        until(lambda: server.worker("m_0") != pid, "there is another one")


def test_the_end_of_the_server_waits_for_no_process_that_does_not_end(started, tmp_path):
    server, client = started("--exit-timeout-secs=30", seconds=60)
    pid = server.worker("m_0_0")
    with ThreadPoolExecutor(1) as threads, unkillable(pid):
        kill_nursery(server, client, tmp_path)
        lingers(server, pid)
        until(lambda: server.worker("m_0_0") != pid, "there is another one")
        waits = threads.submit(server.ask, "POST", UNREGISTER, {})
        server.says("shared memory region 'given' unregistered, but not closed within 0.5 s")
        assert server.end() == 0
        status, answer = waits.result(60)
        assert status == 503
        assert answer["error"] == (
            "shared memory region 'given' unregistered, but not closed before the server ends: free the memory when it "
            f"has ended, and instance m_0_0 of model 'm' (pid {pid}), which was killed and has not ended, has, too"
        )


def test_no_worker_is_started_when_too_many_have_not_ended(started, tmp_path):
    server, client = started(more="limits.LINGERING_WORKERS_MAX = 1\n")
    pid = server.worker("m_0_0")
    with unkillable(pid):
        kill_nursery(server, client, tmp_path)
        lingers(server, pid)
        server.says(
            "instance m_0_0 could not be restarted: cannot fork a worker for m_0_0: 1 killed processes of instances "
            f"have not ended, which is the limit; the pid of one is {pid}. The log says of each "
            "what may hold it; when one has ended, another worker is started"
        )
        assert server.worker("m_0_0") == pid
    until(lambda: client.is_model_ready("m"), "it is back")
    client.infer("m", **asked(tritonclient.http))
