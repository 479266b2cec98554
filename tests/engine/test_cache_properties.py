"""Whatever is kept, found and still being sent: the store against a model of it in a few lines."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.answer_helpers import CachedModel, answered_with
from tisfast import limits
from tisfast.engine.response_cache import LocalStore
from tisfast.engine.testing import find_answer, keep_answer, place_input
from tisfast.wire.stored_answer import unpack

KB = 1024
PAGE = 4096
MODEL = CachedModel()
REQUEST = place_input(MODEL.runtime, "", [(0, 11, (0,), b"")])
KEYS = st.integers(0, 12).map(lambda n: b"key %d" % n)


class Keeping(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([4 * KB, 20 * KB, 64 * KB, 256 * KB]))
    def build(self, size):
        self.store = LocalStore(size)
        self.expected = OrderedDict()  # least recently used first
        self.evictions = 0
        self.sending = []
        self.serial = 0

    @rule(key=KEYS, words=st.one_of(st.integers(0, 200), st.integers(0, 20_000)))
    def keep(self, key, words):
        self.serial += 1
        data = self.serial.to_bytes(4, "little") * words
        kept = keep_answer(self.store, key, answered_with(data)(REQUEST))
        if key in self.expected:
            assert kept
            self.expected.move_to_end(key)
            return
        evicted = self.store.evictions - self.evictions
        for _ in range(evicted):
            self.expected.popitem(False)
        self.evictions += evicted
        if kept:
            self.expected[key] = data
        else:  # only what could never fit, or what shares the place with answers that are being sent
            assert len(data) + PAGE + limits.CACHE_ENTRY_BYTES > self.store.size_bytes or self.sending
            assert evicted == 0 or not self.expected

    @rule(key=KEYS)
    def find(self, key):
        block = find_answer(self.store, key)
        assert (block is not None) == (key in self.expected)
        if block is not None:
            self.expected.move_to_end(key)
            assert unpack(REQUEST, block).output(0)[3] == self.expected[key]

    @rule(key=KEYS)
    def begin_to_send(self, key):
        block = find_answer(self.store, key)
        if block is not None:
            self.expected.move_to_end(key)
            self.sending.append((unpack(REQUEST, block), self.expected[key]))

    @rule(which=st.integers(0, 100))
    def end_sending(self, which):
        if self.sending:
            answer, data = self.sending.pop(which % len(self.sending))
            assert answer.output(0)[3] == data

    @invariant()
    def what_is_kept_is_what_was_given_in_order_of_use(self):
        if hasattr(self, "store"):
            assert self.store.keys == list(self.expected)

    @invariant()
    def bytes_never_exceed_the_bound(self):
        if hasattr(self, "store"):
            assert self.store.used_bytes <= self.store.size_bytes
            assert self.store.used_bytes == self.store.arena.used_bytes + limits.CACHE_ENTRY_BYTES * len(self.store)

    @invariant()
    def what_is_being_sent_stays_what_it_is(self):
        for answer, data in getattr(self, "sending", ()):
            assert answer.output(0)[3] == data

    def teardown(self):
        if hasattr(self, "store"):
            self.sending.clear()
            assert self.store.arena.used_blocks == len(self.expected)


TestKeeping = Keeping.TestCase
TestKeeping.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
