"""Inputs on a GPU that the model gets in host memory: threads copy them before the request is in any queue."""

from __future__ import annotations

import pytest

from tests.engine.answer_helpers import CachedModel, Orders, floats
from tests.engine.ensemble_helpers import Ensemble, step
from tests.native.helpers import HostDevice
from tests.wire.helpers import body, tensor
from tisfast.config.sequence_settings import SequenceSettings
from tisfast.engine.testing import StreamSink, cancel, submit
from tisfast.native.region import DeviceRegion, Regions
from tisfast.types import Status
from tisfast.wire import infer
from tisfast.wire.compose import input_tensors

DATA = floats(1, 2, 3)
JOIN = {"name": "j", "inputs": ("A", "C")}
START, END = {"sequence_start": True}, {"sequence_end": True}


class Late(CachedModel):
    """Its threads work when they are told to.  Requests have their input in memory of a GPU, or in their body."""

    def __init__(self, **changes):
        super().__init__(**changes)
        self.orders = self.runtime.beside = Orders()
        self.regions = Regions()
        self.device = HostDevice(a=DATA)
        memory = self.device.open(self.device.handle("a"), 0)
        self.regions.add(DeviceRegion("r", memory, 0, self.device.handle("a"), len(DATA)))

    def ask_late(self, id, late=True, told=None, **parameters):
        lies = {"shared_memory_region": "r", "shared_memory_byte_size": len(DATA)}
        given = tensor("I", [3], parameters=lies) if late else tensor("I", [3], data=[1, 2, 3])
        text, _ = body(given, id=id, parameters=parameters)
        made = infer.parse(self.signature, self.runtime.arena, text, regions=self.regions)
        return submit(self.runtime, made, StreamSink(self.calls, told))

    @property
    def queued(self):
        return [request.input.id for batch in self.link.dispatched for request in batch]


def test_the_model_gets_them_when_they_are_there():
    m = Late()
    request = m.ask_late("a")
    assert (m.link.dispatched, m.runtime.queued, m.runtime.stats.pending, m.calls) == ([], 1, 1, [])
    m.orders.work()
    assert (m.queued, m.runtime.stats.pending) == (["a"], 0)
    assert [each.bytes() for each in input_tensors(request.input)] == [DATA]


def test_what_cannot_be_copied_is_told_by_its_names():
    m = Late()
    m.device.fails = "the GPU is lost"
    m.ask_late("a")
    m.orders.work()
    (_, status, message, final) = m.calls.pop()
    assert (status, message, final) == (
        Status.INTERNAL, "tensor 'I' of model 'm', in region 'r': the GPU is lost", True,
    )  # fmt: skip
    assert (m.runtime.queued, m.runtime.stats.pending, m.runtime.arena.used_blocks) == (0, 0, 0)


@pytest.mark.parametrize("gone", [False, True])
def test_who_leaves_takes_the_copy_along(gone):
    m = Late()
    request = m.ask_late("a")
    if gone:
        cancel(m.runtime, request)
    else:
        m.runtime.refuse("it is unloaded")
    del request
    assert m.calls.pop()[1] == (Status.CANCELLED if gone else Status.UNAVAILABLE)
    assert (m.orders, m.calls, m.queued, m.runtime.arena.used_blocks) == ([], [], [], 0)


def test_a_request_whose_time_is_over_is_refused():
    m = Late(max_batch_size=0, default_timeout_us=5000, allow_timeout_override=True)
    m.ask_late("a", timeout=2000)
    m.ask_late("b")
    assert [order.seconds for order in m.orders] == [0.002, 0.005]
    m.orders.pop(0).done("waited for GPU 7")
    assert m.calls.pop()[1:3] == (Status.UNAVAILABLE, "Request timeout expired (waited for GPU 7)")
    assert m.runtime.stats.rejected == 1
    m.orders.work()
    assert m.queued == ["b"]


def sequences():
    more = {"sequence": SequenceSettings(slots=2, oldest=False, idle_ns=10**12)}
    return Late(max_batch_size=0, **more)


