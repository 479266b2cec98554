"""Ensembles at work: steps run as soon as their tensors are there.  Layer 3 (engine).

A request's tensors lie in scopes: one for the request, and one below it for each response of a decoupled step.  All inputs
of a step are of one scope (config.ensemble_join), and so are all outputs of the ensemble: each scope of their level is one
response.  Responses are given in the order of the responses that they come from, whichever is ready first; what fails is
told in its place of that order, and ends the request.

A step's answer may come while the step is being sent.  So nothing calls deeper from there: what has become possible is
noted, and done by the one `advance` of the request that is under way.
"""

from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport Clock
from tisfast.engine.ensemble_graph cimport GraphOutput, StepPlan, reshaped
from tisfast.engine.ensemble_limits cimport Entry, StepLimits
from tisfast.engine.ensemble_scope cimport answer_of, dissolve, moved, new_scope, sequence_of, step_inputs, step_ways
from tisfast.native.memory cimport Arena
from tisfast.wire.compose cimport compose, tensors_of, tensors_of_input
from tisfast.wire.record cimport InferInput, wants_device
from tisfast.wire.signature cimport ModelSignature, TensorSpec
from tisfast.wire.tensors cimport Tensor

from collections import deque
from contextlib import suppress

from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.types import NO_DEVICE as NONE, Status

cdef int NO_DEVICE = NONE
cdef int CANCELLED = Status.CANCELLED
cdef int INTERNAL = Status.INTERNAL
cdef int UNAVAILABLE = Status.UNAVAILABLE


