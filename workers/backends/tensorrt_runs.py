"""Executions of an engine: contexts by profile, device memory, CUDA graphs."""

import numpy
from tisfast_worker.device_batches import DeviceArray, DeviceParts, pieces
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

_engines = backend_module("tensorrt_engine")
TensorrtError = _engines.TensorrtError
_ALIGNED = 256  # what TensorRT asks of a tensor's address


class Places:
    """Device memory by tensor: as much as the largest execution so far needs.

    What a CUDA graph has seen stays where it is: a tensor that grows gets other memory then.
    """

    def __init__(self, device, engine):
        """`device`: a Device."""
        self._device, self._memories, self._kept, self.held = device, {}, [], False
        self._owner = {each.name: each.alias or each.name for each in (*engine.inputs, *engine.outputs)}

    def of(self, name, nbytes):
        """The memory of a tensor.  Raises DeviceError."""
        owner = self._owner[name]
        memory = self._memories.get(owner)
        if memory is None or memory.nbytes < nbytes:
            if memory is not None and not self.held:
                del self._memories[owner]
                memory.free()
            elif memory is not None:
                self._kept.append(memory)
            memory = self._memories[owner] = self._device.allocate(nbytes)
        return memory

    def free(self):
        """All of it."""
        for memory in (*self._memories.values(), *self._kept):
            memory.free()
        self._memories, self._kept = {}, []


class Lane:
    """One profile, and the context that runs it."""

    def __init__(self, engine, profile, device, places, strategy):
        """Raises TensorrtError."""
        self.profile, self._engine, self._device, self._places = profile, engine, device, places
        self._context = engine.context(strategy)
        self._shapes, self._addresses, self._outputs = {}, {}, {}
        if not self._context.set_optimization_profile_async(profile, device.stream):
            raise self._failed(f"optimisation profile {profile} cannot be set")
        device.wait()

    def distance(self, shapes):
        """How far shapes are from those that the profile is made for; None where it does not take them."""
        far = 0
        for each in self._engine.inputs:
            if each.misfit(self.profile, shapes[each.name]):
                return None
            best = each.ranges[self.profile][1]
            far += sum(abs(size - wanted) for size, wanted in zip(shapes[each.name], best))
        return far

    def output_shapes(self, shapes):
        """Shapes of the outputs by name, for shapes of the inputs.  Raises TensorrtError."""
        if shapes == self._shapes:
            return self._outputs
        context, self._shapes = self._context, {}
        for name, shape in shapes.items():
            if not context.set_input_shape(name, shape):
                raise self._failed(f"input '{name}' cannot have shape {list(shape)}")
        missing = context.infer_shapes()
        if missing:
            raise self._failed(
                "failed to specify the dimensions of all input tensors or values of all input shape tensors: "
                f"{', '.join(missing)}"
            )
        found = {each.name: tuple(context.get_tensor_shape(each.name)) for each in self._engine.outputs}
        for name, shape in found.items():
            if min(shape, default=0) < 0:
                raise self._failed(f"the shape of output '{name}' depends on values ({list(shape)}): not served")
        self._shapes, self._outputs = dict(shapes), found
        return found

    def place(self, outputs, given=()):
        """Memory by name for inputs of the shapes that were set and outputs of these.

        given: addresses by name, of inputs that are on the GPU and need none.
        """
        found = {}
        for each in (*self._engine.inputs, *self._engine.outputs):
            if each.name in given:
                address = given[each.name]
            else:
                shape = self._shapes[each.name] if each.name in self._shapes else outputs[each.name]
                memory = found[each.name] = self._places.of(each.name, _count(shape) * each.itemsize)
                address = memory.address
            if self._addresses.get(each.name) != address:
                if not self._context.set_tensor_address(each.name, address):
                    raise self._failed(f"tensor '{each.name}' cannot be given its memory")
                self._addresses[each.name] = address
        return found

    def queue(self):
        """Queue an execution.  Raises TensorrtError."""
        if not self._context.execute_async_v3(self._device.stream):
            raise self._failed("the execution cannot be started")

    def forget(self):
        """Let go of the context."""
        self._context = None

    def _failed(self, what):
        said = self._engine.log.take()
        return TensorrtError(f"TensorRT: {what}" + (f": {said}" if said else ""))


