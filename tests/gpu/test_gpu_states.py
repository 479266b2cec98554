"""Models of sequences whose state comes from the GPU: it is kept in host memory."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE
from tests.gpu.gpu_models import CONFIG, GPU, STAYS
from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY
from tests.system.helpers import until

SUMS = (
    NODE.split("    def execute")[0]
    + """    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.answer(request)) for request in requests]

    def answer(self, request):
        given, state = (values(pb_utils.get_input_tensor_by_name(request, name)) for name in "AS")
        made = Made(given + state)
        return [pb_utils.Tensor.from_dlpack(name, made) for name in "BT"]
"""
)
"""Its answer, and its state, are the sum of what came so far, on the GPU."""
SEQUENCES = """
max_batch_size: 4
sequence_batching { state [ { input_name: "S" output_name: "T" data_type: TYPE_FP32 dims: [ 4 ] } ] }
"""
ONES = np.ones((1, 4), np.float32)


@pytest.fixture
def summing(stand_in, serve, write_model, connect, region):
    """(server, summing(**sequence)): the sum, of ones that lie in a region."""
    write_model("m", SUMS, CONFIG.replace("-1", "4") + GPU + STAYS + SEQUENCES)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server)
    region(client, "given", ONES)
    tensor = tritonclient.http.InferInput("A", [1, 4], "FP32")
    tensor.set_shared_memory("given", ONES.nbytes)
    return server, lambda **sequence: client.infer("m", [tensor], sequence_id=5, **sequence).as_numpy("B").tolist()


def test_a_state_that_the_model_left_on_the_gpu_is_there_with_the_next_request(summing):
    _, ask = summing
    assert ask(sequence_start=True) == [[1.0] * 4]
    assert ask() == [[2.0] * 4]
    assert ask(sequence_end=True) == [[3.0] * 4]


def test_a_state_that_cannot_be_had_from_the_gpu_is_an_error_of_its_request(summing, stand_in):
    _, ask = summing
    assert ask(sequence_start=True) == [[1.0] * 4]
    stand_in.fail("cuMemcpyDtoHAsync_v2", OUT_OF_MEMORY, times=1)
    with pytest.raises(InferenceServerException, match="copying 16 bytes .*: out of memory"):
        ask()
    assert ask() == [[2.0] * 4]  # what it was before


def test_an_instance_that_has_lost_its_gpu_with_a_state_is_started_again(summing, stand_in):
    server, ask = summing
    assert ask(sequence_start=True) == [[1.0] * 4]
    worker = server.worker("m_0_0")
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="m_0_0 exited"):
        ask()
    until(lambda: server.worker("m_0_0") != worker and server.model_ready("m"), "the model is back")
    assert ask(sequence_start=True) == [[1.0] * 4]
