"""A batch as one array for each input, and the answers cut out of what comes back: backends that take arrays.

Where the requests' tensors lie at one constant distance from each other in the input arena, the array is a view;
otherwise they are copied together, once.  Control tensors and state of sequences are inputs like others.
"""

import json

from tisfast_worker import dtypes
from tisfast_worker.batch_vectors import VECTORS
from tisfast_worker.errors import ErrorCode, TritonError, TritonModelException
from tisfast_worker.failure import ReturnError
from tisfast_worker.response import InferenceResponse
from tisfast_worker.tensor import Tensor


class BatchCall:
    """Calls a model's `execute_batch` with the requests of a batch; returns an InferenceResponse for each."""

    def __init__(self, model, backend, new_lease, pinned=None):
        """`new_lease()`: the whole input arena, for arrays to refer to; `pinned`: the PinnedMemory, on a GPU."""
        import numpy  # noqa: PLC0415 - arrays are what this is about

        self._numpy, self._run, self._new_lease, self._space = numpy, backend.execute_arrays, new_lease, backend.space
        self._as_text, self._pinned = backend.takes_text, pinned
        self._model = model.name
        self._batched = model.batched
        config = json.loads(model.config)
        self._ragged = frozenset(item["name"] for item in config.get("input", ()) if item.get("allow_ragged_batch"))
        self._vectors = [_vector(item) for item in config.get("batch_input", ())]
        self._scattered = {
            name: item["source_input"][0] for item in config.get("batch_output", ()) for name in item["target_name"]
        }
        sequences = model.sequences
        self._seated = sequences is not None
        # What a sequence adds to what clients send.
        self._added = () if sequences is None else sequences.input_names
        states = {} if sequences is None else {state.output_name: state.code for state in sequences.states}
        codes = {**states, **{spec.name: spec.code for spec in model.outputs}}
        self._bits = frozenset(name for name, code in codes.items() if code == dtypes.BF16)

    def __call__(self, requests, execution):
        """Raises ReturnError, and whatever the model raises.

        Another attempt gets copies: what the model keeps of them needs no memory of the requests to stay.
        """
        order, copies, wrong, views = requests, execution.attempts > 1, {}, ()
        if len(requests) == 1 and not self._ragged:
            names = self._names(requests[0])
            inputs = {name: self._array(requests[0], name, wrong) for name in names}
            if copies:
                inputs = {name: array.copy() for name, array in inputs.items()}
        else:
            order, inputs, views = self._joined(requests, execution, copies, wrong)
        if len(wrong) == len(requests):
            return [_error(wrong[id(request)]) for request in requests]
        for kind, source, names, dtype in self._vectors:
            inputs.update(dict.fromkeys(names, VECTORS[kind](self._numpy, _shapes(order, source), dtype)))
        # Another attempt may be of halves, of which each would have a block before the first one's is written.
        self._space.open(requests, places=not copies)
        try:
            outputs = self._run(dict(inputs))
            self._space.close()
            if not isinstance(outputs, dict):
                raise ReturnError(
                    f"Expected a dict of output name and numpy array in the execute_batch return, found type "
                    f"'{type(outputs)}'."
                )
            tensors = [self._cut(name, array, order, inputs, views) for name, array in outputs.items()]
        except BaseException:
            self._space.give_up()
            raise
        responses = [_response(parts) for parts in zip(*tensors)] or [_response(()) for _ in order]
        if order is not requests:
            by_request = dict(zip(map(id, order), responses))
            responses = [by_request[id(request)] for request in requests]
        for at, request in enumerate(requests) if wrong else ():
            if id(request) in wrong:
                responses[at] = _error(wrong[id(request)])
        return responses

    # ---- in

    def _names(self, request):
        """Names of the arrays that are made of requests."""
        names = [layout.name for layout in request._plan.layouts]
        return [*self._added, *names] if self._added else names

    def _array(self, request, name, wrong):
        """One input of one request.  wrong: by id of the request what is wrong with one, which has empty strings then:
        its rows stay, so that the others keep their places.
        """
        tensor = request.find(name)
        code = tensor._code
        if code < dtypes.BYTES:
            return tensor.as_numpy()
        if code == dtypes.BF16:
            return tensor.bits()
        try:
            array = tensor.as_numpy()
            return self._text(name, array) if self._as_text else array
        except TritonModelException as error:
            wrong[id(request)] = str(error)
            return self._numpy.full(tensor.shape(), "" if self._as_text else b"", object)

    def _text(self, name, array):
        """BYTES as str.  Raises TritonModelException for what is not UTF-8."""
        found = self._numpy.empty(array.shape, object)
        try:
            items = array.ravel().tolist()
            found.reshape(-1)[:] = [item.decode() if item.__class__ is bytes else item for item in items]
        except UnicodeDecodeError as error:
            raise TritonModelException(
                f"input '{name}' of model '{self._model}' has an element that is not UTF-8: byte "
                f"0x{error.object[error.start]:02x} at {error.start}; the framework takes text only"
            ) from None
        return found

    def _joined(self, requests, execution, copies, wrong):
        """(requests in the order of the arrays, arrays by name, names of those in the requests' own memory)."""
        plan = requests[0]._plan
        as_one = self._batched and not self._ragged and not copies and all(_is_plain(r, plan) for r in requests)
        view = self._views(requests, plan, execution) if as_one else None
        order, arrays = (requests, {}) if view is None else view
        views = frozenset(arrays)
        for name in self._names(requests[0]):
            if name in arrays:
                continue
            parts = [self._array(request, name, wrong) for request in order]
            if name in self._ragged:
                parts = [part.ravel() for part in parts]
            arrays[name] = self._concatenated(parts)
        return order, arrays, views

    def _concatenated(self, parts):
        return self._numpy.concatenate(parts)

    def _views(self, requests, plan, execution):
        """The arrays without a copy, or None where the tensors do not lie side by side."""
        layouts = plan.layouts
        if not layouts or requests[0].batch != 1 or any(layout.code == dtypes.BYTES for layout in layouts):
            return None
        order = sorted(requests, key=_place)
        if self._seated and order != requests:
            return None  # the direct strategy: each slot has its row
        count, lease, arrays, parts = len(order), self._new_lease(), {}, []
        for at, layout in enumerate(layouts):
            places = [request._refs[2 * at] for request in order]
            step = places[1] - places[0]
            if step < max(layout.nbytes, 1) or places != list(range(places[0], places[0] + step * count, step)):
                return None
            if layout.dtype is None:
                layout.bind()
            row = self._numpy.ndarray(layout.shape[1:], layout.dtype, lease, places[0])
            arrays[layout.name] = self._numpy.ndarray(
                (count, *layout.shape[1:]), layout.dtype, lease, places[0], (step, *row.strides)
            )
            parts.append((places[0], places[-1] + layout.nbytes))
        if self._pinned is not None:
            self._pinned.cover_inputs(parts)
        execution.arrays = lease
        return order, arrays

    # ---- out

    def _cut(self, name, array, requests, inputs, views):  # noqa: PLR0913, PLR0917 - all that a cut depends on
        """One output's tensors, one for each request.  views: inputs that lie in the requests' own memory."""
        for source, given in inputs.items():
            if array is given and self._batched and source not in self._ragged:
                found = self._sent(name, source, requests)
                if len(found) == 1:
                    return [_tensor(name, found[0]._code, array)]
                if source in views:
                    return [_tensor(name, each._code, _content(each)) for each in found]
        array = self._numpy.asarray(array)
        code = dtypes.CODE_BY_CHAR.get(array.dtype.char)
        if code == dtypes.UINT16 and name in self._bits:
            code = dtypes.BF16
        if code is None or not array.dtype.isnative:
            raise TritonModelException(f"NumPy dtype is not supported. Output '{name}' has dtype {array.dtype.str}")
        return [_tensor(name, code, part) for part in self._parts(name, array, requests)]

    @staticmethod
    def _sent(name, source, requests):
        """The tensors of an input that was returned as an output.

        Those that lie side by side are the output, as they came or were written to.  Of others the model had a copy of
        all together, and what it wrote is only there.
        """
        found = [request.find(source) for request in requests]
        if any(each is None for each in found):  # made of the batch, not sent by anybody
            raise ReturnError(f"execute_batch returned '{source}', which no client sent, as output '{name}'.")
        return found

    def _parts(self, name, array, requests):
        """The array of each request."""
        if name in self._scattered:
            return self._scatter(name, array, _shapes(requests, self._scattered[name]))
        return self._rows(name, array, requests) if self._batched else [array]

    def _rows(self, name, array, requests):
        total = sum(request.batch for request in requests)
        if array.ndim == 0 or len(array) != total:
            raise ReturnError(
                f"execute_batch returned output '{name}' with shape {dtypes.dims_text(array.shape)}, but the batch has "
                f"{total} rows."
            )
        if len(requests) == 1:
            return [array]  # itself, as it may lie where the answer is sent from
        if total == len(requests):
            return [array[at : at + 1] for at in range(total)]
        parts, at = [], 0
        for request in requests:
            parts.append(array[at : at + request.batch])
            at += request.batch
        return parts

    def _scatter(self, name, array, shapes):
        """BATCH_SCATTER_WITH_INPUT_SHAPE: each request's elements, in the shape of its own input."""
        sizes = [int(self._numpy.prod(shape)) for shape in shapes]
        flat = array.reshape(-1)
        if flat.size != sum(sizes):
            raise ReturnError(
                f"execute_batch returned output '{name}' with {flat.size} elements, but the inputs that it is to be "
                f"scattered by have {sum(sizes)}."
            )
        parts, at = [], 0
        for size, shape in zip(sizes, shapes):
            parts.append(flat[at : at + size].reshape(shape))
            at += size
        return parts


def _vector(item):
    dtype = {"TYPE_INT32": "<i4", "TYPE_FP32": "<f4"}[item["data_type"]]
    return item["kind"], item["source_input"][0], list(item["target_name"]), dtype


def _shapes(requests, source):
    return [tuple(request.find(source).shape()) for request in requests]


def _is_plain(request, plan):
    """Whether its tensors lie in the input arena as those of the others."""
    return not request.null and request._plan is plan and request.windows is None


def _place(request):
    return request._refs[0]


def _content(tensor):
    return tensor.bits() if tensor._code == dtypes.BF16 else tensor.as_numpy()


def _tensor(name, code, array):
    """A Tensor of what has been checked for the whole batch."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._code, tensor._array, tensor._raw = name, code, array, None
    return tensor


def _response(tensors):
    response = InferenceResponse.__new__(InferenceResponse)
    response._tensors, response._error, response._parameters = list(tensors), None, ""
    return response


def _error(text):
    return InferenceResponse([], error=TritonError(text, ErrorCode.INVALID_ARG))
