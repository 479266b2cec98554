"""Tensors from one model's worker to another's by reference, through real links and workers, without fronts."""

import array
import contextlib
import errno
import gc
import os
import signal
from pathlib import Path

import pytest

from tests.waiting import until
from tisfast import limits
from tisfast.engine.testing import KeepingSink, submit
from tisfast.native.memory import Arena
from tisfast.processes.instance import InstanceState
from tisfast.types import Status
from tisfast.wire.compose import ComposeFields, answer_tensors, compose_request
from tisfast.wire.tensors import in_block

COUNT = 40_000
FP32 = 11
CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
MODEL = """
import numpy as np, os
import triton_python_backend_utils as pb
class TritonPythonModel:
    kept = []
    def execute(self, requests):
        answers = []
        for r in requests:
            a = pb.get_input_tensor_by_name(r, "IN").as_numpy()
            BODY
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", a)]))
        return answers
"""


class Chain:
    """Models that are asked one after the other, each with the answer of the one before."""

    def __init__(self, write, supervise, run, bodies):
        for name, body in bodies.items():
            write(name, MODEL.replace("BODY", body), CONFIG)
        self.run, self.supervisor = run, supervise()
        served = {each.runtime.signature.name: each for each in self.supervisor.served}
        self.served = served
        self.calls = []

    def ask(self, name, tensors, id=""):
        """One request to a model; its (status, answer)."""
        runtime = self.served[name].runtime
        fields = ComposeFields()
        fields.id = id
        request = compose_request(runtime.signature, runtime.arena, tensors, fields)
        submit(runtime, request, KeepingSink(self.calls))
        del request
        self.run(until(lambda: self.calls))
        return self.calls.pop()[:2]

    def output(self, name, tensors, id=""):
        """The only output of a model as a tensor for the next one."""
        status, answer = self.ask(name, tensors, id)
        assert status == 0, answer
        return answer_tensors(answer)[0].renamed_as("IN")


@pytest.fixture
def chain(write, supervise, run):
    return lambda **bodies: Chain(write, supervise, run, bodies)


def numbers(start=0, arena=None):
    block = (arena or Arena("source", 1 << 22, 1 << 21)).take_block(4 * COUNT)
    memoryview(block)[:] = array.array("f", range(start, start + COUNT)).tobytes()
    return in_block("IN", FP32, (COUNT,), block, 0, 4 * COUNT)


def holds(pid, name):
    """Whether a process has a file of this name open or mapped."""
    folder = Path(f"/proc/{pid}")
    if name in (folder / "maps").read_text():
        return True
    for fd in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed by now
            if name in os.readlink(fd):
                return True
    return False


def floats(tensor):
    return array.array("f", tensor.bytes())


def test_the_answer_of_one_worker_is_the_input_of_another_where_it_lies(chain):
    m = chain(add="a = a + 1", twice="a = 2 * a")
    first = m.output("add", [numbers()])
    second = m.output("twice", [first])
    assert list(floats(second)[:3]) == [2, 4, 6] and second.file is not first.file
    third = m.output("add", [second])
    assert third.file is first.file and list(floats(third)[:3]) == [3, 5, 7]


def test_an_unchanged_tensor_passes_through_a_chain_without_a_copy(chain):
    m = chain(same="pass", also="pass")
    source = numbers()
    last = m.output("also", [m.output("same", [m.output("also", [source])])])
    assert last.file is source.file and (last.offset, last.nbytes) == (source.offset, source.nbytes)


def test_what_a_model_writes_into_its_input_its_producer_does_not_see(chain):
    m = chain(make="a = a + 1", spoil="a[:] = -1", same="pass")
    made = m.output("make", [numbers()])
    assert set(floats(m.output("spoil", [made]))) == {-1.0}
    assert list(floats(m.output("same", [made]))[:2]) == [1, 2] and list(floats(made)[:2]) == [1, 2]


def test_memory_goes_back_when_the_last_answer_that_refers_to_it_is_gone(chain):
    m = chain(same="pass")
    arena = Arena("source", 1 << 22, 1 << 21)
    last = m.output("same", [m.output("same", [numbers(arena=arena)])])
    assert arena.used_blocks == 1
    del last
    assert arena.used_blocks == 0


def test_a_model_that_keeps_its_input_keeps_its_memory(chain, run):
    m = chain(keep="a = (self.kept.append(a), np.zeros(1, np.float32))[1] if r.request_id() else self.kept.pop()")
    arena = Arena("source", 1 << 22, 1 << 21)
    m.output("keep", [numbers(arena=arena)], "keep it")
    assert arena.used_blocks == 1
    taken = m.output("keep", [numbers(5)])
    assert list(floats(taken)[:2]) == [0, 1]
    run(until(lambda: arena.used_blocks == 0))


def test_an_arena_that_is_gone_leaves_no_pages_and_no_descriptor_in_the_worker(chain, run):
    m = chain(add="a = a + 1")
    pid = m.served["add"].instances[0].pid
    source = numbers()
    m.output("add", [source])
    assert holds(pid, "memfd:source")
    del source  # the answer does not refer to it
    gc.collect()
    run(until(lambda: not holds(pid, "memfd:source")))  # though it sleeps


def test_more_files_than_a_worker_is_told_of_at_one_time(chain):
    m = chain(same="pass")
    sources = [numbers(i) for i in range(limits.SHARES_PER_WORKER_MAX + 3)]
    for source in [*sources, *sources[:5]]:
        assert floats(m.output("same", [source]))[0] == floats(source)[0]


def test_a_worker_that_was_restarted_is_told_anew(chain, run):
    m = chain(same="pass")
    source = numbers()
    assert m.output("same", [source]).file is source.file
    (instance,) = m.served["same"].instances
    os.kill(instance.pid, signal.SIGKILL)
    run(until(lambda: instance.state is not InstanceState.READY))
    run(until(lambda: instance.state is InstanceState.READY))
    assert m.output("same", [source]).file is source.file


def test_a_producer_that_died_has_left_its_answers(chain, run):
    m = chain(add="a = a + 1", same="pass")
    made = m.output("add", [numbers()])
    (instance,) = m.served["add"].instances
    os.kill(instance.pid, signal.SIGKILL)
    run(until(lambda: instance.state is not InstanceState.READY))
    assert list(floats(m.output("same", [made]))[:2]) == [1, 2]


def test_the_file_that_was_used_last_is_not_the_one_that_makes_room(chain):
    m = chain(same="pass")
    first = numbers(arena=Arena("first", 1 << 22, 1 << 21))
    others = [numbers(i) for i in range(limits.SHARES_PER_WORKER_MAX)]
    for source in [first, *others[:-1], first, others[-1]]:
        m.output("same", [source])
    assert holds(m.served["same"].instances[0].pid, "memfd:first")


def no_descriptor_left(path, *_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_a_file_that_cannot_be_passed_fails_its_request_and_is_passed_to_the_next(chain, monkeypatch, caplog):
    m = chain(same="pass")
    source = numbers()
    with monkeypatch.context() as full:
        full.setattr(os, "open", no_descriptor_left)
        for _ in range(2):
            status, text = m.ask("same", [source])
            assert status == Status.INTERNAL and "could not be given this memory" in text
    said = [record.message for record in caplog.records if "cannot be given memory" in record.message]
    assert len(said) == 1 and "Too many open files" in said[0]
    assert floats(m.output("same", [source])) == floats(source)
