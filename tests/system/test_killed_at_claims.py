"""A worker that is killed at each step of taking a request: what it had not begun is executed once, the rest is 503."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

# A request "POINT" has the worker die at that step of the next request that it takes.
MORTAL = """
import gc, os, pathlib, signal
import triton_python_backend_utils as pb_utils
from tisfast_worker.loop import Loop

CLAIM = 40  # where the claim lies in a slot of the submit ring, 64 bytes each: tf_ring.h
BEGUN = bytes([1, 0, 0, 0])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Around:
    \"\"\"A part of the loop, of which one method dies where `when` says so, when the part's own has run.\"\"\"

    def __init__(self, part, name, when):
        self._part, self._name, self._when = part, name, when

    def __getattr__(self, name):
        own = getattr(self._part, name)
        return self._dying(own) if name == self._name else own

    def _dying(self, own):
        def call(*arguments, **named):
            result = own(*arguments, **named)
            if self._when():
                die()
            return result
        return call

class Claims:
    \"\"\"Instead of tf_submit_begin.\"\"\"

    def __init__(self, source, point):
        self.own, self.source, self.point = source._begin, source, point

    def __call__(self, channel, count):
        if self.point == "looked at":
            die()
        if self.point == "claimed":  # as tf_submit_begin has done it halfway
            mask, first = self.source._channel.submit_slots
            self.source._channel.raw.write(first + ((self.source._head - 1) & mask) * 64 + CLAIM, BEGUN)
            die()
        self.own(channel, count)
        die()

class TritonPythonModel:
    def initialize(self, args):
        self.executions = pathlib.Path(args["model_repository"]) / "executions"
        self.point, self.victims = "", 0

    def execute(self, requests):
        (request,) = requests
        name = request.request_id()
        if name.startswith("victim"):
            with self.executions.open("a") as file:
                file.write(name + "\\n")
            self.victims += 1
            if self.point == "executing":
                die()
        else:
            self.arm(name)
        b = pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(request, "A").as_numpy())
        return [pb_utils.InferenceResponse([b])]

    def arm(self, point):
        gc.unfreeze()
        (loop,) = [each for each in gc.get_objects() if isinstance(each, Loop)]
        self.point = point
        if point in ("looked at", "claimed", "taken"):
            loop.source._begin = Claims(loop.source, point)
        if point == "executed":
            loop._runner = Around(loop._runner, "run", lambda: self.victims)
        if point == "shown":
            loop._outputs = Around(loop._outputs, "rest", lambda: self.victims)
"""
POINTS = {  # what becomes of the request that was being taken, and how often it was executed
    "looked at": (200, 1),
    "claimed": (200, 1),
    "taken": (503, 0),
    "executing": (503, 1),
    "executed": (503, 1),
    "shown": (200, 1),
}


def ask(server, name):
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1.5]}
    return server.ask("POST", "/v2/models/mortal/infer", {"id": name, "inputs": [tensor]})[0]


@pytest.mark.parametrize("point", POINTS)
def test_a_request_has_one_fate_wherever_its_worker_is_killed(serve, write_model, point):
    folder = write_model("mortal", MORTAL)
    server = serve().ready()
    assert ask(server, point) == 200
    names = ["victim 1", "victim 2", "victim 3"]
    with ThreadPoolExecutor() as pool:
        fates = dict(zip(names, pool.map(lambda name: ask(server, name), names), strict=True))
    status, times = POINTS[point]
    assert sorted(fates.values()) == [200, 200, status]
    done = Counter((folder / "executions").read_text().split("\n")[:-1])
    assert done == Counter({name: 1 if fate == 200 else times for name, fate in fates.items() if fate == 200 or times})
    server.says("was killed by signal 9 (SIGKILL)")
    assert server.end() == 0
