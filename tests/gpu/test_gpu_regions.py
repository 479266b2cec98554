"""CUDA shared memory on a real GPU: regions with device memory of another process."""

from __future__ import annotations

import base64
import ctypes
import gc

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tisfast.native.cuda_faces import Unopened

NBYTES = 1 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)


def test_memory_of_another_process_is_copied_both_ways(cuda, export):
    client = export(NBYTES)
    client.write(VALUES.tobytes()[:1000])
    memory = cuda.open(client.handle, 0)
    assert memory.nbytes >= NBYTES
    found = ctypes.create_string_buffer(900)
    memory.to_host(100, ctypes.addressof(found), 900)
    assert found.raw == VALUES.tobytes()[100:1000]
    memory.from_host(8, ctypes.addressof(found), 900)
    assert client.read(1000)[8:908] == found.raw


def test_a_handle_may_be_opened_twice_and_is_closed(cuda, export):
    client = export(NBYTES)
    for _ in range(3):
        one, two = cuda.open(client.handle, 0), cuda.open(client.handle, 0)
        del one
        gc.collect()
        two.to_host(0, ctypes.addressof(ctypes.create_string_buffer(4)), 4)
        del two


def test_what_is_no_handle_is_refused_with_the_driver_s_reason(cuda):
    with pytest.raises(Unopened, match="^cuIpcOpenMemHandle_v2: "):
        cuda.open(b"\x07" * 64, 0)


@pytest.fixture(params=["http", "grpc"])
def asked(request, cuda, serve, write_model):
    """A client of a server with one model, that adds one."""
    write_model("m")
    server = serve("--allow-client-shm=true").ready()
    module = getattr(tritonclient, request.param)
    port = server.said(lambda r: r.get("event") == "ready", "ready")[f"{request.param}_port"]
    with module.InferenceServerClient(f"localhost:{port}") as client:
        yield module, client


def test_inputs_and_outputs_in_device_memory(asked, export):
    module, client = asked
    given, wanted = export(NBYTES), export(NBYTES)
    given.write(VALUES.tobytes())
    for name, memory in (("given", given), ("wanted", wanted)):
        client.register_cuda_shared_memory(name, base64.b64encode(memory.handle), 0, NBYTES)
    tensor, output = module.InferInput("A", [len(VALUES)], "FP32"), module.InferRequestedOutput("B")
    tensor.set_shared_memory("given", NBYTES)
    output.set_shared_memory("wanted", NBYTES)
    for _ in range(3):
        client.infer("m", [tensor], outputs=[output])
    assert np.frombuffer(wanted.read(NBYTES), np.float32).tolist() == (VALUES + 1).tolist()
    client.unregister_cuda_shared_memory("given")
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'given'"):
        client.infer("m", [tensor], outputs=[output])


def test_what_a_registration_says_wrong(asked, export):
    _, client = asked
    memory = export(NBYTES)
    handle = base64.b64encode(memory.handle)
    with pytest.raises(InferenceServerException, match="invalid args \\(byte_size"):
        client.register_cuda_shared_memory("r", handle, 0, 1 << 40)
    with pytest.raises(InferenceServerException, match="device_id is 900, the server sees"):
        client.register_cuda_shared_memory("r", handle, 900, 64)
    client.register_cuda_shared_memory("r", handle, 0, 64)
    with pytest.raises(InferenceServerException, match="already in manager"):
        client.register_cuda_shared_memory("r", handle, 0, 64)


def test_the_server_outlives_its_clients_memory(asked, export):
    module, client = asked
    memory = export(NBYTES)
    client.register_cuda_shared_memory("r", base64.b64encode(memory.handle), 0, NBYTES)
    memory.end()
    tensor = module.InferInput("A", [4], "FP32")
    tensor.set_data_from_numpy(VALUES[:4])
    assert client.infer("m", [tensor]).as_numpy("B").tolist() == [1, 2, 3, 4]
    client.unregister_cuda_shared_memory()
    assert client.is_server_live()
