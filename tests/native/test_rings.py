"""Rings between the server and a worker, both ends of them: order, room, claims, bells, and a worker that lies."""

from __future__ import annotations

import errno
import os
import resource
import select
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.descriptors import open_descriptors
from tests.native import worker_side
from tests.native.worker_side import (
    ASLEEP,
    COMPLETE,
    GIVE,
    NUDGE,
    REPLY,
    STOP,
    SUBMIT,
    WorkerSide,
    replied,
    submitted,
)
from tisfast.errors import Internal
from tisfast.native import testing as native
from tisfast.native.channel import Bell, Cells, Channel, abi_version

SUBMIT_SLOTS, COMPLETE_SLOTS, GIVE_SLOTS, REPLY_SLOTS, CELLS = 256, 1024, 4096, 1024, 65536
EXEC, ANSWER, ERROR = 1, 2, 3
NULL = 1
WAIT_NS = 60_000_000_000


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def worker(channel):
    return WorkerSide(channel)


def submit(channel, count=1, **fields):
    """A batch, published; its tickets."""
    tickets = [native.submit(channel, 64 * i, 10 + i, batch_left=count - 1 - i, **fields) for i in range(count)]
    native.publish(channel)
    return tickets


def readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


def test_a_worker_sees_every_field_of_a_request(channel, worker):
    native.tell(channel, 7)
    ticket = native.submit(channel, 2**40, 2**32 - 1, batch_left=3, now=-5, sequence_slot=9, flags=NULL)
    assert worker.peek(SUBMIT) is None
    native.publish(channel)
    assert submitted(worker.take(SUBMIT)) == {
        "kind": EXEC, "flags": NULL, "batch_left": 3, "meta_bytes": 2**32 - 1, "request": ticket, "meta_offset": 2**40,
        "submit_ns": -5, "told": 7, "slot": 9, "claim": 0,
    }  # fmt: skip
    assert worker.take(SUBMIT) is None


def test_a_channel_is_what_the_worker_s_library_takes_it_for(channel, worker):
    assert worker.lib.tf_channel_check(worker.base, channel.nbytes) == 0
    assert worker.lib.tf_channel_check(worker.base, channel.nbytes - 1) == -errno.EPROTO
    assert worker.word(4) == abi_version()


def test_nothing_is_published_twice(channel, worker):
    submit(channel, 2)
    native.publish(channel)
    assert [submitted(worker.take(SUBMIT))["request"] for _ in range(2)] == [0, 1]
    assert worker.take(SUBMIT) is None


def test_a_full_ring_takes_no_request_until_one_is_taken(channel, worker):
    assert submit(channel, SUBMIT_SLOTS) == list(range(SUBMIT_SLOTS))
    assert (native.room(channel), native.submit(channel, 0, 0)) == (0, -1)
    worker.take(SUBMIT)
    assert (native.room(channel), native.taken(channel)) == (1, 1)
    assert native.submit(channel, 0, 0) == SUBMIT_SLOTS
    assert native.submit(channel, 0, 0) == -1


def test_requests_that_are_not_published_take_room(channel):
    for ticket in range(SUBMIT_SLOTS):
        assert native.submit(channel, 0, 0) == ticket
    assert native.submit(channel, 0, 0) == -1
    assert native.room(channel) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 90)), max_size=60))
@settings(max_examples=60)
def test_requests_arrive_in_order_and_room_is_what_is_left(steps):
    channel = Channel()
    worker = WorkerSide(channel)
    sent, got = 0, 0
    for server, count in steps:
        if server:
            for _ in range(count):
                ticket = native.submit(channel, sent, 1)
                assert ticket == (sent if sent - got < SUBMIT_SLOTS else -1)
                sent += ticket >= 0
            native.publish(channel)
        else:
            for _ in range(min(count, sent - got)):
                assert submitted(worker.take(SUBMIT))["meta_offset"] == got
                got += 1
        assert (native.taken(channel), native.room(channel)) == (got, SUBMIT_SLOTS - (sent - got))


@pytest.mark.parametrize("head", [SUBMIT_SLOTS + 1, 2**63, 2**64 - 1])
def test_a_head_beyond_what_was_written_is_not_believed(channel, worker, head):
    submit(channel, 3)
    worker.set_head(SUBMIT, head)
    assert (native.taken(channel), native.room(channel)) == (3, SUBMIT_SLOTS)
    assert not native.recall(channel, 2)


def test_a_head_that_went_back_leaves_no_room_rather_than_too_much(channel, worker):
    for _ in range(2):
        for _ in submit(channel, SUBMIT_SLOTS):
            worker.take(SUBMIT)
    worker.set_head(SUBMIT, 0)
    assert (native.taken(channel), native.room(channel)) == (0, 0)


