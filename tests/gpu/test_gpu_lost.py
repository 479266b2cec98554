"""The server itself loses a GPU: what it opens there and what it lends are of one context, and come back together."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import FLOATS, GPU, MADE, NBYTES, RETURNED, STAYS, asked, ensemble, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED
from tests.system.helpers import until
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda import Cuda

VALUES = np.arange(NBYTES // 4, dtype=np.float32)


def test_memory_of_the_server_s_own_is_lent_again_when_a_copy_of_a_region_has_lost_the_gpu(
    stand_in, serve, write_model, connect, region
):
    write_model("m0", MADE, FLOATS + GPU)
    write_model("m1", RETURNED, FLOATS + GPU + STAYS)  # it fails with inputs in host memory
    (write_model("m", "", ensemble("B", ("A", "x"), ("x", "B"))) / "1/model.py").unlink()
    client = connect(serve("--allow-client-shm=true").ready())
    given = region(client, "given", VALUES)
    assert client.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="unspecified launch failure"):
        client.infer("m", **asked(tritonclient.http))
    with pytest.raises(InferenceServerException, match="must be registered again"):
        client.infer("m", **asked(tritonclient.http))
    client.unregister_cuda_shared_memory("given")
    register(client, "given", given)

    def answers():
        try:
            return client.infer("m", **asked(tritonclient.http))
        except InferenceServerException:  # m0's process has had memory that is gone, and is started again
            return None

    assert until(answers, "tensors stay on the GPU again", 5).as_numpy("B").tolist() == VALUES.tolist()


def test_a_gpu_that_is_lost_in_any_call_is_begun_anew(stand_in, export):
    cuda, memory, there = Cuda(str(stand_in.library)), export(NBYTES), bytearray(4)
    memory.write(b"abcd")
    address = np.frombuffer(there, np.uint8).ctypes.data
    opened = cuda.open(memory.handle, 0)
    stand_in.fail("cuMemAlloc_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(Unavailable, match="unspecified launch failure"):
        cuda.allocate(opened.uuid, 4096)
    with pytest.raises(Internal, match="must be registered again"):
        opened.to_host(0, address, 4)
    cuda.open(memory.handle, 0).to_host(0, address, 4)
    assert there == b"abcd"
