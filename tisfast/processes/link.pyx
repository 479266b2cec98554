"""Rings to workers, watched by the event loop.  Layer 4 (processes).

While there is traffic the loop polls the rings once per turn and no side makes a system call for the other.  `spin_us`
after the last answer or request it announces sleep on the bell, looks once more, and the next answer rings the eventfd.
Where requests, or answers, come too seldom for yielding to pay, it sleeps at once (TF_VAIN_SPINS_MAX), and what rings is
looked at in that same turn.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from tisfast.engine.calls cimport CallPort, Calls, ReplyMark
from tisfast.engine.stats cimport Times
from tisfast.native.channel cimport (
    TF_ANSWER, TF_CALL, TF_CALL_CANCEL, TF_CALL_DONE, TF_CLOSED, TF_EARLY, TF_ERROR, TF_EXECUTED, TF_FINAL, TF_NULL, TF_RELEASE,
    TF_RESCHEDULE, TF_RETAINED, TF_SUBMIT_SLOTS, TF_VAIN_SPINS_MAX, tf_reply_slot)
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.native.region cimport DeviceFile
from tisfast.wire.record cimport Answer, InferInput, read_answer
from tisfast.wire.tensors cimport LENT, ForeignInput

import re
from collections import deque
from contextlib import suppress
from functools import partial

from tisfast import limits
from tisfast.errors import Internal, TisError, Unavailable
from tisfast.processes.gpu_pool import UnopenedMemory
from tisfast.types import NO_DEVICE, Status

cdef extern from "<sched.h>":
    int sched_yield() nogil

cdef object REGION = re.compile(r"the client's region \(share (\d{1,5})\)")  # as the worker says (Share.named)
cdef uint64_t HANDLE_UNITS = (1 << 40) - 1
cdef int64_t UNSENT = <int64_t>1 << 62  # no ticket of the ring is so high
cdef int WALKED_IN_ONE_STEP = 32  # requests, with up to FOREIGN_INPUTS_MAX inputs each
cdef int ANSWERS_PER_TURN = 256  # of one link, so that one busy worker cannot starve the sockets


cdef class Poller:
    """Polls the links of one event loop.  loop: uvloop; clock: the engine's."""

    def __cinit__(self, Clock clock, loop, int64_t spin_us):
        self.bell = Bell()
        self.cells = Cells()
        self.clock = clock
        self.loop = loop
        self.busy = set()
        self.callers = set()
        self.spin_ns = spin_us * 1000
        self.turn = self._turn  # bound once: call_soon runs on the hot path
        self.bell.announce_sleep()
        loop.add_reader(self.bell.eventfd, self._on_bell)

    def close(self) -> None:
        """Stop watching."""
        self.loop.remove_reader(self.bell.eventfd)
        self.turn = None

    def _on_bell(self) -> None:
        cdef int64_t now_ns = self.clock.now_ns()
        self.bell.clear()
        if now_ns - self.active_ns < self.spin_ns:
            self._count(&self.vain_for_answers, True)  # it slept, and yielding would have paid
        if not self.scheduled and self.turn is not None:
            self.active_ns = now_ns
            self.bell.awake()
            self._look(True)

    cdef int nudge(self) except -1:
        """A request was sent."""
        if self.clock.now_ns() - self.active_ns < self.spin_ns:
            self._count(&self.vain_for_requests, True)
        return self.wake()

    cdef int wake(self) except -1:
        """Something is to come: poll from the next turn on, where that pays; else the bell rings."""
        self.active_ns = self.clock.now_ns()
        if self._yields(self.active_ns):
            self._schedule()
        return 0

    cdef int look(self) except -1:
        """Something may have come that rings no bell: look at the rings in the next turn, whatever pays."""
        self.active_ns = self.clock.now_ns()
        return self._schedule()

    cdef int _schedule(self) except -1:
        if not self.scheduled and self.turn is not None:
            self.scheduled = True
            self.bell.awake()
            self.loop.call_soon(self.turn)
        return 0

    cdef bint _poll_busy(self) except -1:
        cdef RingLink link
        cdef bint worked = False
        for link in tuple(self.busy | self.callers if self.callers else self.busy):
            try:
                worked |= link.poll()
            except Exception as error:
                worked = True
                self.lost(link, error)
        return worked

    cdef bint _yields(self, int64_t now_ns) noexcept:
        """Whether to wait awake: not for longer than `spin_us`, nor where most waits were longer."""
        cdef uint32_t vain = self.vain_for_answers if self.busy else self.vain_for_requests
        return now_ns - self.active_ns < self.spin_ns and vain < TF_VAIN_SPINS_MAX

    cdef void _count(self, uint32_t *vain, bint is_short) noexcept:
        if is_short:
            vain[0] -= vain[0] > 0
        else:
            vain[0] += vain[0] < TF_VAIN_SPINS_MAX

    def _turn(self) -> None:
        self.scheduled = False
        self._look(False)

    cdef int _look(self, bint slept) except -1:
        """Take the answers that are there, then wait awake or asleep.  slept: the bell has rung."""
        cdef bint worked = self._poll_busy()
        cdef int64_t now_ns = self.clock.now_ns()
        if worked:
            self.active_ns = now_ns
            if not slept:
                self._count(&self.vain_for_answers, True)
        if self._yields(now_ns):
            if not worked:
                with nogil:  # gives the core to the worker or client that has what we wait for
                    sched_yield()
            return self._schedule()
        if self.scheduled or self.turn is None:  # by what the answers led to
            return 0
        if not worked:
            self._count(&self.vain_for_answers if self.busy else &self.vain_for_requests, False)
        self.bell.announce_sleep()
        if self._poll_busy():  # what came before the announcement rings no bell
            self._schedule()
        return 0

    cdef int lost(self, RingLink link, error) except -1:
        """A bug of ours in one answer must not stop all others."""
        self.loop.call_exception_handler({"message": f"answer of {link.instance} lost", "exception": error})
        return 0


