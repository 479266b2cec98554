"""What an instance that loses its GPU names as the cause: what fits what is known, and once in the log."""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, FLOATS, GPU, IDENTITY, MADE, RETURNED, STAYS, asked, register
from tests.gpu.stand_in_driver import INVALID_CONTEXT, LAUNCH_FAILED, OUT_OF_MEMORY

NBYTES = 4096
ENDS = "ends, as its process can use the GPU no more: "
NO_ROOM = ". The GPU has no room for what the driver needs: free memory there, and try again"
SYNCHRONIZES, COPIES = "cuCtxSynchronize", "cuMemcpyDtoDAsync_v2"
QUEUED = ". This comes of what the model had queued on the GPU: look for the error in its own kernels"
OR_CLIENT = (
    "; or a client has freed memory that this instance has open: it must keep it allocated until it has unregistered it"
)
TO_STAY = (
    ". If the client has freed this memory, or has ended: it must keep the memory until it has unregistered the "
    "region. Unregister the region, and register it again with memory that is there"
)
ELSE = ". Else look for the error in the model's own kernels"


@pytest.fixture
def started(stand_in, serve, write_model, connect):
    """started(model, config): (server, client over HTTP)."""

    def start(model, config):
        write_model("m", model, config)
        server = serve("--allow-client-shm=true").ready()
        return server, connect(server, tritonclient.http)

    return start


def values(output=None, name="B"):
    """A call with its input in host memory."""
    tensor = tritonclient.http.InferInput(name, [NBYTES // 4], "FP32")
    wanted = tritonclient.http.InferRequestedOutput("B")
    tensor.set_data_from_numpy(np.zeros(NBYTES // 4, np.float32))
    if output:
        wanted.set_shared_memory(output, NBYTES)
    return {"inputs": [tensor], "outputs": [wanted]}


def told(server, client, call, model="m", instance="m_0_0"):
    """What the client is told, behind the driver's reason.  The log has the same, once, and says who ends."""
    pid = server.worker(instance)
    with pytest.raises(InferenceServerException, match="launch failure") as refused:
        client.infer(model, **call)
    text = refused.value.message().partition("cannot be sent: ")[2]
    said = server.says(ENDS)
    whose = f"instance {instance} of model '{said['model']}' (pid {pid}) "
    assert said["message"] == whose + ENDS + text and said["instance"] == instance
    server.says("exited with code 1")
    assert len([record for record in server.log if "launch failure" in record["message"]]) == 1
    return text.partition("unspecified launch failure")[2]


@pytest.mark.parametrize("case", ["no region", "an output's region", "an input's region"])
def test_work_that_the_model_had_queued_is_the_model_s_first_and_a_client_s_only_where_it_has_memory(
    started, stand_in, export, case
):
    takes = case == "an input's region"
    server, client = started(*((IDENTITY, CONFIG + GPU + STAYS) if takes else (MADE, FLOATS + GPU)))
    if case != "no region":
        register(client, "r", export(NBYTES))
    call = values("r" if case == "an output's region" else None)
    if takes:
        call = asked(tritonclient.http, NBYTES, region="r")
    stand_in.fail(SYNCHRONIZES, LAUNCH_FAILED, times=1, pid=server.worker("m_0_0"))
    assert told(server, client, call) == (QUEUED if case == "no region" else QUEUED + OR_CLIENT)


def test_memory_that_the_server_has_lent_is_no_client_s(started_chain, stand_in):
    server, client = started_chain(RETURNED)
    client.infer("m", **values(name="A"))
    stand_in.fail(SYNCHRONIZES, LAUNCH_FAILED, times=1, pid=server.worker("m1_0_0"))
    assert told(server, client, values(name="A"), instance="m1_0_0") == QUEUED


def test_a_copy_between_clients_regions_names_both_and_blames_none_alone(started, stand_in, export):
    server, client = started(IDENTITY, CONFIG + GPU + STAYS)
    for name in ("given", "wanted"):
        register(client, name, export(NBYTES))
    stand_in.fail(COPIES, LAUNCH_FAILED, times=1, pid=server.worker("m_0_0"))
    with pytest.raises(InferenceServerException) as refused:
        client.infer("m", **asked(tritonclient.http, NBYTES, output="wanted"))
    said = server.says(ENDS)["message"]
    assert refused.value.message().partition("cannot be sent: ")[2] == said.partition(ENDS)[2] == (
        f"copying {NBYTES} bytes of tensor 'B' from region 'given' into region 'wanted' failed: {COPIES}: unspecified "
        f"launch failure. Most likely a client has freed one of these before it unregistered it{ELSE}"
    )


def test_a_copy_into_a_client_s_region_is_the_client_s_first(started, stand_in, export):
    server, client = started(MADE, FLOATS + GPU)
    register(client, "r", export(NBYTES))
    stand_in.fail(COPIES, LAUNCH_FAILED, times=1, pid=server.worker("m_0_0"))
    assert told(server, client, values("r")) == TO_STAY + ELSE


@pytest.mark.parametrize("call", [SYNCHRONIZES, COPIES])
@pytest.mark.parametrize("reason", ["invalid device context", "out of memory"])
def test_what_fails_without_a_loss_is_no_kernel_s_and_is_logged(started, stand_in, export, call, reason):
    code = OUT_OF_MEMORY if reason == "out of memory" else INVALID_CONTEXT
    server, client = started(MADE, FLOATS + GPU)
    register(client, "r", export(NBYTES))
    stand_in.fail(call, code, times=1, pid=server.worker("m_0_0"))
    with pytest.raises(InferenceServerException) as refused:
        client.infer("m", **values("r"))
    remedy = NO_ROOM if code == OUT_OF_MEMORY else TO_STAY if call == COPIES else ""
    assert refused.value.message().endswith(f"{call}: {reason}{remedy}")
    server.says(refused.value.message())
    client.infer("m", **values("r"))


def test_all_requests_of_a_batch_are_told_and_the_log_once(started, stand_in):
    batched = "max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 60000000 }"
    server, _ = started(MADE, f"{FLOATS.replace('dims: [ -1 ]', 'dims: [ 4 ]')}{GPU} {batched}")
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    stand_in.fail(SYNCHRONIZES, LAUNCH_FAILED, times=4, pid=server.worker("m_0_0"))
    with tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as client:
        tensor = tritonclient.grpc.InferInput("B", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.zeros((1, 4), np.float32))
        errors = SimpleQueue()
        for _ in range(4):
            client.async_infer("m", [tensor], lambda result, error: errors.put(error))
        assert ["launch failure" in str(errors.get(timeout=60)) for _ in range(4)] == [True] * 4
    server.says(ENDS)
    server.says("exited with code 1")
    assert len([record for record in server.log if "launch failure" in record["message"]]) == 1
