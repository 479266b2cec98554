"""What is around the work on a request: answers that were kept, and copies that threads make.  Layer 3 (engine).

A GPU may hang, and only requests that touch it may wait for it.  So inputs that lie there are copied to the host before
the request is in any queue, and outputs into such memory before the answer is told.
"""

from collections import deque
from functools import partial

from libc.stdint cimport int64_t
from tisfast.engine.response_cache cimport ModelCache
from tisfast.wire.late_copies cimport late_steps
from tisfast.wire.outputs cimport region_steps, region_waits
from tisfast.wire.record cimport InferInput

from tisfast import limits
from tisfast.errors import TisError
from tisfast.types import Status

cdef int UNAVAILABLE = Status.UNAVAILABLE
cdef int CANCELLED = Status.CANCELLED
cdef Py_ssize_t UNMADE_MAX = limits.ANSWERS_UNCOPIED_MAX
cdef str CLIENT_LEFT = "Request cancelled: the client left"


# `beside` without threads.
def at_once(steps, kept, done, seconds):
    failure = ()
    for _, work, _ in steps:
        failure = failure or work()
    done(failure)


cdef class CachingRuntime:
    """See caching_runtime.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    def __cinit__(self):
        self.looking = set()
        self.behind = {}

    # ---- inputs that threads copy

    cdef int begin(self, InferRequest request, int64_t now_ns) except -1:
        cdef InferInput input = request.input
        if input.uncopied is None and not (self.behind and input.correlation in self.behind):
            return self.ask_or_enqueue(request, now_ns)
        self.start_looking(request)
        if input.correlation and self.keeps_order:
            self.behind.setdefault(input.correlation, deque()).append(request)
        return 0 if input.uncopied is None else self.copy_inputs(request)

    cdef int copy_inputs(self, InferRequest request) except -1:
        cdef InferInput input = request.input
        beside = at_once if self.beside is None else self.beside
        steps = late_steps(input.uncopied, input.model.name)
        done = partial(self._on_inputs_copied, request, input)
        request.copying = beside(steps, input, done, self.patience_ns(request) / 1e9)
        return 0

    def _on_inputs_copied(self, request: InferRequest, input: InferInput, failure):
        """failure: see `beside`."""
        request.copying = None
        if not request.looking:  # it was cancelled or refused meanwhile
            return
        try:
            if failure != ():
                self.stop_looking(request)
                self.refuse_copied(request, failure)
                return
            input.uncopied = None
            if request.trace is not None:
                request.trace.copied(input)
            if not input.correlation or not self.keeps_order:
                self.stop_looking(request)
                self.ask_or_enqueue(request, self.clock.now_ns())
        finally:
            self.go_on(input.correlation)

    cdef int go_on(self, object correlation) except -1:
        cdef InferRequest first
        problem = None  # of one request's front: the others go on all the same
        while correlation in self.behind:
            first = <InferRequest>self.behind[correlation][0]
            if first.input.uncopied is not None:
                break
            self.stop_looking(first)
            try:
                self.ask_or_enqueue(first, self.clock.now_ns())
            except Exception as error:
                problem = error
        if problem is not None:
            raise problem
        return 0

    cdef int ask_or_enqueue(self, InferRequest request, int64_t now_ns) except -1:
        return self.enqueue(request, now_ns) if self.cache is None else self.ask_cache(request, now_ns)

    # ---- answers of which threads copy parts

    cdef int give(
            self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1:
        if request.unmade is not None:
            request.unmade.append((sink, answer, status, message, final))
            if len(request.unmade) > UNMADE_MAX:
                self.give_up_copies(request, UNAVAILABLE, (
                    f"{UNMADE_MAX} responses wait for one that is to be copied into shared memory, which is the limit: its GPU "
                    "hangs, or the model answers faster than it copies"))
            return 0
        if answer is None or answer.uncopied is None and not request.input.shared_outputs:
            return self.tell(request, sink, answer, status, message, final)
        request.unmade = deque([(sink, answer, status, message, final)])
        return self.make_first(request)

    cdef int make_first(self, InferRequest request) except -1:
        """Have threads do what the first answer needs; tell of those that need nothing."""
        cdef Answer answer
        problem = None  # of the front: what follows is told all the same
        if request.cancelled and request.uncopyable is None:
            request.uncopyable = CANCELLED, CLIENT_LEFT
        while request.unmade:
            sink, answer, status, message, final = request.unmade[0]
            if answer is not None and (answer.uncopied is not None or region_waits(answer)):
                failure = request.uncopyable or self.copy_answer(request, answer)
                if failure is None:
                    break
                answer, (status, message) = None, failure
            request.unmade.popleft()
            try:
                self.tell(request, sink, answer, status, message, final)
            except Exception as error:
                problem = error
        if not request.unmade:
            request.unmade = None
        if problem is not None:
            raise problem
        return 0

    cdef tuple copy_answer(self, InferRequest request, Answer answer):
        """Have threads do it; status and text when there is no room for that."""
        cdef bint in_place = region_waits(answer)
        steps = late_steps(answer.uncopied or [], request.input.model.name)
        try:
            if in_place:
                steps += region_steps(answer)
        except TisError as error:
            return error.status, error.message
        done = partial(self._on_made, request, answer, in_place)
        request.copying = (at_once if self.beside is None else self.beside)(steps, answer, done, 0)
        return None

    def _on_made(self, request: InferRequest, answer: Answer, in_place, failure):
        """failure: see `beside`."""
        request.copying = None
        sink, _, status, message, final = request.unmade.popleft()
        if failure:
            answer, (status, message) = None, failure
            if status == UNAVAILABLE:  # its GPU hangs: no other one of its answers waits for that
                request.uncopyable = failure
        else:
            answer.uncopied, answer.in_place = None, in_place
        try:
            self.tell(request, sink, answer, status, message, final)
        finally:
            self.make_first(request)

    cdef int give_up_copies(self, InferRequest request, int status, str message) except -1:
        if request.copying is not None:
            request.copying.cancel()
            request.copying = None
        request.uncopyable = status, message
        return self.make_first(request)

    cdef int cancel_copies(self, InferRequest request) except -1:
        return 0 if request.unmade is None else self.give_up_copies(request, CANCELLED, CLIENT_LEFT)

    cdef int refuse_copied(self, InferRequest request, object failure) except -1:
        raise NotImplementedError(f"{type(self).__name__}.refuse_copied")

    cdef int64_t patience_ns(self, InferRequest request) except -1:
        return 0

    cdef int tell(
            self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1:
        raise NotImplementedError(f"{type(self).__name__}.tell")

    # ---- answers that were kept

    cdef int ask_cache(self, InferRequest request, int64_t now_ns) except -1:
        cdef ModelCache cache = self.cache
        if cache.is_long(request.input):
            self.start_looking(request)
            return cache.key_later(request.input, partial(self._on_hashed, request))
        return self.ask_for(request, cache.key_of(request.input), now_ns)

    def _on_hashed(self, InferRequest request, key):
        """A thread has made the key of a long request."""
        if request.looking:  # as below
            self.stop_looking(request)
            self.ask_for(request, key, self.clock.now_ns())

    cdef int ask_for(self, InferRequest request, bytes key, int64_t now_ns) except -1:
        cdef ModelCache cache = self.cache
        request.cache_key = key
        if key is None:
            return self.enqueue(request, now_ns)
        if cache.remote is None:
            return self.looked(request, cache.find(request.cache_key, request.input))
        self.start_looking(request)
        if not cache.remote.look(request.cache_key, partial(self._on_looked, request)):
            self._on_looked(request, None)
        return 0

    def _on_looked(self, InferRequest request, value):
        """A remote cache has answered, or has not in time (None)."""
        cdef ModelCache cache = self.cache
        if not request.looking:  # it was cancelled or refused meanwhile
            return
        if cache.is_long_value(value):
            cache.copy_later(value, self.arena, partial(self._on_copied, request))
            return
        self.stop_looking(request)
        self.looked(request, cache.unpacked(value, request.input, self.arena))

    def _on_copied(self, request: InferRequest, block):
        """A thread has copied a long answer of a remote cache."""
        if request.looking:  # as above
            self.stop_looking(request)
            self.looked(request, self.cache.restored(block, request.input))

    cdef int start_looking(self, InferRequest request) except -1:
        request.looking = True
        self.looking.add(request)
        self.stats.pending += 1
        return 0

    cdef int stop_looking(self, InferRequest request) except -1:
        request.looking = False
        if request.copying is not None:
            request.copying.cancel()
            request.copying = None
        self.looking.discard(request)
        self.stats.pending -= 1
        waiting = self.behind.get(request.input.correlation) if self.behind else None
        if waiting is not None and request in waiting:
            waiting.remove(request)
            if not waiting:
                del self.behind[request.input.correlation]
        return 0

    cdef int looked(self, InferRequest request, Answer answer) except -1:
        """The cache has `answer` for the request, or nothing."""
        cdef int64_t now_ns = self.clock.now_ns()
        request.lookup_ns = now_ns - request.queued_ns
        if answer is None:
            return self.enqueue(request, now_ns)
        self.cache.count_hit(request.lookup_ns)
        self.stats.count_hit(request.queued_ns, request.lookup_ns, now_ns)
        self.timings.add_hit(request.lookup_ns)
        self.stats.last_inference_ms = self.clock.epoch_ms()
        return self.finish(request, answer, 0, None)

    cdef int keep_answer(self, InferRequest request, Answer answer) except -1:
        cdef ModelCache cache = self.cache
        cdef int64_t start_ns = self.clock.now_ns(), spent_ns
        if answer is not None:
            cache.keep(request.cache_key, answer)
        spent_ns = self.clock.now_ns() - start_ns
        cache.count_miss(request.lookup_ns, spent_ns)
        self.stats.count_miss(request.lookup_ns + spent_ns)
        return 0

    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1:
        raise NotImplementedError(f"{type(self).__name__}.enqueue")

    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1:
        raise NotImplementedError(f"{type(self).__name__}.finish")