# In order and within what the server knows, whatever the worker says: schedulers and statistics count with differences.
cdef inline Times times_of(tf_complete_slot *slot, int64_t since_ns, int64_t now_ns) noexcept:
    cdef Times times
    times.taken_ns = min(max(slot.taken_ns, since_ns), now_ns)
    times.infer_start_ns = min(max(slot.infer_start_ns, times.taken_ns), now_ns)
    times.infer_end_ns = min(max(slot.infer_end_ns, times.infer_start_ns), now_ns)
    times.done_ns = min(max(slot.done_ns, times.infer_end_ns), now_ns)
    times.executed = slot.batch
    return times


def _take_again(signature):
    """A model's inputs may lie on its GPU again, if its instances are all there still."""
    signature.device_inputs = signature.device_inputs_meant


# The id() of each DeviceMemory that it lies in, or is to write to.
cdef int add_memories(InferInput input, set found) except -1:
    cdef ForeignInput foreign
    if input.foreign is not None:
        for foreign in input.foreign:
            if isinstance(foreign.tensor.file, DeviceFile):
                found.add(id((<DeviceFile>foreign.tensor.file).memory))
    return 0


# Of an input that its process has still: all but clients' GPU memory, which is the matter of `ShareTable.close`.  With it,
# a region would seem to be used by requests.
cdef InferInput staying(InferInput input):
    cdef InferInput made = InferInput.__new__(InferInput)
    cdef ForeignInput foreign
    made.model, made.body, made.extra, made.record_block = input.model, input.body, input.extra, input.record_block
    if input.foreign is not None:
        made.foreign = [foreign for foreign in input.foreign
                        if not isinstance(foreign.tensor.file, DeviceFile) or not (<DeviceFile>foreign.tensor.file).region]
    return made


cdef class OutputArena(Arena):
    """A worker's output arena: blocks go back to the worker through its channel, until the channel is closed."""

    cdef void give(self, uint64_t handle) noexcept:
        if self.channel is not None:
            self.channel.give(handle)


