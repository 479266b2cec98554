"""Random programs of clients and mishaps over tensors on a GPU: each tensor is right, no handle is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_call_models import STREAM, STREAMS, Stream
from tests.gpu.gpu_models import CONFIG, GPU, RETURNED, STAYS, ensemble, register, unregistering
from tests.system.helpers import until

NBYTES = 1 << 14
MEMORIES = 4
STEPS = 60


class Program:
    """Memories of clients, and what each must hold; ends with nothing registered."""

    def __init__(self, seed, server, client, stream, export, folder):  # noqa: PLR0917 - all that it is about
        self.random, self.server, self.client, self.export = random.Random(seed), server, client, export
        self.stream, self.folder = stream, folder
        self.open = None  # (memory, start, bytes, folder) of a stream that waits, with an input there
        self.memories = [export(NBYTES) for _ in range(MEMORIES)]
        self.held = [bytes(NBYTES) for _ in range(MEMORIES)]
        self.registered = set()
        self.leaving = contextlib.ExitStack()  # regions that were unregistered while the stream uses them

    def run(self, mishaps):
        steps = [self.write, self.toggle, self.infer, self.infer, self.infer, self.free, self.begin, self.end]
        steps += [self.kill, self.kill_stream] * mishaps
        for _ in range(STEPS):
            self.random.choice(steps)(self.random.randrange(MEMORIES))
        self.end()
        self.client.unregister_cuda_shared_memory()

    def write(self, at):
        self.held[at] = self.random.randbytes(NBYTES)
        self.memories[at].write(self.held[at])

    def toggle(self, at):
        if at in self.registered and self.open is not None and self.open[0] == at:
            self.leaving.enter_context(unregistering(self.server, f"r{at}"))
        elif at in self.registered:
            self.client.unregister_cuda_shared_memory(f"r{at}")
        else:
            register(self.client, f"r{at}", self.memories[at])
        self.registered ^= {at}

    def free(self, at):
        """A client gives memory back that is not registered any more, and has other memory."""
        if at not in self.registered and (self.open is None or self.open[0] != at):
            self.memories[at].free()
            self.memories[at], self.held[at] = self.export(NBYTES), bytes(NBYTES)

    def kill(self, at):
        instance = f"m{at % 3}_0_0"
        worker = self.server.worker(instance)
        os.kill(worker, signal.SIGKILL)
        until(lambda: self.server.worker(instance) != worker and self.client.is_model_ready("m"), "it is back")

    def begin(self, source):
        """A stream whose input stays where it is, whatever becomes of its region meanwhile."""
        if source not in self.registered or self.open is not None:
            return
        nbytes = 4 * self.random.randint(1, NBYTES // 8)
        start = 4 * self.random.randrange((NBYTES - nbytes) // 4)
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        call = {"nbytes": nbytes, "offset": start, "region": f"r{source}"}
        self.stream.ask("s", ["is_cpu", False], ["send"], ["wait", str(folder)], ["send"], ["part", 0, 1], **call)
        assert self.stream.next().as_numpy("B").tobytes() == self.held[source][start : start + nbytes]
        until((folder / "here").exists, "the stream waits")
        self.open = source, start, nbytes, folder

    def end(self, _=0):
        """It goes on, and sends what is there now."""
        if self.open is None:
            return
        (at, start, nbytes, folder), self.open = self.open, None
        (folder / "go").touch()
        self.leaving.close()
        assert self.stream.next().as_numpy("B").tobytes() == self.held[at][start : start + nbytes]
        assert self.stream.next().as_numpy("B").tobytes() == self.held[at][start : start + 4]

    def kill_stream(self, _):
        """Its model's process dies while it is open, or not."""
        worker, waits = self.server.worker("s_0_0"), self.open is not None
        os.kill(worker, signal.SIGKILL)
        if waits:
            self.open = None
            with pytest.raises(tritonclient.grpc.InferenceServerException, match="s_0_0"):
                self.stream.next()
        self.leaving.close()
        until(lambda: self.server.worker("s_0_0") != worker and self.client.is_model_ready("s"), "it is back")

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
def test_a_random_program(gpu, serve, write_model, connect, export, tmp_path, seed, mishaps):  # noqa: PLR0917
    config = CONFIG.replace('"A"', '"B"')
    for at in range(3):
        write_model(f"m{at}", RETURNED, config + GPU + STAYS)
    write_model("s", STREAM, config + GPU + STAYS + STREAMS)
    write_model("host", RETURNED.replace("assert not any", "assert all"), config)
    folder = write_model("m", "", ensemble("B", ("A", "x"), ("x", "y"), ("y", "B")))
    (folder / "1/model.py").unlink()
    server = serve("--allow-client-shm=true").ready()
    before = gpu.counted()
    (tmp_path / "streams").mkdir()
    stream = Stream(connect(server, tritonclient.grpc))
    try:
        Program(seed, server, connect(server), stream, export, tmp_path / "streams").run(mishaps)
    finally:  # else a stream that waits holds up the end of a test that fails
        for folder in (tmp_path / "streams").iterdir():
            (folder / "go").touch()
        stream.client.stop_stream(cancel_requests=True)
    assert gpu.counted()["used_after_free"] == before["used_after_free"]
    if not mishaps:  # who is killed closes nothing
        until(lambda: opened(gpu, before) == 0, "all handles are closed")


def opened(gpu, before):
    now = gpu.counted()
    return now["opened"] - before["opened"] - (now["closed"] - before["closed"])
