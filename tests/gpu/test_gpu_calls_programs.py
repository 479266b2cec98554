"""Random programs of models that send each other tensors on a GPU, and die: each tensor is right, no memory is left."""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_call_models import NODE, STREAM, STREAMS, run
from tests.gpu.gpu_models import FLOATS, GPU, STAYS, copies
from tests.system.helpers import client_of_thread, until

MODELS = 4
STREAMING = 1  # this one is decoupled
ROUNDS = 12
ASKERS = 3
POOL = 1 << 24
FULL = np.arange(POOL // 4 // 4, dtype=np.float32)  # fills the part of one instance


class Script:
    """Steps of a model and of those that it calls, and what comes of them; a model calls only those behind it."""

    def __init__(self, source: random.Random, deaths: bool) -> None:
        self.random, self.deaths, self.dies = source, deaths, False

    def steps(self, level: int, values: np.ndarray) -> tuple[list, np.ndarray]:
        found = []
        for _ in range(self.random.randint(1, 4)):
            step, values = getattr(self, self.random.choice(["made", "part", "host", "call", "call"]))(level, values)
            found.append(step)
            if self.deaths and self.random.random() < 0.03:
                found.append(["die"])
                self.dies = True
        return found, values

    def made(self, level, values):
        more = self.random.randint(0, 9)
        return ["made", more], values + np.float32(more)

    def part(self, level, values):
        first = self.random.randrange(len(values))
        count = self.random.randint(1, len(values) - first)
        return ["part", first, count], values[first : first + count]

    def host(self, level, values):
        return ["host"], values

    def call(self, level, values):
        if level + 1 == MODELS:
            return self.made(level, values)
        model = self.random.randrange(level + 1, MODELS)
        if model == STREAMING:
            return self.ask(model, values)
        steps, values = self.steps(model, values)
        return ["call", f"m{model}", steps, self.random.choice([None, None, 0, 1])], values

    def ask(self, model, values):
        """Any number of responses, of which one is taken: what follows it may come when the caller has gone on."""
        script, deaths, taken = [], self.deaths, values
        responses, nth = self.random.randint(1, 4), self.random.randrange(4)
        for at in range(max(responses, nth + 1)):
            self.deaths = deaths and at <= nth
            steps, values = self.steps(model, values)
            script += steps + [["send"]]
            taken = values if at == nth else taken
        self.deaths = deaths
        return ["ask", f"m{model}", script, nth, self.random.choice([None, None, 0, 1])], taken


class Program:
    """Rounds of clients that ask at one time."""

    def __init__(self, seed: int, server, client) -> None:
        self.random, self.server, self.client = random.Random(seed), server, client
        self.wrong: list[object] = []

    def run(self, deaths: bool) -> None:
        for _ in range(ROUNDS):
            asked = [self.asked(deaths) for _ in range(ASKERS)]
            dies = any(script.dies for _, script, *_ in asked)
            threads = [threading.Thread(target=self.ask, args=(*each, dies)) for each in asked]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
            assert self.wrong == []
            until(lambda: all(self.client.is_model_ready(f"m{at}") for at in range(MODELS)), "all are back")

    def asked(self, deaths: bool):
        script = Script(self.random, deaths)
        model = self.random.choice([at for at in range(MODELS) if at != STREAMING])
        values = np.arange(self.random.choice([3, 1000, 1 << 15, 1 << 18]), dtype=np.float32)
        return model, script, values, *script.steps(model, values)

    def ask(self, model, script, values, steps, expected, dies):  # noqa: PLR0917 - what `asked` gave
        """An answer is right; none comes only where somebody died."""
        try:
            with client_of_thread(f"127.0.0.1:{self.server.port}", network_timeout=60) as client:
                if run(client, f"m{model}", values, *steps).tobytes() != expected.tobytes() or script.dies:
                    self.wrong.append(steps)
        except InferenceServerException as error:
            if not dies or "instance" not in str(error):
                self.wrong.append((steps, str(error)))


@pytest.mark.parametrize(("seed", "deaths"), [(1, False), (2, False), (3, False), (4, True), (5, True), (6, True)])
def test_a_random_program_of_calls(gpu, serve, write_model, connect, seed, deaths):
    for at in range(MODELS):
        code, more = (STREAM, STREAMS) if at == STREAMING else (NODE, "")
        write_model(f"m{at}", code, FLOATS + GPU + STAYS + more)
    server = serve(f"--cuda-memory-pool-byte-size=0:{POOL}").ready()
    client = connect(server, tritonclient.http)
    Program(seed, server, client).run(deaths)
    if deaths:  # whoever is new gets memory that the dead have left
        for at in range(MODELS):
            worker = server.worker(f"m{at}_0_0")
            os.kill(worker, signal.SIGKILL)
            until(lambda: server.worker(f"m{at}_0_0") != worker and client.is_model_ready(f"m{at}"), "it is back")  # noqa: B023
    called = ["call", "m2", []], ["ask", "m1", [["made", 0]]], ["call", "m3", []], ["call", "m3", [["made", 0]]]
    for model, steps in (
        *(("m0", (["made", 0], called[0])), ("m0", (called[1],))),
        *(("m2", (["made", 0], called[2])), ("m2", (called[3],))),
    ):  # each has room for as much as it can have, when streams that nobody waits for are over
        until(lambda: run_on_gpu(gpu, client, model, steps), "all is free again")  # noqa: B023
    assert gpu.counted()["used_after_free"] == 0
    assert gpu.allocated() <= POOL


def run_on_gpu(gpu, client, model, steps):
    """Whether the models' own copies and the client's answer are all that goes to the GPU and back."""
    before = gpu.counted()
    assert run(client, model, FULL, *steps).tolist() == FULL.tolist()
    return copies(gpu, before) == [1, 1, 1]
