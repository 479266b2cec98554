"""Guests on a machine with GPUs: tensors that others have on a GPU, and theirs, go by way of host memory."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http

from tests.gpu.gpu_call_models import NODE, run
from tests.gpu.gpu_models import FLOATS, GPU, MADE, NBYTES, STAYS, asked, register
from tests.system.helpers import until

VALUES = np.arange(NBYTES // 4, dtype=np.float32)
ON_GPU = "\ninstance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n" + STAYS
GUEST = """
CONFIG = TENSORS.replace('"A"', {name!r}) + {more!r}

class Told(Add):
    def execute(self, requests):
        found = [pb.get_input_tensor_by_name(request, {bare!r}) for request in requests]
        assert all(tensor.is_cpu() for tensor in found)
        return [self.answer(tensor.as_numpy() + 1) for tensor in found]

    def answer(self, array):
        return answer(array)
{extra}
with join(DIRECTORY) as server:
    server.serve("guest", CONFIG, Told(1))
    say("serving")
    server.wait()
"""
LEAVES = (
    "\n".join(line for line in MADE.split("class TritonPythonModel:")[0].splitlines() if "pb_utils" not in line)
    + """

class Told(Told):
    # It makes its answers on the GPU.
    def __init__(self, by):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDeviceGet", ctypes.byref(device), 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context = context

    def answer(self, array):
        call("cuCtxSetCurrent", self.context)
        return pb.InferenceResponse([pb.Tensor.from_dlpack("B", Made(array))])
"""
)

CALLS = """
import json

class Told(Told):
    # It sends what it makes on the GPU to another model, whose answer it passes on.
    def answer(self, array):
        call("cuCtxSetCurrent", self.context)
        given = pb.Tensor.from_dlpack("B", Made(array))
        asked = pb.InferenceRequest(
            model_name="callee", requested_output_names=["B"], inputs=[given],
            preferred_memory=pb.PreferredMemory(pb.TRITONSERVER_MEMORY_GPU),
            parameters={"script": json.dumps([["made", 1]])})
        (found,) = asked.exec().output_tensors()
        assert found.is_cpu()
        return answer(found.as_numpy())
"""


def script(name="A", more=ON_GPU, extra=""):
    """A guest that adds 1 to what must come in host memory."""
    return GUEST.format(name=f'"{name}"', bare=name, more=more, extra=extra)


@pytest.fixture
def started(stand_in, serve_guests, join, connect):
    """started(script): (server, client) with the guest."""

    def start(code):
        server = serve_guests("--allow-client-shm=true")
        guest = join(code)
        guest.says("serving")
        return server, connect(server, tritonclient.http), guest

    return start


def region(client, export, name, values=None):
    memory = export(NBYTES)
    if values is not None:
        memory.write(values.tobytes())
    register(client, name, memory)
    return memory


@pytest.mark.parametrize("more", ["", ON_GPU])
@pytest.mark.parametrize("extra", ["", LEAVES])
def test_from_region_to_region_by_way_of_host_memory(started, export, stand_in, more, extra):
    _, client, _ = started(script(more=more, extra=extra))
    region(client, export, "given", VALUES)
    wanted = region(client, export, "wanted")
    before = stand_in.counted()
    for _ in range(2):
        client.infer("guest", **asked(tritonclient.http, output="wanted"))
    after = stand_in.counted()
    assert wanted.read(NBYTES) == (VALUES + 1).tobytes()
    assert after["opened"] == before["opened"]  # nothing by the guest
    assert after["device_to_device"] == before["device_to_device"]
    assert after["used_after_free"] == 0


def test_a_guest_that_a_model_on_a_gpu_calls(stand_in, serve_guests, join, connect, write_model):
    write_model("caller", NODE, FLOATS + GPU + STAYS)
    server = serve_guests()
    join(script("B", extra=LEAVES)).says("serving")
    client = connect(server, tritonclient.http)
    steps = ["made", 1], ["call", "guest", []], ["is_cpu", True]
    before = stand_in.counted()
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()
    assert stand_in.counted()["opened"] == before["opened"]


def test_a_guest_that_calls_a_model_on_a_gpu_is_lent_nothing(started, stand_in, write_model):
    write_model("callee", NODE, FLOATS + GPU + STAYS)
    _, client, _ = started(script("B", extra=LEAVES + CALLS))
    before = stand_in.counted()
    assert run(client, "guest", VALUES).tolist() == (VALUES + 2).tolist()
    assert stand_in.counted()["opened"] == before["opened"]


def test_a_guest_that_dies_with_tensors_on_a_gpu_takes_nothing_away(started, export, stand_in):
    server, client, guest = started(script(extra=LEAVES))
    region(client, export, "given", VALUES)
    client.infer("guest", **asked(tritonclient.http))
    guest.end()
    until(lambda: not client.is_model_ready("guest"), "it is gone")
    client.unregister_cuda_shared_memory()
    assert client.get_cuda_shared_memory_status() == []
    assert stand_in.counted()["used_after_free"] == 0
