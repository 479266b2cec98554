"""What clients are told of CUDA regions that cannot be registered, used or closed, and what the log says of that."""

from __future__ import annotations

import base64
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, FLOATS, GPU, IDENTITY, MADE, STAYS, WHERE, asked, register
from tests.gpu.stand_in_driver import INVALID_CONTEXT, LAUNCH_FAILED, OUT_OF_MEMORY, logged
from tests.system.helpers import until
from tisfast.operations.region_words import NOT_CLOSED

NBYTES = 4096
OPENS, CLOSES = "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"
NO_PEER_ACCESS = 217
"""What the driver refuses a call with, in a context that works."""
PASSED = FLOATS.replace('"B"', '"A"', 1) + GPU + STAYS
TO_STAY = (
    ". If the client has freed this memory, or has ended: it must keep the memory until it has unregistered the "
    "region. Unregister the region, and register it again with memory that is there"
)
BY_NAME = (
    ". You unregistered all regions, so you also hear of other clients' memory, as long as this is so. To hear only of "
    "yours, unregister your regions by name"
)
WAITS = IDENTITY.replace("        found", """        import os
        if os.path.exists("FOLDER/wait"):
            open("FOLDER/begun", "w").close()
        while os.path.exists("FOLDER/wait"):
            pass
        found""", 1)  # fmt: skip


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def served(request, stand_in, serve, write_model, connect):
    """served(model, config, *flags): (server, client) of a model that returns its input, over both protocols."""

    def start(model=IDENTITY, config=PASSED, *flags):
        write_model("m", model, config)
        server = serve("--allow-client-shm=true", *flags).ready()
        return server, connect(server, request.param)

    start.module = request.param
    return start


def refused(call, *values):
    """(the status, the text) of what a client is told."""
    with pytest.raises(InferenceServerException) as told:
        call(*values)
    return told.value.status().removeprefix("StatusCode."), told.value.message()


def names(client):
    """Of what is registered."""
    found = client.get_cuda_shared_memory_status()
    return [each["name"] for each in found] if isinstance(found, list) else sorted(found.regions)


@pytest.mark.parametrize("name", ["given", ""])
def test_who_unregisters_is_told_that_the_server_s_driver_does_not_close_it(served, stand_in, export, name):
    server, client = served()
    memory = export(NBYTES)
    register(client, "given", memory)
    stand_in.fail(CLOSES, INVALID_CONTEXT, pid=server.process.pid)
    status, text = refused(client.unregister_cuda_shared_memory, name)
    assert status in ("500", "INTERNAL")
    assert text == (
        "shared memory region 'given' unregistered, but not closed: the driver refuses that in the server "
        f"({CLOSES}: invalid device context). Do not free the memory before the server has ended"
        f"{BY_NAME if not name else ''}"
    )
    assert names(client) == []
    assert refused(client.unregister_cuda_shared_memory, name) == (status, text)  # its answer may not have come
    register(client, "given", memory)
    assert names(client) == ["given"]
    server.says(f"{logged(0)} does not give memory back")


def test_who_unregisters_is_told_that_an_instance_s_driver_does_not_close_it(served, stand_in, export):
    server, client = served()
    memory = export(NBYTES)
    register(client, "given", memory)
    client.infer("m", **asked(served.module, NBYTES))
    pid = server.worker("m_0_0")
    stand_in.fail(CLOSES, NO_PEER_ACCESS, pid=pid)
    status, text = refused(client.unregister_cuda_shared_memory, "given")
    assert status in ("500", "INTERNAL")
    assert text.endswith(
        f"refuses that in instance m_0_0 of model 'm' (pid {pid}) ({CLOSES}: error {NO_PEER_ACCESS}). Do not free the "
        "memory before this process has ended: end that process by its pid with 'kill -9' (the server then starts "
        "the instance again), unload its model (only with --model-control-mode=explicit), or end the server"
    )
    server.says(
        f"the driver does not close GPU memory of another process that instance m_0_0 of model 'm' (pid {pid}) had "
        f"open ({CLOSES}: error {NO_PEER_ACCESS}): it stays open until the instance ends. This is said once, and there "
        "may be more such memory later"
    )
    assert refused(client.unregister_cuda_shared_memory, "given") == (status, text)
    stand_in.fail(CLOSES, 0)
    os.kill(pid, signal.SIGKILL)  # as the error says
    until(lambda: server.ask("POST", "/v2/cudasharedmemory/region/given/unregister", {})[0] == 200, "it went with it")


def test_an_instance_that_loses_its_gpu_as_it_closes_a_region_ends_before_who_unregisters_is_answered(
    served, stand_in, export
):
    server, client = served()
    register(client, "given", export(NBYTES))
    client.infer("m", **asked(served.module, NBYTES))
    worker = psutil.Process(server.worker("m_0_0"))
    stand_in.fail(CLOSES, LAUNCH_FAILED, pid=worker.pid)
    client.unregister_cuda_shared_memory("given")
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    server.says(
        f"instance m_0_0 of model 'm' (pid {worker.pid}) ends, as its process can use the GPU no more: closing GPU "
        f"memory of another process failed: {CLOSES}: unspecified launch failure. Look for the error in the model's "
        "own kernels; or a client has freed memory that this instance has open"
    )
    register(client, "given", export(NBYTES))
    client.infer("m", **asked(served.module, NBYTES))


