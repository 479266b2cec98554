"""Outputs for clients' regions that threads write: long ones, and those in memory of a GPU."""

from __future__ import annotations

import os

import pytest

from tests.engine.answer_helpers import CachedModel, answered_with, floats
from tests.native.helpers import HostDevice, ShmFile
from tests.wire.helpers import body, tensor
from tisfast import tuning
from tisfast.engine.testing import StreamSink, cancel, submit
from tisfast.native.region import DeviceRegion, Regions, SystemRegion
from tisfast.types import Status
from tisfast.wire import infer

SHORT, LONG = floats(1, 2, 3), floats(1.5) * (tuning.LOOP_COPY_BYTES_MAX // 4 + 1)


class Writing(CachedModel):
    """Its threads work when they are told to; `region` is what the output is for."""

    def __init__(self, region):
        super().__init__()
        self.orders = []
        self.runtime.beside = lambda *order: self.orders.append(order)
        self.regions = Regions()
        self.regions.add(region)

    def execute(self, data):
        into = {"shared_memory_region": "r", "shared_memory_byte_size": len(data)}
        text, _ = body(tensor("I", [1], data=[1]), id="a", outputs=[{"name": "O", "parameters": into}])
        made = infer.parse(self.signature, self.runtime.arena, text, regions=self.regions)
        request = submit(self.runtime, made, StreamSink(self.calls))
        self.link.execute(answer=answered_with(data))
        return request

    def work(self):
        steps, _, done, _ = self.orders.pop(0)
        failure = ()
        for _, carry_out in steps:
            failure = failure or carry_out()
        done(failure)


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
    m.work()
    assert m.calls.pop()[1] == 0 and device.memories["a"][: len(data)] == data
    assert m.runtime.arena.used_blocks == 0


def test_the_loop_goes_on_while_a_long_one_is_written(file):
    m = Writing(of_file(file))
    m.execute(LONG)
    assert (m.calls, file.data) == ([], bytes(len(LONG)))
    m.work()
    assert m.calls.pop()[1] == 0 and file.data == LONG


def test_a_short_one_in_host_memory_waits_for_no_thread(file):
    m = Writing(of_file(file))
    m.execute(SHORT)
    assert m.orders == [] and m.calls.pop()[1] == 0


def test_nothing_is_written_for_a_client_that_has_left(device):
    m = Writing(of_device(device))
    request = m.execute(SHORT)
    cancel(m.runtime, request)
    m.work()  # it may use its memory for something else by now
    assert device.memories["a"] == bytes(len(LONG)) and len(m.calls) == 1


def test_a_file_that_shrinks_before_a_thread_writes(file):
    m = Writing(of_file(file))
    m.execute(LONG)
    os.truncate(file.path, 4096)
    m.work()
    _, status, message, _ = m.calls.pop()
    assert status == Status.INVALID_ARG and "has shrunk to 4096 bytes" in message


def test_what_cannot_be_written_is_told_by_its_names(device):
    m = Writing(of_device(device))
    device.fails = "the GPU is lost"
    m.execute(SHORT)
    m.work()
    _, status, message, _ = m.calls.pop()
    said = "output 'O' of model 'm', into region 'r': the GPU is lost"
    assert (status, message) == (Status.INTERNAL, said)
