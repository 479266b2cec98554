"""What workers of sequences have not begun is taken back over their rings, gaps of padded batches included."""

import os
import signal
import struct

import pytest

from tests.waiting import until
from tisfast.engine.testing import StreamSink, cancel, place_input, sequences, submit
from tisfast.types import Status

START = 1
CONFIG = """
backend: "python"
max_batch_size: 4
sequence_batching { STRATEGY }
input [ { name: "CODE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
instance_group [ { count: COUNT kind: KIND_CPU } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        self.seen = {}
    def execute(self, requests):
        return [self.answer(r) for r in requests]
    def answer(self, r):
        tensor = pb.get_input_tensor_by_name(r, "CODE").as_numpy()
        if r.correlation_id():
            exec(tensor.reshape(-1)[0].decode() or "pass")
            self.seen[r.correlation_id()] = self.seen.get(r.correlation_id(), 0) + 1
        return pb.InferenceResponse([pb.Tensor("OUT", np.full((1, 1), self.seen.get(r.correlation_id(), 0), np.int32))])
"""


@pytest.fixture
def model(write, supervise, run, tmp_path):
    """A model of sequences; `ask(sequence, flags, code)` sends a request, `told` has (name, status, count)."""

    class Sums:
        def __init__(self, count, strategy):
            write("m", MODEL, CONFIG.replace("COUNT", str(count)).replace("STRATEGY", strategy))
            served = supervise().served[0]
            self.runtime, self.instance, self.calls, self.gates = served.runtime, served.instances[0], [], []

        def ask(self, sequence, flags=0, code=""):
            data = struct.pack("<I", len(code)) + code.encode()
            tensors = [(0, 13, (1, 1), data)]
            input = place_input(self.runtime, f"{sequence}", tensors, sequence=(sequence, flags))
            return submit(self.runtime, input, StreamSink(self.calls))

        def hold(self, sequence, flags=0):
            """A request that executes until `release`; returns when it does."""
            gate, begun = tmp_path / f"gate{sequence}", tmp_path / f"begun{sequence}"
            os.mkfifo(gate)
            self.gates.append(gate)
            request = self.ask(sequence, flags, f"open({str(begun)!r}, 'w').close(); open({str(gate)!r}).read()")
            run(until(begun.exists))
            return request

        def release(self, at=0):
            open(self.gates[at], "w").close()

        def until(self, count):
            run(until(lambda: len(self.calls) >= count))
            return self.told

        @property
        def told(self):
            counts = [struct.unpack("<i", what[0][3])[0] if status == 0 else None for _, status, what, _ in self.calls]
            return [(call[0], call[1], count) for call, count in zip(self.calls, counts, strict=True)]

    return Sums


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def test_a_padded_batch_with_gaps_is_taken_back_whole(model, run):
    m = model(1, "max_sequence_idle_microseconds: 60000000 "
                 "direct { max_queue_delay_microseconds: 60000000 minimum_slot_utilization: 0.5 }")  # fmt: skip
    for sequence in (1, 2, 3, 4):
        m.ask(sequence, START)
    m.until(4)
    m.calls.clear()
    (link,) = m.runtime.links
    os.kill(m.instance.pid, signal.SIGSTOP)
    run(until(lambda: stopped(m.instance.pid)))
    m.ask(1)
    three = m.ask(3)
    assert link.inflight == 2  # in slots 0 and 2
    cancel(m.runtime, three)
    assert m.told == [("3", Status.CANCELLED, None)]
    assert (m.runtime.queued, link.inflight) == (1, 0)  # half of the slots are not full any more
    m.ask(4)
    assert (m.runtime.queued, link.inflight) == (0, 2)
    os.kill(m.instance.pid, signal.SIGCONT)
    assert sorted(m.until(3)[1:]) == [("1", 0, 2), ("4", 0, 2)]
    assert (m.runtime.queued, m.runtime.inflight) == (0, 0)


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_a_leaving_instance_answers_for_what_it_has_begun_and_the_other_for_the_rest(model, strategy):
    m = model(2, strategy)
    m.hold(1, START)
    m.hold(2, START)
    where = [sequences(m.runtime)[number][0] for number in (1, 2)]
    first, second = (next(each for each in m.runtime.links if each.instance == name) for name in where)
    m.ask(1)
    for sequence in (3, 4, 5):
        m.ask(sequence, START)
    first.rest()
    assert {sequences(m.runtime)[n][0] for n in (3, 4, 5)} == {second.instance}
    m.release(1)
    assert sorted(m.until(4)) == [("2", 0, 1), ("3", 0, 1), ("4", 0, 1), ("5", 0, 1)]
    m.release(0)
    assert m.until(6)[4:] == [("1", 0, 1), ("1", 0, 2)]


def test_an_idle_worker_takes_a_sequence_that_was_handed_ahead_to_a_busy_one(model):
    m = model(2, "direct { }")
    m.hold(1, START)
    m.hold(2, START)
    m.ask(1)
    for sequence in (3, 4, 5, 6, 7, 8):
        m.ask(sequence, START)
    m.release(1)
    told = m.until(4)
    assert ("2", 0, 1) in told and all(count == 1 for _, _, count in told)
    assert not any(name == "1" for name, _, _ in told)
    m.release(0)
    assert sorted(m.until(9)) == sorted([(str(n), 0, 1) for n in range(1, 9)] + [("1", 0, 2)])