def test_a_region_needs_a_name(served, export):
    server, client = served()
    family = "cuda" if served.module is tritonclient.grpc else ""
    if family:
        handle = base64.b64encode(export(NBYTES).handle)
        told = refused(client.register_cuda_shared_memory, "", handle, 0, NBYTES)
        assert told == ("INVALID_ARGUMENT", "'region name' is necessary to register cuda shared memory region")
        told = refused(client.register_system_shared_memory, "", "/x", NBYTES)
        assert told == ("INVALID_ARGUMENT", "'region name' is necessary to register system shared memory region")
    else:  # an empty name is no path
        assert server.ask("POST", "/v2/cudasharedmemory/region//register", {})[0] == 404
    assert names(client) == []


@pytest.mark.parametrize("device_id", [-1, 2, 1 << 40])
@pytest.mark.parametrize("ipc", [0, 1])
def test_a_gpu_that_is_not_there_is_told_with_the_region_and_the_number_of_gpus(  # noqa: PLR0917
    served, stand_in, export, device_id, ipc
):
    stand_in.describe(ipc=ipc)
    server, client = served()
    if not ipc:
        server.says("supports no CUDA IPC here")
    handle = base64.b64encode(export(NBYTES).handle)
    status, text = refused(client.register_cuda_shared_memory, "r", handle, device_id, NBYTES)
    assert status in ("400", "INVALID_ARGUMENT")
    assert text == (
        f"failed to register shared memory region: invalid args (region 'r': device_id is {device_id}, the server sees "
        "2 GPUs, so it may be 0 to 1)"
    )


def test_a_handle_that_is_refused_is_told_with_its_region(served, stand_in, export):
    server, client = served()
    status, text = refused(client.register_cuda_shared_memory, "r", base64.b64encode(b"ab"), 0, NBYTES)
    assert status in ("400", "INVALID_ARGUMENT")
    wire = "HTTP takes them in base64, gRPC as they are"
    assert text.endswith(f"encoded cudaIpcMemHandle_t (region 'r': it has 2 bytes, a handle has 64; {wire})")
    status, text = refused(client.register_cuda_shared_memory, "r", base64.b64encode(bytes(64)), 0, NBYTES)
    assert status in ("400", "INVALID_ARGUMENT")
    assert text.startswith("failed to register shared memory region: invalid args (region 'r': cuIpcOpenMemHandle_v2: ")
    assert "or has ended; else these bytes are no handle of CUDA's, or client and server are in different c" in text
    stand_in.fail("cuIpcOpenMemHandle_v2", OUT_OF_MEMORY, pid=server.process.pid)
    status, text = refused(client.register_cuda_shared_memory, "r", base64.b64encode(export(NBYTES).handle), 0, NBYTES)
    assert status in ("503", "UNAVAILABLE")
    assert text.startswith("failed to register shared memory region 'r': cuIpcOpenMemHandle_v2: out of memory: GPU 0 ")


def test_a_gpu_that_is_lost_as_it_opens_a_handle_is_not_said_to_be_the_client_s_mistake(served, stand_in, export):
    server, client = served()
    memory = export(NBYTES)
    handle = base64.b64encode(memory.handle)
    stand_in.fail("cuIpcOpenMemHandle_v2", LAUNCH_FAILED, times=1, pid=server.process.pid)
    status, text = refused(client.register_cuda_shared_memory, "r", handle, 0, NBYTES)
    assert status in ("503", "UNAVAILABLE")
    assert text == (
        "failed to register shared memory region 'r': cuIpcOpenMemHandle_v2: unspecified launch failure. The server "
        "has to begin GPU 0 anew, and does so when a region is registered there: try again"
    )
    server.says(f"the server has lost {logged(0)}, found in a call for region 'r' (cuIpcOpenMemHandle_v2: unspecified ")
    client.register_cuda_shared_memory("r", handle, 0, NBYTES)
    assert "was refused" not in server.text()


def test_a_copy_of_memory_that_was_freed_says_what_to_do(served, export):
    _, client = served(WHERE, CONFIG)
    memory = export(NBYTES)
    register(client, "given", memory)
    memory.free()
    _, text = refused(lambda: client.infer("m", **asked(served.module, NBYTES)))
    assert re.search(rf"copying {NBYTES} bytes of GPU memory failed: cu\w+: .*{re.escape(TO_STAY)}", text), text


@pytest.mark.parametrize("returned", [False, True])
def test_a_copy_that_lacks_memory_of_the_gpu_names_its_tensor_and_does_not_blame_the_client(
    served, stand_in, export, returned
):
    """An input that the model returns is the output that the client asks for."""
    server, client = served(*((IDENTITY, CONFIG + GPU + STAYS) if returned else (WHERE, CONFIG)))
    register(client, "given", export(NBYTES))
    stand_in.fail("cuMemcpyDtoHAsync_v2", OUT_OF_MEMORY, times=1, pid=server.process.pid)
    _, text = refused(lambda: client.infer("m", **asked(served.module, NBYTES)))
    assert text == (
        f"tensor '{'B' if returned else 'A'}' of model 'm', in region 'given': copying {NBYTES} bytes of GPU memory "
        f"failed: cuMemcpyDtoHAsync_v2: out of memory. {logged(0)} has no room for what the driver needs: free memory "
        "there, and try again"
    )