def test_the_requests_of_a_sequence_stay_in_their_order():
    m = sequences()
    m.ask_late("0", sequence_id=7, **START)
    m.ask_late("1", late=False, sequence_id=7)
    m.ask_late("2", sequence_id=7)
    m.ask_late("other", late=False, sequence_id=8, **START)
    assert m.queued == ["other"]
    m.orders.work(1)  # the last one's
    assert m.queued == ["other"] and m.runtime.queued == 3
    m.orders.work()
    m.link.execute()
    while m.link.dispatched:
        m.link.execute()
    assert [name for name, *_ in m.calls] == ["other", "0", "1", "2"]


def test_what_follows_in_a_sequence_waits_for_nobody_who_has_left():
    m = sequences()
    m.ask_late("0", late=False, sequence_id=7, **START)
    gone = m.ask_late("1", sequence_id=7)
    m.ask_late("2", late=False, sequence_id=7)
    cancel(m.runtime, gone)
    while m.link.dispatched:
        m.link.execute()
    assert [name for name, status, *_ in m.calls if not status] == ["0", "2"]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_front_that_breaks_keeps_nobody_of_its_sequence_from_going_on(leaves):
    def breaks():
        raise RuntimeError("a bug")

    m = sequences()
    first = m.ask_late("0", told=breaks, sequence_id=7, **START)
    m.ask_late("1", late=False, told=breaks, sequence_id=7)  # of a sequence that has not begun: it is refused, too
    m.ask_late("2", late=False, sequence_id=7, **START)
    m.device.fails = "the GPU is lost"
    with pytest.raises(RuntimeError, match="a bug"):
        if leaves:
            cancel(m.runtime, first)
        else:
            m.orders.work()
    assert m.queued == ["2"]


def test_only_where_there_are_sequences_does_a_request_wait_for_one_before_it():
    m = Late(max_batch_size=0)
    m.ask_late("0", sequence_id=7)
    m.ask_late("1", late=False, sequence_id=7)
    assert m.queued == ["1"]


def test_what_one_refused_request_ends_is_refused_once():
    """Those who wait for one model are steps of one ensemble: with the first the others end."""
    e = Ensemble(step("m", "A=IN", "B=x") + step("m", "A=IN", "B=y") + step("j", "A=x C=y", "B=OUT"), "m", JOIN)
    waiting = e["m"].runtime.beside = Orders()
    e.signature.device_inputs = 0  # and the steps get copies in host memory
    regions, device = Regions(), HostDevice(a=bytes(4))
    regions.add(DeviceRegion("r", device.open(device.handle("a"), 0), 0, device.handle("a"), 4))
    calls = []
    for name in "abc":
        lies = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
        text, _ = body(tensor("IN", [1], "INT32", parameters=lies), id=name)
        submit(e.runtime, infer.parse(e.signature, e.arena, text, regions=regions), StreamSink(calls))
    m = e["m"].runtime
    assert (len(waiting), m.stats.pending) == (6, 6)
    m.refuse("model 'm' is unloaded")
    assert sorted(name for name, *_ in calls) == ["a", "b", "c"]
    assert (waiting, m.queued, m.stats.pending, e.runtime.inflight) == ([], 0, 0, 0)


def test_what_follows_in_a_sequence_reaches_no_model_that_refuses():
    m, kept = sequences(), []
    m.ask_late("x", told=lambda: cancel(m.runtime, kept[0]), sequence_id=9, **START)
    kept.append(m.ask_late("a", told=lambda: cancel(m.runtime, kept[0]), sequence_id=7, **START))
    m.ask_late("b", late=False, told=lambda: cancel(m.runtime, kept[0]), sequence_id=7)
    m.runtime.refuse("it is unloaded")
    assert m.queued == [] and sorted(name for name, *_ in m.calls) == ["a", "b", "x"]
    assert (m.runtime.queued, m.runtime.stats.pending) == (0, 0)
