"""The engine's faces for tests in Python: a hand-moved clock, links and replies that record.  Layer 3 (engine).

Real parts of the engine meet these where production meets the machine's clock, rings and sockets.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from tisfast.engine.batcher cimport Batcher
from tisfast.engine.core cimport Clock, InferRequest, Link, AnswerSink
from tisfast.engine.interface cimport Runtime
from tisfast.engine.response_cache cimport LocalStore, ModelCache
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.engine.sequence cimport SequenceScheduler
from tisfast.engine.sequence_slots cimport InstanceSlots, Place, Sequence
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


cdef class FakeSink(AnswerSink):
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


cdef class StreamSink(AnswerSink):
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


cdef class KeepingSink(AnswerSink):
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
    cdef public uint32_t begun           # batches of `dispatched` that its worker has begun, as one that is awake does
    cdef uint64_t written                # slots of its ring, ever
    cdef list recalled                   # (last ticket, slots) of batches taken back that its worker has not passed over
    cdef bint closed
    cdef public bint lags                # its worker answers first and passes over those later (pass_over)
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
        self.begun = 1
        self.recalled = []
        self.up = True

    cdef int dispatch(self, list batch, int64_t now_ns) except -1:
        cdef InferRequest request
        if not self.dispatched:
            self.progress_ns = now_ns
        for request in batch:
            request.batch_first, request.batch_end = self.written, self.written + len(batch) - 1
        self.written += len(batch)
        self.dispatched.append(batch)
        if sum([len(batch) for batch in self.dispatched]) + self.ghosts > self.slots:
            raise AssertionError(f"{self.instance} was given more than its ring holds")
        return 0

    cdef uint32_t room(self) noexcept:
        return <uint32_t>max(0, <int64_t>self.slots - self.inflight - <int64_t>self.ghosts)

    @property
    def ghosts(self) -> int:
        """Slots of its ring whose batches were taken back and that its worker has not passed over."""
        return sum([slots for _, slots in self.recalled])

    def pass_over(self) -> None:
        """The worker has come to what it executes, or to the end; then the engine goes on, as a poll does."""
        cdef uint64_t head = (<InferRequest>self.dispatched[0][0]).batch_first if self.dispatched else self.written
        self.recalled = [each for each in self.recalled if each[0] >= head]
        self.crowded = len(self.recalled) > 0
        self.runtime.pump(self.clock.now)

    cdef list recall(self, InferRequest request):
        cdef list taken = [batch for batch in self.dispatched[self.begun:] if request is None or request in batch]
        if self.closed:
            return []
        self.dispatched = [batch for batch in self.dispatched if batch not in taken]
        self.recalled += [((<InferRequest>batch[0]).batch_end, len(batch)) for batch in taken]
        self.crowded = len(self.recalled) > 0
        return [each for batch in taken for each in batch]

    cdef list _next(self):
        """The oldest batch, which is executed now."""
        self.begun = max(1, self.begun - 1)
        self.progress_ns = self.clock.now
        return self.dispatched.pop(0)

    cdef int _poll(self) except -1:
        if not self.lags:
            self.pass_over()
        return self.runtime.pump(self.clock.now)

    def begin(self) -> None:
        """The worker is quicker than its answers: it has begun one batch more."""
        self.begun = min(self.begun + 1, max(1, <uint32_t>len(self.dispatched)))

    cdef uint32_t waiting(self) except? 0xFFFFFFFF:
        return <uint32_t>sum([len(batch) for batch in self.dispatched[self.begun:]])

    cdef int expect(self) except -1:
        self.expected += 1
        return 0

    cdef bint has(self, InferRequest request) except -1:
        return request in self.streams or any([request in batch for batch in self.dispatched])

    def ids(self) -> list:
        """Request ids of what is dispatched, batch by batch."""
        return [[(<InferRequest>request).input.id for request in batch] for batch in self.dispatched]

    def places(self) -> list:
        """The batches with the slot of each request."""
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
        batch = self._next()
        times.executed = <uint32_t>len(batch)
        for request in batch:
            if status:
                self.runtime.complete_failed(self, request, status, "model says no", &times)
            else:
                self.runtime.complete(self, request, answer and answer(request.input), &times)
            times.executed = 0
        self._poll()

    def reschedule(self, int64_t took_ns=1000) -> None:
        """Execute the oldest batch, all of whose requests want to be executed again."""
        cdef Times times
        cdef list batch
        times.taken_ns = times.infer_start_ns = self.clock.now
        self.clock.now += took_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        batch = self._next()
        times.executed = <uint32_t>len(batch)
        for request in batch:
            self.runtime.reschedule(self, request, &times)
            times.executed = 0
        self._poll()

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
        self._poll()

    def execute_streams(self, int64_t took_ns=1000) -> list:
        """`execute` of the oldest batch of a decoupled model returns; its requests, which stay open."""
        cdef Times times
        cdef list batch
        times.taken_ns = times.infer_start_ns = self.clock.now
        self.clock.now += took_ns
        times.infer_end_ns = times.done_ns = self.clock.now
        batch = self._next()
        times.executed = <uint32_t>len(batch)
        self.streams += batch
        self.runtime.executed(self, (<InferRequest>batch[0]).execution_batch, &times)
        self._poll()
        return batch

    def die(self, uint32_t taken=1) -> None:
        """Lose the batches taken, give the others back, as the supervisor does: RingLink.close() comes after remove_link.

        taken: fewer than were begun where the worker died between a claim and the ring's head.
        """
        self.up = False
        self.runtime.remove_link(self)
        lost = [request for request in self.streams if not (<InferRequest>request).done]
        lost += [request for batch in self.dispatched[:taken] for request in batch]
        kept = [request for batch in self.dispatched[taken:] for request in batch]
        self.streams, self.dispatched, self.recalled = [], [], []
        self.closed, self.crowded, self.begun = True, False, 1
        self.inflight = self.batches = 0
        self.runtime.fail(lost, 5, f"{self.instance} died")
        self.runtime.requeue(kept)

    def revive(self) -> None:
        """A worker in its place is ready."""
        self.up, self.closed = True, False
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


def place_input(
        Runtime runtime, str id, list tensors, bytes parameters=b"", uint32_t batch=1, sequence=None) -> InferInput:
    """An InferInput as fronts make it, in the model's arena.

    tensors: (index, data type code, shape, bytes) each; sequence: its number and flags.
    """
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
    if sequence is not None:
        input.set_sequence(sequence[0], sequence[1])
    return input


def submit(Runtime runtime, InferInput input, AnswerSink sink, trace=None, InferRequest parent=None) -> InferRequest:
    """Runtime.submit."""
    return runtime.submit(input, sink, trace, parent)


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
    """The sequences of a model's scheduler: (instance or None, slot) of each that takes further requests."""
    cdef SequenceScheduler scheduler = runtime.scheduler
    cdef Sequence sequence
    return {
        id: (None, -1) if (<Sequence>sequence).place == Place.WAITS else (sequence.slots.link.instance, sequence.slot)
        for id, sequence in scheduler.live.items()
    }