def test_an_answer_comes_with_every_field(channel, worker):
    fields = {
        "kind": ERROR, "flags": 3, "status": 503, "meta_bytes": 77, "request": 2**50, "block": 2**63, "taken_ns": 1,
        "infer_start_ns": 2, "infer_end_ns": 3, "done_ns": 4, "batch": 5,
    }  # fmt: skip
    assert native.next_answer(channel) is None
    assert worker.complete(**fields)
    assert native.next_answer(channel) == fields
    assert native.next_answer(channel) is None


def test_a_worker_waits_for_room_when_nobody_reads_its_answers(channel, worker):
    for request in range(COMPLETE_SLOTS):
        assert worker.complete(kind=ANSWER, request=request)
    assert not worker.complete(kind=ANSWER)
    assert native.next_answer(channel)["request"] == 0
    assert worker.complete(kind=ANSWER, request=COMPLETE_SLOTS)
    assert [native.next_answer(channel)["request"] for _ in range(COMPLETE_SLOTS)] == list(range(1, COMPLETE_SLOTS + 1))


@pytest.mark.parametrize("tail", [COMPLETE_SLOTS + 1, 2**63, 2**64 - 1])
def test_a_worker_that_claims_more_answers_than_the_ring_holds_has_none(channel, worker, tail):
    worker.set_tail(COMPLETE, tail)
    assert native.next_answer(channel) is None


def test_a_batch_is_the_server_s_again_until_the_worker_begins_it(channel, worker):
    first, second = submit(channel, 2)[-1], submit(channel, 3)[-1]
    assert native.recall(channel, second)
    assert not native.recall(channel, second), "it is taken back once"
    assert worker.begin(2)
    assert not native.recall(channel, first)
    assert not worker.begin(3), "a worker passes over what was taken back"
    assert native.taken(channel) == 5


def test_what_was_never_written_cannot_be_taken_back(channel):
    submit(channel, 2)
    assert not native.recall(channel, 2)
    assert not native.recall(channel, 2**64 - 1)


def test_blocks_go_back_to_the_worker_in_order(channel, worker):
    for block in (5, 2**64 - 1, 0):
        native.give_block(channel, block)
    assert [struct.unpack_from("<Q", worker.take(GIVE))[0] for _ in range(3)] == [5, 2**64 - 1, 0]
    assert worker.take(GIVE) is None


def test_blocks_beyond_what_a_worker_may_have_out_are_its_loss(channel, worker):
    for block in range(GIVE_SLOTS + 10):
        native.give_block(channel, block)
    found = [struct.unpack_from("<Q", worker.take(GIVE))[0] for _ in range(GIVE_SLOTS)]
    assert found == list(range(GIVE_SLOTS))
    assert worker.take(GIVE) is None


def test_a_reply_names_its_call_and_what_was_told_before(channel, worker):
    native.tell(channel, 3)
    assert native.reply(channel, kind=ANSWER, call=2**40, meta_offset=640, meta_bytes=99)
    assert replied(worker.take(REPLY)) == {
        "kind": ANSWER, "flags": 0, "status": 0, "meta_bytes": 99, "call": 2**40, "meta_offset": 640, "answer": 0,
        "told": 3,
    }  # fmt: skip


def test_a_full_reply_ring_is_told_and_rings_when_there_is_room(channel, worker):
    for call in range(REPLY_SLOTS):
        assert native.reply(channel, kind=ANSWER, call=call)
    assert worker.lib.tf_reply_took(worker.base, 0) == 0, "nobody waits for room"
    assert not native.reply(channel, kind=ANSWER, call=REPLY_SLOTS)
    assert worker.lib.tf_reply_took(worker.base, 1) == 1, "the server is to be rung"
    assert native.reply(channel, kind=ANSWER, call=REPLY_SLOTS)


def in_thread(wait, *arguments):
    found = []
    thread = threading.Thread(target=lambda: found.append(wait(*arguments)))
    thread.start()
    return thread, found


def woken(worker, word, wake):
    """What a wait gives that sleeps, or is about to, when `wake` is called."""
    wait = worker.lib.tf_reply_wait if word is None else worker.lib.tf_worker_wait
    thread, found = in_thread(wait, worker.base, 0, WAIT_NS)
    wake()
    thread.join(60)
    assert not thread.is_alive()
    return found[0]


def test_a_sleeping_worker_is_woken_by_a_request(channel, worker):
    assert woken(worker, ASLEEP, lambda: submit(channel, 2)) in (1, 2)


