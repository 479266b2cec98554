"""Requests of models to other models ("BLS"); see calls.pxd.  Layer 3 (engine).

A call becomes a request like any other, made of tensors where they lie.  Its answers go back to the instance that asked,
which keeps them until it says that it does not.  A call that could never be answered is refused (engine/deadlock).
"""

from libc.stdint cimport UINT64_MAX, uint16_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.deadlock cimport OpenCall, OpenCalls, stuck, withheld
from tisfast.engine.interface cimport Runtime
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.wire.call_record cimport (
    CALL_ANY_NUMBER, CALL_SEQUENCE, CALL_TAKES_GPU, CALL_WAITS, FROM_ANSWER, FROM_CALL, FROM_LENT, FROM_REQUEST, CallPlace,
    CallRecord, read_call, write_reply)
from tisfast.wire.compose cimport ComposeFields, compose, tensor_at, tensors_of
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.tensors cimport SHARE_SHIFT, Tensor, new_tensor, referred

from collections import deque

from tisfast import limits
from tisfast.errors import BadRequest, Internal, TisError, Unavailable
from tisfast.types import Status

cdef Py_ssize_t CALLS_MAX = limits.BLS_CALLS_MAX
cdef Py_ssize_t UNSENT_MAX = limits.BLS_REPLIES_UNSENT_MAX
cdef int INTERNAL = Status.INTERNAL
cdef Py_ssize_t ERROR_TEXT_BYTES_MAX = limits.BLS_ERROR_TEXT_BYTES_MAX
cdef Py_ssize_t ID_BYTES_MAX = limits.REQUEST_ID_BYTES_MAX


cdef class CallPort:
    """Base of the ports.  Cython has no abstract methods: subclasses override all."""

    cdef InferRequest request_of(self, uint64_t ticket):
        raise NotImplementedError(f"{type(self).__name__}.request_of")

    cdef InferInput input_of(self, uint64_t ticket):
        raise NotImplementedError(f"{type(self).__name__}.input_of")

    cdef object batch_of(self, uint64_t ticket):
        raise NotImplementedError(f"{type(self).__name__}.batch_of")

    cdef uint16_t share_of(self, MemoryFile file) except? 0:
        raise NotImplementedError(f"{type(self).__name__}.share_of")

    cdef MemoryFile lent(self):
        raise NotImplementedError(f"{type(self).__name__}.lent")

    cdef bint send(self, ReplyMark *mark) except -1:
        raise NotImplementedError(f"{type(self).__name__}.send")


cdef class RetainedInputs:
    """See calls.pxd."""

    cdef Tensor find(self, uint64_t place, uint64_t nbytes):
        """The tensor that these bytes, as the instance names them, are part of; or None."""
        cdef Tensor tensor
        cdef uint64_t begin
        cdef Py_ssize_t i
        for i in range(len(self.tensors)):
            tensor = <Tensor>self.tensors[i]
            begin = <uint64_t>self.places[i]
            if begin <= place and nbytes <= tensor.nbytes and place - begin <= tensor.nbytes - nbytes:
                return tensor
        return None


