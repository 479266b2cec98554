"""Random requests of a framework's model: from region and host, to region and answer, and through deaths."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.gpu.backend_calls import REGION_BYTES, Caller
from tests.gpu.gpu_models import GPU, register
from tests.system.helpers import until
from tests.system.tensorrt_plans import STAND_IN, doubler, environment, parameters

WAVES, CALLS_MAX, ROWS_MAX, ROW_BYTES = 25, 12, 3, 16
PLACE_BYTES = 64  # where an input may begin; TensorRT takes every fourth of them as it is


class Program:
    """Waves of requests; every tensor that arrives is right, and nothing else is written."""

    def __init__(self, seed, server, asked, export):
        self.random, self.server, self.asked, self.export = random.Random(seed), server, asked, export
        self.steps = [self.wave, self.wave, self.wave, self.kill, self.change_region]

    def run(self):
        for _ in range(WAVES):
            self.random.choice(self.steps)()

    def wave(self):
        """Requests at one time."""
        memory = bytearray(self.random.randbytes(8192))
        values = np.frombuffer(memory, np.uint8).astype(np.float32)  # of which each can be doubled
        raw = values.tobytes()
        self.asked.given.write(raw)
        before, calls, expected = self.asked.wanted.read(8192), [], []
        for at in range(self.random.randint(1, CALLS_MAX)):
            begin, nbytes = PLACE_BYTES * self.random.randrange(500), ROW_BYTES * self.random.randint(1, ROWS_MAX)
            rows = np.frombuffer(raw, np.float32, nbytes // 4, begin).reshape(-1, 4)
            source, target = self.random.random() < 0.5, self.random.random() < 0.5
            calls.append(self.asked.asked(
                {"X": rows}, {"X": begin} if source else {}, {"Y": (512 * at, nbytes) if target else None}
            ))  # fmt: skip
            expected.append((rows * 2, target))
        answers, written = self.asked.infer_at_once("m", calls), bytearray(before)
        for at, (rows, target) in enumerate(expected):
            if target:
                written[512 * at : 512 * at + rows.nbytes] = rows.tobytes()
            else:
                assert answers[at].as_numpy("Y").tolist() == rows.tolist()
        assert self.asked.wanted.read(8192) == bytes(written)

    def kill(self):
        """The instance, with a request or without."""
        worker = self.server.worker("m_0_0")
        os.kill(worker, signal.SIGKILL)
        try:
            self.wave()
        except (AssertionError, InferenceServerException) as error:
            assert "m_0_0" in str(error), error  # which names the instance that has gone
        until(lambda: self.server.worker("m_0_0") != worker and self.asked.client.is_model_ready("m"), "it is back")

    def change_region(self):
        """Inputs are in other memory from now on, under the same name."""
        self.asked.client.unregister_cuda_shared_memory("given")
        self.asked.given = self.export(REGION_BYTES)
        register(self.asked.client, "given", self.asked.given)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_program(stand_in, serve, connect, export, tmp_path, seed):
    folder = tmp_path / "models/m/1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(doubler())
    said = parameters(EXECUTION_ENV_PATH=str(environment(tmp_path / "with_tensorrt", STAND_IN)))
    batching = "dynamic_batching { max_queue_delay_microseconds: 2000 }"
    (folder.parent / "config.pbtxt").write_text(f'backend: "tensorrt" {GPU} {batching} max_batch_size: 8 {said}')
    server = serve("--allow-client-shm=true").ready()
    asked = Caller(connect(server, tritonclient.grpc), tritonclient.grpc, export)
    Program(seed, server, asked, export).run()
    Program(seed, server, asked, export).wave()
    assert stand_in.counted()["used_after_free"] == 0
