"""A model returns its input as it is, and the input lies in a client's memory: long ones are copied beside the loop."""

from __future__ import annotations

import pytest

from tests.engine.answer_helpers import FP32, CachedModel, Orders
from tests.native.helpers import ShmFile
from tests.wire.helpers import answer, body, tensor
from tisfast import tuning
from tisfast.engine.testing import StreamSink, cancel, submit
from tisfast.native.region import Regions, SystemRegion
from tisfast.types import Status
from tisfast.wire import infer
from tisfast.wire.compose import aim

LONG = tuning.LOOP_COPY_BYTES_MAX + 4


@pytest.fixture
def file():
    with ShmFile(bytes([1, 2, 3, 4]) * (LONG // 4)) as made:
        yield made


class Returning(CachedModel):
    """Its threads work when they are told to."""

    def __init__(self, file):
        super().__init__()
        self.orders = self.runtime.beside = Orders()
        self.regions = Regions()
        self.regions.add(SystemRegion("r", file.key, file.open(), 0, LONG))

    def execute(self, nbytes=LONG):
        """One request, and its answer."""
        lies = {"shared_memory_region": "r", "shared_memory_byte_size": nbytes}
        text, _ = body(tensor("I", [nbytes // 4], parameters=lies))
        request = submit(
            self.runtime,
            infer.parse(self.signature, self.runtime.arena, text, regions=self.regions),
            StreamSink(self.calls),
        )
        (place,) = aim(request.input, 3)
        self.link.execute(answer=lambda asked: answer(asked, [(0, FP32, [nbytes // 4], 0, place, nbytes)]))
        return request


def test_a_thread_copies_a_long_one(file):
    m = Returning(file)
    m.execute()
    assert (m.calls, len(m.orders)) == ([], 1)
    m.orders.work()
    ((_, status, outputs, final),) = m.calls
    assert (status, final) == (0, True) and outputs[0][3] == bytes([1, 2, 3, 4]) * (LONG // 4)
    m.calls.clear()
    assert m.runtime.arena.used_blocks == 0


def test_a_short_one_waits_for_no_thread(file):
    m = Returning(file)
    m.execute(tuning.REFERENCE_BYTES_MIN)
    assert m.orders == [] and m.calls.pop()[1] == 0


def test_a_client_that_takes_its_memory_away_meanwhile_is_told(file):
    m = Returning(file)
    m.execute()
    file.truncate(0)
    m.orders.work()
    _, status, message, final = m.calls.pop()
    assert (status, final) == (Status.INVALID_ARG, True) and "has shrunk to 0 bytes" in message


def test_where_no_thread_can_do_it_the_request_is_refused(file):
    m = Returning(file)
    m.execute()
    m.orders.pop().done((Status.UNAVAILABLE, "too many"))
    assert m.calls.pop()[1] == Status.UNAVAILABLE


def test_a_client_that_leaves_meanwhile_harms_nobody(file):
    m = Returning(file)
    request = m.execute()
    cancel(m.runtime, request)
    assert m.orders == [] and len(m.calls) == 1


def test_without_threads_the_loop_copies(file):
    m = Returning(file)
    m.runtime.beside = None
    m.execute()
    assert m.calls.pop()[1] == 0
