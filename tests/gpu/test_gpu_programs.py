"""Random programs of clients and mishaps over tensors on a GPU: each tensor is right, no handle is left."""

from __future__ import annotations

import os
import random
import signal

import pytest
import tritonclient.http

from tests.gpu.gpu_models import CONFIG, GPU, RETURNED, STAYS, ensemble, register
from tests.system.helpers import until

NBYTES = 1 << 14
MEMORIES = 4
STEPS = 60


class Program:
    """Memories of clients, and what each must hold; ends with nothing registered."""

    def __init__(self, seed, server, client, export):
        self.random, self.server, self.client, self.export = random.Random(seed), server, client, export
        self.memories = [export(NBYTES) for _ in range(MEMORIES)]
        self.held = [bytes(NBYTES) for _ in range(MEMORIES)]
        self.registered = set()

    def run(self, mishaps):
        steps = [self.write, self.toggle, self.infer, self.infer, self.infer, self.free] + [self.kill] * mishaps
        for _ in range(STEPS):
            self.random.choice(steps)(self.random.randrange(MEMORIES))
        self.client.unregister_cuda_shared_memory()

    def write(self, at):
        self.held[at] = self.random.randbytes(NBYTES)
        self.memories[at].write(self.held[at])

    def toggle(self, at):
        if at in self.registered:
            self.client.unregister_cuda_shared_memory(f"r{at}")
        else:
            register(self.client, f"r{at}", self.memories[at])
        self.registered ^= {at}

    def free(self, at):
        """A client gives memory back that is not registered any more, and has other memory."""
        if at not in self.registered:
            self.memories[at].free()
            self.memories[at], self.held[at] = self.export(NBYTES), bytes(NBYTES)

    def kill(self, at):
        instance = f"m{at % 3}_0_0"
        worker = self.server.worker(instance)
        os.kill(worker, signal.SIGKILL)
        until(lambda: self.server.worker(instance) != worker and self.client.is_model_ready("m"), "it is back")

    def infer(self, source):
        target = self.random.choice([*sorted(self.registered - {source}), None])
        if source not in self.registered:
            return
        nbytes = 4 * self.random.randint(1, NBYTES // 8)
        start, to = (4 * self.random.randrange((NBYTES - nbytes) // 4) for _ in range(2))
        model, name = self.random.choice([("m", "A"), ("m0", "B"), ("host", "B")])
        tensor = tritonclient.http.InferInput(name, [nbytes // 4], "FP32")
        tensor.set_shared_memory(f"r{source}", nbytes, start)
        wanted = tritonclient.http.InferRequestedOutput("B")
        if target is not None:
            wanted.set_shared_memory(f"r{target}", nbytes, to)
        answer = self.client.infer(model, [tensor], outputs=[wanted])
        expected = self.held[source][start : start + nbytes]
        if target is None:
            assert answer.as_numpy("B").tobytes() == expected
        else:
            self.held[target] = self.held[target][:to] + expected + self.held[target][to + nbytes :]
            assert self.memories[target].read(NBYTES) == self.held[target]


@pytest.mark.parametrize(("seed", "mishaps"), [(1, 0), (2, 0), (3, 1), (4, 1)])
def test_a_random_program(gpu, serve, write_model, connect, export, seed, mishaps):  # noqa: PLR0917
    config = CONFIG.replace('"A"', '"B"')
    for at in range(3):
        write_model(f"m{at}", RETURNED, config + GPU + STAYS)
    write_model("host", RETURNED.replace("assert not any", "assert all"), config)
    folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "y"), ("y", "B")))
    (folder / "1/model.py").unlink()
    server = serve("--allow-client-shm=true").ready()
    before = gpu.counted()
    Program(seed, server, connect(server), export).run(mishaps)
    assert gpu.counted()["used_after_free"] == before["used_after_free"]
    if not mishaps:  # who is killed closes nothing
        until(lambda: opened(gpu, before) == 0, "all handles are closed")


def opened(gpu, before):
    now = gpu.counted()
    return now["opened"] - before["opened"] - (now["closed"] - before["closed"])
