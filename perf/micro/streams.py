"""What one response of a decoupled model costs: in the worker, and from its slot to the engine's AnswerSink.

The worker's half is `sender.send` in a loop (encode, lock, slot, bell), with no server; the engine's half is read from
one real channel by the real link (poll, check of the answer, statistics, AnswerSink), without an event loop in between.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import uvloop

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "workers"))

import numpy as np  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402
from tisfast_worker import native, nursery  # noqa: E402
from tisfast_worker.backend import RequestBackend  # noqa: E402
from tisfast_worker.data_plane import DataPlane  # noqa: E402
from tisfast_worker.loop_steps import make_loop  # noqa: E402
from tisfast_worker.model import Model  # noqa: E402

from tisfast.config.scheduler_settings import SchedulerSettings  # noqa: E402
from tisfast.engine.runtime import ModelRuntime  # noqa: E402
from tisfast.engine.testing import StreamSink, place_input, submit  # noqa: E402
from tisfast.native.memory import Arena  # noqa: E402
from tisfast.processes.clock import MachineClock  # noqa: E402
from tisfast.processes.link import Poller, RingLink  # noqa: E402
from tisfast.wire.signature import ModelSignature  # noqa: E402

INT32, RESPONSES, ROUNDS = 8, 100, 300
SETTINGS = SchedulerSettings()


class Repeat(RequestBackend):
    """100 responses of one number, and how long they took."""

    def __init__(self, model: Model) -> None:
        """Nothing measured yet."""
        super().__init__(model)
        self.ns = 0

    def start(self, requests: list, execution: object) -> None:
        """As a backend's."""
        began = time.perf_counter_ns()
        for request in requests:
            sender = request.get_response_sender()
            value = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for _ in range(RESPONSES):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.ns = time.perf_counter_ns() - began


def load_message() -> dict:
    """The `model` of a load message."""
    texts = dict.fromkeys(("repository", "version_dir"), "")
    return {
        **texts, "name": "m", "version": "1", "instance": "m_0", "file": "model.py", "kind": "CPU", "device_id": 0,
        "config": "{}", "decoupled": True, "max_batch_size": 0,
        "inputs": [["IN", INT32, [1], None]], "outputs": [["OUT", INT32, [1], None]],
    }  # fmt: skip


def main() -> None:
    """Worker and engine in one process, in turns."""
    loop = uvloop.new_event_loop()
    signature = ModelSignature("m", "1", 0, True, [("IN", INT32, (1,), False, False)], [("OUT", INT32, (1,))])
    runtime = ModelRuntime(signature, Arena("in", 1 << 22, 1 << 22), SETTINGS, MachineClock(), {})
    poller = Poller(MachineClock(), loop, 0)
    link = RingLink("m_0", runtime, poller, 1 << 22)
    plane = DataPlane(native.Library(nursery.LIBRARY), [os.dup(fd) for fd in link.fds], 0)
    runtime.add_link(link)
    link.open()
    model = Model(load_message())
    backend = Repeat(model)
    worker = make_loop(model, backend, plane, lambda *failure: sys.exit(str(failure)))
    data = np.array([7], np.int32).tobytes()
    send_ns, tell_ns = [], []
    for _ in range(ROUNDS):
        calls: list = []
        submit(runtime, place_input(runtime, "r", [(0, INT32, (1,), data)]), StreamSink(calls))
        pending = plane.library.tf_ring_pending(plane.channel.submit)
        worker._source.serve(pending, worker.serve)
        send_ns.append(backend.ns / RESPONSES)
        began = time.perf_counter_ns()
        while len(calls) <= RESPONSES:
            loop.run_until_complete(asyncio.sleep(0))
        tell_ns.append((time.perf_counter_ns() - began) / RESPONSES)
        assert len(calls) == RESPONSES + 1 and calls[-1][3]
    print(f"streams_worker_send {min(send_ns):.1f}")
    print(f"streams_engine_tell {min(tell_ns):.1f}")
    poller.close()
    link.close()


if __name__ == "__main__":
    main()
