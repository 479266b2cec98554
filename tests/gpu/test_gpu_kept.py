"""GPU memory that somebody still has, who is not seen at first: it is neither freed nor told to be closed."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE, STREAM, STREAMS, Stream, run
from tests.gpu.gpu_models import CONFIG, FLOATS, GPU, IDENTITY, MADE, RETURNED, STAYS, WHERE, asked, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.system.helpers import until

NBYTES = 4096
NOT_CLOSED = 217  # of a driver that works still
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
SOON = "from tisfast import limits\nlimits.GPU_REGION_SECONDS_MAX, limits.GPU_TOLD_SECONDS = 2, 1"
KEEPS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    kept = []
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "B") for request in requests]
        self.kept += [tensor for request, tensor in zip(requests, found) if "keep" in request.parameters()]
        return [pb_utils.InferenceResponse([tensor]) for tensor in found]
"""
KEEPS_ANSWER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    kept = []
    def execute(self, requests):
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "B")
            call = pb_utils.InferenceRequest(model_name="called", requested_output_names=["B"], inputs=[tensor])
            self.kept.append(call.exec().output_tensors()[0])
            assert not self.kept[-1].is_cpu()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros(1, "f4"))]) for _ in requests]
"""
KEEPS_HOST = MADE.replace("        return [", "        self.__class__.kept = arrays\n        return [")
# Holds its first request until the test lets it go.
HOLDS = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open(FOLDER + "/begun", "w").close()
        while not os.path.exists(FOLDER + "/go"):
            pass
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros(1024, "f4"))]) for _ in requests]
"""
LIVES_ON = IDENTITY.replace("import triton", "import queue\nimport threading\nimport triton", 1).replace(
    "    def execute",
    "    def initialize(self, args):\n        threading.Thread(target=queue.Queue().get).start()\n\n    def execute",
    1,
)
FORGOES = NODE.replace(
    "    def execute(self, requests):",
    """    def execute(self, requests):
        from tisfast_worker.serving_context import current
        for number in range(1, 100):
            if "forgo" in requests[0].parameters():
                current().tell({"t": "gpu_memory", "forgone": number})""",
)
assert FORGOES != NODE and KEEPS_HOST != MADE and LIVES_ON != IDENTITY


@pytest.fixture
def started(stand_in, serve, write_model, connect):
    """started(*flags, fault, name=(code, config)...): (server, client) of these models."""

    def start(*flags, fault="", **models):
        for name, (code, config) in models.items():
            write_model(name, code, config)
        server = serve("--allow-client-shm=true", *flags, fault=fault).ready()
        return server, connect(server, tritonclient.http)

    return start


@pytest.fixture
def mine(stand_in, export):
    """Memory of a client's."""
    memory = export(NBYTES)
    memory.write(VALUES.tobytes())
    return memory


def unregister(server, name="mine"):
    return server.ask("POST", f"/v2/cudasharedmemory/region/{name}/unregister", {})


def is_told_to_be_in_use(server, name="mine"):
    status, answer = unregister(server, name)
    return status == 503 and "do not free the memory yet" in answer["error"]


def test_a_model_that_keeps_another_s_answer_has_the_region(started, mine):
    kinds = FLOATS + GPU + STAYS
    server, client = started(fault=SOON, called=(RETURNED, kinds), m=(KEEPS_ANSWER, kinds))
    register(client, "mine", mine)
    client.infer("m", **asked(tritonclient.http, NBYTES, name="B", region="mine"))
    assert is_told_to_be_in_use(server)


def test_a_model_has_what_it_keeps_also_when_others_have_taken_its_place(started, mine, export):
    """An instance is told of 256 regions at most (SHARES_PER_WORKER_MAX)."""
    server, client = started(fault=SOON, m=(KEEPS, FLOATS + GPU + STAYS))
    register(client, "mine", mine)
    client.infer("m", **asked(tritonclient.http, NBYTES, name="B", region="mine"), parameters={"keep": 1})
    other = export(NBYTES)
    for at in range(256):
        register(client, f"other{at}", other)
        client.infer("m", **asked(tritonclient.http, NBYTES, name="B", region=f"other{at}"))
    assert is_told_to_be_in_use(server)


