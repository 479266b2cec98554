"""A Python function as a model: it is called with its inputs by name, and what it returns is checked.

Used for functions that are served from their own program, and by the models that `tisfast.export` writes.
"""

import asyncio
import contextlib
import inspect
import json
import os
import pickle
import sys

from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import Refusal, ReturnError
from tisfast_worker.response import InferenceResponse
from tisfast_worker.response_sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from tisfast_worker.tensor import Tensor

CALL = "function.json"
PICKLE = "function.pkl"
READER = "reader"  # a folder with the cloudpickle that wrote the pickle


class BadText(Refusal):
    """A client sent a text that is not UTF-8."""

    code = ErrorCode.INVALID_ARG


class FunctionModel:
    """Executes a function as `call` describes it: a dictionary that tisfast.functions.signature makes.

    Has `execute_batch(inputs)`, or `execute(requests)` where the function gives any number of answers.
    """

    def __init__(self, function, call):
        """function: called with the inputs by name, or in their order where call["positional"]."""
        import numpy  # noqa: PLC0415 - arrays are what this is about

        self._numpy, self._function, self._title = numpy, function, call["title"]
        self._inputs = [(item["name"], _READERS[item["kind"]]) for item in call["inputs"]]
        self._outputs = [_Output(self._title, item, call["batched"], numpy) for item in call["outputs"]]
        self._positional, self._batched = call["positional"], call["batched"]
        if not call["streams"]:
            self.execute_batch = self._call
        elif call["async"]:
            self.execute = self._stream_async
        else:
            self.execute = self._stream

    def _call(self, inputs):
        result = self._started(inputs)
        if inspect.iscoroutine(result):
            return self._awaited(result, inputs)
        return self._named(result, self._rows(inputs))

    async def _awaited(self, coroutine, inputs):
        return self._named(await coroutine, self._rows(inputs))

    def _stream(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            answers = iter(self._started({tensor.name(): tensor.as_numpy() for tensor in request.inputs()}))
            try:
                for value in answers:
                    if request.is_cancelled():
                        break
                    sender.send(self._response(value))
            finally:
                close = getattr(answers, "close", None)
                if close is not None:
                    close()
            sender.send(flags=FINAL)

    async def _stream_async(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            answers = self._started({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
            try:
                async for value in answers:
                    if request.is_cancelled():
                        break
                    sender.send(self._response(value))
            finally:
                close = getattr(answers, "aclose", None)
                if close is not None:
                    await close()
            sender.send(flags=FINAL)

    def _started(self, inputs):
        given = {
            name: inputs[name] if read is None else read(name, inputs[name])
            for name, read in self._inputs
            if name in inputs
        }
        return self._function(*given.values()) if self._positional else self._function(**given)

    def _rows(self, inputs):
        return len(next(iter(inputs.values()))) if self._batched and inputs else None

    def _response(self, value):
        return InferenceResponse([Tensor(name, array) for name, array in self._named(value, None).items()])

    def _named(self, result, rows):
        """Arrays by the names of outputs.  Raises ReturnError."""
        outputs = self._outputs
        if isinstance(result, dict):
            names = [output.name for output in outputs]
            if sorted(map(str, result)) != sorted(names):
                raise ReturnError(f"{self._title} returned {_listed(result)}, and its outputs are {_listed(names)}")
            values = [result[name] for name in names]
        elif len(outputs) == 1:
            values = [result]
        elif not isinstance(result, (tuple, list)):
            raise ReturnError(
                f"{self._title} returned one {type(result).__name__}, and it has {len(outputs)} outputs: "
                f"{_listed(output.name for output in outputs)}; return a tuple of these, or a dictionary"
            )
        else:
            values = result
        if len(values) != len(outputs):
            raise ReturnError(
                f"{self._title} returned {len(values)} values, and it has {len(outputs)} outputs: "
                f"{_listed(output.name for output in outputs)}"
            )
        return {output.name: output.array(value, rows) for output, value in zip(outputs, values)}


class _Output:
    """One output: what may be returned for it."""

    def __init__(self, title, item, batched, numpy):
        self.name, self._title, self._batched, self._numpy = item["name"], title, batched, numpy
        self._dtype, self._dims, self._kind = numpy.dtype(item["dtype"]), tuple(item["dims"]), item["kind"]

    def array(self, value, rows):
        """The array of a returned value.  Raises ReturnError."""
        array = self._array_of(value)
        shape = array.shape
        if self._batched:
            if not shape or (rows is not None and shape[0] != rows):
                raise self._wrong(array, f"the batch has {rows} rows")
            shape = shape[1:]
        if len(shape) != len(self._dims) or any(d not in (-1, n) for d, n in zip(self._dims, shape)):
            raise self._wrong(array)
        return array

    def _array_of(self, value):
        numpy, dtype = self._numpy, self._dtype
        if isinstance(value, numpy.ndarray) and value.dtype == dtype and self._kind != "item":
            return value
        try:
            array = _texts(numpy, value) if dtype.hasobject else numpy.asarray(value)
        except Exception as error:  # whatever an object that claims to be an array raises
            raise ReturnError(
                f"{self._title}, output '{self.name}': it returned {type(value).__name__}, of which no array can be "
                f"made: {error}"
            ) from error
        if dtype.hasobject and not all(isinstance(item, (str, bytes)) for item in array.ravel()):
            raise self._wrong(array)
        if array.dtype != dtype:
            plain = not hasattr(value, "dtype") or self._kind == "item"
            if not plain or not numpy.can_cast(array.dtype, dtype, "same_kind"):
                raise self._wrong(array)
            given, array = array, array.astype(dtype)
            if dtype.kind in "iu" and given.dtype.kind in "iu" and not (array == given).all():
                misfit = given.ravel()[(array != given).ravel()][0]
                raise self._wrong(given, f"{misfit} does not fit")
        if self._kind == "item" or (self._kind == "list" and self._batched):
            if not self._batched:
                return array.reshape(1) if array.size == 1 else array
            return array.reshape(-1, 1) if array.ndim == 1 else array
        return array

    def _wrong(self, array, more=""):
        shape = ((-1,) if self._batched else ()) + self._dims
        if array.dtype.hasobject and array.size and not isinstance(array.flat[0], (str, bytes)):
            told = f"{type(array.flat[0]).__name__} objects"
        else:
            told = _told(array.dtype)
        return ReturnError(
            f"{self._title}, output '{self.name}': it returned {told} of shape {list(array.shape)}, and "
            f"{_told(self._dtype)} of shape {list(shape)} is declared" + (f"; {more}" if more else "")
        )


def opened(given):
    """(callable, object): of a class an object is made and set up; of an object with `predict` that is called."""
    owner = given() if isinstance(given, type) else given
    if owner is not given and hasattr(owner, "setup"):
        owner.setup()
    predict = getattr(owner, "predict", None)
    return (predict if callable(predict) else owner), owner


def closed(owner):
    """The end of an object that `opened` has made."""
    if hasattr(owner, "teardown"):
        owner.teardown()


class ExportedFunction:
    """The TritonPythonModel of an exported function.  `folder`: where its files lie."""

    folder = ""

    def initialize(self, _arguments):
        """Load the function, and make its object where it is a class."""
        with open(os.path.join(self.folder, CALL), encoding="utf-8") as file:
            call = json.load(file)
        python = "{}.{}".format(*sys.version_info[:2])
        if call["python"] != python:
            raise Refusal(
                f"{call['title']} was exported by Python {call['python']}, and this model runs in Python {python}: "
                "code in a pickle fits the version that wrote it; export it with that version, or name another "
                "environment"
            )
        self._reader = os.path.join(self.folder, READER)
        sys.path.insert(0, self._reader)  # another version of it could not read the pickle
        with open(os.path.join(self.folder, PICKLE), "rb") as file:
            given = pickle.load(file)  # noqa: S301 - as the model's own code
        function, self._owner = opened(given)
        self._made = self._owner is not given
        model = FunctionModel(function, call)
        if call["streams"]:
            self.execute = model.execute
        else:
            self.execute_batch = model.execute_batch

    def execute(self, requests):
        """The answers of requests one by one, for who calls models as Triton does: workers take `execute_batch`."""
        return [self._answer(request) for request in requests]

    def finalize(self):
        """End its object."""
        with contextlib.suppress(ValueError):
            sys.path.remove(self._reader)
        if self._made:
            closed(self._owner)

    def _answer(self, request):
        outputs = self.execute_batch({tensor.name(): tensor.as_numpy() for tensor in request.inputs()})
        if inspect.iscoroutine(outputs):
            import concurrent.futures  # noqa: PLC0415 - workers do without

            with concurrent.futures.ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
                outputs = thread.submit(asyncio.run, outputs).result()
        return InferenceResponse([Tensor(name, array) for name, array in outputs.items()])


def _item(_, array):
    return array.reshape(-1)[0]


def _python_item(_, array):
    found = array.reshape(-1)[0]
    return found.item() if hasattr(found, "item") else found


def _text(name, array):
    return _decoded(name, array.reshape(-1)[0])


def _list(_, array):
    return array.ravel().tolist()


def _text_list(name, array):
    return [_decoded(name, item) for item in array.ravel().tolist()]


def _text_array(name, array):
    found = array.copy()
    found.reshape(-1)[:] = _text_list(name, array)
    return found


def _decoded(name, item):
    try:
        return item.decode() if isinstance(item, bytes) else str(item)
    except UnicodeDecodeError as error:
        raise BadText(
            f"input '{name}' has a text that is not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        ) from None


_READERS = {
    "array": None, "item": _python_item, "numpy_item": _item, "text": _text, "list": _list, "texts": _text_list,
    "text_array": _text_array,
}  # fmt: skip


def _texts(numpy, value):
    """An array of objects, bytes and str, whatever the nesting: numpy's own strings would lose zeros at their ends."""
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    found = numpy.asarray(value, dtype=object)
    return found if any(isinstance(item, (str, bytes)) for item in found.ravel()) else numpy.asarray(value)


def _told(dtype):
    return "strings" if dtype.kind in "OUS" else str(dtype)


def _listed(names):
    return ", ".join(f"'{name}'" for name in names) or "nothing"
