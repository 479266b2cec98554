"""A client frees its GPU memory when unregistering it was answered: only requests under way may use it then."""

from __future__ import annotations

import base64
import http.client
import json
import signal
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import STREAM, STREAMS, Stream
from tests.gpu.gpu_models import CONFIG, FLOATS, GPU, IDENTITY, STAYS, WHERE, asked
from tests.gpu.stand_in_driver import logged
from tests.system.helpers import client_of_thread, until

NBYTES = 4096
NOT_CLOSED = 217  # of a driver that works still
COUNT = NBYTES // 4
# Sends its only response in `execute`, which goes on a while.
IN_EXECUTE = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, tensor = request.get_response_sender(), pb_utils.get_input_tensor_by_name(request, "B")
            if "blocks" in request.parameters():
                open(FOLDER + "/begun", "w").close()
                while not os.path.exists(FOLDER + "/over"):
                    pass
            sender.send(pb_utils.InferenceResponse([tensor]), 1)
            while "blocks" not in request.parameters() and not os.path.exists(FOLDER + "/go"):
                pass
"""
# Its threads answer; while a request "blocks", the loop takes nothing back of theirs.
IN_THREADS = STREAM.replace(
    "for request in requests:\n            copy.copy(self)",
    """for request in requests:
            if "blocks" in request.parameters():
                open(FOLDER + "/begun", "w").close()
                while not os.path.exists(FOLDER + "/over"):
                    pass
                request.get_response_sender().send(flags=1)
                continue
            copy.copy(self)""",
)
assert IN_THREADS != STREAM


@pytest.fixture
def busy(stand_in, serve, write_model, connect, export, tmp_path):
    """busy(code): (client, memory of the region "mine", stream, blocks) of a decoupled model on the GPU.

    blocks(): its instance executes a request in other memory, until the test's folder has "over".
    """
    streams = []

    def start(code):
        write_model("m", code.replace("FOLDER", repr(str(tmp_path))), FLOATS + GPU + STAYS + STREAMS)
        server = serve("--allow-client-shm=true").ready()
        client = connect(server, tritonclient.http)
        mine, other = export(NBYTES), export(NBYTES)
        for name, memory in (("mine", mine), ("other", other)):
            memory.write(np.arange(COUNT, dtype=np.float32).tobytes())
            client.register_cuda_shared_memory(name, base64.b64encode(memory.handle), 0, NBYTES)
        streams.extend(Stream(connect(server, tritonclient.grpc)) for _ in range(2))

        def blocks():
            call = asked(tritonclient.grpc, NBYTES, name="B", region="other")
            streams[1].client.async_stream_infer("m", **call, parameters={"blocks": 1})

        return server, client, mine, streams[0], blocks

    yield start
    for name in ("go", "over"):
        (tmp_path / name).touch()
    for each in streams:
        each.client.stop_stream(cancel_requests=True)


def unregistered_behind(folder, stand_in, server, mine, meanwhile="here"):
    """Unregister it while the instance executes another's request: the answer comes behind that.

    meanwhile: a file that is made when the region's name is gone.
    """

    def unregister():
        with client_of_thread(f"127.0.0.1:{server.port}") as client:
            client.unregister_cuda_shared_memory("mine")

    before = stand_in.counted()["freed_while_open"]
    with ThreadPoolExecutor(1) as threads:
        closing = threads.submit(unregister)
        try:
            until(lambda: len(server.ask("GET", "/v2/cudasharedmemory/status")[1]) == 1, "it is unregistered")
            (folder / meanwhile).touch()
            told = server.says("shared memory region 'mine' unregistered, but not closed within 5 s")["message"]
            assert not closing.done()
        finally:
            (folder / "over").touch()
        closing.result(60)
    mine.free()
    assert stand_in.counted()["freed_while_open"] == before
    return told


def test_who_has_its_answer_may_free_also_while_the_instance_executes_the_next_request(busy, stand_in, tmp_path):
    """It lets go of the input behind the answer, in the moment of unregistering, and closes the memory later."""
    server, _, mine, stream, blocks = busy(IN_EXECUTE)
    stream.client.async_stream_infer("m", **asked(tritonclient.grpc, NBYTES, name="B", region="mine"))
    assert len(stream.values()) == COUNT
    blocks()
    told = unregistered_behind(tmp_path, stand_in, server, mine, "go")
    who = f"instance m_0_0 of model 'm' (pid {server.worker('m_0_0')})"
    assert f"{who} has it open and has not closed it yet: it executes a batch that takes long, or its process" in told


def test_what_a_thread_has_answered_is_let_go_of_behind_the_batch(busy, stand_in, tmp_path):
    server, _, mine, stream, blocks = busy(IN_THREADS)
    stream.ask("m", ["is_cpu", False], ["wait", str(tmp_path)], nbytes=NBYTES, region="mine")
    until((tmp_path / "here").exists, "it waits")
    blocks()
    until((tmp_path / "begun").exists, "the loop executes")
    (tmp_path / "go").touch()
    assert len(stream.values()) == COUNT
    told = unregistered_behind(tmp_path, stand_in, server, mine)
    who = f"instance m_0_0 of model 'm' (pid {server.worker('m_0_0')})"
    assert f"requests use it in {who}. A request whose client has left is executed to its end" in told


def test_an_instance_that_only_has_the_memory_open_is_not_said_to_use_it(
    stand_in, serve, write_model, connect, export
):
    write_model("m", WHERE, CONFIG)
    write_model("g", IDENTITY, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true", fault="from tisfast import limits\nlimits.GPU_TOLD_SECONDS = 1").ready()
    client, memory = connect(server, tritonclient.http), export(NBYTES)
    client.register_cuda_shared_memory("mine", base64.b64encode(memory.handle), 0, NBYTES)
    client.infer("g", **asked(tritonclient.http, NBYTES, region="mine"))
    held = stand_in.counted()["operations_held"]

    def infer():
        with client_of_thread(f"127.0.0.1:{server.port}") as own:
            own.infer("m", **asked(tritonclient.http, NBYTES, region="mine"))

    with ThreadPoolExecutor(2) as threads:
        with stand_in.holding(device=0):
            copied = threads.submit(infer)
            until(lambda: stand_in.counted()["operations_held"] > held, "the copy hangs")
            closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/mine/unregister", {})
            told = server.says("shared memory region 'mine' unregistered, but not closed within 1 s")["message"]
        copied.result(60)
        assert closing.result(60) == (200, {})
    assert (
        "requests use it: they are copied, wait for a model or are executed by one; instance g_0_0 of model 'g' (pid "
        f"{server.worker('g_0_0')}) only has it open, and closes it after them"
    ) in told


def test_a_handle_that_was_opened_and_then_refused_is_closed(stand_in, serve, write_model, connect, export):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server, tritonclient.http)
    before = stand_in.counted()
    for _ in range(3):
        memory = export(NBYTES)
        stand_in.fail("cuMemGetAddressRange_v2", 1, times=1, pid=server.process.pid)
        with pytest.raises(InferenceServerException, match="region 'c': cuMemGetAddressRange_v2"):
            client.register_cuda_shared_memory("c", base64.b64encode(memory.handle), 0, NBYTES)
        client.unregister_cuda_shared_memory("c")
        memory.free()
    now = stand_in.counted()
    assert [now[name] - before[name] for name in ("opened", "closed", "freed_while_open")] == [3, 3, 0]


def test_what_was_opened_and_then_refused_is_closed_before_who_unregisters_is_told(
    stand_in, serve, write_model, connect, export
):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client, memory, pid = connect(server, tritonclient.http), export(NBYTES), server.process.pid
    before = stand_in.counted()
    with ThreadPoolExecutor(1) as threads, stand_in.hanging("cuIpcCloseMemHandle", pid=pid):
        stand_in.fail("cuMemGetAddressRange_v2", 1, times=1, pid=pid)
        with pytest.raises(InferenceServerException, match="region 'c': cuMemGetAddressRange_v2"):
            client.register_cuda_shared_memory("c", base64.b64encode(memory.handle), 0, NBYTES)
        closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/c/unregister", {})
        server.says(f"shared memory region 'c' unregistered, but not closed within 5 s: {logged(0)} hangs or is busy")
        early = closing.done()
        stand_in.fail("cuIpcCloseMemHandle", 0)
        assert not early and closing.result(60) == (200, {})
    memory.free()
    now = stand_in.counted()
    assert [now[name] - before[name] for name in ("opened", "closed", "freed_while_open")] == [1, 1, 0]


def test_who_unregisters_what_was_opened_and_then_refused_is_told_that_it_is_not_closed(
    stand_in, serve, write_model, connect, export
):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client, memory, pid = connect(server, tritonclient.http), export(NBYTES), server.process.pid
    stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=pid)
    stand_in.fail("cuMemGetAddressRange_v2", 1, times=1, pid=pid)
    with pytest.raises(InferenceServerException, match="region 'c': cuMemGetAddressRange_v2"):
        client.register_cuda_shared_memory("c", base64.b64encode(memory.handle), 0, NBYTES)
    status, answer = server.ask("POST", "/v2/cudasharedmemory/region/c/unregister", {})
    assert status == 500
    assert "'c' unregistered, but not closed: the driver refuses that in the server (cuIpcClose" in answer["error"]


def test_a_region_that_its_memory_is_too_small_for_is_closed_first(stand_in, serve, write_model, connect, export):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client, memory = connect(server, tritonclient.http), export(NBYTES)
    before = stand_in.counted()
    with (
        ThreadPoolExecutor(1) as threads,
        stand_in.hanging("cuIpcCloseMemHandle", pid=server.process.pid) as begun,
    ):
        with pytest.raises(InferenceServerException, match=f"byte_size {NBYTES + 1}; the memory behind the handle"):
            client.register_cuda_shared_memory("c", base64.b64encode(memory.handle), 0, NBYTES + 1)
        closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/c/unregister", {})
        until(begun, "it is closed")
        early = wait({closing}, 0.5).done
        stand_in.fail("cuIpcCloseMemHandle", 0)
        assert not early and closing.result(60) == (200, {})
    memory.free()
    now = stand_in.counted()
    assert [now[name] - before[name] for name in ("opened", "closed", "freed_while_open")] == [1, 1, 0]


@pytest.mark.parametrize("code", [0, 1], ids=["opened", "refused"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_client_that_leaves_its_registration_is_no_error(  # noqa: PLR0917
    stand_in, serve, write_model, connect, export, protocol, code
):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    client, memory = connect(server, tritonclient.http), export(NBYTES)
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    handle, before = base64.b64encode(memory.handle), stand_in.counted()

    def leave():
        if protocol == "grpc":
            with (
                tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as leaving,
                pytest.raises(InferenceServerException, match="Deadline"),
            ):
                leaving.register_cuda_shared_memory("c", handle, 0, NBYTES, client_timeout=1)
        else:
            body = {"raw_handle": {"b64": handle.decode()}, "device_id": 0, "byte_size": NBYTES}
            with pytest.raises(TimeoutError):
                server.ask("POST", "/v2/cudasharedmemory/region/c/register", body, seconds=1)

    with (
        ThreadPoolExecutor(1) as threads,
        stand_in.hanging("cuIpcOpenMemHandle_v2", pid=server.process.pid) as begun,
    ):
        leave()
        until(begun, "it is opened")
        closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/c/unregister", {})
        server.says("shared memory region 'c' unregistered, but not closed within 5 s")
        assert client.get_cuda_shared_memory_status() == []
        stand_in.fail("cuIpcOpenMemHandle_v2", code)
        assert closing.result(60) == (200, {})
    now = stand_in.counted()
    assert [now[each] - before[each] for each in ("opened", "closed")] == [int(code == 0)] * 2
    assert server.end() == 0
    assert "Traceback" not in server.text()


def test_who_unregisters_when_the_server_ends_already_is_told_so(stand_in, serve, write_model, connect, export):
    """A sequence in progress keeps connections open, and the server waits for what is asked on them."""
    write_model("s", WHERE, CONFIG + "sequence_batching { max_sequence_idle_microseconds: 60000000 }")
    server = serve("--allow-client-shm=true", "--exit-timeout-secs=5").ready()  # shorter than who waits is logged
    memory, kept = export(NBYTES), http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]

    def ask(path, body):
        kept.request("POST", f"/v2/cudasharedmemory/region/c/{path}", json.dumps(body))
        answer = kept.getresponse()
        return answer.status, answer.read().decode()

    handle = {"b64": base64.b64encode(memory.handle).decode()}
    assert ask("register", {"raw_handle": handle, "device_id": 0, "byte_size": NBYTES})[0] == 200
    with (
        stand_in.hanging("cuIpcCloseMemHandle", pid=server.process.pid),
        tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as asked,
    ):
        tensor = tritonclient.grpc.InferInput("A", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
        asked.infer("s", [tensor], sequence_id=1, sequence_start=True)
        server.process.send_signal(signal.SIGTERM)
        server.says("Found 1 sequences in progress")
        server.says("Found 1 sequences in progress", len(server.log))  # a second later: who waited has been told
        status, answer = ask("unregister", {})
        assert status == 503 and "'c' unregistered, but not closed before the server ends" in answer
        kept.close()
        asked.infer("s", [tensor], sequence_id=1, sequence_end=True)
        asked.close()
        assert server.ended() == 0


def test_a_server_whose_model_does_not_end_says_what_is_still_to_be_closed(
    stand_in, serve, write_model, connect, export
):
    write_model("m", WHERE + "\n    def finalize(self):\n        import queue\n        queue.Queue().get()\n", CONFIG)
    server = serve("--allow-client-shm=true", "--exit-timeout-secs=3").ready()
    client, memory = connect(server, tritonclient.http), export(NBYTES)
    client.register_cuda_shared_memory("c", base64.b64encode(memory.handle), 0, NBYTES)
    with (
        ThreadPoolExecutor(1) as threads,
        stand_in.hanging("cuIpcCloseMemHandle", pid=server.process.pid) as begun,
    ):
        closing = threads.submit(server.ask, "POST", "/v2/cudasharedmemory/region/c/unregister", {})
        until(begun, "it is closed")
        assert server.end() == 1
        status, answer = closing.result(60)
        assert status == 503 and "not closed before the server ends" in answer["error"]
    server.says("instance m_0 did not finalize within")
    server.says(f"shared memory region 'c' still to be closed: {logged(0)} hangs or is busy with others' work")