def test_who_keeps_an_input_does_not_keep_where_its_output_went(started, mine):
    server, client = started(m=(KEEPS_HOST, FLOATS + GPU))
    register(client, "mine", mine)
    tensor = tritonclient.http.InferInput("B", [VALUES.size], "FP32")
    tensor.set_data_from_numpy(VALUES * 2)
    wanted = tritonclient.http.InferRequestedOutput("B")
    wanted.set_shared_memory("mine", NBYTES)
    client.infer("m", [tensor], outputs=[wanted])
    assert mine.read(NBYTES) == (VALUES * 2).tobytes()
    assert unregister(server) == (200, {})


@pytest.mark.parametrize("nbytes", [NBYTES, 2 << 20])
def test_a_copy_that_hangs_has_the_region_whoever_was_answered(started, stand_in, export, nbytes):
    fault = SOON.replace("= 2, 1", "= 5, 1") + "\nlimits.GPU_COPY_SECONDS_MAX = 1"
    server, client = started(fault=fault, m=(WHERE, CONFIG))
    memory = export(nbytes)
    register(client, "mine", memory)
    before = stand_in.counted()
    with stand_in.hanging("cuMemcpyDtoHAsync_v2", pid=server.process.pid):
        with pytest.raises(InferenceServerException, match="has not made a copy within 1 s"):
            client.infer("m", **asked(tritonclient.http, nbytes, region="mine"))
        assert is_told_to_be_in_use(server)
    assert unregister(server) == (200, {})
    memory.free()
    now = stand_in.counted()
    assert [now[each] - before[each] for each in ("freed_while_open", "used_after_free")] == [0, 0]


def test_lent_memory_that_is_not_closed_is_not_freed(started, stand_in):
    kinds = FLOATS + GPU + STAYS
    server, client = started(caller=(NODE, kinds), other=(NODE, kinds))
    large = np.arange(1 << 18, dtype=np.float32)
    run(client, "caller", large, ["made", 1], ["call", "other", [["is_cpu", False], ["host"]]])
    before, lent = stand_in.counted(), stand_in.allocated()
    stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=-server.process.pid)
    server.says("lent GPU memory is not closed by the driver")
    run(client, "caller", large, ["made", 1], ["call", "other", [["is_cpu", False], ["host"]]])  # in another part
    assert stand_in.allocated() >= lent
    assert stand_in.counted()["freed_while_open"] == before["freed_while_open"]


def test_what_a_worker_forgoes_is_not_its_own(started):
    server, client = started(m=(FORGOES, FLOATS + GPU + STAYS), other=(NODE, FLOATS + GPU + STAYS))
    steps = ["made", 1], ["call", "other", [["is_cpu", False], ["host"]]]
    run(client, "m", np.arange(1 << 18, dtype=np.float32), *steps)
    lent = 'tisfast_gpu_lent_parts{gpu="0",state="lent"}'
    assert f"{lent} 1" in server.metrics()
    tensor = tritonclient.http.InferInput("B", [4], "FP32")
    tensor.set_data_from_numpy(VALUES[:4])
    client.infer("m", [tensor], parameters={"script": "[]", "forgo": 1})
    until(lambda: f"{lent} 0" in server.metrics(), "nothing is lent")


def test_an_instance_that_has_lost_its_gpu_ends_whatever_its_model_s_threads_do(started, stand_in, mine, export):
    server, client = started(m=(LIVES_ON, CONFIG + GPU + STAYS))
    register(client, "mine", mine)
    register(client, "wanted", export(NBYTES))
    worker = server.worker("m_0_0")
    stand_in.fail("cuMemcpyDtoDAsync_v2", LAUNCH_FAILED, times=1, pid=worker)
    call = asked(tritonclient.http, NBYTES, region="mine", output="wanted")
    with pytest.raises(InferenceServerException, match="launch failure"):
        client.infer("m", **call)
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "it is back")
    client.infer("m", **call)


def test_a_server_that_ends_does_not_wait_for_who_waits_for_a_model(started, mine):
    server, client = started(m=(KEEPS, FLOATS + GPU + STAYS), fault=SOON.replace("= 2, 1", "= 45, 1"))
    register(client, "mine", mine)
    client.infer("m", **asked(tritonclient.http, NBYTES, name="B", region="mine"), parameters={"keep": 1})
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(unregister, server)
        server.says("'mine' unregistered, but not closed within 1 s")
        assert server.end() == 0
        status, answer = told.result(60)
    assert status == 503 and "not closed before the server ends" in answer["error"]


