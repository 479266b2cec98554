"""Arrays of requests as PyTorch's tensors, and back, without a copy where the memory allows it."""

from tisfast_worker import dtypes
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import Refusal

# KServe's name: PyTorch's.
NAMES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
    "BF16": "bfloat16",
}  # fmt: skip
KINDS = (
    "output must be of type Tensor, List[str] or Tuple containing one of these two types. It should not be a List / "
    "Dictionary of Tensors or a Scalar"
)


class TensorError(Refusal):
    """A value that cannot be an output."""

    code = ErrorCode.INVALID_ARG


class TypeMissing(Refusal):
    """The installed PyTorch lacks a type."""


def check_numpy(torch):
    """Raises Refusal where this PyTorch was built for another numpy."""
    import numpy  # noqa: PLC0415 - there where this runs

    try:
        torch.from_numpy(numpy.zeros(1, "<f4")).numpy()
    except Exception as error:
        raise Refusal(
            f"torch {torch.__version__} cannot use numpy {numpy.__version__} of its environment: {error}. Install "
            "versions that fit each other: torch before 2.3 takes numpy<2"
        ) from None


def dtype_of(torch, code, about):
    """PyTorch's type of a type code.  about: "input 'X' for model 'M'", of the error."""
    found = getattr(torch, NAMES.get(dtypes.TYPES[code][0], ""), None)
    if found is None:
        raise TypeMissing(
            f"unsupported datatype {dtypes.TYPES[code][1]} for {about}: torch {torch.__version__} has no such type"
        )
    return found


def wire_types(torch):
    """KServe's names by PyTorch's types."""
    return {getattr(torch, name): wire for wire, name in NAMES.items() if hasattr(torch, name)}


class Reader:
    """Makes tensors of arrays, in the memory that these lie in."""

    def __init__(self, torch, model):
        """Of one model."""
        import numpy  # noqa: PLC0415 - there where this runs

        self._torch, self._numpy = torch, numpy
        sequences = model.sequences
        states = [] if sequences is None else sequences.states
        self._bits = {spec.name for spec in model.inputs if spec.code == dtypes.BF16}
        self._bits |= {state.input_name for state in states if state.code == dtypes.BF16}

    def read(self, name, array):
        """A tensor, or a list of str."""
        if array.dtype.char == "O":
            return array.reshape(-1).tolist()
        if not array.flags.c_contiguous:  # models may take for granted that it is
            array = self._numpy.ascontiguousarray(array)
        if name in self._bits:
            return self._torch.from_numpy(_writable(array).view("<i2")).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)

    @staticmethod
    def was_passed(array):
        """Whether the model was given the memory of this array, which is the request's own."""
        return array.base is not None and array.flags.c_contiguous and array.flags.writeable


class Writer:
    """Makes arrays of what a model returned."""

    def __init__(self, torch, model):
        """Of one model."""
        self._torch, self._model = torch, model
        self._codes = {dtype: code_of(wire) for dtype, wire in wire_types(torch).items()}

    def check(self, name, value, code):
        """Whether this tensor can be the output.  Raises TensorError."""
        if value.dim() == 0:
            raise TensorError(f"output '{name}' is a scalar which is not supported.")
        if self._codes.get(value.dtype) != code:
            self._differs(name, code, _config_name(self._codes.get(value.dtype), value.dtype))
        if value.layout is not self._torch.strided:
            raise TensorError(f"output '{name}' of model '{self._model.name}' is {value.layout}: return to_dense()")

    def array(self, name, value, code):
        """The array, which is the tensor's memory where that lies where it can be read."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            self.check(name, value, code)
            if code == dtypes.BF16:
                return value.view(torch.int16).numpy(force=True).view(dtypes.BF16_BITS)
            return value.numpy(force=True)
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise TensorError(f"{KINDS}: output '{name}' of model '{self._model.name}' is {kind_of(value)}")
        if code != dtypes.BYTES:
            self._differs(name, code, "TYPE_STRING")
        import numpy  # noqa: PLC0415 - there where this runs

        found = numpy.empty(len(value), object)
        found[:] = value
        return found

    def _differs(self, name, code, provided):
        raise TensorError(
            f"configuration expects datatype {dtypes.TYPES[code][1]} for output '{name}', model provides {provided}"
        )


def keys_of(found):
    """The names of what a model returned: of a dictionary or a named tuple; None of all else."""
    if isinstance(found, dict):
        return tuple(found)
    return getattr(found, "_fields", None)


def flat(found):
    """What a model returned, as a list of outputs.  Raises TensorError."""
    if isinstance(found, dict):
        return list(found.values())
    if not isinstance(found, (list, tuple)):
        raise TensorError(f"{KINDS}: it is {kind_of(found)}")
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return [found]
    return list(found)


def kind_of(value):
    """For people: what it is."""
    if isinstance(value, (list, tuple)) and len(value):
        return f"a {type(value).__name__} of {type(value[0]).__name__}"
    return f"of type {type(value).__name__}"


def code_of(wire):
    """The type code of KServe's name."""
    return next(code for code, names in dtypes.TYPES.items() if names[0] == wire)


def _config_name(code, dtype):
    return str(dtype) if code is None else dtypes.TYPES[code][1]


def _writable(array):
    return array if array.flags.writeable else array.copy()
