"""The local cache: bounded in bytes, least recently used first; and what a runtime does with it."""

from __future__ import annotations

import hashlib
import os

import pytest

from tests.engine.answer_helpers import CachedModel, answered_with, floats
from tisfast import limits, tuning
from tisfast.engine.response_cache import LocalStore, ModelCache
from tisfast.engine.testing import cancel, find_answer, keep_answer, key_of, place_input
from tisfast.wire.stored_answer import unpack

KB = 1024
MODEL = CachedModel()


def local(size=1 << 20, salt=b"salt"):
    return ModelCache(LocalStore(size), salt, 7)


def request_of(data):
    return place_input(MODEL.runtime, "", [(0, 11, (len(data) // 4,), data)])


def keep(store, key, data):
    request = request_of(b"")
    return keep_answer(store, key, answered_with(data)(request))


def find(store, key):
    block = find_answer(store, key)
    return None if block is None else unpack(request_of(b""), block).output(0)[3]


# ---- the store


def test_what_is_kept_is_found():
    store = LocalStore(1 << 20)
    data = os.urandom(1000)
    assert find(store, b"a") is None
    assert keep(store, b"a", data)
    assert find(store, b"a") == data
    assert len(store) == 1


def test_the_least_recently_used_goes_first():
    store = LocalStore(64 * KB)
    for key in (b"a", b"b", b"c"):
        keep(store, key, bytes(16 * KB))
    assert store.keys == [b"a", b"b", b"c"]
    assert find(store, b"a") is not None
    keep(store, b"d", bytes(16 * KB))
    assert store.keys == [b"c", b"a", b"d"]
    assert store.evictions == 1


def test_a_key_that_is_kept_already_stays_as_it_is():
    store = LocalStore(64 * KB)
    keep(store, b"a", bytes(4))
    keep(store, b"b", bytes(4))
    used = store.used_bytes
    assert keep(store, b"a", bytes(8))
    assert find(store, b"a") == bytes(4)
    assert (store.keys, store.used_bytes) == ([b"b", b"a"], used)


def test_an_answer_that_fits_nowhere_evicts_nothing():
    store = LocalStore(64 * KB)
    keep(store, b"a", bytes(1000))
    assert not keep(store, b"b", bytes(64 * KB))
    assert (store.keys, store.refused, store.evictions) == ([b"a"], 1, 0)


def test_every_byte_and_entry_counts():
    store = LocalStore(1 << 20)
    assert store.used_bytes == 0
    keep(store, b"a", bytes(100 * KB))
    assert store.used_bytes == (100 * KB + 4096 - 100 * KB % 4096) + limits.CACHE_ENTRY_BYTES
    keep(store, b"b", bytes(4))
    assert store.used_bytes == store.arena.used_bytes + 2 * limits.CACHE_ENTRY_BYTES


def test_small_answers_are_bounded_by_what_is_kept_about_them():
    store = LocalStore(64 * KB)
    for i in range(1000):
        keep(store, b"%d" % i, bytes(4))
    assert len(store) == 64 * KB // (512 + limits.CACHE_ENTRY_BYTES)
    assert store.used_bytes <= store.size_bytes


def test_an_evicted_answer_that_is_being_sent_counts_until_it_is_sent():
    store = LocalStore(64 * KB)
    keep(store, b"a", b"\1" * 40 * KB)
    sending = unpack(request_of(b""), find_answer(store, b"a"))
    assert not keep(store, b"b", bytes(40 * KB))
    assert (store.keys, store.evictions) == ([], 1)
    assert store.used_bytes > 40 * KB
    assert sending.output(0)[3] == b"\1" * 40 * KB
    del sending
    assert store.used_bytes == 0
    assert keep(store, b"b", bytes(40 * KB))


def test_answers_of_other_sizes_do_not_leave_pages_behind():
    size = 4 << 20
    store = LocalStore(size)
    for kb in (4, 8, 24, 100, 200, 700, 1500, 300, 60, 5):
        for i in range(2 * size // (kb * KB)):
            keep(store, b"%d/%d" % (kb, i), os.urandom(kb * KB))
            assert store.used_bytes <= size
    assert store.arena.resident_bytes <= size + size // tuning.CACHE_TRIM_SHARE


# ---- keys


def test_keys_of_two_versions_and_two_lives_differ():
    request = request_of(floats(1, 2))
    assert key_of(local(salt=b"a"), request) == key_of(local(salt=b"a"), request)
    assert key_of(local(salt=b"a"), request) != key_of(local(salt=b"b"), request)
    one, other = (ModelCache(LocalStore(4096), b"a", seed) for seed in (1, 2))
    assert key_of(one, request) != key_of(other, request)


def test_remote_keys_are_blake2_with_a_label():
    request = request_of(floats(1, 2))
    cache = ModelCache(Remote(), b"salt", label=b"tisfast:m:1:")
    key = key_of(cache, request)
    assert key.startswith(b"tisfast:m:1:")
    assert len(bytes.fromhex(key[12:].decode())) == 32
    assert key == key_of(ModelCache(Remote(), b"salt", 99, label=b"tisfast:m:1:"), request)


# ---- a runtime


def test_an_equal_request_is_answered_without_an_execution():
    m = CachedModel(cache=local())
    assert m.infer(floats(1), given=floats(9)) == floats(9)
    assert m.infer(floats(1), given=floats(8)) == floats(9)
    assert m.counts == {"success": 2, "fail": 0, "cache_hit": 1, "cache_miss": 1, "queue": 2, "executed": 1}
    assert m.runtime.stats.inference_count == 1


def test_another_request_is_not():
    m = CachedModel(cache=local())
    assert m.infer(floats(1)) == floats(1)
    assert m.infer(floats(2)) == floats(2)
    assert m.counts["executed"] == 2


def test_without_a_cache_nothing_is_counted():
    m = CachedModel()
    m.infer(floats(1))
    m.infer(floats(1))
    assert m.counts == {"success": 2, "fail": 0, "cache_hit": 0, "cache_miss": 0, "queue": 2, "executed": 2}


def test_errors_are_not_kept():
    m = CachedModel(cache=local())
    assert m.infer(floats(1), status=2) == "model says no"
    assert m.infer(floats(1)) == floats(1)
    assert m.counts == {"success": 1, "fail": 1, "cache_hit": 0, "cache_miss": 2, "queue": 1, "executed": 2}


def test_models_that_share_a_store_do_not_share_answers():
    store = LocalStore(1 << 20)
    one, other = (CachedModel(name, cache=ModelCache(store, name.encode(), 7)) for name in ("one", "other"))
    assert one.infer(floats(1), given=floats(5)) == floats(5)
    assert other.infer(floats(1), given=floats(6)) == floats(6)
    assert len(store) == 2


def test_equal_requests_at_one_time_are_all_executed_and_kept_once():
    m = CachedModel(cache=local())
    m.ask(floats(1))
    m.ask(floats(1))
    while m.link.dispatched:
        m.link.execute(answer=answered_with(floats(3)))
    assert m.counts["cache_miss"] == m.counts["executed"] == len(m.calls) == 2
    m.calls.clear()
    assert m.infer(floats(1)) == floats(3)


def test_hits_wait_for_their_turn_where_order_is_promised():
    m = CachedModel(cache=local(), preserve_ordering=True)
    m.infer(floats(1))
    m.ask(floats(2), "miss")
    m.ask(floats(1), "hit")
    assert m.calls == []
    m.link.execute(answer=answered_with(floats(2)))
    assert [name for name, *_ in m.calls] == ["miss", "hit"]


def test_a_refusing_model_gives_no_kept_answers():
    m = CachedModel(cache=local())
    m.infer(floats(1))
    m.runtime.refuse("gone")
    m.ask(floats(1))
    assert m.calls.pop()[1:] == (5, "gone", True)


def test_the_time_of_a_hit_is_the_lookups():
    m = CachedModel(cache=local())
    m.infer(floats(1), took_ns=5000)
    before = m.runtime.stats.inference_stats()["success"]["ns"]
    m.infer(floats(1))
    stats = m.runtime.stats.inference_stats()
    assert stats["success"]["ns"] == before  # the clock stands still while we look
    assert stats["compute_infer"]["count"] == 1
    assert m.runtime.timings.request.count == 2
    assert m.runtime.cache.hit_times.count == m.runtime.cache.miss_times.count == 1


def test_the_answer_keeps_the_memory_of_its_request_no_longer_than_it_lives():
    m = CachedModel(cache=local())
    m.infer(floats(1))
    m.infer(floats(1))
    assert m.runtime.arena.used_blocks == 0


# ---- a remote store


class Remote:
    """Answers when the test says so."""

    def __init__(self, up=True):
        self.up = up
        self.kept = {}
        self.asked = []
        self.reported = []

    def look(self, key, done):
        if self.up:
            self.asked.append((key, done))
        return self.up

    def answer(self):
        key, done = self.asked.pop(0)
        done(self.kept.get(key))

    def has_room(self, nbytes):
        return self.up

    def keep(self, key, value):
        self.kept[key] = value

    def report(self, error):
        self.reported.append(str(error))


@pytest.fixture
def remote():
    return Remote()


@pytest.fixture
def m(remote):
    return CachedModel(cache=ModelCache(remote, hashlib.sha256(b"m").digest(), label=b"m:"))


def executed(m, remote, data, given):
    m.ask(data)
    remote.answer()
    m.link.execute(answer=answered_with(given))
    return m.calls.pop()[2][0][3]


def test_a_remote_hit(m, remote):
    assert executed(m, remote, floats(1), floats(9)) == floats(9)
    m.ask(floats(1))
    assert (m.runtime.queued, m.runtime.stats.pending, m.calls) == (1, 1, [])
    m.clock.now += 70
    remote.answer()
    assert m.calls.pop()[2][0][3] == floats(9)
    assert m.counts == {"success": 2, "fail": 0, "cache_hit": 1, "cache_miss": 1, "queue": 2, "executed": 1}
    assert m.runtime.stats.inference_stats()["cache_hit"]["ns"] == 70
    assert (m.runtime.queued, m.runtime.stats.pending, m.runtime.arena.used_blocks) == (0, 0, 0)


def test_a_remote_cache_that_is_down_is_done_without(m, remote):
    remote.up = False
    assert m.infer(floats(1)) == floats(1)
    assert (remote.kept, m.runtime.stats.pending) == ({}, 0)


def test_what_is_no_answer_is_reported_executed_and_replaced(m, remote):
    executed(m, remote, floats(1), floats(9))
    ((key, good),) = remote.kept.items()
    remote.kept[key] = b"something else"
    assert executed(m, remote, floats(1), floats(9)) == floats(9)
    assert remote.kept == {key: good}
    assert "is no answer of it" in remote.reported[0]


def test_no_room_for_what_came_back_is_a_miss(m, remote):
    executed(m, remote, floats(1), floats(9))
    m.ask(floats(1))
    arena = m.runtime.arena
    taken = [arena.take_block(1 << 20)]
    taken += [arena.take_block(512) for _ in range((arena.use_bytes_max - arena.used_bytes) // 512)]
    remote.answer()
    del taken
    assert m.link.dispatched
    assert "no room" in remote.reported[0]


def test_a_client_that_leaves_while_the_remote_is_asked(m, remote):
    request = m.ask(floats(1))
    cancel(m.runtime, request)
    assert m.calls.pop()[1] == 8
    remote.answer()
    assert (m.calls, m.link.dispatched, m.runtime.queued, m.runtime.stats.pending) == ([], [], 0, 0)
    assert m.runtime.stats.canceled == 1


def test_a_model_that_goes_while_the_remote_is_asked(m, remote):
    m.ask(floats(1))
    m.runtime.refuse("gone")
    assert m.calls.pop()[1:] == (5, "gone", True)
    remote.answer()
    assert (m.calls, m.link.dispatched, m.runtime.queued, m.runtime.stats.pending) == ([], [], 0, 0)


# ---- what threads do, beside the loop

LONG = bytes(tuning.LOOP_COPY_BYTES_MAX + 4)


class Threads:
    """Those of the loop, which work when they are told to."""

    def __init__(self):
        self.orders = []

    def __call__(self, work, done):
        self.orders.append((work, done))

    def work(self):
        work, done = self.orders.pop(0)
        done(work())


@pytest.fixture
def threads():
    return Threads()


def long_model(store, threads):
    return CachedModel(cache=ModelCache(store, b"salt", 7, label=b"m:", threads=threads))


def test_a_thread_makes_the_key_of_a_long_request_and_keeps_a_long_answer(threads):
    store = LocalStore(1 << 24)
    m = long_model(store, threads)
    m.ask(LONG)
    assert (m.runtime.queued, m.runtime.stats.pending, m.link.dispatched, len(threads.orders)) == (1, 1, [], 1)
    threads.work()
    m.link.execute(answer=answered_with(LONG))
    assert m.calls.pop()[2][0][3] == LONG and len(store) == 0
    threads.work()
    assert len(store) == 1
    m.ask(LONG)
    threads.work()
    assert m.calls.pop()[2][0][3] == LONG
    assert m.counts == {"success": 2, "fail": 0, "cache_hit": 1, "cache_miss": 1, "queue": 2, "executed": 1}
    assert (m.runtime.queued, m.runtime.stats.pending, m.runtime.arena.used_blocks, threads.orders) == (0, 0, 0, [])


def test_a_short_request_waits_for_no_thread(threads):
    m = long_model(LocalStore(1 << 24), threads)
    assert m.infer(floats(1)) == floats(1)
    assert threads.orders == []


def test_a_thread_packs_a_long_answer_for_a_remote_cache(remote, threads):
    m = long_model(remote, threads)
    m.ask(LONG)
    threads.work()
    remote.answer()
    m.link.execute(answer=answered_with(LONG))
    assert remote.kept == {}
    threads.work()
    m.calls.clear()
    m.ask(LONG)
    threads.work()
    remote.answer()
    assert (m.calls, m.runtime.stats.pending, len(threads.orders)) == ([], 1, 1)
    threads.work()
    assert m.calls.pop()[2][0][3] == LONG and m.counts["cache_hit"] == 1
    assert (m.runtime.stats.pending, m.runtime.arena.used_blocks) == (0, 0)


def came_back(m, remote, threads):
    """A long answer, which no thread has copied yet."""
    m.ask(LONG)
    threads.work()
    remote.answer()
    m.link.execute(answer=answered_with(LONG))
    threads.work()
    m.calls.clear()
    request = m.ask(LONG)
    threads.work()
    remote.answer()
    return request


def test_a_client_that_leaves_while_what_came_back_is_copied(remote, threads):
    m = long_model(remote, threads)
    request = came_back(m, remote, threads)
    cancel(m.runtime, request)
    assert m.calls.pop()[1] == 8
    del request
    threads.work()
    assert (m.calls, m.runtime.queued, m.runtime.stats.pending) == ([], 0, 0)
    assert m.runtime.arena.used_blocks == 0


def test_what_cannot_be_copied_is_a_miss(remote, threads):
    m = long_model(remote, threads)
    dispatched = len(m.link.dispatched)
    came_back(m, remote, threads)
    _, done = threads.orders.pop()
    done(None)
    assert len(m.link.dispatched) == dispatched + 1
    m.link.execute(answer=answered_with(LONG))
    assert m.calls.pop()[2][0][3] == LONG and m.runtime.stats.pending == 0


def test_a_client_that_leaves_while_its_key_is_made(threads):
    m = long_model(LocalStore(1 << 24), threads)
    cancel(m.runtime, m.ask(LONG))
    assert m.calls.pop()[1] == 8
    threads.work()
    assert (m.calls, m.link.dispatched, m.runtime.queued, m.runtime.stats.pending) == ([], [], 0, 0)
    assert m.runtime.arena.used_blocks == 0


def test_a_model_that_goes_while_a_key_is_made(threads):
    m = long_model(LocalStore(1 << 24), threads)
    m.ask(LONG)
    m.runtime.refuse("gone")
    assert m.calls.pop()[1:] == (5, "gone", True)
    threads.work()
    assert (m.calls, m.link.dispatched, m.runtime.queued, m.runtime.stats.pending) == ([], [], 0, 0)


def test_an_answer_that_was_kept_while_it_was_copied_stays(threads):
    store = LocalStore(1 << 24)
    m = long_model(store, threads)
    for given in (LONG, LONG[:-4] + floats(9)):
        m.ask(LONG)
        work, done = threads.orders.pop()
        done(work())
        m.link.execute(answer=answered_with(given))
    m.calls.clear()
    used = store.arena.used_blocks
    threads.work()
    threads.work()
    assert (len(store), used, store.arena.used_blocks) == (1, 2, 1)
    m.ask(LONG)
    threads.work()
    assert m.calls.pop()[2][0][3] == LONG
