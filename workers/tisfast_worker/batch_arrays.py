"""A batch as one array for each input, and the answers cut out of what comes back: models with `execute_batch(inputs)`.

Where the requests' tensors lie at one constant distance from each other in the input arena, the array is a view;
otherwise they are copied together, once.
"""

import json

from tisfast_worker import dtypes
from tisfast_worker.batch_vectors import VECTORS
from tisfast_worker.errors import TritonModelException
from tisfast_worker.failure import ReturnError
from tisfast_worker.response import InferenceResponse
from tisfast_worker.tensor import Tensor


class BatchCall:
    """Calls a model's `execute_batch` with the requests of a batch; returns an InferenceResponse for each."""

    def __init__(self, model, run, new_lease):
        """`run(inputs)`: dict to dict of arrays; `new_lease()`: the whole input arena, for arrays to refer to."""
        import numpy  # noqa: PLC0415 - arrays are what this is about

        self._numpy, self._run, self._new_lease = numpy, run, new_lease
        self._model = model.name
        self._batched = model.batched
        config = json.loads(model.config)
        self._ragged = frozenset(item["name"] for item in config.get("input", ()) if item.get("allow_ragged_batch"))
        self._vectors = [_vector(item) for item in config.get("batch_input", ())]
        self._scattered = {
            name: item["source_input"][0] for item in config.get("batch_output", ()) for name in item["target_name"]
        }
        self.lease = None  # what the arrays of the last call refer to, None when they are copies
        self.copies = False  # nothing but copies is given to the model

    def __call__(self, requests):
        """Raises ReturnError, and whatever the model raises."""
        order = requests
        if len(requests) == 1 and not self._ragged:
            inputs = {layout.name: requests[0].find(layout.name).as_numpy() for layout in requests[0]._plan.layouts}
            if self.copies:
                inputs = {name: array.copy() for name, array in inputs.items()}
        else:
            order, inputs = self._joined(requests)
        for kind, source, names, dtype in self._vectors:
            inputs.update(dict.fromkeys(names, VECTORS[kind](self._numpy, _shapes(order, source), dtype)))
        outputs = self._run(dict(inputs))
        if not isinstance(outputs, dict):
            raise ReturnError(
                f"Expected a dict of output name and numpy array in the execute_batch return, found type "
                f"'{type(outputs)}'."
            )
        tensors = [self._cut(name, array, order, inputs) for name, array in outputs.items()]
        responses = [_response(parts) for parts in zip(*tensors)] or [_response(()) for _ in order]
        if order is requests:
            return responses
        by_request = dict(zip(map(id, order), responses))
        return [by_request[id(request)] for request in requests]

    # ---- in

    def _joined(self, requests):
        """(the requests in the order of the arrays, the arrays by name)."""
        plan = requests[0]._plan
        as_one = self._batched and not self._ragged and not self.copies
        if as_one and all(r._plan is plan and r.windows is None for r in requests):
            view = self._views(requests, plan)
            if view is not None:
                return view
        arrays = {}
        for layout in plan.layouts:
            parts = [request.find(layout.name).as_numpy() for request in requests]
            if layout.name in self._ragged:
                parts = [part.ravel() for part in parts]
            arrays[layout.name] = self._numpy.concatenate(parts)
        return requests, arrays

    def _views(self, requests, plan):
        """The same without a copy, or None where the tensors do not lie so."""
        layouts = plan.layouts
        if not layouts or requests[0].batch != 1 or any(layout.code >= dtypes.BYTES for layout in layouts):
            return None
        order = sorted(requests, key=_place)
        count, lease, arrays = len(order), self._new_lease(), {}
        for at, layout in enumerate(layouts):
            places = [request._refs[2 * at] for request in order]
            step = places[1] - places[0]
            if step < layout.nbytes or places != list(range(places[0], places[0] + step * count, step)):
                return None
            if layout.dtype is None:
                layout.bind()
            row = self._numpy.ndarray(layout.shape[1:], layout.dtype, lease, places[0])
            arrays[layout.name] = self._numpy.ndarray(
                (count, *layout.shape[1:]), layout.dtype, lease, places[0], (step, *row.strides)
            )
        self.lease = lease
        return order, arrays

    # ---- out

    def _cut(self, name, array, requests, inputs):
        """One output's tensors, one for each request."""
        for source, given in inputs.items():
            if array is given and self._batched and source not in self._ragged:
                return self._passed(name, source, requests)
        array = self._numpy.asarray(array)
        code = dtypes.CODE_BY_CHAR.get(array.dtype.char)
        if code is None or not array.dtype.isnative:
            raise TritonModelException(f"NumPy dtype is not supported. Output '{name}' has dtype {array.dtype.str}")
        if name in self._scattered:
            parts = self._scatter(name, array, _shapes(requests, self._scattered[name]))
        elif not self._batched:
            parts = [array]
        else:
            parts = self._rows(name, array, requests)
        return [_tensor(name, code, part) for part in parts]

    def _passed(self, name, source, requests):
        """An input that was returned as it came: each request has its own part of it already."""
        tensors = []
        for request in requests:
            found = request.find(source)
            if found is None:  # made of the batch, not sent by anybody
                raise ReturnError(f"execute_batch returned '{source}', which no client sent, as output '{name}'.")
            tensors.append(_tensor(name, found.triton_dtype(), found.as_numpy()))
        return tensors

    def _rows(self, name, array, requests):
        total = sum(request.batch for request in requests)
        if array.ndim == 0 or len(array) != total:
            raise ReturnError(
                f"execute_batch returned output '{name}' with shape {dtypes.dims_text(array.shape)}, but the batch has "
                f"{total} rows."
            )
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


def _place(request):
    return request._refs[0]


def _tensor(name, code, array):
    """A Tensor of what has been checked for the whole batch."""
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._code, tensor._array, tensor._raw = name, code, array, None
    return tensor


def _response(tensors):
    response = InferenceResponse.__new__(InferenceResponse)
    response._tensors, response._error, response._parameters = list(tensors), None, ""
    return response