cdef class Calls(OpenCalls):
    """link: the instance; its runtime; port: the way to it; registry: where models are looked up."""

    def __cinit__(self, Link link, ModelRuntime runtime, CallPort port, registry):
        self.link = link
        self.runtime = runtime
        self.port = port
        self.registry = registry
        self.open = {}
        self.held = {}
        self.unsent = deque()
        self.plans = {}
        runtime.instances.call_others = True

    @property
    def open_calls(self) -> int:
        """Calls that are not answered for the last time."""
        return len(self.open)

    @property
    def held_answers(self) -> int:
        """Answers whose memory the instance may still refer to."""
        return len(self.held)

    # ---- what the instance says

    cdef int call(self, uint64_t number, Block block, uint32_t nbytes) except -1:
        cdef CallRecord record = None
        try:
            record = read_call(block.data, nbytes, self.plans)
            self._begin(number, record, block)
        except TisError as error:
            text = error.message
            if record is not None:
                text = failed_to_ask(record.plan.model, text)
            self.tell_error(number, error.status, text, True)
        except Exception as error:  # a bug of ours: who asked must not wait for ever, and the log has it
            if number not in self.open:
                self.tell_error(number, INTERNAL, f"this call met a bug of the server: {error!r}; see its log", True)
            raise
        return 0

    cdef int _begin(self, uint64_t number, CallRecord record, Block block) except -1:
        cdef Call call = Call.__new__(Call)
        cdef InferRequest request, parent = None
        cdef InferInput input
        cdef ComposeFields fields
        if number in self.open:
            raise Internal(f"instance {self.link.instance} made a call of number {number} twice")
        if len(self.open) >= CALLS_MAX:
            raise Unavailable(
                f"instance {self.link.instance} has {len(self.open)} calls that are not answered; {CALLS_MAX} is the limit")
        if len(record.id) > ID_BYTES_MAX:
            raise BadRequest(f"request id of {len(record.id)} characters; {ID_BYTES_MAX} bytes is the limit")
        call.callee = self._callee(record)
        call.number = number
        call.calls = self
        call.waits = record.flags & CALL_WAITS != 0
        call.parents = tuple(self.port.batch_of(record.parent))
        if call.waits and stuck(self.link, call.callee):
            raise Unavailable(deadlock_text(self.runtime, call.callee))
        if call.waits and withheld(self.link, call, call.callee):
            raise Unavailable(withheld_text(self.runtime, call.callee))
        fields = fields_of(record)
        if record.flags & CALL_TAKES_GPU and not call.callee.signature.copies_devices:
            fields.device_wanted = self.runtime.signature.device_outputs
        input = compose(call.callee.signature, call.callee.arena, self._inputs(record, block), fields)
        for request in call.parents:
            if not request.done and not request.cancelled:
                parent = request
                break
        self.open[number] = call
        for request in call.parents:
            if request.calls is None:
                request.calls = []
            request.calls.append(call)
        request = call.callee.submit(input, call, self._trace(record, input), parent)
        call.request = None if call.over else request
        return 0

    cdef Runtime _callee(self, CallRecord record):
        cdef Runtime callee
        try:
            callee = self.registry.resolve(record.plan.model, record.plan.version)
        except TisError as error:  # Triton's words first: models and people know them
            raise type(error)(
                f"Failed for execute the inference request. Model '{record.plan.model}' is not ready. {error.message}"
            ) from None
        if callee.signature.decoupled and not record.flags & CALL_ANY_NUMBER:
            raise BadRequest(
                f"Model {record.plan.model} is using the decoupled. The current BLS request call doesn't support models "
                "using the decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' "
                "calls for decoupled models.'")
        return callee

    def _trace(self, CallRecord record, InferInput input):
        """The trace that the call becomes part of, where it was made with that of a traced request."""
        cdef InferRequest request
        if record.trace == UINT64_MAX:
            return None
        request = self.port.request_of(record.trace)
        if request is None or request.trace is None:
            return None
        return request.trace.child(input)

    cdef list _inputs(self, CallRecord record, Block block):
        cdef Py_ssize_t i
        return [self._input(record, i, block) for i in range(record.plan.count)]

    cdef Tensor _input(self, CallRecord record, Py_ssize_t i, Block block):
        """Nothing is believed of where an input lies: its owner must have these bytes."""
        cdef CallPlace place = record.places[i]
        cdef InferInput input
        cdef RetainedInputs held
        cdef MemoryFile lent
        cdef Tensor tensor
        name, dtype, shape = <str>record.plan.names[i], <int>record.plan.dtypes[i], <tuple>record.plan.shapes[i]
        if place.source == FROM_CALL and block.arena.holds(place.place, place.nbytes):
            return new_tensor(name, dtype, shape, block.arena, place.place, place.nbytes, block)
        if place.source == FROM_REQUEST:
            input = self.port.input_of(place.owner)
            if input is not None:
                return tensor_at(input, name, dtype, shape, place.place, place.nbytes)
        if place.source == FROM_LENT:
            lent = self.port.lent()
            if lent is not None and lent.holds(place.place, place.nbytes):
                return new_tensor(name, dtype, shape, lent, place.place, place.nbytes, block)
        if place.source == FROM_ANSWER:
            held = self.held.get(place.owner)
            if held is not None:
                tensor = held.find(place.place, place.nbytes)
                if tensor is not None:
                    return new_tensor(
                        name, dtype, shape, tensor.file, place.place & ((<uint64_t>1 << SHARE_SHIFT) - 1), place.nbytes,
                        tensor.keep)
        raise Internal(
            f"input '{name}' of a call lies outside of what instance {self.link.instance} has: source {place.source}, "
            f"owner {place.owner}, place {place.place}, {place.nbytes} bytes")

    cdef int cancel(self, uint64_t number, bint forget) except -1:
        cdef Call call = self.open.get(number)
        if call is None:
            return 0
        if forget:
            call._end()
        if call.request is not None:
            call.callee.cancel(call.request)
        return 0

    cdef int done(self, uint64_t answer) except -1:
        self.held.pop(answer, None)
        return 0

    cdef int close(self) except -1:
        cdef Call call
        self.unsent.clear()
        self.held.clear()
        for call in list(self.open.values()):
            call._end()
            if call.request is not None:
                call.callee.cancel(call.request)
        return 0

    # ---- back to the instance

    cdef int reply(self, Call call, Answer answer, bint final) except -1:
        cdef ReplyMark mark
        cdef RetainedInputs held
        cdef Tensor tensor
        cdef list shares = []
        cdef list tensors = [] if answer is None else tensors_of(answer)
        cdef bytes parameters = b"" if answer is None else answer.parameters
        mark.call, mark.final, mark.status = call.number, final, 0
        mark.answer = mark.offset = mark.nbytes = 0
        if tensors or parameters:
            held = RetainedInputs.__new__(RetainedInputs)
            held.tensors, held.places = [], []
            for tensor in tensors:
                share = self._share(tensor)
                shares.append(share)
                if share:
                    held.tensors.append(tensor)
                    held.places.append((<uint64_t>share << SHARE_SHIFT) | tensor.offset)
            held.record = write_reply(self.runtime.arena, tensors, shares, parameters, &mark.nbytes)
            mark.offset = held.record.offset
            self.answers += 1
            mark.answer = self.answers
            self.held[mark.answer] = held
        return self._send(&mark)

    cdef uint16_t _share(self, Tensor tensor) except? 0:
        """By which id the instance reads the tensor where it lies; 0 when it is better off with a copy, as of a client's
        memory, which may vanish when nobody looks any more.  Of GPU memory comes only what the call takes there.
        """
        model = self.runtime.signature
        if tensor.file.device >= 0:
            return self.port.share_of(tensor.file)
        if tensor.file.guarded or not referred(model, tensor):
            return 0
        return self.port.share_of(tensor.file)

    cdef int tell_error(self, uint64_t number, int status, str message, bint final) except -1:
        cdef ReplyMark mark
        cdef RetainedInputs held = RetainedInputs.__new__(RetainedInputs)
        cdef bytes raw = message.encode("utf-8", "replace")[:ERROR_TEXT_BYTES_MAX]
        mark.call, mark.final, mark.status = number, final, <uint16_t>status
        mark.answer = mark.offset = mark.nbytes = 0
        held.tensors, held.places = [], []
        try:
            held.record = self.runtime.arena.take(len(raw) or 1)
        except Unavailable:
            return self._send(&mark)  # the worker knows what no text means
        memoryview(held.record)[:len(raw)] = raw
        mark.offset, mark.nbytes = held.record.offset, <uint32_t>len(raw)
        self.answers += 1
        mark.answer = self.answers
        self.held[mark.answer] = held
        return self._send(&mark)

    cdef int _send(self, ReplyMark *mark) except -1:
        if not self.unsent and self.port.send(mark):
            return 0
        self.unsent.append((mark.call, mark.answer, mark.offset, mark.nbytes, mark.status, mark.final))
        return 0

    cdef int flush(self) except -1:
        cdef ReplyMark mark
        while self.unsent:
            mark.call, mark.answer, mark.offset, mark.nbytes, mark.status, mark.final = self.unsent[0]
            if not self.port.send(&mark):
                return 0
            self.unsent.popleft()
        return 0