def batch_due(ModelRuntime runtime) -> int:
    """When the batch that is being waited for goes out though an instance is idle; 0: none is waited for."""
    if isinstance(runtime.scheduler, Batcher):
        return (<Batcher>runtime.scheduler).batch_due_ns
    return (<SequenceScheduler>runtime.scheduler).due_ns


def free_slots(ModelRuntime runtime) -> dict:
    """How many sequences each instance that takes new ones could take."""
    cdef SequenceScheduler scheduler = runtime.scheduler
    cdef InstanceSlots slots
    return {slots.link.instance: <int>(slots.size - slots.taken()) for slots in scheduler.all_slots if slots.link.up}


def queued_places(ModelRuntime runtime) -> dict:
    """The instance for which each queued request of a sequence waits, None for any: by the request's id."""
    cdef SequenceScheduler scheduler = runtime.scheduler
    cdef InferRequest request
    cdef Sequence sequence
    cdef dict found = {}
    for request in scheduler.queued_requests():
        sequence = request.place
        found[request.input.id] = None if sequence.place == Place.WAITS else sequence.slots.link.instance
    return found


def waiting_new(ModelRuntime runtime) -> list:
    """Ids of queued requests of sequences of which nothing is, or was, at an instance."""
    cdef SequenceScheduler scheduler = runtime.scheduler
    cdef InferRequest request
    cdef Sequence sequence
    cdef list found = []
    for request in scheduler.queued_requests():
        sequence = request.place
        if not sequence.begun and not sequence.out:
            found.append(request.input.id)
    return found