@pytest.mark.parametrize("model", [MADE, WHERE], ids=["by the model", "by the server"])
def test_an_output_for_memory_that_was_freed_says_what_to_do(served, export, model):
    _, client = served(model, FLOATS + GPU if model is MADE else CONFIG)
    memory = export(NBYTES)
    register(client, "wanted", memory)
    memory.free()
    call = asked(served.module, NBYTES, 0, "wanted")
    call["inputs"][0] = served.module.InferInput("B" if model is MADE else "A", [NBYTES // 4], "FP32")
    call["inputs"][0].set_data_from_numpy(np.zeros(NBYTES // 4, np.float32))
    _, text = refused(lambda: client.infer("m", **call))
    assert re.search(rf"copying {NBYTES} bytes of .*{re.escape(TO_STAY)}", text), text


def test_the_log_says_which_instance_a_client_waits_for_when_it_unregisters(served, export, tmp_path):
    server, client = served(WAITS.replace("FOLDER", str(tmp_path)))
    memory, other = export(NBYTES), export(NBYTES)
    register(client, "given", memory)
    register(client, "other", other)
    client.infer("m", **asked(served.module, NBYTES))
    (tmp_path / "wait").touch()
    ready = server.said(lambda r: r.get("event") == "ready", "ready")
    port = ready["grpc_port" if served.module is tritonclient.grpc else "http_port"]

    def infer():  # a client of its own: tritonclient's over HTTP belong to their thread
        with served.module.InferenceServerClient(f"localhost:{port}") as own:
            return own.infer("m", **asked(served.module, NBYTES, region="other"))

    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(infer)
        until((tmp_path / "begun").exists, "the instance executes")
        gone = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/given/unregister", {})
        try:
            said = server.says("shared memory region 'given' unregistered, but not closed within 5 s")
            assert not gone.done()
        finally:
            (tmp_path / "wait").unlink()
        long.result(60)
        assert gone.result(60)[0] == 200
    assert said["message"].endswith(
        f": instance m_0_0 of model 'm' (pid {server.worker('m_0_0')}) has it open and has not closed it yet: it "
        f"executes a batch that takes long, or its process does not run. {NOT_CLOSED}"
    )


ENDS = (
    "failed to register shared memory region 'late': the server ends, and GPU 1 has not opened the memory yet. Free "
    "the memory when the server has ended"
)


@pytest.mark.parametrize(("call", "seconds"), [(OPENS, 0), (OPENS, 60), (CLOSES, 60)])
def test_a_server_that_ends_while_a_gpu_hangs_says_which(served, stand_in, export, call, seconds):  # noqa: PLR0917
    server, client = served(IDENTITY, CONFIG, f"--exit-timeout-secs={seconds}")
    memory = export(NBYTES)
    handle = base64.b64encode(memory.handle).decode()
    base, closes = "/v2/cudasharedmemory/region/late", call == CLOSES
    body = {"raw_handle": {"b64": handle}, "device_id": 1, "byte_size": NBYTES}
    if closes:
        assert server.ask("POST", f"{base}/register", body)[0] == 200
    with ThreadPoolExecutor(1) as threads, stand_in.hanging(call, pid=server.process.pid) as begun:
        path = f"{base}/unregister" if closes else f"{base}/register"
        late = threads.submit(server.ask, "POST", path, {} if closes else body)
        until(begun, "the GPU hangs")
        assert client.is_server_live()
        if seconds:  # who waits is told so, and the end waits for nobody
            assert server.end(signal.SIGTERM) == 0
            status, answer = late.result(60)
            said = answer["error"]
            assert status == 503 and ("not closed before the server ends" in said if closes else said == ENDS)
            return
        assert server.end(signal.SIGTERM) == 1
        assert late.exception(60) is not None
    server.says(f"shared memory region 'late' still to be registered: {logged(1)} hangs or is busy with others' work")
    server.says(f"{logged(1)} has not ended a call")


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_server_that_ends_while_the_driver_begins_says_so(served, stand_in, export, seconds):
    server, _ = served(IDENTITY, CONFIG, f"--exit-timeout-secs={seconds}")
    handle = base64.b64encode(export(NBYTES).handle).decode()
    body = {"raw_handle": {"b64": handle}, "device_id": 1, "byte_size": NBYTES}
    with ThreadPoolExecutor(1) as threads, stand_in.hanging("cuInit", pid=server.process.pid) as begun:
        late = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/late/register", body)
        until(begun, "the driver begins")
        if seconds:
            assert server.end(signal.SIGTERM) == 0
            assert late.result(60) == (503, {"error": ENDS})
            return
        assert server.end(signal.SIGTERM) == 1
        assert late.exception(60) is not None
    server.says("the NVIDIA driver has not ended a call")
