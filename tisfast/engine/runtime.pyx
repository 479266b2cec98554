"""A model version at work: one queue, its instances, its counters.  Layer 3 (engine).

A request has exactly one final answer: by `complete`, `complete_failed`, `respond`, `reject` or `fail`, whichever comes
first; `finish` is the one gate they all pass.  Only `respond`, of decoupled models, answers before that.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.batcher cimport Batcher
from tisfast.engine.core cimport Clock, AnswerSink
from tisfast.engine.sequence cimport SequenceScheduler
from tisfast.native.memory cimport Arena
from tisfast.native.row_arena cimport RowArena
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport ModelSignature

from tisfast import tuning
from tisfast.types import Status

cdef uint64_t BODY_NEAR_BYTES = tuning.BODY_NEAR_BYTES
cdef int ROWS_MIN = 64  # one batch executes and another forms; beyond these, more runs are made
cdef int CANCELLED = Status.CANCELLED
cdef int UNAVAILABLE = Status.UNAVAILABLE
cdef tuple NO_ANSWER = (None, None, 0, None, True)


cdef inline ResponseKind _response_kind(Answer answer, int status) noexcept:
    if status:
        return ResponseKind.RESPONSE_CANCELED if status == CANCELLED else ResponseKind.RESPONSE_FAILED
    return ResponseKind.RESPONSE_EMPTY if answer is None else ResponseKind.RESPONSE_GOOD


def _by_arrival(InferRequest request) -> int:
    return request.queued_ns


cdef Scheduler scheduler_of(settings, strategy, bint decoupled):
    if settings.sequence is not None:
        return SequenceScheduler(settings, decoupled)
    return Batcher(settings, strategy)


cdef class ModelRuntime:
    """signature, arena: what fronts need; settings: config.scheduler_settings.SchedulerSettings; config: normalised, a dict;
    strategy: engine.batching_strategy.Strategy of models that have one."""

    def __cinit__(self, ModelSignature signature, Arena arena, settings, Clock clock, config, strategy=None):
        self.found(signature, arena, clock, config)
        self.scheduler = scheduler_of(settings, strategy, signature.decoupled)
        self.keeps_order = settings.sequence is not None
        self.instances = Instances(signature.decoupled, settings.dynamic and settings.max_batch_size > 0)
        self.links = self.instances.links
        self.ordered = settings.preserve_ordering
        self.held = {}
        self.reason = "loading"

    @property
    def queued(self) -> int:
        """Requests waiting for an instance, or for what a remote cache knows."""
        return self.scheduler.size + len(self.looking)

    @property
    def sequences(self) -> int:
        """Sequences that are not over: they have a state in an instance, which dies with its worker."""
        return self.scheduler.open_sequences()

    # ---- requests in

    cdef int expect(self, uint64_t missing) except -1:
        if missing <= BODY_NEAR_BYTES and self.links:
            (<Link>self.links[0]).expect()  # one event loop watches all of them
        return 0

    cdef InferRequest submit(self, InferInput input, AnswerSink sink, object trace=None, InferRequest parent=None):
        cdef InferRequest request = InferRequest.__new__(InferRequest)
        cdef int64_t now_ns = self.clock.now_ns()
        request.input = input
        request.sink = sink
        request.trace = trace
        request.parent = parent
        request.queued_ns = now_ns
        if self.ordered:
            request.order = self.next_order
            self.next_order += 1
        if self.refusal is not None:
            self.leave_order(request)
            self.reject(request, UNAVAILABLE, self.refusal, FailureReason.OTHER)
        else:
            self.begin(request, now_ns)
        return request

    cdef int refuse_copied(self, InferRequest request, object failure) except -1:
        if isinstance(failure, str):
            return self.reject(request, UNAVAILABLE, f"Request timeout expired ({failure})", FailureReason.REJECTED)
        status, message = failure
        return self.reject(request, status, message, FailureReason.OTHER)

    cdef int64_t patience_ns(self, InferRequest request) except -1:
        return self.scheduler.patience_ns(request)

    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1:
        if self.refusal is not None:  # since it began to look
            return self.reject(request, UNAVAILABLE, self.refusal, FailureReason.OTHER)
        if not self.scheduler.add(request, now_ns):
            self.leave_order(request)
            self.drop([request], False)
            return 0
        self.stats.pending += 1
        if self.wanted is not None:
            self.wanted()
        return self.pump(now_ns)

    cdef int cancel(self, InferRequest request) except -1:
        request.cancelled = True
        try:
            self.cancel_copies(request)
        finally:
            self.take_back(request)
        return 0

    cdef int take_back(self, InferRequest request) except -1:
        """Whatever is still done for a cancelled request ends."""
        if request.done:
            return 0
        if request.calls is not None:
            for call in request.calls[:]:
                call.parent_left()
        if request.looking:
            correlation = request.input.correlation
            self.stop_looking(request)
            try:
                self.reject_cancelled(request)
            finally:
                self.go_on(correlation)
            return 0
        recalled = []
        if request.link is not None:
            recalled = self.recalled(request.link, None if self.scheduler.in_order else request)
            self.queue_again(recalled)
        if request.queued:
            self.scheduler.withdraw(request)
            self.stats.pending -= 1
            self.reject_cancelled(request)
        elif not request.done:
            request.input.mark_cancelled()
            if not recalled:
                return 0
        return self.pump(self.clock.now_ns())  # others may not have to wait for it any more, or not be served without it

    cdef int reject_cancelled(self, InferRequest request) except -1:
        return self.reject(request, CANCELLED, "Request cancelled: the client left the queue", FailureReason.CANCELED)

    # ---- towards instances

    cdef int pump(self, int64_t now_ns) except -1:
        """Hand out all that instances can take now."""
        cdef Scheduler scheduler = self.scheduler
        cdef list batch
        if scheduler.soonest_ns and now_ns >= scheduler.soonest_ns:
            self.drop(scheduler.expire(now_ns), True)
        if len(self.links) > 1 and self.instances.uneven(now_ns):
            self.take_back_ahead(None, now_ns)
        while scheduler.size:
            batch = scheduler.next_batch(self.instances, now_ns)
            if batch is None:
                break
            self.dispatch(scheduler.target, batch, now_ns)
        self.arm(now_ns)
        return 0 if self.limiter is None else self.share()

    cdef int take_back_ahead(self, Link leaving, int64_t now_ns) except -1:
        cdef Link link
        cdef list recalled = []
        for link in self.links:
            if link is leaving or link.batches > 1 and self.scheduler.may_move(link, self.instances, now_ns):
                recalled += self.recalled(link, None)
        recalled.sort(key=_by_arrival)
        return self.queue_again(recalled)

    cdef list recalled(self, Link link, InferRequest like):
        """Take back requests that the instance has not begun: the batch of `like`, or all."""
        cdef InferRequest request
        cdef list recalled = link.recall(like)
        for request in recalled:
            request.link = None
            link.inflight -= 1
            link.batches -= request.closes_batch
            if request.closes_batch and link.claim is not None:
                link.claim.give_back()
        self.inflight -= len(recalled)
        return recalled

    cdef int queue_again(self, list requests) except -1:
        """First in the queue again; those that cannot be served now are answered."""
        if not requests:
            return 0
        self.stats.pending += len(requests)
        return self.drop(self.scheduler.put_back(requests), True)

    cdef int share(self) except -1:
        """Let others have what executions share: what has come back, and the turns of instances with nothing to run."""
        cdef Link link
        if self.scheduler.size == 0:
            for link in self.instances.links:
                if link.claim is not None:
                    link.claim.leave()
        return self.limiter.settle()

    def limit_by(self, RateLimiter limiter) -> None:
        """Its instances' links have claims on what this one shares out.  Before the first link."""
        self.limiter = limiter

    def resume(self) -> None:
        """The turn of one of its instances has come, which had to wait for others' (Claim.wake)."""
        self.pump(self.clock.now_ns())

    cdef int dispatch(self, Link link, list batch, int64_t now_ns) except -1:
        cdef InferRequest request
        cdef uint32_t inferences = 0, count = <uint32_t>len(batch)
        for request in batch:
            inferences += request.input.batch
        if self.scheduler.padded:
            inferences = request.slot + 1  # the link fills the gaps
        for request in batch:  # all of them: one that was put back remembers another batch
            request.execution_batch = inferences
            request.closes_batch = False
            request.link = link
            request.dispatched_ns = now_ns
        request.closes_batch = True
        self.stats.pending -= count
        self.inflight += count
        link.inflight += count
        link.batches += 1
        if link.claim is not None:
            link.claim.take()
        return link.dispatch(batch, now_ns)

    cdef int drop(self, list requests, bint counted) except -1:
        cdef InferRequest request
        failure = None  # of one request's front: the others are told first
        for request in requests:
            self.stats.pending -= counted
            try:
                self.reject(request, request.refusal.status, request.refusal.message, request.refusal.reason)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure
        return 0

    cdef int arm(self, int64_t now_ns) except -1:
        cdef int64_t due = self.scheduler.next_event_ns(now_ns)
        if due != self.armed_ns:
            self.armed_ns = due
            if due and self.timer_changed is not None:
                self.timer_changed()
        return 0

    def next_timer_ns(self) -> int:
        """When on_timer wants to be called, CLOCK_MONOTONIC ns; 0 for never."""
        return self.scheduler.next_event_ns(self.clock.now_ns())

    def on_timer(self) -> None:
        """Time has passed: reject what is late, send out batches that waited long enough."""
        self.armed_ns = 0
        self.pump(self.clock.now_ns())

    # ---- answers

    cdef int leave_instance(self, Link link, InferRequest request, bint failed, Times *times) except -1:
        request.executed = True
        request.times = times[0]
        request.link = None
        self.inflight -= 1
        if request.early:
            link.early_requests += 1
            link.early_batches += request.closes_batch
            link.early_inferences = request.execution_batch
        else:
            link.inflight -= 1
            self.leave_batch(link, request.closes_batch)
        self.scheduler.finished(request, link, failed)
        if times.executed:
            self.count_execution(link, request.execution_batch, times)
        return 0

    cdef int leave_batch(self, Link link, uint32_t closed) except -1:
        link.batches -= closed
        if closed and link.claim is not None:
            link.claim.give_back()
        return 0

    cdef int execution_over(self, Link link, Times *times) except -1:
        cdef uint32_t closed = link.early_batches
        link.inflight -= link.early_requests
        link.early_requests = link.early_batches = 0
        self.leave_batch(link, closed)
        return self.count_execution(link, link.early_inferences, times) if times.executed else 0

    cdef int count_execution(self, Link link, uint32_t inferences, Times *times) except -1:
        cdef int64_t took = times.done_ns - times.taken_ns
        link.execution_ns = took if link.execution_ns == 0 else (7 * link.execution_ns + took) // 8
        return self.stats.count_execution(inferences, times)

    cdef int complete(self, Link link, InferRequest request, Answer answer, Times *times) except -1:
        cdef int64_t now_ns = self.clock.now_ns()
        self.leave_instance(link, request, False, times)
        self.stats.count_success(request.input.batch, times, request.queued_ns, now_ns)
        self.timings.add(times, request.queued_ns, now_ns)
        self.timings.first_response.add(now_ns - request.queued_ns)
        self.stats.last_inference_ms = self.clock.epoch_ms()
        self.finish(request, answer, 0, None)
        return 0 if request.cache_key is None else self.keep_answer(request, answer)

    cdef int complete_failed(self, Link link, InferRequest request, int status, str message, Times *times) except -1:
        self.leave_instance(link, request, True, times)
        reason = FailureReason.CANCELED if status == CANCELLED else FailureReason.BACKEND
        self.stats.count_failure(reason, self.clock.now_ns() - request.queued_ns)
        self.stats.last_inference_ms = self.clock.epoch_ms()
        self.finish(request, None, status, message)
        return 0 if request.cache_key is None else self.keep_answer(request, None)

    cdef int reschedule(self, Link link, InferRequest request, Times *times) except -1:
        cdef int64_t now_ns = self.clock.now_ns()
        request.executed = True
        request.link = None
        link.inflight -= 1
        if request.closes_batch and not self.signature.decoupled:
            link.batches -= 1
            if link.claim is not None:
                link.claim.give_back()
        self.inflight -= 1
        self.stats.count_success(request.input.batch, times, request.queued_ns, now_ns)  # each round is, as in Triton
        self.timings.add(times, request.queued_ns, now_ns)
        request.queued_ns = now_ns
        if times.executed:
            self.count_execution(link, request.execution_batch, times)
        if not request.cancelled and self.refusal is None:
            self.stats.pending += 1
            return self.scheduler.reschedule(request)
        self.scheduler.finished(request, link, True)
        if request.cancelled:
            return self.reject_cancelled(request)
        return self.reject(request, UNAVAILABLE, self.refusal, FailureReason.OTHER)

    cdef int executed(self, Link link, uint32_t inferences, Times *times) except -1:
        link.batches -= 1
        if link.claim is not None:
            link.claim.give_back()
        self.scheduler.executed(link)
        return self.count_execution(link, inferences, times) if times.executed else 0

    cdef int respond(
        self, Link link, InferRequest request, Answer answer, int status, str message, bint final, Times *times) except -1:
        cdef int64_t now_ns = self.clock.now_ns()
        request.executed = True
        if request.responses == 0:
            self.timings.first_response.add(now_ns - request.queued_ns)
        self.stats.count_response(
            request.responses, _response_kind(answer, status), times, request.answered_ns or times.infer_start_ns)
        request.responses += 1
        request.answered_ns = times.done_ns
        self.stats.last_inference_ms = self.clock.epoch_ms()
        if not final:
            return self.give(request, None, answer, status, message, False)
        request.times = times[0]
        request.link = None
        link.inflight -= 1
        self.inflight -= 1
        self.scheduler.finished(request, link, status != 0)
        if status:
            reason = FailureReason.CANCELED if status == CANCELLED else FailureReason.BACKEND
            self.stats.count_failure(reason, now_ns - request.queued_ns)
        else:
            self.stats.count_success(request.input.batch, times, request.queued_ns, now_ns)
            self.timings.add(times, request.queued_ns, now_ns)
        return self.finish(request, answer, status, message)

    cdef int reject(self, InferRequest request, int status, str message, FailureReason reason) except -1:
        """Answer a request that never reached an instance."""
        if reason != FailureReason.MISTAKEN:
            self.stats.count_failure(reason, self.clock.now_ns() - request.queued_ns)
        return self.finish(request, None, status, message)

    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1:
        assert not request.done
        request.done = True
        return self.give(request, None, answer, status, message, True)

    cdef int tell(
            self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1:
        """Deliver in the order that the model promises: any, or (preserve_ordering) one stream after the other."""
        if not self.ordered or request.refused:
            return self.deliver(request, answer, status, message, final)
        return self.in_turn(request.order, (request, answer, status, message, final))

    cdef int leave_order(self, InferRequest request) except -1:
        """A request that is refused at once: nobody waits for its answer, nor it for others'."""
        request.refused = True
        return self.in_turn(request.order, NO_ANSWER) if self.ordered else 0

    cdef int in_turn(self, uint64_t order, tuple said) except -1:
        if order != self.next_answer:
            self.held.setdefault(order, []).append(said)
            return 0
        failure = None  # of one request's front: the others have their turn all the same
        turn = [said]
        while turn:
            for request, answer, status, message, final in turn:
                try:
                    if request is not None:
                        self.deliver(request, answer, status, message, final)
                except Exception as error:
                    failure = error
            if not final:
                break
            self.next_answer += 1  # what the next one has said so far, and its successor when it is done with it, too
            turn = self.held.pop(self.next_answer, ())
        if failure is not None:
            raise failure
        return 0

    cdef int deliver(self, InferRequest request, Answer answer, int status, str message, bint final) except -1:
        cdef AnswerSink sink = request.sink
        if final:
            request.sink = None
        if request.trace is not None:
            request.trace.answered(request, answer, final)
        if status == 0:
            sink.answered(request, answer, final)
        else:
            sink.failed(request, status, message, final)
        if final:
            request.input = None  # its blocks are free now, though a queue may still name it (batcher.withdraw)
        return 0

    # ---- what the supervisor says

    def lay_side_by_side(self) -> None:
        """The model takes a batch as one array (execute_batch): requests are received into neighbouring blocks."""
        if isinstance(self.arena, RowArena):
            (<RowArena>self.arena).rows = max(ROWS_MIN, 2 * self.signature.max_batch_size)

    def add_link(self, Link link) -> None:
        """An instance belongs to the model from now on; it gets work while `up`."""
        self.instances.links.append(link)
        self.scheduler.link_added(link)
        self.pump(self.clock.now_ns())

    def retire_link(self, Link link) -> None:
        """An instance gets no more work but of sequences that it has begun: what it has not begun goes to the others."""
        cdef int64_t now_ns = self.clock.now_ns()
        link.up = False
        self.take_back_ahead(link, now_ns)
        self.scheduler.link_leaves(link)
        self.pump(now_ns)

    def remove_link(self, Link link) -> None:
        """Forget an instance; what it had taken is then failed, what it had not is put back (fail, requeue)."""
        self.instances.links.remove(link)
        if self.scheduler.target is link:  # it refers to us: memory is not to wait for the garbage collector
            self.scheduler.target = None
        if link.claim is not None:
            link.claim.give_back()
            link.claim.leave()
            self.limiter.settle()
        self.drop(self.scheduler.link_removed(link), True)
        self.pump(self.clock.now_ns())  # what waited for it may go to another

    def requeue(self, list requests) -> None:
        """Requests that a dead instance never took: first in the queue again, unless their client or the model left."""
        cdef InferRequest request
        failure = None  # of one request's front: the others are served first
        self.inflight -= len(requests)
        for request in requests:
            request.link = None
            if request.cancelled or self.refusal is not None:
                self.scheduler.finished(request, None, True)
            try:
                if request.cancelled:
                    self.reject_cancelled(request)
                elif self.refusal is not None:
                    self.reject(request, UNAVAILABLE, self.refusal, FailureReason.OTHER)
            except Exception as error:
                failure = error
        requests = [request for request in requests if not request.done]
        try:
            self.queue_again(requests)
        except Exception as error:
            failure = error
        self.pump(self.clock.now_ns())  # also with nothing put back: what follows a lost request of a sequence is told
        if failure is not None:
            raise failure

    def fail(self, list requests, int status, str message) -> None:
        """Answer requests that an instance had taken and lost."""
        cdef InferRequest request
        failure = None  # of one request's front: the others are told first
        for request in requests:
            self.inflight -= 1
            request.executed = True
            request.link = None
            self.scheduler.finished(request, None, True)
            self.stats.count_failure(FailureReason.BACKEND, self.clock.now_ns() - request.queued_ns)
            try:
                self.finish(request, None, status, message)
            except Exception as error:
                failure = error
        self.pump(self.clock.now_ns())  # what follows them in their sequences is told, too
        if failure is not None:
            raise failure

    def set_state(self, bint ready, str reason) -> None:
        """Ready or not, and why not; requests keep being queued either way (see `refuse`)."""
        self.ready = ready
        self.reason = reason
        if ready:
            self.refusal = None
            self.pump(self.clock.now_ns())

    def refuse(self, str message) -> None:
        """Answer all queued and all further requests UNAVAILABLE with `message`, until set_state(True, ...)."""
        cdef InferRequest request
        self.ready = False
        self.reason = self.refusal = message
        failure = None  # of one request's front: the others are told all the same
        for request in list(self.looking) + self.scheduler.queued_requests():
            if request.looking:
                self.stop_looking(request)
            elif request.queued:
                self.scheduler.withdraw(request)
                self.stats.pending -= 1
            else:
                continue  # what was told to one before it has ended this one, too
            try:
                self.reject(request, UNAVAILABLE, message, FailureReason.OTHER)
            except Exception as error:
                failure = error
        if self.limiter is not None:
            self.share()
        if failure is not None:
            raise failure
