"""The engine's faces for tests in Python: a hand-moved clock, links and replies that record.  Layer 3 (engine).

Real parts of the engine meet these where production meets the machine's clock, rings and sockets.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from tisfast.engine.cache cimport LocalStore, ModelCache
from tisfast.engine.core cimport Clock, InferRequest, Link, Reply
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.engine.served cimport Runtime
from tisfast.engine.seats cimport Place, Sequence
from tisfast.engine.sequence cimport SequenceScheduler
from tisfast.engine.stats cimport Times
from tisfast.native.memory cimport Block
from tisfast.wire.record cimport Answer, InferInput, InputRef, RecordTemplate, record_template
from tisfast.wire.signature cimport ModelSignature


cdef class FakeClock(Clock):
    """Stands still until told otherwise."""

    cdef public int64_t now
    cdef public int64_t epoch

    def __cinit__(self, int64_t now=1_000_000_000):
        self.now = now

    cdef int64_t now_ns(self) noexcept:
        return self.now

    cdef int64_t epoch_ms(self) noexcept:
        return self.epoch


cdef class FakeReply(Reply):
    """Records what comes back: (request, status, message) in `calls`, shared by all requests of a test."""

    cdef public list calls

    def __cinit__(self, list calls):
        self.calls = calls

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.calls.append((request.input.id, 0, None))
        return 0

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.calls.append((request.input.id, status, message))
        return 0


cdef class StreamReply(Reply):
    """Records every call: (request, status, outputs or message or None, final) in `calls`, and may call `told` then."""

    cdef public list calls
    cdef public object told

    def __cinit__(self, list calls, told=None):
        self.calls = calls
        self.told = told

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        outputs = None if answer is None else [answer.output(i) for i in range(answer.count)]
        return self._add((request.input.id, 0, outputs, final))

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        return self._add((request.input.id, status, message, final))

    cdef int _add(self, tuple call) except -1:
        self.calls.append(call)
        if self.told is not None:
            self.told()
        return 0


cdef class KeepingReply(Reply):
    """Keeps every call: (status, Answer or message or None, final) in `calls`; an Answer is held until it goes from there."""

    cdef public list calls

    def __cinit__(self, list calls):
        self.calls = calls

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.calls.append((0, answer, final))
        return 0

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.calls.append((status, message, final))
        return 0


cdef class FakeLink(Link):
    """An instance that executes when the test says so.  `batches`: dispatched, oldest first."""

    cdef public list dispatched
    cdef public list streams             # requests of a decoupled model whose `execute` has returned
    cdef public uint32_t slots
    cdef public int expected             # how often it was told of a request that is nearly there
    cdef ModelRuntime runtime
    cdef FakeClock clock

    def __cinit__(self, str instance, ModelRuntime runtime, FakeClock clock, uint32_t slots=256):
        self.instance = instance
        self.runtime = runtime
        self.clock = clock
        self.slots = slots
        self.dispatched = []
        self.streams = []
        self.up = True

    cdef int dispatch(self, list batch, int64_t now_ns) except -1:
        self.dispatched.append(batch)
        return 0

    cdef uint32_t room(self) noexcept:
        return self.slots - self.inflight

    cdef int expect(self) except -1:
        self.expected += 1
        return 0

    cdef bint has(self, InferRequest request) except -1:
        return request in self.streams or any([request in batch for batch in self.dispatched])

    def ids(self) -> list:
        """Request ids of what is dispatched, batch by batch."""
        return [[(<InferRequest>request).input.id for request in batch] for batch in self.dispatched]

    def places(self) -> list:
        """The same with the slot of each request."""
        return [[((<InferRequest>request).input.id, (<InferRequest>request).slot) for request in batch]
                for batch in self.dispatched]

    def execute(self, int64_t took_ns=1000, int status=0, answer=None) -> None:
        """Execute the oldest batch and answer its requests; then let the engine go on, as a poll does.

        answer: makes the Answer to an InferInput; None answers without outputs.
        """
        cdef Times times
        cdef list batch
        cdef InferRequest request
        times.taken_ns = self.clock.now
        self.clock.now += took_ns
        times.infer_start_ns = times.taken_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        batch = self.dispatched.pop(0)
        times.executed = <uint32_t>len(batch)
        for request in batch:
            if status:
                self.runtime.complete_failed(self, request, status, "model says no", &times)
            else:
                self.runtime.complete(self, request, answer and answer(request.input), &times)
            times.executed = 0
        self.runtime.pump(self.clock.now)

    def reschedule(self, int64_t took_ns=1000) -> None:
        """Execute the oldest batch, all of whose requests want to be executed again."""
        cdef Times times
        cdef list batch = self.dispatched.pop(0)
        times.taken_ns = times.infer_start_ns = self.clock.now
        self.clock.now += took_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        times.executed = <uint32_t>len(batch)
        for request in batch:
            self.runtime.reschedule(self, request, &times)
            times.executed = 0
        self.runtime.pump(self.clock.now)

    def respond(
            self, InferRequest request, int status=0, bint final=False, int64_t took_ns=0, Answer answer=None) -> None:
        """An answer of a decoupled model to a dispatched request: this one, one without outputs, or an error."""
        cdef Times times
        self.clock.now += took_ns
        times.taken_ns = times.infer_start_ns = request.dispatched_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        times.executed = 0
        message = "model says no" if status else None
        if answer is None and not final and not status:
            answer = Answer.__new__(Answer)
        self.runtime.respond(self, request, answer, status, message, final, &times)
        self.runtime.pump(self.clock.now)

    def execute_streams(self, int64_t took_ns=1000) -> list:
        """`execute` of the oldest batch of a decoupled model returns; its requests, which stay open."""
        cdef Times times
        cdef list batch = self.dispatched.pop(0)
        times.taken_ns = times.infer_start_ns = self.clock.now
        self.clock.now += took_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        times.executed = <uint32_t>len(batch)
        self.streams += batch
        self.runtime.executed(self, (<InferRequest>batch[0]).execution_batch, &times)
        self.runtime.pump(self.clock.now)
        return batch

    def die(self) -> None:
        """Lose the oldest batch, give the others back: what the supervisor does with RingLink.close()."""
        taken = [request for request in self.streams if not (<InferRequest>request).done]
        taken += self.dispatched[0] if self.dispatched else []
        self.streams = []
        kept = [request for batch in self.dispatched[1:] for request in batch]
        self.dispatched = []
        self.up = False
        self.inflight = self.batches = 0
        self.runtime.remove_link(self)
        self.runtime.fail(taken, 5, f"{self.instance} died")
        self.runtime.requeue(kept)

    def revive(self) -> None:
        """A worker in its place is ready."""
        self.up = True
        self.runtime.add_link(self)


def make_input(
        ModelSignature model, str id="", uint32_t batch=1, uint64_t timeout_us=0, bytes shape_key=b"", correlation=0,
        uint16_t flags=0, uint64_t priority=0) -> InferInput:
    """An InferInput without bytes behind it.  correlation, flags: of its sequence."""
    cdef InferInput input = InferInput.__new__(InferInput)
    input.model = model
    input.id = id
    input.batch = batch
    input.timeout_us = timeout_us
    input.shape_key = shape_key
    input.correlation = correlation
    input.sequence_flags = flags
    input.priority = priority
    return input


def place_input(Runtime runtime, str id, list tensors, bytes parameters=b"", uint32_t batch=1) -> InferInput:
    """An InferInput as fronts make it, in the model's arena.  tensors: (index, data type code, shape, bytes) each."""
    cdef InferInput input = make_input(runtime.signature, id, batch)
    cdef InputRef refs[8]
    cdef int64_t shapes[8][8]
    cdef uint64_t places[16]
    cdef RecordTemplate template
    cdef uint64_t end = 0
    cdef bytes raw = id.encode()
    cdef int i, k
    for i, (index, code, shape, data) in enumerate(tensors):
        for k, size in enumerate(shape):
            shapes[i][k] = size
        refs[i].index, refs[i].dtype, refs[i].rank, refs[i].shape = index, code, <uint8_t>len(shape), shapes[i]
        places[2 * i], places[2 * i + 1] = end, len(data)
        end += (len(data) + 63) & ~63
    template = record_template(refs, <int>len(tensors), <uint64_t>-1, batch, 0, 0, 0, parameters)
    input.record_bytes = template.nbytes(len(raw))
    input.extra = runtime.arena.take(end + input.record_bytes)
    for i, (_, _, _, data) in enumerate(tensors):
        memoryview(input.extra)[places[2 * i]:places[2 * i] + places[2 * i + 1]] = data
        places[2 * i] += input.extra.offset
    input.record_offset = input.extra.offset + end
    template.write(input.extra.data + end, places, raw, <uint32_t>len(raw))
    return input


def submit(Runtime runtime, InferInput input, Reply reply, trace=None, InferRequest parent=None) -> InferRequest:
    """Runtime.submit."""
    return runtime.submit(input, reply, trace, parent)


def expect(Runtime runtime, uint64_t missing) -> None:
    """Runtime.expect."""
    runtime.expect(missing)


def cancel(Runtime runtime, InferRequest request) -> None:
    """Runtime.cancel."""
    runtime.cancel(request)


def keep_answer(LocalStore store, bytes key, Answer answer) -> bool:
    """LocalStore.keep."""
    return store.keep(key, answer)


def find_answer(LocalStore store, bytes key) -> Block | None:
    """LocalStore.find."""
    return store.find(key)


def key_of(ModelCache cache, InferInput input) -> bytes:
    """ModelCache.key_of."""
    return cache.key_of(input)


def sequences(ModelRuntime runtime) -> dict:
    """What the scheduler of a model with sequences knows: (instance or None, slot) of each that takes further requests."""
    cdef SequenceScheduler scheduler = runtime.scheduler
    cdef Sequence sequence
    return {
        id: (None, -1) if (<Sequence>sequence).place == Place.WAITS else (sequence.bench.link.instance, sequence.slot)
        for id, sequence in scheduler.live.items()
    }
