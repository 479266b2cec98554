"""The worker's half of one call of another model: its record, and the answer that comes back; nobody is asked."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parents[2] / "workers"))

import triton_python_backend_utils as pb_utils  # noqa: E402
from tisfast_worker import native  # noqa: E402
from tisfast_worker.calls import Calls  # noqa: E402
from tisfast_worker.replies import Waiting  # noqa: E402
from worker_loop import FP32, Driver, identity  # noqa: E402

CALLS, ROUNDS = 200, 20
ANSWER_AT = 1 << 20  # in the input arena, behind what Driver has there


class Asking:
    """A model's thread with calls, and the server's side of them as far as the worker can tell."""

    def __init__(self, count: int) -> None:
        import numpy  # noqa: PLC0415

        self.driver = Driver(identity, 4)
        self.plane = self.driver.plane
        self.calls = Calls(self.plane, 0, self.driver.loop, lambda: None)
        self.array = numpy.arange(count, dtype=numpy.float32)
        name = b"OUTPUT0" + bytes(1)
        signature = struct.pack("<BBHIq", FP32, 1, 7, 0, count) + name
        record = struct.pack("<IHHII", len(signature), 1, 0, 0, 0) + signature
        record += struct.pack("<QQ", ANSWER_AT + 4096, 4 * count)
        self.driver.plane.inputs.memory[ANSWER_AT : ANSWER_AT + len(record)] = record
        self.answer = (ANSWER_AT, len(record))

    def call(self, number: int) -> int:
        """Nanoseconds that the worker spends on one."""
        began = time.perf_counter_ns()
        tensor = pb_utils.Tensor("INPUT0", self.array)
        request = pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUTPUT0"], inputs=[tensor])
        waiting = Waiting(number)
        assert self.calls._send(request, False, waiting, True) is None
        spent = time.perf_counter_ns() - began
        self._reply(number)
        began = time.perf_counter_ns()
        self.calls.wait(waiting)
        response = waiting.arrived.popleft()
        pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
        del response
        return spent + time.perf_counter_ns() - began

    def _reply(self, number: int) -> None:
        library, channel = self.plane.library, self.plane.channel
        first = channel.complete_slots[1]
        blocks = []
        for at in range(library.tf_ring_pending(channel.complete)):  # the call, and what was let go of
            head = struct.unpack_from("<Q", channel.memory, 320 + 64)[0]
            fields = native.COMPLETE_SLOT.unpack_from(
                channel.memory, first + ((head + at) & channel.complete_slots[0]) * native.SLOT_BYTES
            )
            blocks += [fields[5]] if fields[0] == native.TF_CALL else []
        library.tf_ring_take(channel.complete, library.tf_ring_pending(channel.complete))
        for at, block in enumerate(blocks):
            slot = library.tf_ring_reserve(channel.base, channel.give, at) - channel.base
            struct.pack_into("<Q", channel.memory, slot, block)
        library.tf_ring_publish(channel.give, len(blocks))
        slot = library.tf_ring_reserve(channel.base, channel.reply, 0) - channel.base
        at, nbytes = self.answer
        fields = (native.TF_ANSWER, native.TF_FINAL, 0, nbytes, number, at, number, 0)
        native.REPLY_SLOT.pack_into(channel.memory, slot, *fields)
        library.tf_ring_publish(channel.reply, 1)


def measure(name: str, count: int) -> None:
    asking = Asking(count)
    least, number = float("inf"), 0
    for _ in range(ROUNDS):
        spent = 0
        for _ in range(CALLS):
            number += 1
            spent += asking.call(number)
            asking.plane.outputs.collect()
        least = min(least, spent / CALLS)
    print(f"{name} {least:.1f}")


def main() -> None:
    measure("worker_calls_4_floats", 4)
    measure("worker_calls_64KB", 16384)


if __name__ == "__main__":
    main()