class Runs:
    """All executions of one instance."""

    def __init__(self, model, engine, device, settings, strategy):
        """Raises TensorrtError and DeviceError."""
        self._model, self._engine, self._device, self._graphs = model, engine, device, {}
        self._names = [each.name for each in engine.inputs]
        self._aliased = {each.alias for each in engine.outputs}
        self._places = Places(device, engine)
        self._lanes = [Lane(engine, profile, device, self._places, strategy) for profile in engine.profiles]
        for lane in self._lanes:  # the largest first: nothing moves later
            lane.place(lane.output_shapes({each.name: each.ranges[lane.profile][2] for each in engine.inputs}))
        for shapes in settings.graph_shapes(engine.inputs, engine.profiles):
            self._capture(shapes)

    def run(self, inputs, space):
        """Outputs of inputs by name: arrays, DeviceArrays of what is to stay, and nothing of what nobody asks for.

        `space`: the DeviceSpace.  Raises Refusal.
        """
        shapes = {name: inputs[name].shape for name in self._names}
        graph = self._graphs.get(tuple(shapes.values()))
        if graph is None:
            lane = self._lane(shapes)
            wanted = lane.output_shapes(shapes)
            memories = lane.place(wanted, self._in_place(inputs))
        else:
            handle, memories, wanted = graph
        staying = [each for each in self._engine.outputs if space.stays(each.name)]
        found = {each.name: _left(each, memories[each.name], wanted[each.name]) for each in staying}
        arrays, held = space.take({name: shape for name, shape in wanted.items() if name not in found}), []
        try:
            for each in self._engine.inputs:
                if each.name in memories:
                    held += self._write(memories[each.name].address, inputs[each.name])
            if graph is None:
                lane.queue()
            else:
                self._device.launch(handle)
            for each in self._engine.outputs:
                if each.name in found or not space.wants(each.name):
                    continue
                if each.name not in arrays:
                    arrays[each.name] = numpy.empty(wanted[each.name], each.array_type)
                self._device.read(arrays[each.name], memories[each.name])
        finally:  # what was queued reads and writes these arrays, and clients' memory
            self._device.wait()
        return {**arrays, **found}

    def _in_place(self, inputs):
        """Addresses of the inputs that can be read where they lie."""
        alone = {
            name: given.parts[0].address()
            for name, given in inputs.items()
            if given.__class__ is DeviceParts and len(given.parts) == 1 and name not in self._aliased
        }
        return {name: address for name, address in alone.items() if address % _ALIGNED == 0}

    def _write(self, address, given):
        """Queue the copies of an input; returns what must stay until they are done."""
        held = []
        for part in pieces(given):
            if part.__class__ is numpy.ndarray:
                held.append(numpy.ascontiguousarray(part))
                self._device.write(address, held[-1])
                address += part.nbytes
            else:
                self._device.copy(address, part.address(), part.nbytes())
                address += part.nbytes()
        return held

    def free(self):
        """Let go of everything, contexts before their engine."""
        for handle, _, _ in self._graphs.values():
            self._device.forget(handle)
        for lane in self._lanes:
            lane.forget()
        self._graphs, self._lanes = {}, []
        self._places.free()

    def _lane(self, shapes):
        fitting = [(lane.distance(shapes), at) for at, lane in enumerate(self._lanes)]
        fitting = [each for each in fitting if each[0] is not None]
        if fitting:
            return self._lanes[min(fitting)[1]]
        first = self._lanes[0].profile
        for each in self._engine.inputs:
            misfit = each.misfit(first, shapes[each.name])
            if misfit:
                raise TensorrtError(
                    f"request specifies invalid shape for input '{each.name}' for {self._model.instance}. Error "
                    f"details: {misfit}"
                )
        names = ", ".join(str(lane.profile) for lane in self._lanes)
        raise TensorrtError(f"no optimisation profile among {names} of {self._model.instance} takes {shapes}")

    def _capture(self, shapes):
        """A CUDA graph for these shapes; what cannot be captured runs without one, as in Triton."""
        lane = self._lane(shapes)
        wanted = dict(lane.output_shapes(shapes))
        memories = lane.place(wanted)
        lane.queue()  # once before: what TensorRT puts off until the first execution must not be in the graph
        self._device.wait()
        try:
            handle = self._device.captured(lane.queue)
        except _engines.Refusal as error:
            text = f"no CUDA graph for {_shapes_text(shapes)} of {self._model.instance}: {error}"
            current().log("WARN", text, "tensorrt.py", 0)
            return
        self._places.held = True
        self._graphs[tuple(shapes[name] for name in self._names)] = handle, memories, wanted
        current().log("VERBOSE", f"CUDA graph for {_shapes_text(shapes)}", "tensorrt.py", 0)


def _left(each, memory, shape):
    """An output that stays where it is until the next execution."""
    return DeviceArray(memory, memory.address, shape, each.code)


def _shapes_text(shapes):
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


def _count(shape):
    count = 1
    for size in shape:
        count *= size
    return count