cdef class RingLink(Link):
    """One instance over its rings.

    instance: name for errors and logs; output_arena_bytes: bound of the answers that are being sent; registry: where the
    models are looked up that its model calls.
    """

    def __cinit__(self, str instance, ModelRuntime runtime, Poller poller, uint64_t output_arena_bytes, registry=None):
        self.instance = instance
        self.runtime = runtime
        self.poller = poller
        self.channel = Channel()
        self.registry = registry
        self.shares = ShareTable(self.channel, poller.loop, instance)
        cdef OutputArena output = OutputArena(f"tisfast-out-{instance}", output_arena_bytes)
        output.channel = self.channel
        self.output = output
        self.running = {}
        self.retained = {}
        self.copies = {}
        self.unclosed = []
        self.decoupled = runtime.signature.decoupled
        self.padded = runtime.scheduler.padded
        self.executing = deque()

    @property
    def fds(self) -> tuple:
        """The data descriptors of WIRE.md's fork message: channel, bell page, bell eventfd, cells, input and output arena,
        and the share socket."""
        bell, cells = self.poller.bell, self.poller.cells
        arenas = self.runtime.arena.fd, self.output.fd
        return (self.channel.fd, bell.fd, bell.eventfd, cells.fd, *arenas, self.shares.fd)

    @property
    def executing_since_ns(self) -> int:
        """When the execution that is running now started at the earliest; 0 when idle.

        Of a decoupled model: when `execute` or one of its answers was last heard of; streams that stay open after it has
        returned are nobody's hang, as nobody knows what they wait for.
        """
        return self.progress_ns if (self.batches or not self.decoupled and self.running) else 0

    def open(self) -> None:
        """The worker is ready: give it work."""
        self.up = True
        self.shares.uses = self.uses  # until `close`
        self.shares.worker_has_it()
        self.runtime.pump(self.poller.clock.now_ns())

    def answer_to(self, ModelRuntime runtime) -> None:
        """Answers go there from now on.  While nothing is out, and before `open`."""
        self.runtime = runtime

    cdef int expect(self) except -1:
        return self.poller.wake()  # of all links, so also while this one's worker is gone

    def listen(self) -> None:
        """Its model calls others: look at its ring also while it has no requests."""
        if not self.closed:
            self.poller.callers.add(self)
            self.poller.look()

    @property
    def gpu(self) -> int:
        """The GPU that its model's outputs may stay on, or types.NO_DEVICE."""
        return self.runtime.signature.device_outputs

    @property
    def end(self):
        """Ends its worker, with a text that completes "the instance ..."; set by who starts that."""
        return self.shares.end

    @end.setter
    def end(self, end) -> None:
        self.shares.end = end

    @property
    def whose(self):
        """whose(): names its worker's process, as in "instance m_0_0 of model 'm' (pid 7)"; set by who starts that."""
        return self.shares.whose

    @whose.setter
    def whose(self, whose) -> None:
        self.shares.whose = whose

    def uses(self):
        """See Holder.uses: of the requests that its worker has, and of the inputs that its model keeps."""
        for out in (self.running, self.retained):
            tickets = list(out)
            for start in range(0, len(tickets), WALKED_IN_ONE_STEP):
                found = set()
                for ticket in tickets[start:start + WALKED_IN_ONE_STEP]:
                    each = out.get(ticket)  # None: it has ended meanwhile
                    if each is not None:
                        add_memories((<InferRequest>each).input if out is self.running else <InferInput>each, found)
                yield found

    def lend(self, MemoryFile memory, *, is_open=False) -> None:
        """See gpu_pool.BorrowerFace."""
        if is_open and self.lent is not None:
            self.unclosed.append(self.lent)
        if not self.closed:
            self.lent = memory

    def closed_there(self, share, refusal) -> None:
        """See ShareTable.closed_there."""
        self.shares.closed_there(share, refusal)

    def unopened(self, share):
        """Its worker cannot open GPU memory that it was told of, or lent (LENT): it is to get copies of that.

        Of memory that the server lends: of all, for some time, as it is the same for whatever is lent there.
        Returns what gpu_pool.BorrowerFace says.
        """
        if share == LENT:
            self.lent = None
            return UnopenedMemory("", self.gpu, is_its_own=True)
        file = self.shares.file_of(share)
        if file is None:
            return None  # it has gone meanwhile
        if not file.is_lent:
            file.stay_away()
        elif self.runtime.signature.device_inputs >= 0:
            give_back = partial(_take_again, self.runtime.signature)
            self.runtime.signature.device_inputs = NO_DEVICE
            self.poller.loop.call_later(limits.LENT_REFUSED_SECONDS, give_back)
        return UnopenedMemory(file.region, self.gpu)

    def name_regions(self, text) -> str:
        """See gpu_pool.BorrowerFace."""
        return REGION.sub(lambda found: self.shares.named(int(found[1])), text)

    def copying(self, number, share, nbytes) -> tuple:
        """(DeviceFile, Block) for a copy of so many bytes for the worker, which is kept until `copied`.  Raises TisError."""
        file = self.shares.file_of(share)
        if self.closed or file is None:
            raise Internal("it has gone")
        if len(self.copies) >= limits.GPU_COPIES_MAX:
            raise Unavailable(f"{limits.GPU_COPIES_MAX} copies of GPU memory wait for this instance, which is the limit")
        self.copies[number] = self.runtime.arena.take(nbytes)
        return file, self.copies[number]

    def copied(self, number) -> None:
        """The worker has taken its copy, or it could not be made."""
        self.copies.pop(number, None)

    @property
    def kept_blocks(self) -> int:
        """Blocks of the input arena that only user code still refers to: inputs of answered requests, answers to calls."""
        return len(self.retained) + (0 if self.calls is None else (<Calls>self.calls).held_answers)

    def rest(self) -> None:
        """No more work from now on: what it has not begun goes to other instances, the rest is answered."""
        self.runtime.retire_link(self)

    def trace_context(self, ticket) -> str | None:
        """The trace context of a request that the worker has, for services that its model asks; None when it is not traced."""
        cdef InferRequest request = self.running.get(ticket)
        return None if request is None or request.trace is None else request.trace.context_text()

    def request_stop(self) -> None:
        """No new work; the worker ends when its ring is empty."""
        self.up = False
        self.channel.request_stop()

    def close(self, lingers="") -> tuple:
        """The worker is over.  Deliver what it had answered, then return (taken, untaken) requests.

        The caller fails the taken ones through runtime.fail and gives the others to runtime.requeue.  `process_ended` is to
        follow, later where the worker `lingers` (Worker.lingers).
        """
        self.up = False
        self.closed = True
        while True:
            try:
                if not self.poll():
                    break
            except Exception as error:  # the answer is out of the ring: the next one's turn
                self.poller.lost(self, error)
        self.poller.busy.discard(self)
        self.poller.callers.discard(self)
        self.shares.close(lingers)
        taken = self.channel.taken()
        if lingers:
            self._linger(taken, lingers)
        self.copies.clear()
        if self.calls is not None:
            (<Calls>self.calls).close()
            self.calls = None
        (<OutputArena>self.output).channel = None
        lost = [request for ticket, request in self.running.items() if <uint64_t>ticket < taken]
        kept = [request for ticket, request in self.running.items() if <uint64_t>ticket >= taken]
        self.running.clear()
        self.retained.clear()
        self.executing.clear()
        self.inflight = self.batches = self.early_requests = self.early_batches = 0
        return lost, kept

    cdef int _linger(self, uint64_t taken, str lingers) except -1:
        """A call that its process hangs in, or its GPU, may still write to what it has: nobody else uses that."""
        cdef InferRequest request
        cdef InferInput input
        cdef DeviceFile lent
        for lent in (self.lent, *self.unclosed):
            if lent is not None:
                self.shares.lingers_with(lent.memory, lingers)
        self.stays = [*self.copies.values(), *[staying(input) for input in self.retained.values()]]
        self.stays += [staying(request.input) for ticket, request in self.running.items() if <uint64_t>ticket < taken]
        if self.calls is not None:
            self.stays += (<Calls>self.calls).held.values()
        return 0

    def process_ended(self) -> None:
        """It has nothing open any more: what it was lent is another one's, clients' memory is closed, its inputs' is free."""
        self.shares.process_ended()
        self.lent = None
        self.unclosed.clear()
        self.stays = None

    # ---- Link

    cdef uint32_t room(self) noexcept:
        return self.channel.room()

    cdef list recall(self, InferRequest request):
        cdef list recalled = []
        cdef uint64_t ticket = self.channel.written, taken = self.channel.taken()
        if self.closed:
            return recalled  # what it had is no longer its own: who closed it answers that, or queues it again
        if request is not None:
            recalled = self._recall_batch(request)
        else:
            while ticket > taken:
                ticket -= 1
                request = self.running.get(ticket)
                if request is None:
                    continue  # taken back before
                batch = self._recall_batch(request)
                if not batch:
                    break  # the worker has begun it, and all before it
                ticket = request.batch_first
                recalled = batch + recalled
        return recalled

    cdef list _recall_batch(self, InferRequest like):
        """The requests of its batch; none when the worker has begun it."""
        cdef InferRequest request
        cdef list batch = []
        cdef uint64_t ticket, last = like.batch_end
        if not self.channel.recall(last):
            return batch
        for ticket in range(like.batch_first, last + 1):
            request = self.running.pop(ticket, None)
            if request is not None:  # a null request has no ticket
                batch.append(request)
        if not batch:
            return batch
        if self.decoupled:
            self.executing.remove((last, (<InferRequest>batch[0]).execution_batch))
        self.crowded = True  # until the worker has passed over its slots
        self.poller.busy.add(self)
        return batch

    cdef uint32_t waiting(self) except? 0xFFFFFFFF:
        cdef uint64_t ticket
        cdef uint32_t count = 0
        for ticket in range(self.channel.taken(), self.channel.written):
            count += ticket in self.running
        return count

    cdef bint has(self, InferRequest request) except -1:
        cdef InferRequest each
        for each in self.running.values():
            if each is request:
                return True
        return False

    cdef int dispatch(self, list batch, int64_t now_ns) except -1:
        cdef InferRequest request
        cdef int64_t ticket
        cdef Py_ssize_t left = len(batch)
        cdef uint64_t first = self.channel.written, end
        cdef uint32_t slot
        if self.batches == 1 if self.decoupled else not self.running:  # the engine has counted this batch already
            self.progress_ns = now_ns
        if self._quiet():
            self.poller.busy.add(self)
        if self.padded:
            left = (<InferRequest>batch[left - 1]).slot + 1
            slot = 0
        end = first + left - 1
        if self.decoupled:
            self.executing.append((end, (<InferRequest>batch[0]).execution_batch))
        for request in batch:
            request.batch_first, request.batch_end = first, end
            if self.padded:
                for slot in range(slot, request.slot):
                    left -= 1
                    self._submit_null(<InferRequest>batch[0], left, slot, now_ns)
                slot = request.slot + 1
            left -= 1
            if request.input.foreign is not None:
                self.show_foreign(request.input)
            ticket = self.channel.submit(
                request.input.record_offset, request.input.record_bytes, left, now_ns, request.slot, 0)
            if ticket < 0:  # the engine asked room() first: the worker has written to our side of the ring
                ticket = UNSENT + <int64_t>len(self.running)  # nobody answers it until the worker is gone
            self.running[ticket] = request
        self.channel.publish()
        return self.poller.nudge()

    cdef int _submit_null(self, InferRequest like, Py_ssize_t left, uint32_t slot, int64_t now_ns) except -1:
        """Its ticket is not waited for: the worker never answers it, and the ring keeps count of what was taken."""
        self.channel.submit(like.input.record_offset, like.input.record_bytes, left, now_ns, slot, TF_NULL)
        return 0

    cdef int show_foreign(self, InferInput input) except -1:
        cdef ForeignInput foreign
        for foreign in input.foreign:
            input.aim(foreign, self.shares.id_of(foreign.tensor.file))
        return 0

    # ---- answers

    cdef bint poll(self) except -1:
        """Take what the worker has answered; True when there was something."""
        cdef tf_complete_slot slot
        cdef int n = 0
        while n < ANSWERS_PER_TURN and self.channel.next_answer(&slot):
            n += 1
            self._on_slot(&slot)
        if self.calls is not None:
            (<Calls>self.calls).flush()
        if n or self.crowded:
            self.crowded = self.crowded and self.channel.room() < TF_SUBMIT_SLOTS
            self.runtime.pump(self.poller.clock.now_ns())
            if self._quiet() and self.batches == 0:
                self.poller.busy.discard(self)
        return n > 0

    cdef bint _quiet(self) noexcept:
        return not self.running and not self.retained and not self.crowded

    cdef int _on_slot(self, tf_complete_slot *slot) except -1:
        if slot.kind == TF_RELEASE:
            return self._on_release(slot.request)
        if slot.kind == TF_EXECUTED and self.decoupled:
            return self._on_executed(slot)
        if slot.kind == TF_EXECUTED:
            return self._on_execution_over(slot)
        if slot.kind == TF_RESCHEDULE and self.runtime.scheduler.iterative:
            return self._on_reschedule(slot)
        if TF_CALL <= slot.kind <= TF_CALL_DONE:
            return self._on_call(slot)
        return self._on_answer(slot)

    cdef int _on_call(self, tf_complete_slot *slot) except -1:
        """The model asks another one, or is done with what that said."""
        cdef Calls calls
        if slot.kind == TF_CALL:
            block = self._block(slot)
            if block is None or self.registry is None or self.closed:
                return 0  # a lie, or the last words of a dead worker
            if self.calls is None:
                self.calls = Calls(self, self.runtime, RingPort(self), self.registry)
            self.progress_ns = self.poller.clock.now_ns()
            return (<Calls>self.calls).call(slot.request, block, slot.meta_bytes)
        if self.calls is None:
            return 0
        calls = <Calls>self.calls
        if slot.kind == TF_CALL_CANCEL:
            return calls.cancel(slot.request, slot.flags & TF_FINAL)
        return calls.done(slot.request)

    cdef int _on_release(self, uint64_t ticket) except -1:
        cdef InferRequest request = self.running.get(ticket)
        if request is None:
            self.retained.pop(ticket, None)
        else:
            request.released = True  # the input stays all the same: its record says whether the client has left
        return 0

    cdef int _on_executed(self, tf_complete_slot *slot) except -1:
        cdef Times times
        if not self.executing:
            return 0  # more than was dispatched: the worker lied
        self.progress_ns = self.poller.clock.now_ns()
        times = times_of(slot, 0, self.progress_ns)
        return self.runtime.executed(self, self.executing.popleft()[1], &times)

    cdef int _on_execution_over(self, tf_complete_slot *slot) except -1:
        cdef Times times
        self.progress_ns = self.poller.clock.now_ns()
        times = times_of(slot, 0, self.progress_ns)
        return self.runtime.execution_over(self, &times)

    cdef int _on_answer(self, tf_complete_slot *slot) except -1:
        cdef InferRequest request
        cdef Times times
        cdef Answer answer = None
        cdef Block block
        if self.decoupled and not slot.flags & TF_FINAL:
            request = self.running.get(slot.request)
        else:
            request = self.running.pop(slot.request, None)
        if request is None:
            with suppress(TisError):
                self._block(slot)  # goes back
            return 0  # a ticket that is not out: the worker lied or repeats itself; nobody waits for it
        self.progress_ns = self.poller.clock.now_ns()
        if slot.flags & TF_RETAINED and not request.released:
            self.retained[slot.request] = request.input.kept()
        if self.decoupled:
            return self._on_response(request, slot)
        request.early = slot.flags & TF_EARLY != 0
        times = times_of(slot, request.dispatched_ns, self.progress_ns)
        try:
            block = self._block(slot)
            if slot.kind == TF_ANSWER:
                answer = read_answer(request.input, block, slot.meta_bytes, self.lent)
            else:
                status, message = self._status(slot), self._text(request, slot, block)
        except Exception as error:
            status, message = self._unread(error)
        if answer is not None:
            return self.runtime.complete(self, request, answer, &times)
        return self.runtime.complete_failed(self, request, status, message, &times)

    cdef int _on_reschedule(self, tf_complete_slot *slot) except -1:
        """Executed without an answer: the request goes back to its sequence, which keeps its memory."""
        cdef InferRequest request = self.running.pop(slot.request, None)
        cdef Times times
        if request is None:
            return 0
        self.progress_ns = self.poller.clock.now_ns()
        times = times_of(slot, request.dispatched_ns, self.progress_ns)
        if slot.flags & TF_RETAINED:
            self.retained[slot.request] = request.input.kept()
        return self.runtime.reschedule(self, request, &times)

    cdef int _on_response(self, InferRequest request, tf_complete_slot *slot) except -1:
        """One of any number of answers to a request of a decoupled model."""
        cdef Times times = times_of(slot, request.dispatched_ns, self.progress_ns)
        cdef bint final = slot.flags & TF_FINAL != 0
        cdef Answer answer = None
        cdef Block block
        cdef int status = 0
        cdef str message = None
        try:
            block = self._block(slot)
            if slot.kind == TF_ANSWER:
                answer = read_answer(request.input, block, slot.meta_bytes, self.lent)
            elif slot.kind != TF_CLOSED or slot.status or not final:
                status, message = self._status(slot), self._text(request, slot, block)
        except Exception as error:
            status, message = self._unread(error)
        return self.runtime.respond(self, request, answer, status, message, final, &times)

    def _unread(self, error):
        """(status, message) in place of an answer that could not be read: who asked is told also of a bug of ours."""
        if isinstance(error, TisError):
            return error.status, error.message
        told = Status.INTERNAL, f"the answer of instance {self.instance} met a bug of the server ({error!r:.200}): see its log"
        if isinstance(error, MemoryError):
            told = Status.UNAVAILABLE, f"the server has no memory to read the answer of instance {self.instance}; try again"
        with suppress(MemoryError):  # it is told all the same
            what = f"the answer of {self.instance} cannot be read, which its client is told"
            self.poller.loop.call_exception_handler({"message": what, "exception": error})
        return told

    cdef Block _block(self, tf_complete_slot *slot):
        """A lease on the block that holds the record, from its start to the arena's end: its true size is the worker's
        secret, and a worker that writes past it harms only its own answers."""
        cdef uint64_t offset = (slot.block & HANDLE_UNITS) * 512
        if slot.block == 0:
            if slot.kind == TF_ANSWER:
                raise Internal(f"instance {self.instance} sent an answer without a block")
            return None
        if slot.meta_bytes > self.output.nbytes or offset > self.output.nbytes - slot.meta_bytes:
            raise Internal(
                f"instance {self.instance} answered outside its output arena: offset {offset}, "
                f"{slot.meta_bytes} bytes of {self.output.nbytes}"
            )
        return self.output.lease(slot.block, self.output.nbytes - offset)

    cdef int _status(self, tf_complete_slot *slot) except -1:
        return slot.status if Status.UNKNOWN <= slot.status <= Status.CANCELLED else Status.INTERNAL

    cdef str _text(self, InferRequest request, tf_complete_slot *slot, Block block):
        if slot.kind == TF_CLOSED:
            return (
                f"model '{request.input.model.name}' ended this request without a final response: nothing in instance "
                f"{self.instance} refers to its response sender any more, and TRITONSERVER_RESPONSE_COMPLETE_FINAL was "
                "not sent"
            )
        if slot.kind != TF_ERROR:
            return f"instance {self.instance} sent a slot of unknown kind {slot.kind}"
        if block is None:
            return f"the output arena of instance {self.instance} is full ({self.output.nbytes} bytes)"
        return self.name_regions((<bytes>block.data[:slot.meta_bytes]).decode("utf-8", "replace"))