RESCHEDULED = KEEPS_HOST.replace(
    "    def execute(self, requests):",
    """    held = []

    def execute(self, requests):
        if not self.held:
            self.held.append(pb_utils.get_input_tensor_by_name(requests[0], "B"))
            requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [None]""",
)
LOGS = IDENTITY.replace(
    "    def answer(self, tensor):",
    """    def answer(self, tensor):
        import multiprocessing, time
        child = multiprocessing.Process(target=time.sleep, args=(3600,), daemon=True)
        child.start()
        pb_utils.Logger.log_error(f"the child is {child.pid}.")
        for at in range(300):
            pb_utils.Logger.log_error(f"said {at}.")""",
)
assert RESCHEDULED != KEEPS_HOST and LOGS != IDENTITY


def test_who_keeps_an_input_of_a_rescheduled_request_does_not_keep_where_its_output_went(started, mine):
    iterates = FLOATS + GPU + " max_batch_size: 1 sequence_batching { iterative_sequence: true }"
    server, client = started(m=(RESCHEDULED, iterates))
    register(client, "mine", mine)
    tensor = tritonclient.http.InferInput("B", [1, VALUES.size], "FP32")
    tensor.set_data_from_numpy(VALUES.reshape(1, -1) * 2)
    wanted = tritonclient.http.InferRequestedOutput("B")
    wanted.set_shared_memory("mine", NBYTES)
    client.infer("m", [tensor], outputs=[wanted])
    assert mine.read(NBYTES) == (VALUES * 2).tobytes()
    assert unregister(server) == (200, {})


def test_an_instance_that_has_lost_its_gpu_says_what_it_has_to_say_and_leaves_no_child(started, stand_in, mine, export):
    server, client = started(m=(LOGS, CONFIG + GPU + STAYS))
    register(client, "mine", mine)
    register(client, "wanted", export(NBYTES))
    stand_in.fail("cuMemcpyDtoDAsync_v2", LAUNCH_FAILED, times=1, pid=server.worker("m_0_0"))
    with pytest.raises(InferenceServerException, match="launch failure"):
        client.infer("m", **asked(tritonclient.http, NBYTES, region="mine", output="wanted"))
    server.says("ends, as its process can use the GPU no more")
    server.says("said 299.")
    child = int(server.says("the child is")["message"].split()[-1].rstrip("."))
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "it ends")


def test_a_refusal_to_close_what_was_registered_in_vain_is_told(started, stand_in, mine):
    server, client = started(m=(KEEPS, FLOATS + GPU + STAYS))
    stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=server.process.pid)
    with pytest.raises(InferenceServerException, match="byte_size"):
        client.register_cuda_shared_memory("mine", base64.b64encode(mine.handle), 0, 1 << 40)
    status, answer = unregister(server)
    assert status == 500 and "not closed: the driver refuses that in the server" in answer["error"]
    assert unregister(server)[0] == 500  # also to who asks again


def test_a_refusal_to_close_what_was_opened_too_late_is_told(started, stand_in, mine):
    server, client = started(fault=SOON, m=(KEEPS, FLOATS + GPU + STAYS))
    pid = server.process.pid
    stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=pid)
    with ThreadPoolExecutor(1) as threads, stand_in.hanging("cuIpcOpenMemHandle_v2", pid=pid):
        told = r"region 'mine': GPU 0 .*has not done a call within .*\. Unregister it before you free the memory"
        with pytest.raises(InferenceServerException, match=told):
            register(client, "mine", mine)
        late = threads.submit(unregister, server)
        server.says("'mine' unregistered, but not closed within 1 s")
        stand_in.fail("cuIpcOpenMemHandle_v2", 0)
        status, answer = late.result(60)
    assert status == 500 and "not closed: the driver refuses that in the server" in answer["error"]


@pytest.mark.parametrize("how", ["http", "grpc"])
def test_who_asks_again_is_told_what_a_client_that_has_left_was_not(started, stand_in, mine, how):
    server, client = started(m=(KEEPS, FLOATS + GPU + STAYS))
    port = server.said(lambda record: record.get("event") == "ready", "it is ready")["grpc_port"]
    register(client, "mine", mine)
    with stand_in.hanging("cuIpcCloseMemHandle", pid=server.process.pid):
        with pytest.raises((TimeoutError, InferenceServerException)):
            if how == "http":
                server.ask("POST", "/v2/cudasharedmemory/region/mine/unregister", {}, seconds=1)
            else:
                with tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as leaving:
                    leaving.unregister_cuda_shared_memory("mine", client_timeout=1)
        stand_in.fail("cuIpcCloseMemHandle", NOT_CLOSED, pid=server.process.pid)
        server.says("does not give memory back")
    for _ in range(2):
        status, answer = unregister(server)
        assert status == 500 and "'mine' unregistered, but not closed: the driver refuses that in the server" in (
            answer["error"]
        )


