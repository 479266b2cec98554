"""Tensors that a model makes on a GPU reach the next model there: with every copy counted, and through deaths."""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import FLOATS, GPU, MADE, RETURNED, STAYS, copies, ensemble
from tests.gpu.stand_in_driver import OUT_OF_MEMORY
from tests.system.helpers import client_of_thread, until

NBYTES = 1 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
WAITS = RETURNED.replace(
    "        found", '        import os\n        open("{0}/here", "w").close()\n'
    '        while not os.path.exists("{0}/go"):\n            pass\n        found', 1,
)  # fmt: skip
IN_HOST_MEMORY = RETURNED.replace("assert not any", "assert all")


@pytest.fixture
def chain(gpu, serve, write_model, connect):
    """chain(*flags): (server, client) of the ensemble m of m0, which makes a tensor on the GPU, m1 and m2."""

    def start(*flags, second=RETURNED, last=RETURNED, last_config=FLOATS + GPU + STAYS):
        write_model("m0", MADE, FLOATS + GPU)
        write_model("m1", second, FLOATS + GPU + STAYS)
        write_model("m2", last, last_config)
        folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "y"), ("y", "B")))
        (folder / "1/model.py").unlink()
        server = serve(*flags).ready()
        return server, connect(server, tritonclient.http)

    return start


def infer(client, values=VALUES):
    tensor = tritonclient.http.InferInput("A", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return client.infer("m", [tensor]).as_numpy("B")


def infer_in_thread(server, values=VALUES):
    """The same by a client of this thread's own."""
    with client_of_thread(f"127.0.0.1:{server.port}") as client:
        return infer(client, values)


def test_what_a_model_makes_is_copied_once_on_the_gpu_for_all_that_follow(chain, gpu):
    _, client = chain("--cuda-memory-pool-byte-size=0:8388608")  # a part has room for two
    before = gpu.counted()
    for at in range(10):
        assert infer(client, VALUES + at).tolist() == (VALUES + at).tolist()
    # Host to device: by m0 itself.  Device to host: the answer.
    assert copies(gpu, before) == [10, 10, 10]
    assert gpu.counted()["opened"] - before["opened"] == 3  # by each worker, once
    assert gpu.counted()["used_after_free"] == 0
    assert gpu.allocated() == 8388608 // 4


def test_a_step_that_takes_its_input_in_host_memory_gets_it_there(chain, gpu):
    _, client = chain(last=IN_HOST_MEMORY, last_config=FLOATS)
    before = gpu.counted()
    assert infer(client).tolist() == VALUES.tolist()
    assert copies(gpu, before) == [1, 1, 1]  # between m1 and m2


@pytest.mark.parametrize(
    ("pool", "told"), [(0, "is less than 8388608 bytes"), (8388608, "it has no room in the 2097152 bytes")]
)
def test_without_room_it_goes_by_way_of_host_memory(chain, gpu, pool, told):
    server, client = chain(f"--cuda-memory-pool-byte-size=0:{pool}", second=IN_HOST_MEMORY, last=IN_HOST_MEMORY)
    large, before = np.tile(VALUES, 3), gpu.counted()
    for _ in range(2):
        assert infer(client, large).tolist() == large.tolist()
    assert copies(gpu, before) == [2, 2, 0]
    server.says(told)


def test_where_the_server_cannot_export_memory_the_host_takes_its_place(chain, stand_in):
    server, client = chain(second=IN_HOST_MEMORY, last=IN_HOST_MEMORY)
    stand_in.fail("cuIpcGetMemHandle", OUT_OF_MEMORY)
    assert infer(client).tolist() == VALUES.tolist()
    server.says("allocating 16777216 bytes of GPU memory failed: cuIpcGetMemHandle: out of memory")


def test_a_tensor_outlives_the_model_that_made_it(chain, gpu, tmp_path):
    server, _ = chain(second=WAITS.format(tmp_path))
    found = []
    waiting = threading.Thread(target=lambda: found.append(infer_in_thread(server)), daemon=True)
    waiting.start()
    until((tmp_path / "here").exists, "m1 has the tensor")
    worker = server.worker("m0_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.worker("m0_0_0") != worker, "m0 is started again")
    (tmp_path / "go").touch()
    waiting.join(60)
    assert found[0].tolist() == VALUES.tolist()
    assert gpu.counted()["used_after_free"] == 0


class Program:
    """Requests and deaths at random; each tensor that arrives is right."""

    def __init__(self, seed, server, client):
        self.random, self.server, self.client = random.Random(seed), server, client

    def run(self):
        for _ in range(40):
            self.random.choice([self.infer, self.infer, self.infer, self.kill])()

    def infer(self):
        values = np.frombuffer(self.random.randbytes(4 * self.random.randint(1, 1 << 12)), np.int32).astype(np.float32)
        assert infer(self.client, values).tobytes() == values.tobytes()

    def kill(self):
        """While a request may be on its way: it is answered, or refused because of the death."""
        instance = f"m{self.random.randrange(3)}_0_0"
        worker, wrong = self.server.worker(instance), []

        def ask():
            try:
                if infer_in_thread(self.server).tolist() != VALUES.tolist():
                    wrong.append("values")
            except InferenceServerException as error:
                wrong.extend([] if "instance" in str(error) else [str(error)])

        asking = threading.Thread(target=ask)
        asking.start()
        os.kill(worker, signal.SIGKILL)
        asking.join(60)
        assert wrong == []
        until(lambda: self.server.worker(instance) != worker and self.client.is_model_ready("m"), "it is back")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_program_with_deaths(chain, gpu, seed):
    server, client = chain("--cuda-memory-pool-byte-size=0:16777216")
    Program(seed, server, client).run()
    before = gpu.counted()
    assert infer(client).tolist() == VALUES.tolist()
    assert copies(gpu, before) == [1, 1, 1]  # there is memory to lend, whoever has died
    assert gpu.counted()["used_after_free"] == 0
    assert gpu.allocated() <= 2 * 16777216 // 4  # of m0, and at most one more that a dead one's tensor held


def test_a_tensor_that_its_taker_fails_with_is_let_go(chain, gpu):
    _, client = chain("--cuda-memory-pool-byte-size=0:8388608", second=IN_HOST_MEMORY)  # which it is not: m1 fails
    before = gpu.counted()
    for _ in range(5):
        with pytest.raises(InferenceServerException):
            infer(client)
    assert copies(gpu, before) == [5, 0, 5]  # each had room on the GPU