cdef class RingPort(CallPort):
    """The calls of one instance, over its link."""

    cdef RingLink link

    def __cinit__(self, RingLink link):
        self.link = link

    cdef InferRequest request_of(self, uint64_t ticket):
        return self.link.running.get(ticket)

    cdef InferInput input_of(self, uint64_t ticket):
        cdef InferRequest request = self.link.running.get(ticket)
        return self.link.retained.get(ticket) if request is None else request.input

    cdef object batch_of(self, uint64_t ticket):
        cdef InferRequest request
        cdef list found = []
        cdef uint64_t at = ticket, end = min(ticket + TF_SUBMIT_SLOTS, self.link.channel.written)
        while at < end:
            request = self.link.running.get(at)  # some have none, or are answered already
            at += 1
            if request is None:
                continue
            if request.batch_first > ticket:
                break
            found.append(request)
            end = request.batch_end + 1
        return found

    cdef uint16_t share_of(self, MemoryFile file) except? 0:
        return self.link.shares.id_of(file)

    cdef MemoryFile lent(self):
        return self.link.lent

    cdef bint send(self, ReplyMark *mark) except -1:
        cdef tf_reply_slot slot
        slot.kind = TF_ERROR if mark.status else TF_ANSWER
        slot.flags = TF_FINAL if mark.final else 0
        slot.status = mark.status
        slot.meta_bytes = mark.nbytes
        slot.call, slot.meta_offset, slot.answer = mark.call, mark.offset, mark.answer
        slot.zero = 0
        self.link.progress_ns = self.link.poller.clock.now_ns()
        return self.link.channel.reply(&slot)
