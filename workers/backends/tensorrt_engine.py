"""A plan of TensorRT as it was read: its tensors, its optimisation profiles, and why one cannot be read."""

import re

from tisfast_worker import dtypes
from tisfast_worker.failure import Refusal
from tisfast_worker.serving_context import current

_DTYPES = {
    "FLOAT": "FP32", "HALF": "FP16", "BF16": "BF16", "INT8": "INT8", "UINT8": "UINT8", "INT32": "INT32",
    "INT64": "INT64", "BOOL": "BOOL",
}  # fmt: skip
_CODES = {name: code for code, (name, _, _, _) in dtypes.TYPES.items()}
_MAGIC = b"ftrt"  # trtexec --getPlanVersionOnly reads the same bytes
_VERSION_AT = 24
_ERRORS_TOLD_MAX = 3
_ERROR_CHARS_MAX = 600
_EXPECTED = re.compile(r"expecting library version ([\d.]+) got ([\d.]+)")


class TensorrtError(Refusal):
    """What TensorRT says, or what is said about a plan."""


class IoTensor:
    """One input or output of an engine.

    name; dtype: KServe's; code: its number; dims: -1 for any size, the batch in front; array_type: numpy's; ranges: by
    profile (smallest, best, largest) shape of an input; alias: of an output that lies where an input lies, the input's
    name, "" of others.
    """

    __slots__ = ("alias", "array_type", "code", "dims", "dtype", "itemsize", "name", "ranges")

    def __init__(self, engine, name, dtype, profiles, is_input):
        """See the class."""
        self.name, self.dtype, self.code = name, dtype, _CODES[dtype]
        self.dims = tuple(engine.get_tensor_shape(name))
        _, _, self.itemsize, array_type = dtypes.TYPES[self.code]
        self.array_type = array_type or dtypes.BF16_BITS
        self.alias = "" if is_input or not hasattr(engine, "get_aliased_input_tensor") else (
            engine.get_aliased_input_tensor(name) or "")  # fmt: skip
        self.ranges = {}
        for profile in profiles if is_input else ():
            free = -1 in self.dims
            found = engine.get_tensor_profile_shape(name, profile) if free else (self.dims,) * 3
            self.ranges[profile] = tuple(tuple(each) for each in found)

    def misfit(self, profile, shape):
        """Why a shape is not within a profile: Triton's words, "" where it is."""
        least, _, most = self.ranges[profile]
        if len(shape) != len(self.dims):
            return f"model expected {len(self.dims)} dimensions but received {len(shape)}"
        for at, size in enumerate(shape):
            if size >= 0 and not least[at] <= size <= most[at]:
                return (
                    f"model expected the shape of dimension {at} to be between {least[at]} and {most[at]} but received "
                    f"{size}"
                )
        return ""


class Engine:
    """A plan that was read.  inputs, outputs: IoTensors in its order; profiles: indexes of those that are used."""

    def __init__(self, runtime, model, path, settings):
        """`runtime`: the package; `settings`: EngineSettings.  Raises TensorrtError."""
        self._model, self._path, self._package = model, path, runtime
        self.log = make_log(runtime, model.log_verbose > 0)
        settings.load_plugins(runtime, self.log)
        self._runtime = runtime.Runtime(self.log)
        if settings.runs_host_code:
            self._runtime.engine_host_code_allowed = True
        with open(path, "rb") as file:
            plan = file.read()
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise TensorrtError(self._why_unreadable(plan))
        self.engine = engine
        if getattr(engine, "has_implicit_batch_dimension", False):
            raise self._refused("has an implicit batch dimension: build it again with an explicit one")
        self.profiles = settings.profiles_of(engine.num_optimization_profiles)
        self.inputs, self.outputs = self._tensors()

    def context(self, strategy):
        """An execution context.  Raises TensorrtError."""
        engine = self.engine
        made = engine.create_execution_context() if not strategy else engine.create_execution_context(strategy)
        if made is None:
            said = self.log.take() or "it says no reason"
            raise TensorrtError(f"unable to create TensorRT context for model '{self._model.name}': {said}")
        return made

    def largest_batch(self):
        """The batch size up to which the profiles take all inputs, 0 where a first dimension is not free."""
        if not self.inputs or any(each.dims[:1] != (-1,) for each in (*self.inputs, *self.outputs)):
            return 0
        return min(max(most[0] for _, _, most in each.ranges.values()) for each in self.inputs)

    def _tensors(self):
        inputs, outputs, engine = [], [], self.engine
        for at in range(engine.num_io_tensors):
            name = engine.get_tensor_name(at)
            is_input = engine.get_tensor_mode(name) == self._package.TensorIOMode.INPUT
            kind = engine.get_tensor_dtype(name).name
            if kind not in _DTYPES:
                raise self._refused(
                    f"has tensor '{name}' of type {kind}, which clients cannot send: build it with one of "
                    f"{', '.join(_DTYPES)} there"
                )
            if engine.is_shape_inference_io(name):
                raise self._refused(f"has shape tensor '{name}', whose values are shapes: these are not served")
            for profile in self.profiles:
                if engine.get_tensor_format(name, profile) != self._package.TensorFormat.LINEAR:
                    raise self._refused(f"has tensor '{name}' of a format that is not linear: build it with kLINEAR")
            (inputs if is_input else outputs).append(IoTensor(engine, name, _DTYPES[kind], self.profiles, is_input))
        return inputs, outputs

    def _refused(self, reason):
        return TensorrtError(f"unable to load model '{self._model.name}': plan file '{self._path}' {reason}")

    def _why_unreadable(self, plan):
        """One sentence with the file, and the versions of both sides."""
        about = f"unable to create TensorRT engine for model '{self._model.name}': plan file '{self._path}'"
        ours, said = self._package.__version__, self.log.take()
        found = _EXPECTED.search(said)
        theirs = found.group(2) if found else version_of(plan)
        if not theirs:
            return f"{about} is none that TensorRT {ours} can read, its beginning names no version: {said}"
        if _numbers(theirs) != _numbers(ours):
            return (
                f"{about} was built with TensorRT {theirs}, and this is TensorRT {ours}: build it again, or give the "
                f"model an environment that has TensorRT {theirs}"
            )
        return f"{about} was built with TensorRT {theirs}, as is this one ({ours}), and cannot be read: {said}"


def version_of(plan):
    """The version of TensorRT that has built a plan, "" of what is none."""
    if plan[:4] != _MAGIC or len(plan) < _VERSION_AT + 4:
        return ""
    return ".".join(str(number) for number in plan[_VERSION_AT : _VERSION_AT + 4])


def _numbers(version):
    """Those by which plans are told apart: the fourth one counts builds."""
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def make_log(package, verbose):
    """TensorRT's log: its warnings go to the server's, its errors are kept, as they are the reason of what fails."""

    class Log(package.ILogger):
        """See make_log."""

        def __init__(self):
            package.ILogger.__init__(self)
            self._errors = []

        def log(self, severity, text):
            """TensorRT calls it, from any thread."""
            name = severity.name
            if name in ("ERROR", "INTERNAL_ERROR"):
                del self._errors[: -_ERRORS_TOLD_MAX + 1]
                self._errors.append(text.strip())
            elif name == "WARNING" or verbose:
                current().log("WARN" if name == "WARNING" else "VERBOSE", text, "tensorrt.py", 0)

        def take(self):
            """The errors since the last call, in one line."""
            said, self._errors = "; ".join(self._errors), []
            return said.replace("\n", " ")[:_ERROR_CHARS_MAX]

    return Log()