def test_a_decoupled_instance_that_loses_its_gpu_when_it_opens_memory_is_started_again(
    started, stand_in, mine, connect
):
    server, client = started(m=(STREAM, FLOATS + GPU + STAYS + STREAMS))
    register(client, "mine", mine)
    worker = server.worker("m_0_0")
    stand_in.fail("cuIpcOpenMemHandle_v2", LAUNCH_FAILED, pid=worker)
    stream = Stream(connect(server, tritonclient.grpc))
    try:
        stream.ask("m", nbytes=NBYTES, region="mine")
        with pytest.raises(InferenceServerException, match="instance m_0_0 has lost its GPU .*starts it again"):
            stream.next()
        until(lambda: server.worker("m_0_0") != worker and server.model_ready("m"), "the model is back")
        stream.ask("m", nbytes=NBYTES, region="mine")
        assert stream.values() == VALUES.tolist()
    finally:
        stream.client.stop_stream(cancel_requests=True)


def test_a_decoupled_instance_that_loses_its_gpu_when_it_closes_memory_ends_before_that_is_said(
    started, stand_in, mine, connect
):
    server, client = started(m=(STREAM, FLOATS + GPU + STAYS + STREAMS))
    register(client, "mine", mine)
    worker = psutil.Process(server.worker("m_0_0"))
    stream = Stream(connect(server, tritonclient.grpc))
    try:
        stream.ask("m", nbytes=NBYTES, region="mine")
        assert stream.values() == VALUES.tolist()
        stand_in.fail("cuIpcCloseMemHandle", LAUNCH_FAILED, pid=worker.pid)
        assert unregister(server) == (200, {})
        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        server.says("ends, as its process can use the GPU no more: closing GPU memory of another process failed: cuIpc")
    finally:
        stream.client.stop_stream(cancel_requests=True)


def test_a_region_of_a_gpu_that_the_server_has_lost_is_closed_before_that_is_said(started, stand_in, mine):
    server, client = started(m=(WHERE, CONFIG))
    register(client, "mine", mine)
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1, pid=server.process.pid)
    with pytest.raises(InferenceServerException, match="launch failure"):
        client.infer("m", **asked(tritonclient.http, NBYTES, region="mine"))
    before = stand_in.counted()
    assert unregister(server) == (200, {})
    mine.free()
    now = stand_in.counted()
    assert (now["freed_while_open"], now["used_after_free"]) == (before["freed_while_open"], before["used_after_free"])


@pytest.mark.parametrize("waits", [False, True])
def test_who_unregisters_what_a_request_uses_is_not_told_that_the_gpu_hangs(started, mine, tmp_path, waits):
    """One waits in the model's queue with its input, the other one executes and has its output there."""
    code = HOLDS.replace("FOLDER", repr(str(tmp_path)))
    server, client = started(fault=SOON, m=(code, FLOATS + (GPU + STAYS if waits else "")))
    register(client, "mine", mine)

    def infer(region):
        with tritonclient.http.InferenceServerClient(f"localhost:{server.port}") as own:
            tensor = tritonclient.http.InferInput("B", [VALUES.size], "FP32")
            wanted = tritonclient.http.InferRequestedOutput("B")
            if region and waits:
                tensor.set_shared_memory("mine", NBYTES)
            else:
                tensor.set_data_from_numpy(VALUES)
            if region and not waits:
                wanted.set_shared_memory("mine", NBYTES)
            own.infer("m", [tensor], outputs=[wanted])

    with ThreadPoolExecutor(6) as threads:
        try:
            answers = [threads.submit(infer, not waits)]
            until((tmp_path / "begun").exists, "the model executes")
            if waits:  # behind what the instance has been given already
                answers += [threads.submit(infer, False) for _ in range(4)]
                until(lambda: server.pending("m") == 4, "they wait")
                answers.append(threads.submit(infer, True))
                until(lambda: server.pending("m") == 5, "the request waits")
            status, answer = unregister(server)
        finally:
            (tmp_path / "go").touch()
        for each in answers:
            each.result(60)
    text = "requests use it: they are copied, wait for a model or are executed by one. A request whose client has left"
    assert status == 503 and text in answer["error"] and "hangs or is busy" not in answer["error"]
    assert text in server.says("unregistered, but not closed within 1 s")["message"]
    assert unregister(server) == (200, {})
