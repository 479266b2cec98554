"""Pages of 64 KB, as many aarch64 kernels have them: tensors by reference, and clients' shared memory.

A preloaded library (tests/native/large_pages.c) refuses what such a kernel refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import shared_memory

from tests.system.helpers import ADD_ONE, ROOT

COUNT = 150_000  # floats: larger than a page, and not a whole number of them
ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "one" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "M" } },
  { model_name: "two" model_version: -1 input_map { key: "A" value: "M" } output_map { key: "B" value: "B" } } ] }
"""


@pytest.fixture(scope="module")
def large_pages(tmp_path_factory):
    library = tmp_path_factory.mktemp("pages") / "large_pages.so"
    source = ROOT / "tests/native/large_pages.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


@pytest.fixture
def serve_so(serve, write_model, monkeypatch, large_pages):
    """A server of a model, and an ensemble of two, that starts with the library."""
    write_model("one", ADD_ONE)
    write_model("two", ADD_ONE)
    chain = write_model("chain", "", ENSEMBLE)
    (chain / "1/model.py").unlink()

    def start(*flags):
        monkeypatch.setenv("LD_PRELOAD", large_pages)
        server = serve(*flags)
        monkeypatch.delenv("LD_PRELOAD")
        return server.ready()

    return start


def test_the_pretence_refuses_what_such_a_kernel_refuses(large_pages):
    program = "import mmap; print(mmap.PAGESIZE); f = mmap.mmap(-1, 1 << 17); f.close()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "LD_PRELOAD": large_pages}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "65536"


def test_ensembles_pass_large_tensors_on(serve_so, connect):
    client = connect(serve_so(), grpcclient)
    values = np.arange(COUNT, dtype=np.float32)
    tensor = grpcclient.InferInput("A", [COUNT], "FP32")
    tensor.set_data_from_numpy(values)
    for _ in range(3):
        assert np.array_equal(client.infer("chain", [tensor]).as_numpy("B"), values + 2)


@pytest.mark.parametrize("offset", [0, 4096, 4288])
def test_inputs_in_a_clients_region(serve_so, connect, offset):
    client = connect(serve_so("--allow-client-shm=true"), grpcclient)
    values = np.arange(COUNT, dtype=np.float32)
    name = f"large-pages-{os.getpid()}"
    region = shared_memory.create_shared_memory_region(name, f"/{name}", values.nbytes + offset)
    try:
        shared_memory.set_shared_memory_region(region, [values], offset=offset)
        client.register_system_shared_memory(name, f"/{name}", values.nbytes + offset)
        tensor = grpcclient.InferInput("A", [COUNT], "FP32")
        tensor.set_shared_memory(name, values.nbytes, offset=offset)
        assert np.array_equal(client.infer("one", [tensor]).as_numpy("B"), values + 1)
        client.unregister_system_shared_memory(name)
    finally:
        shared_memory.destroy_shared_memory_region(region)
