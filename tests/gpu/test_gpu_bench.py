"""`tisfast bench` and tisfast.client with tensors on a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.gpu.gpu_models import CONFIG, GPU, IDENTITY, STAYS, WHERE
from tests.gpu.stand_in_driver import OUT_OF_MEMORY
from tests.system.bench_command import bench
from tests.system.helpers import until
from tisfast.client import Client
from tisfast.errors import TisError

NBYTES = 1 << 16


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_bench_sends_and_takes_tensors_on_the_gpu(gpu, serve, write_model, tmp_path, protocol):
    """A model that refuses all others gets them there, and its answers go back there: a copy on the GPU for each."""
    write_model("m", IDENTITY, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    port = server.said(lambda r: r.get("event") == "ready", "ready")[f"{protocol}_port"]
    before, report = gpu.counted(), tmp_path / "report.json"
    code, _, err = bench(
        "-m", "m", "-i", protocol, "-u", f"127.0.0.1:{port}", "--shape", f"A:{NBYTES // 4}", "--request-count", "50",
        "--shared-memory", "cuda", "--output-shared-memory-size", NBYTES, "--json", report,
    )  # fmt: skip
    assert (code, err) == (0, "")
    (level,) = json.loads(report.read_text())["levels"]
    assert (level["completed"], level["errors"]["count"]) == (50, 0)
    assert gpu.counted()["device_to_device"] - before["device_to_device"] >= 50
    assert gpu.counted()["device_to_host"] == before["device_to_host"]
    assert server.ask("GET", "/v2/cudasharedmemory/status") == (200, [])
    until(lambda: gpu.allocated() == 0, "its memory is given back")


def test_bench_tells_what_the_server_refuses(gpu, serve, write_model):
    write_model("m", IDENTITY, CONFIG + GPU + STAYS)
    server = serve().ready()  # which takes no clients' memory
    code, _, err = bench("-m", "m", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4", "--shared-memory", "cuda")
    assert (code, "Client shared memory is disabled" in err) == (99, True)


def test_bench_says_when_there_is_no_room_on_the_gpu(stand_in, serve, write_model):
    write_model("m", IDENTITY, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    stand_in.fail("cuMemAlloc_v2", OUT_OF_MEMORY)
    code, _, err = bench("-m", "m", "-u", f"127.0.0.1:{server.port}", "--shape", "A:4", "--shared-memory", "cuda")
    assert code == 99
    assert "--shared-memory cuda: 64 bytes cannot be had on GPU 0: " in err
    assert "allocating 64 bytes of GPU memory failed: cuMemAlloc_v2: out of memory" in err


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_the_client_registers_memory_on_the_gpu(gpu, serve, write_model, export, scheme):
    write_model("m", WHERE, CONFIG)
    server = serve("--allow-client-shm=true").ready()
    port = server.said(lambda r: r.get("event") == "ready", "ready")[f"{scheme}_port"]
    given = export(NBYTES)
    given.write(np.arange(4, dtype=np.float32).tobytes())
    with Client(f"{scheme}://127.0.0.1:{port}", shared_memory=False) as client:
        client.register_cuda_region("mine", given.handle, NBYTES)
        (region,) = client.cuda_regions()
        assert (region["name"], int(region["byte_size"])) == ("mine", NBYTES)
        with pytest.raises(TisError, match="already in manager"):
            client.register_cuda_region("mine", given.handle, NBYTES)
        client.unregister_cuda_region("mine")
        assert client.cuda_regions() == []
        client.register_cuda_region("mine", memoryview(bytearray(given.handle)), np.int64(NBYTES))
        client.unregister_cuda_region()
        with pytest.raises(TisError, match="invalid args"):
            client.register_cuda_region("mine", given.handle, NBYTES, device=900)