cdef class StepRun:
    """See ensemble_runtime.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        return self.heard(request, answer, 0, None, final)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        return self.heard(request, None, status, message, final)

    cdef int heard(self, InferRequest request, Answer answer, int status, str message, bint final) except -1:
        cdef EnsembleRun run = self.run
        run.executed = run.executed or request.executed or not status
        if final:
            self.finished = True
            self.request = None
            run.active.discard(self)
        try:
            if not run.done:
                try:
                    if status:
                        run.step_failed(self.scope, status, message)
                    else:
                        self.take(request, answer, final)
                finally:
                    run.advance()
        finally:
            if final:
                run.ensemble.leave(self)
        return 0

    cdef int take(self, InferRequest request, Answer answer, bint final) except -1:
        """A decoupled step's responses count up to its first error; of others the first answer, or that there is none."""
        cdef bint counts = answer is not None if self.step.decoupled else not self.answered_once
        self.answered_once = True
        try:
            if counts and self.scope.failure is None:
                self.run.arrived(self, answer)
        except TisError as error:
            self.run.step_failed(self.scope, error.status, error.message)
        except Exception as error:  # our bug: answered, and reported by whoever brought the answer
            self.run.step_failed(self.scope, INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")
            raise
        if final:
            self.run.count_times(request)
            self.scope.closed = self.scope.closed or self.step.decoupled
        return 0


cdef class EnsembleRun:
    """See ensemble_runtime.pxd."""

    cdef int begin(self) except -1:
        cdef EnsembleGraph graph = self.ensemble.graph
        cdef dict given = {}
        cdef Tensor tensor
        cdef ScopeTensor held
        self.selection = graph.select(self.input.requested)
        self.parameters = self.input.parameters()
        self.root = self.turn = new_scope(self.selection, None, 0)
        self.ready = deque()
        self.active = set()
        for tensor in tensors_of_input(self.input):
            given[tensor.name] = tensor
        for name, (number, dims, inner_dims) in graph.inlets.items():
            held = ScopeTensor.__new__(ScopeTensor)
            held.batch = self.input.batch if self.input.model.max_batch_size > 0 else 0
            tensor = <Tensor>given.get(name)
            if tensor is not None and dims != inner_dims:
                tensor = tensor.renamed(None, reshaped(tensor.shape, dims, inner_dims))
            held.tensor = tensor
            self.hold(self.root, number, held)
        return 0

    cdef int hold(self, Scope scope, int number, ScopeTensor held) except -1:
        """A tensor is there, or will not be: steps that needed nothing else are ready."""
        cdef StepPlan step
        if scope.uses[number]:
            scope.tensors[number] = held
        for step in <list>self.selection.consumers[number]:
            scope.waits[step.index] -= 1
            if scope.waits[step.index] == 0:
                self.ready.append(new_step(self, step, scope))
        if number in self.selection.wanted:
            scope.outputs_left -= 1
        return 0

    cdef int advance(self) except -1:
        if self.advancing:
            return 0
        self.advancing = True
        try:
            while self.ready and not self.done:
                self.start(<StepRun>self.ready.popleft())
            if not self.done:
                self.deliver()
        except TisError as error:
            self.fail(error.status, error.message)
        except Exception as error:  # our bug: answered here, and reported by whoever called
            self.fail(INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")
            raise
        finally:
            self.advancing = False
        return 0

    # ---- steps

    cdef int start(self, StepRun step) except -1:
        if step.scope.failure is not None:
            return self.ensemble.leave(step)
        try:
            if step.admitted or self.ensemble.admit(step):
                self.send(step)
        except BaseException as error:
            self.active.discard(step)
            self.ensemble.leave(step)
            if not isinstance(error, TisError):
                raise
            self.step_failed(step.scope, error.status, error.message)
        return 0

    cdef int send(self, StepRun step) except -1:
        cdef Scope scope = step.scope
        cdef Runtime runtime = self.ensemble.resolve(step.step.model, step.step.version)
        cdef InferRequest request
        cdef InferInput input
        cdef list inputs
        cdef int device
        step.runtime = runtime
        inputs = step_inputs(scope, step.step, runtime.signature, step.fields)
        if self.input.shared_outputs and runtime.signature.device_outputs >= 0 and self.writes_once():
            step.fields.ways = step_ways(step.step, runtime.signature, self.selection, self.input)
        device = max(runtime.signature.device_inputs, runtime.signature.device_outputs)  # of both: the same
        if device >= 0 and not step.step.moves:  # what is moved goes to host memory
            step.fields.device_wanted = self.device_wanted(step.step, device)
        input = compose(runtime.signature, runtime.arena, inputs, step.fields)
        step.batch = input.batch if runtime.signature.max_batch_size > 0 else 0
        for number in step.step.needs:
            scope.uses[number] -= 1
            if not scope.uses[number]:
                scope.tensors[number] = None
        inputs = None  # the request has what it needs
        trace = None if self.trace is None else self.trace.child(input)
        self.active.add(step)
        request = runtime.submit(input, step, trace, self)
        if step.finished:
            return 0
        step.request = request
        return runtime.cancel(request) if self.done else 0

    cdef bint writes_once(self) noexcept:
        """Whether a step may write an output to the client's region itself.  Of many responses the last one must be what
        stays there, and steps for several may run at one time: the server writes those, in their order.
        """
        return not self.input.model.copies_devices and not self.input.model.decoupled

    cdef int device_wanted(self, StepPlan step, int device) except -2:
        """The device, where all that is made of the step's outputs takes them there; else NO_DEVICE."""
        cdef GraphOutput graph_output
        cdef StepPlan consumer
        cdef ModelSignature taker
        for number in step.outputs.values():
            for consumer in <list>self.selection.consumers[number]:
                taker = (<Runtime>self.ensemble.resolve(consumer.model, consumer.version)).signature
                if taker.device_inputs != device or taker.copies_devices:
                    return NO_DEVICE
            for graph_output in self.selection.graph_outputs:
                index = (<TensorSpec>self.input.model.output_by_name[graph_output.name]).index
                if graph_output.tensor == number and (self.input.model.copies_devices or not (
                        self.input.shared_outputs >> <int>index & 1 or wants_device(self.input, device))):
                    return NO_DEVICE
        return device

    cdef int arrived(self, StepRun step, Answer answer) except -1:
        """A response of a step; None: it gave none."""
        cdef Scope scope = step.scope
        cdef dict made = {}
        cdef Tensor tensor
        cdef ScopeTensor held
        correlation, flags = step.fields.correlation, step.fields.sequence_flags
        if answer is not None:
            if b'"sequence_' in answer.parameters:
                correlation, flags = sequence_of(answer.parameters, correlation, flags)
            for tensor in tensors_of(answer):
                if tensor.name not in made:  # of an output that a model returned twice, the first
                    made[tensor.name] = moved(tensor, self.ensemble.arena) if step.step.moves else tensor
        if step.step.decoupled:
            scope = new_scope(self.selection, scope, scope.level + 1)
            if step.scope.children is None:
                step.scope.children = deque()
            step.scope.children.append(scope)
        for name, number in step.step.outputs.items():
            held = ScopeTensor.__new__(ScopeTensor)
            held.tensor = <Tensor>made.get(name)
            held.batch = step.batch
            held.told, held.correlation, held.sequence_flags = True, correlation, flags
            self.hold(scope, number, held)
        return 0

    # ---- answers

    cdef int deliver(self) except -1:
        """Give all answers whose turn has come."""
        cdef Scope scope, parent
        while self.turn is not None and not self.done:
            scope = self.turn
            parent = scope.parent
            if scope.level == self.selection.level:
                if scope.failure is not None:
                    self.fail(scope.failure[0], scope.failure[1])
                    break
                if scope.outputs_left:
                    break
                self.turn = parent
                if parent is not None:
                    parent.children.popleft()
                self.answer_scope(scope)
            elif scope.children:
                self.turn = <Scope>scope.children[0]
            elif scope.failure is not None:
                self.fail(scope.failure[0], scope.failure[1])
            elif not scope.closed:
                break
            elif parent is None:
                self.succeed(None, True)
            else:
                parent.children.popleft()
                self.turn = parent
        if not self.done and not self.active and not self.ready and not self.waiting:
            raise BadRequest(
                f"[request id: {self.input.id or '<id_unknown>'}] unexpected deadlock, at least one output is not set "
                "while no more ensemble steps can be made")
        return 0

    cdef int answer_scope(self, Scope scope) except -1:
        cdef Scope above = scope.parent
        cdef bint final = True
        while above is not None:  # what is above the last response is closed, too
            final = final and above.closed and not above.children
            above = above.parent
        return self.succeed(answer_of(scope, self.selection.graph_outputs, self.input), final)

    cdef int succeed(self, Answer answer, bint final) except -1:
        cdef EnsembleRuntime ensemble = self.ensemble
        cdef AnswerSink sink = self.sink
        cdef int64_t now_ns = ensemble.clock.now_ns()
        if not self.begun_answering:
            self.begun_answering = True
            ensemble.timings.first_response.add(now_ns - self.queued_ns)
        ensemble.stats.last_inference_ms = ensemble.clock.epoch_ms()
        if final:
            self._count_success(now_ns)
            self.done = True
            self.close()
        return ensemble.give(self, sink, answer, 0, None, final)

    def _count_success(self, int64_t now_ns):
        """Count the request as Triton counts an ensemble: its compute times are the sums of its steps'."""
        cdef Times times
        cdef Runtime ensemble = self.ensemble
        times.taken_ns = self.queued_ns
        times.infer_start_ns = times.taken_ns + self.input_ns
        times.infer_end_ns = times.infer_start_ns + self.infer_ns
        times.done_ns = times.infer_end_ns + self.output_ns
        times.executed = 1
        ensemble.stats.count_success(self.input.batch, &times, self.queued_ns, now_ns)
        ensemble.stats.count_execution(self.input.batch, &times)
        ensemble.timings.add(&times, self.queued_ns, now_ns)
        self.times.infer_start_ns = self.input_ns  # for an ensemble of ensembles; it was at no instance: taken_ns is 0
        self.times.infer_end_ns = self.input_ns + self.infer_ns
        self.times.done_ns = self.times.infer_end_ns + self.output_ns

    cdef int count_times(self, InferRequest request) except -1:
        cdef Times *times = &request.times
        self.input_ns += times.infer_start_ns - times.taken_ns
        self.infer_ns += times.infer_end_ns - times.infer_start_ns
        self.output_ns += times.done_ns - times.infer_end_ns
        return 0

    cdef int step_failed(self, Scope scope, int status, str message) except -1:
        if scope.failure is None:
            scope.failure = (status, message)
        return 0

    cdef int fail(self, int status, str message) except -1:
        cdef EnsembleRuntime ensemble = self.ensemble
        if self.done:
            return 0
        self.done = True
        self.executed = self.executed or self.executing()
        reason = FailureReason.CANCELED if status == CANCELLED else FailureReason.OTHER
        ensemble.stats.count_failure(reason, ensemble.clock.now_ns() - self.queued_ns)
        ensemble.stats.last_inference_ms = ensemble.clock.epoch_ms()
        sink = self.sink
        try:
            self.close()
        finally:
            ensemble.give(self, sink, None, status, f"in ensemble '{ensemble.signature.name}', {message}", True)
        return 0

    cdef bint executing(self) except -1:
        """A model may have a step of it: all that do not wait in a queue."""
        cdef StepRun step
        for step in self.active or ():
            if step.request is not None and not step.request.queued:
                return True
        return False

    cdef int close(self) except -1:
        """Nothing more is done for this request: what its steps still do is taken back."""
        cdef StepRun step
        cdef list rest = list(self.active) if self.active else []
        self.ensemble.inflight -= 1
        self.ensemble.forget(self)
        self.sink = None
        if self.root is not None:
            dissolve(self.root)
        self.root = self.turn = None
        if self.ready:
            self.ready.clear()
        failure = None
        for step in rest:
            try:
                if step.request is not None:
                    step.runtime.cancel(step.request)
            except Exception as error:  # the others are told first
                failure = error
        if failure is not None:
            raise failure
        return 0


cdef StepRun new_step(EnsembleRun run, StepPlan step, Scope scope):
    cdef StepRun made = StepRun.__new__(StepRun)
    cdef ComposeFields fields = ComposeFields()
    cdef InferInput input = run.input
    made.run, made.step, made.scope, made.fields = run, step, scope, fields
    fields.id, fields.priority, fields.timeout_us = input.id, input.priority, input.timeout_us
    fields.correlation, fields.sequence_flags = input.correlation, input.sequence_flags
    fields.parameters = run.parameters
    fields.requested = step.wanted
    return made


cdef class EnsembleRuntime:
    """graph: of the models it joins; resolve: finds their runtimes, by name and version ("" for the newest).

    arena: where clients' inputs are received; config: normalised, a dict."""

    def __cinit__(self, ModelSignature signature, Arena arena, EnsembleGraph graph, Clock clock, config, resolve):
        self.found(signature, arena, clock, config)
        self.graph = graph
        self.resolve = resolve
        self.limits = StepLimits(len(graph.steps), graph.running_max) if graph.running_max else None
        self.keeps_order = True  # its steps may be of sequences

    @property
    def reason(self) -> str:
        """Why it is not ready, "" when it is."""
        if self.refusal is not None:
            return self.refusal
        for step in self.graph.steps:
            model = (<StepPlan>step).model
            try:
                runtime = self.resolve(model, (<StepPlan>step).version)
            except TisError as error:
                return error.message
            if not runtime.ready:
                return f"its model '{model}' is not ready: {runtime.reason}"
        return ""

    @property
    def ready(self) -> bool:
        """Whether all models of its steps are."""
        return not self.reason

    @property
    def queued(self) -> int:
        """Nothing waits before its steps do: all that is begun is in `inflight`."""
        return 0

    def refuse(self, str message) -> None:
        """Answer all further requests UNAVAILABLE with `message`."""
        self.refusal = message

    cdef InferRequest submit(self, InferInput input, AnswerSink sink, object trace=None, InferRequest parent=None):
        cdef EnsembleRun run = EnsembleRun.__new__(EnsembleRun)
        run.ensemble = self
        run.input = input
        run.sink = sink
        run.trace = trace
        run.parent = parent
        run.queued_ns = self.clock.now_ns()
        self.inflight += 1
        if self.refusal is not None:
            run.fail(UNAVAILABLE, self.refusal)
        else:
            self.begin(run, run.queued_ns)
        return run

    cdef int expect(self, uint64_t missing) except -1:
        cdef StepPlan first = <StepPlan>self.graph.steps[0]
        with suppress(TisError):  # who asks is told then
            (<Runtime>self.resolve(first.model, first.version)).expect(missing)
        return 0

    cdef int cancel(self, InferRequest request) except -1:
        request.cancelled = True
        correlation = None
        if request.looking:
            correlation = request.input.correlation
            self.stop_looking(request)
        try:
            self.cancel_copies(request)
        finally:
            try:
                (<EnsembleRun>request).fail(CANCELLED, "Request cancelled: the client left")
            finally:
                self.go_on(correlation)
        return 0

    cdef list needs(self):
        cdef list found = []
        for step in self.graph.steps:
            with suppress(TisError):  # who asks is told then
                found.extend((<Runtime>self.resolve((<StepPlan>step).model, (<StepPlan>step).version)).needs())
        return found

    # ---- of CachingRuntime

    cdef int enqueue(self, InferRequest request, int64_t now_ns) except -1:
        cdef EnsembleRun run = <EnsembleRun>request
        try:
            run.begin()
        except TisError as error:
            return run.fail(error.status, error.message)
        return run.advance()

    cdef int finish(self, InferRequest request, Answer answer, int status, str message) except -1:
        """An answer that was kept.  It is counted already."""
        cdef AnswerSink sink = request.sink
        request.done = True
        (<EnsembleRun>request).close()
        request.cache_key = None
        return self.give(request, sink, answer, 0, None, True)

    cdef int refuse_copied(self, InferRequest request, object failure) except -1:
        return (<EnsembleRun>request).fail(failure[0], failure[1])

    cdef int tell(
            self, InferRequest request, AnswerSink sink, Answer answer, int status, str message, bint final) except -1:
        if request.trace is not None:
            request.trace.answered(request, answer, final)
        if status:
            sink.failed(request, status, message, final)
        else:
            sink.answered(request, answer, final)
        if final:
            request.input = None
            if request.cache_key is not None and not status:
                self.keep_answer(request, answer)
        return 0

    # ---- max_inflight_requests

    cdef bint admit(self, StepRun step) except -1:
        cdef int entry
        if self.limits is None:
            return True
        entry = self.limits.enter(step.step.index, step.run, step)
        if entry == Entry.NO_ROOM:
            raise Unavailable(
                f"[request id: {step.run.input.id or '<id_unknown>'}] Exceeds maximum queue size: {self.limits.waiting} "
                f"requests wait for max_inflight_requests {self.limits.running_max}")
        step.admitted = entry == Entry.ADMITTED
        step.run.waiting += not step.admitted
        return step.admitted

    cdef int leave(self, StepRun step) except -1:
        """A step has ended: one that waits for its place goes on, of whichever request."""
        cdef StepRun other
        if not step.admitted:
            return 0
        step.admitted = False
        self.limits.leave(step.step.index)
        if self.admitting:  # further down: the loop below sees it
            return 0
        self.admitting = True
        try:
            while True:
                other = <StepRun>self.limits.admit_next()
                if other is None:
                    return 0
                other.run.waiting -= 1
                other.admitted = True
                other.run.ready.append(other)
                other.run.advance()
        finally:
            self.admitting = False

    cdef int forget(self, EnsembleRun run) except -1:
        if run.waiting:
            self.limits.forget(run)
            run.waiting = 0
        return 0
