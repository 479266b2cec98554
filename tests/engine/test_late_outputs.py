"""Outputs for clients' regions that threads write: long ones, and those in memory of a GPU."""

from __future__ import annotations

import os

import pytest

from tests.engine.answer_helpers import FP32, CachedModel, Orders, answered_with, floats
from tests.engine.helpers import settings
from tests.native.helpers import HostDevice, ShmFile
from tests.wire.helpers import answer, body, tensor
from tisfast import limits, tuning
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink, StreamSink, cancel, submit
from tisfast.errors import Unavailable
from tisfast.executor import Lane
from tisfast.native.memory import Arena
from tisfast.native.region import DeviceRegion, Regions, SystemRegion
from tisfast.types import Status
from tisfast.wire import infer
from tisfast.wire.compose import aim
from tisfast.wire.signature import ModelSignature

SHORT, LONG = floats(1, 2, 3), floats(1.5) * (tuning.LOOP_COPY_BYTES_MAX // 4 + 1)


class Writing(CachedModel):
    """Its threads work when they are told to; `region` is what the output is for."""

    def __init__(self, region):
        super().__init__()
        self.orders = self.runtime.beside = Orders()
        self.regions = Regions()
        self.regions.add(region)

    def execute(self, data):
        into = {"shared_memory_region": "r", "shared_memory_byte_size": len(data)}
        text, _ = body(tensor("I", [1], data=[1]), id="a", outputs=[{"name": "O", "parameters": into}])
        made = infer.parse(self.signature, self.runtime.arena, text, regions=self.regions)
        request = submit(self.runtime, made, StreamSink(self.calls))
        self.link.execute(answer=answered_with(data))
        return request


@pytest.fixture
def device():
    return HostDevice(a=bytes(len(LONG)))


@pytest.fixture
def file():
    with ShmFile(bytes(len(LONG))) as made:
        yield made


def of_device(device):
    return DeviceRegion("r", device.open(device.handle("a"), 0), 0, device.handle("a"), len(LONG))


def of_file(file):
    return SystemRegion("r", file.key, file.open(), 0, len(LONG))


@pytest.mark.parametrize("data", [SHORT, LONG])
def test_a_thread_of_the_gpu_writes_what_is_for_its_memory(device, data):
    m = Writing(of_device(device))
    m.execute(data)
    assert (m.calls, device.memories["a"]) == ([], bytes(len(LONG)))
    m.orders.work()
    assert m.calls.pop()[1] == 0 and device.memories["a"][: len(data)] == data
    assert m.runtime.arena.used_blocks == 0


def test_the_loop_goes_on_while_a_long_one_is_written(file):
    m = Writing(of_file(file))
    m.execute(LONG)
    assert (m.calls, file.data) == ([], bytes(len(LONG)))
    m.orders.work()
    assert m.calls.pop()[1] == 0 and file.data == LONG


def test_a_short_one_in_host_memory_waits_for_no_thread(file):
    m = Writing(of_file(file))
    m.execute(SHORT)
    assert m.orders == [] and m.calls.pop()[1] == 0


def test_nothing_is_written_for_a_client_that_has_left(device):
    m = Writing(of_device(device))
    request = m.execute(SHORT)
    cancel(m.runtime, request)
    assert m.orders == []  # it may use its memory for something else by now
    assert [call[1:] for call in m.calls] == [(Status.CANCELLED, "Request cancelled: the client left", True)]
    del request
    assert m.runtime.arena.used_blocks == 0


def test_a_file_that_shrinks_before_a_thread_writes(file):
    m = Writing(of_file(file))
    m.execute(LONG)
    os.truncate(file.path, 4096)
    m.orders.work()
    _, status, message, _ = m.calls.pop()
    assert status == Status.INVALID_ARG and "has shrunk to 4096 bytes" in message


def test_what_cannot_be_written_is_told_by_its_names(device):
    m = Writing(of_device(device))
    device.fails = "the GPU is lost"
    m.execute(SHORT)
    m.orders.work()
    _, status, message, _ = m.calls.pop()
    said = "output 'O' of model 'm', into region 'r': the GPU is lost"
    assert (status, message) == (Status.INTERNAL, said)


def lies_in(region):
    return {"shared_memory_region": region, "shared_memory_byte_size": len(SHORT)}


class Stream:
    """One request of a decoupled model, whose responses go to the region."""

    def __init__(self, region, told=None, given=None):
        """given: a region of the model's GPU that the input lies in; the model sends it back."""
        self.signature = ModelSignature("m", "1", 0, True, [("I", FP32, (-1,), False, False)], [("O", FP32, (-1,))])
        scheduler, clock = settings(max_batch_size=0, dynamic=False), FakeClock()
        self.runtime = ModelRuntime(self.signature, Arena("in", 1 << 23, 1 << 22), scheduler, clock, {"name": "m"})
        self.link = FakeLink("m_0", self.runtime, clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")
        self.orders = self.runtime.beside = Orders()
        self.regions, self.calls = Regions(), []
        self.regions.add(region)
        asked = tensor("I", [1], data=[1])
        if given is not None:
            self.regions.add(given)
            self.signature.device_inputs = given.device
            asked = tensor("I", [len(SHORT) // 4], parameters=lies_in(given.name))
        text, _ = body(asked, id="a", outputs=[{"name": "O", "parameters": lies_in("r")}])
        made = infer.parse(self.signature, self.runtime.arena, text, regions=self.regions)
        self.request = submit(self.runtime, made, StreamSink(self.calls, told))
        self.link.execute_streams()
        self._answer = answered_with(SHORT)
        if given is not None:
            (place,) = aim(made, 3)
            self._answer = lambda asked: answer(asked, [(0, FP32, [len(SHORT) // 4], 0, place, len(SHORT))])

    def respond(self, times=1):
        for _ in range(times):
            self.link.respond(self.request, answer=self._answer(self.request.input))

    def end(self):
        self.link.respond(self.request, final=True)

    @property
    def told(self):
        return [(status, final) for _, status, _, final in self.calls]


def test_responses_are_told_in_their_order_each_when_it_is_written(device):
    m = Stream(of_device(device))
    m.respond(2)
    m.end()
    assert (m.calls, len(m.orders)) == ([], 1)
    m.orders.work()
    assert m.told == [(0, False)]
    m.orders.work()
    assert m.told == [(0, False), (0, False), (0, True)]


def test_of_a_stream_nothing_waits_for_a_gpu_that_was_waited_for_in_vain(device):
    m = Stream(of_device(device))
    m.respond(3)
    m.orders.pop(0).done((Status.UNAVAILABLE, "it hangs"))
    m.respond()
    m.end()
    assert m.told == [(Status.UNAVAILABLE, False)] * 4 + [(0, True)] and m.orders == []
    assert {call[2] for call in m.calls[:4]} == {"it hangs"}


def filled(arena):
    """Blocks that leave no room in it."""
    blocks, nbytes = [], arena.use_bytes_max
    while nbytes:
        try:
            blocks.append(arena.take_block(nbytes))
        except Unavailable:
            nbytes //= 2
    return blocks


def test_of_a_stream_only_the_response_is_refused_that_finds_no_room(device):
    """What goes from one GPU to another crosses the arena."""
    other, lane = HostDevice(a=SHORT), Lane(1, "test-other", "the other GPU", "")
    memory = other.open(other.handle("a"), 0)
    memory.lane = lambda nbytes: lane
    m = Stream(of_device(device), given=DeviceRegion("g", memory, 1, other.handle("a"), len(SHORT)))
    m.respond(2)
    full = filled(m.runtime.arena)
    m.orders.work()
    assert m.told == [(0, False), (Status.UNAVAILABLE, False)] and m.orders == []
    assert m.calls[1][2].startswith("no room for 12 bytes in in: ")
    del full
    m.respond()
    m.end()
    m.orders.work()
    assert m.told[2:] == [(0, False), (0, True)]
    assert device.memories["a"][: len(SHORT)] == SHORT


def test_a_stream_whose_client_leaves_is_told_of_it_and_writes_no_more(device):
    m = Stream(of_device(device))
    m.respond(2)
    cancel(m.runtime, m.request)
    m.respond()
    m.end()
    assert m.told == [(Status.CANCELLED, False)] * 3 + [(0, True)] and m.orders == []
    assert device.memories["a"] == bytes(len(LONG))


def test_only_so_many_responses_wait_for_one_that_is_written(device):
    m = Stream(of_device(device))
    m.respond(limits.ANSWERS_UNCOPIED_MAX)
    assert (m.calls, len(m.orders)) == ([], 1)
    m.respond()
    m.end()
    assert m.told == [(Status.UNAVAILABLE, False)] * (limits.ANSWERS_UNCOPIED_MAX + 1) + [(0, True)]
    assert m.orders == [] and m.calls[0][2].startswith("16384 responses wait for one that is to be copied")


def test_a_front_that_breaks_keeps_no_response_from_the_next_one(device):
    def breaks():
        if len(m.calls) == 1:
            raise RuntimeError("a bug")

    m = Stream(of_device(device), breaks)
    m.respond(2)
    m.end()
    with pytest.raises(RuntimeError, match="a bug"):
        m.orders.work()
    m.orders.work()
    assert m.told == [(0, False), (0, False), (0, True)]


def test_a_front_that_breaks_keeps_no_cancel_from_the_model(device):
    def breaks():
        raise RuntimeError("a bug")

    m = Stream(of_device(device), breaks)
    m.respond()
    before = m.request.input.record
    with pytest.raises(RuntimeError, match="a bug"):
        cancel(m.runtime, m.request)
    assert m.request.input.record != before
