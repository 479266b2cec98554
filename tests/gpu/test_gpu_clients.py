"""Public clients and libraries with memory on a real GPU: tritonclient's CUDA regions, torch and cupy in models."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_models import CONFIG, GPU, STAYS, asked
from tests.system.helpers import until

NBYTES = 1 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
TWICE = {
    "torch": """
import torch
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "A"))
            assert given.is_cuda
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", given * 2)]))
        return answers
""",
    "cupy": """
import cupy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = cupy.from_dlpack(pb_utils.get_input_tensor_by_name(request, "A"))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", given * 2)]))
        return answers
""",
}
LIKE_TRITON = """
import numpy
import torch
from torch.utils.dlpack import from_dlpack, to_dlpack
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # As in Triton's examples: capsules by functions, on a stream of the model's own, which nobody waits for here.
    def initialize(self, args):
        self.stream = torch.cuda.Stream()

    def execute(self, requests):
        answers = []
        with torch.cuda.stream(self.stream):
            for request in requests:
                given = from_dlpack(pb_utils.get_input_tensor_by_name(request, "A").to_dlpack())
                torch.cuda._sleep(20_000_000)  # what follows is done long after execute has returned
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", to_dlpack(given * 2))]))
        return answers
"""
FROM_THE_HOST = """
import torch
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = torch.from_numpy(pb_utils.get_input_tensor_by_name(request, "A").as_numpy())
            made = given.to("cuda", non_blocking=True) * 2
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", made)]))
        return answers
"""


@pytest.fixture
def regions(real_cuda):
    """tritonclient's module of CUDA regions; regions(name, nbytes) makes one."""
    pytest.importorskip("cuda.bindings", reason="tritonclient's CUDA regions need cuda-python")
    import tritonclient.utils.cuda_shared_memory as module  # noqa: PLC0415 - needs cuda-python

    with ExitStack() as made:

        def region(name, nbytes=NBYTES):
            handle = module.create_shared_memory_region(name, nbytes, 0)
            made.callback(module.destroy_shared_memory_region, handle)
            return handle

        region.module = module
        yield region


def registered(client, regions, name):
    """A region of tritonclient's that the server knows."""
    handle = regions(name)
    client.register_cuda_shared_memory(name, regions.module.get_raw_handle(handle), 0, NBYTES)
    return handle


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_from_region_to_region_through_a_library(regions, serve, write_model, connect, library, module):  # noqa: PLR0917
    pytest.importorskip(library)
    write_model("m", TWICE[library], CONFIG + GPU + STAYS)
    client = connect(serve("--allow-client-shm=true").ready(), module)
    given, wanted = (registered(client, regions, name) for name in ("given", "wanted"))
    for factor in (1, 3):
        regions.module.set_shared_memory_region(given, [VALUES * factor])
        client.infer("m", **asked(module, output="wanted"))
        found = regions.module.get_contents_as_numpy(wanted, np.float32, [len(VALUES)])
        assert (found == VALUES * factor * 2).all()
    client.unregister_cuda_shared_memory()


@pytest.mark.parametrize("code", [LIKE_TRITON, FROM_THE_HOST], ids=["own stream", "from the host"])
def test_what_a_model_queued_is_done_before_it_is_answered(regions, serve, write_model, connect, code):
    pytest.importorskip("torch")
    stays = "" if code == FROM_THE_HOST else STAYS
    write_model("m", code, CONFIG + GPU + stays)
    client = connect(serve("--allow-client-shm=true").ready())
    given, wanted = (registered(client, regions, name) for name in ("given", "wanted"))
    for factor in range(1, 6):
        regions.module.set_shared_memory_region(given, [VALUES * factor])
        client.infer("m", **asked(tritonclient.http, output="wanted"))
        found = regions.module.get_contents_as_numpy(wanted, np.float32, [len(VALUES)])
        assert (found == VALUES * factor * 2).all()
        answer = client.infer("m", **asked(tritonclient.http))  # the answer travels in host memory
        assert (answer.as_numpy("B") == VALUES * factor * 2).all()


def test_a_tensor_of_torch_is_a_client_s_input(regions, serve, write_model, connect):
    torch = pytest.importorskip("torch")
    write_model("m", TWICE["torch"], CONFIG + GPU + STAYS)
    client = connect(serve("--allow-client-shm=true").ready())
    given, wanted = (registered(client, regions, name) for name in ("given", "wanted"))
    regions.module.set_shared_memory_region_from_dlpack(given, [torch.arange(len(VALUES), device="cuda").float()])
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    found = torch.from_dlpack(regions.module.as_shared_memory_tensor(wanted, "FP32", [len(VALUES)]))
    assert found.is_cuda
    assert (found.cpu().numpy() == VALUES * 2).all()


def test_an_illegal_address_ends_the_instance_and_nothing_else(regions, serve, write_model, connect):
    torch = pytest.importorskip("torch")
    assert torch.cuda.is_available()
    code = (
        TWICE["torch"].replace("given * 2", "self.made(given)")
        + """
    def made(self, given):
        if float(given[0]) != 666:
            return given * 2
        return given[torch.tensor([1 << 40], device="cuda")].expand(len(given)) * 2  # a kernel's assertion
"""
    )
    write_model("m", code, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server)
    given, wanted = (registered(client, regions, name) for name in ("given", "wanted"))
    worker = server.worker("m_0_0")
    regions.module.set_shared_memory_region(given, [np.full_like(VALUES, 666)])
    with pytest.raises(tritonclient.utils.InferenceServerException):
        client.infer("m", **asked(tritonclient.http, output="wanted"))
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")
    regions.module.set_shared_memory_region(given, [VALUES])
    client.infer("m", **asked(tritonclient.http, output="wanted"))
    found = regions.module.get_contents_as_numpy(wanted, np.float32, [len(VALUES)])
    assert (found == VALUES * 2).all()