def test_a_sleeping_worker_is_woken_by_a_nudge_and_finds_no_request(channel, worker):
    assert woken(worker, ASLEEP, lambda: native.nudge(channel)) == 0
    assert worker.word(NUDGE) == 0, "a nudge is for one return"


def test_a_worker_that_is_to_stop_returns_and_takes_what_is_left_first(channel, worker):
    assert woken(worker, ASLEEP, channel.request_stop) == 0
    assert worker.word(STOP) == 1
    submit(channel, 1)
    assert worker.lib.tf_worker_wait(worker.base, 0, WAIT_NS) == 1


def test_a_thread_that_waits_for_a_reply_is_woken_by_it_alone(channel, worker):
    submit(channel, 1)
    assert woken(worker, None, lambda: native.reply(channel, kind=ANSWER, call=1)) == 1


def test_a_wait_ends_after_its_time(worker):
    assert worker.lib.tf_worker_wait(worker.base, 1000, 1000) == 0
    assert worker.lib.tf_reply_wait(worker.base, 1000, 1000) == 0


def test_the_bell_is_rung_once_for_each_sleep_of_the_loop(worker):
    bell = Bell()
    assert (worker.ring_bell(bell), readable(bell.eventfd), native.clear(bell)) == (0, False, False)
    native.announce_sleep(bell)
    assert [worker.ring_bell(bell) for _ in range(3)] == [1, 0, 0]
    assert readable(bell.eventfd)
    assert (native.clear(bell), native.clear(bell), readable(bell.eventfd)) == (True, False, False)
    native.awake(bell)
    assert worker.ring_bell(bell) == 0
    native.announce_sleep(bell)
    assert worker.ring_bell(bell) == 1


def test_each_worker_rings_for_itself(worker):
    bell, other = Bell(), WorkerSide(Channel())
    native.announce_sleep(bell)
    assert [side.ring_bell(bell) for side in (worker, other, worker)] == [1, 1, 0]
    assert struct.unpack("<Q", os.read(bell.eventfd, 8)) == (2,)


def test_a_worker_can_read_the_bell_and_not_write_to_it():
    bell = Bell()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(bell.fd, b"x")
    magic, abi = struct.unpack("<II", os.pread(bell.fd, 8, 0))
    assert (magic, abi) == (0x54495346, abi_version())


def test_a_page_that_is_no_bell_is_not_mapped():
    fd = os.memfd_create("no bell")
    os.ftruncate(fd, 4096)
    assert not worker_side.library().tf_bell_map(fd)
    os.close(fd)


@given(st.integers(0, CELLS - 1), st.floats(allow_nan=False))
@settings(max_examples=30)
def test_a_cell_is_what_its_file_holds(index, value):
    cells = Cells()
    os.pwrite(cells.fd, struct.pack("<d", value), 8 * index)
    assert cells.cell(index) == value
    cells.zero_cell(index)
    assert os.pread(cells.fd, 8, 8 * index) == bytes(8)


@pytest.mark.parametrize("index", [CELLS, 2**32 - 1])
def test_a_cell_that_is_not_there_is_an_error_with_the_limit(index):
    cells = Cells()
    for use in (cells.cell, cells.zero_cell):
        with pytest.raises(IndexError, match=f"^cell {index} of {CELLS}$"):
            use(index)


@pytest.fixture
def descriptors():
    """Descriptors are limited in the test, and nothing of it is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_descriptors()
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_descriptors() <= before


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Channel, r"cannot create memory file 'tisfast-channel' of \d+ bytes: Too many open files"),
        (Cells, f"cannot create memory file 'tisfast-cells' of {8 * CELLS} bytes: Too many open files"),
        (Bell, r"cannot create memory file 'tisfast-bell' of \d+ bytes: Too many open files"),
    ],
)
def test_without_descriptors_the_error_names_the_file_and_nothing_is_left(kind, text, descriptors):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with pytest.raises(Internal, match=text):
        kind()


def first_free():
    """The lowest descriptor that is not in use."""
    fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)
    return fd


def test_a_bell_that_finds_one_descriptor_leaves_none(descriptors):
    held = []
    while first_free() < max(map(int, descriptors)):  # holes would be found below the limit
        held.append(os.open("/dev/null", os.O_RDONLY))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free() + 1, hard))
    try:
        with pytest.raises(Internal, match="cannot open the bell page for reading: Too many open files"):
            Bell()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


def mapped():
    with open("/proc/self/maps") as maps:
        return sum("memfd:tisfast-" in line for line in maps)


def test_channels_leave_no_descriptor_and_no_mapping(descriptors):
    before = mapped()
    held = Channel(), Bell(), Cells()
    assert mapped() == before + 3
    del held
    for _ in range(20):
        Channel(), Bell(), Cells()
    assert mapped() == before