cdef class Call(OpenCall):
    """See calls.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        if self.over:
            return 0
        calls = <Calls>self.calls
        if final:
            self._end()
        try:
            if not final and len(calls.unsent) >= UNSENT_MAX:
                raise Unavailable(
                    f"model '{self.callee.signature.name}' answers faster than instance {calls.link.instance} takes: "
                    f"{UNSENT_MAX} responses wait")
            calls.reply(self, answer, final)
        except TisError as error:
            if not final:
                self._end()
                self.callee.cancel(request)
            calls.tell_error(self.number, error.status, error.message, True)
        return 0

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        if self.over:
            return 0
        if self.request is None:  # refused when it was submitted
            message = failed_to_ask(self.callee.signature.name, message)
        if final:
            self._end()
        return (<Calls>self.calls).tell_error(self.number, status, message, final)

    cdef int _end(self) except -1:
        """No further answer goes to the instance."""
        cdef InferRequest parent
        self.over = True
        self.calls.open.pop(self.number, None)
        for parent in self.parents:
            if parent.calls is not None and self in parent.calls:
                parent.calls.remove(self)
        self.parents = ()
        return 0

    def parent_left(self) -> None:
        """The client of a request on whose behalf this call is made has left."""
        cdef InferRequest parent
        for parent in self.parents:
            if not parent.cancelled:
                return
        if self.request is not None:
            self.callee.cancel(self.request)


cdef str failed_to_ask(str model, str text):
    return f"Model {model} - Error when running inference: {text}"


cdef str deadlock_text(ModelRuntime caller, Runtime callee):
    name = callee.signature.name
    instances = ", ".join([link.instance for link in callee.links])
    return (
        f"this call would never be answered: every instance of model '{name}' ({instances}) waits, with the request that it "
        f"executes, for this call of model '{caller.signature.name}' or for one behind it. Give '{name}' more instances "
        "(instance_group count), or have it answer before it asks (a decoupled model, or one without the circle)")


cdef str withheld_text(ModelRuntime caller, Runtime callee):
    return (
        f"this call would never be answered: an execution of model '{callee.signature.name}' needs resources (rate_limiter) "
        f"that are held, until this call is answered, by those that wait for it: model '{caller.signature.name}', or whoever "
        "called that. Grant more with --rate-limit-resource, or give the two models resources of different names")


cdef ComposeFields fields_of(CallRecord record):
    cdef ComposeFields fields = ComposeFields.__new__(ComposeFields)
    fields.id = record.id
    fields.timeout_us = record.timeout_us
    fields.correlation = record.correlation
    fields.sequence_flags = record.flags & CALL_SEQUENCE
    fields.parameters = record.parameters
    fields.requested = record.plan.requested
    return fields
