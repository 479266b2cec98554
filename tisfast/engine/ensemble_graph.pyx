"""Ensembles as they are run; see ensemble_graph.pxd.  Layer 3 (engine).

What is computed here is computed once: per ensemble, and per set of requested outputs, of which clients use few.
"""

from libc.stdint cimport uint32_t, uint64_t

from tisfast.config.ensemble_config import LATEST
from tisfast.limits import ENSEMBLE_SELECTIONS_MAX

cdef int VARIABLE = -1


cdef class StepPlan:
    """See ensemble_graph.pxd."""

    def __init__(self, int index, step, dict numbers, bint decoupled):
        self.index = index
        self.model = step.model
        self.version = "" if step.version == LATEST else str(step.version)
        self.inputs = [(name, numbers[tensor]) for name, tensor in step.inputs]
        self.outputs = {name: numbers[tensor] for name, tensor in step.outputs}
        self.wanted = list(self.outputs)
        self.needs = tuple(sorted({number for _, number in self.inputs}))
        self.decoupled = decoupled


cdef class GraphOutput:
    """See ensemble_graph.pxd."""

    def __init__(self, tensor, int number):
        self.name = tensor.name
        self.tensor = number
        self.dims = tensor.dims
        self.inner_dims = tensor.worker_dims


cdef class Selection:
    """See ensemble_graph.pxd."""


cdef class EnsembleGraph:
    """config: config.model_config.LoadedConfig of an ensemble; levels: config.ensemble_join.Joined's; decoupled: per step;
    leaves: per step, the names of the models whose instances it needs; None: of its own model.
    """

    def __init__(self, config, dict levels, decoupled, leaves=None):
        cdef int i
        steps = config.ensemble.steps
        named = {tensor.name for tensor in (*config.inputs, *config.outputs)}
        for step in steps:
            named.update([tensor for _, tensor in (*step.inputs, *step.outputs)])
        self.tensors = sorted(named)
        numbers = {name: i for i, name in enumerate(self.tensors)}
        self.levels = [levels[name] for name in self.tensors]
        self.steps = [StepPlan(i, step, numbers, decoupled[i]) for i, step in enumerate(steps)]
        self.inlets = {spec.name: (numbers[spec.name], spec.dims, spec.worker_dims) for spec in config.inputs}
        self.graph_outputs = [GraphOutput(spec, numbers[spec.name]) for spec in config.outputs]
        self.makers = [None] * len(self.tensors)
        for plan in self.steps:
            for number in (<StepPlan>plan).outputs.values():
                self.makers[number] = plan
        self.running_max = config.ensemble.max_inflight_requests
        self.selections = {}
        self._mark_moves(leaves if leaves is not None else [{step.model} for step in steps])

    def _mark_moves(self, leaves):
        """The steps from a decoupled one on, up to one that needs the same instances."""
        cdef StepPlan source, step, last
        before = [{(<StepPlan>each).index for each in self._needed((<StepPlan>step).needs)} for step in self.steps]
        for source in self.steps:
            for last in self.steps:
                if not source.decoupled or source.index not in before[last.index] or leaves[source.index].isdisjoint(
                        leaves[last.index]):
                    continue
                for step in self.steps:
                    if step.index in before[last.index] and (step is source or source.index in before[step.index]):
                        step.moves = True

    cdef Selection select(self, uint64_t requested):
        cdef Selection selection = <Selection>self.selections.get(requested)
        if selection is None:
            if len(self.selections) >= ENSEMBLE_SELECTIONS_MAX:
                self.selections.clear()
            selection = self.selections[requested] = self._selected(requested)
        return selection

    cdef Selection _selected(self, uint64_t requested):
        cdef Selection selection = Selection.__new__(Selection)
        cdef StepPlan step
        cdef GraphOutput graph_output
        selection.graph_outputs = [self.graph_outputs[i] for i in range(len(self.graph_outputs)) if requested >> i & 1]
        selection.wanted = {(<GraphOutput>graph_output).tensor for graph_output in selection.graph_outputs}
        selection.level = max([self.levels[number] for number in selection.wanted], default=0)
        selection.consumers = [[] for _ in self.tensors]
        selection.uses = [int(number in selection.wanted) for number in range(len(self.tensors))]
        selection.waits = [len((<StepPlan>step).needs) for step in self.steps]
        for step in self._needed(selection.wanted):
            for number in step.needs:
                selection.consumers[number].append(step)
                selection.uses[number] += 1
        return selection

    def _needed(self, wanted) -> list:
        """Steps that these tensors come from, directly or not."""
        cdef StepPlan step
        needed = {}
        left = list(wanted)
        while left:
            step = self.makers[left.pop()]
            if step is not None and step.index not in needed:
                needed[step.index] = step
                left.extend(step.needs)
        return [needed[index] for index in sorted(needed)]


cdef bint alike(tuple dims, tuple shape):
    if len(dims) != len(shape):
        return False
    for a, b in zip(dims, shape):
        if a != b and a != VARIABLE:
            return False
    return True


cdef tuple fit_shape(tuple shape, tuple dims, bint batches, uint32_t batch):
    if batches == (batch != 0):
        return shape
    if batches:
        return (1, *shape) if alike(dims, shape) else shape
    return shape[1:] if batch == 1 and not alike(dims, shape) else shape


cdef tuple reshaped(tuple shape, tuple before, tuple after):
    cdef Py_ssize_t extra = len(shape) - len(before)  # the batch dimension, where there is one
    if before == after or extra < 0:
        return shape
    variable = iter([size for size, dim in zip(shape[extra:], before) if dim == VARIABLE])
    return shape[:extra] + tuple([next(variable, VARIABLE) if dim == VARIABLE else dim for dim in after])


def fitted(tuple shape, tuple dims, bint batches, uint32_t batch) -> tuple:
    """fit_shape(), for tests."""
    return fit_shape(shape, dims, batches, batch)


def reshape(tuple shape, tuple before, tuple after) -> tuple:
    """reshaped(), for tests."""
    return reshaped(shape, before, after)
