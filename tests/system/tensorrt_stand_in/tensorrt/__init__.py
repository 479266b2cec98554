"""A stand-in for NVIDIA's package `tensorrt`: the documented calls that build and run engines, and their rules.

A plan is a header as TensorRT's, and JSON: tensors, profiles, and an expression of numpy for each output.  Errors are
told as TensorRT does it: False or None, and a message to the logger.  What the documentation leaves undefined raises.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import json

import numpy as np

from tensorrt.builder import Builder, NetworkDefinitionCreationFlag, OnnxParser  # noqa: F401 - of the package
from tensorrt.handles import Driver

__version__ = "10.7.0.23"
_MAGIC, _HEADER_BYTES, _VERSION_AT = b"ftrt", 28, 24
_driver = ctypes.CDLL("libcuda.so.1")
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)
if hasattr(_driver, "stand_in_launch"):
    _driver.stand_in_covers.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
    _driver.stand_in_launch.argtypes = (ctypes.c_void_p, _KERNEL, ctypes.c_long)
else:
    _driver = Driver(_driver)
_tokens, _launched = itertools.count(), {}  # by token; graphs run the same ones again

DataType = enum.Enum("DataType", "FLOAT HALF INT8 INT32 BOOL UINT8 FP8 BF16 INT64 INT4")
TensorIOMode = enum.Enum("TensorIOMode", "NONE INPUT OUTPUT")
TensorFormat = enum.Enum("TensorFormat", "LINEAR CHW2 HWC8")
ExecutionContextAllocationStrategy = enum.Enum("ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE")
_ARRAYS = {"FLOAT": "f4", "HALF": "f2", "INT8": "i1", "INT32": "i4", "BOOL": "?", "UINT8": "u1", "BF16": "u2",
           "INT64": "i8", "FP8": "u1", "INT4": "u1"}  # fmt: skip


class ILogger:
    Severity = enum.Enum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE")

    def __init__(self):
        self._made = True


def init_libnvinfer_plugins(logger, namespace):
    assert logger._made and namespace == ""
    return True


class Runtime:
    def __init__(self, logger):
        self._logger, self.engine_host_code_allowed = logger, False

    def deserialize_cuda_engine(self, plan):
        """An engine, None with an error in the log."""
        if plan[:4] != _MAGIC or len(plan) < _HEADER_BYTES:
            return self._error("IRuntime::deserializeCudaEngine: Error Code 1: Serialization (magicTag does not match)")
        version = ".".join(map(str, plan[_VERSION_AT:_HEADER_BYTES]))
        if version != __version__:
            return self._error(
                "The engine plan file is not compatible with this version of TensorRT, expecting library version "
                f"{__version__} got {version}, please rebuild."
            )
        try:
            said = json.loads(plan[_HEADER_BYTES:])
        except ValueError:
            return self._error("IRuntime::deserializeCudaEngine: Error Code 1: Serialization (plan is corrupted)")
        if said.get("host_code") and not self.engine_host_code_allowed:
            return self._error("engine with lean runtime requires IRuntime::setEngineHostCodeAllowed")
        return ICudaEngine(said, self._logger)

    def _error(self, text):
        self._logger.log(ILogger.Severity.ERROR, text)


class ICudaEngine:
    num_io_tensors = property(lambda self: len(self._tensors))
    num_optimization_profiles = property(lambda self: self._said["profiles"])

    def __init__(self, said, logger):
        self._said, self._logger, self._in_use = said, logger, set()
        self._tensors = {each["name"]: each for each in [*said["inputs"], *said["outputs"]]}
        self._inputs = {each["name"] for each in said["inputs"]}

    def get_tensor_name(self, index):
        return list(self._tensors)[index]

    def get_tensor_mode(self, name):
        self._known(name)
        return TensorIOMode.INPUT if name in self._inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name):
        return DataType[self._known(name)["dtype"]]

    def get_tensor_shape(self, name):
        return tuple(self._known(name)["shape"])

    def get_tensor_format(self, name, profile):
        assert 0 <= profile < self.num_optimization_profiles
        return TensorFormat[self._known(name).get("format", "LINEAR")]

    def get_tensor_profile_shape(self, name, profile):
        assert name in self._inputs
        return [tuple(each) for each in self._known(name)["profiles"][profile]]

    def is_shape_inference_io(self, name):
        return self._known(name).get("is_shape", False)

    def get_aliased_input_tensor(self, name):
        return self._known(name).get("alias", "")

    def create_execution_context(self, strategy=ExecutionContextAllocationStrategy.STATIC):
        assert isinstance(strategy, ExecutionContextAllocationStrategy)
        return IExecutionContext(self)

    def _known(self, name):
        if name not in self._tensors:
            raise AssertionError(f"no tensor is called {name}")
        return self._tensors[name]


class IExecutionContext:
    def __init__(self, engine):
        self._engine, self._shapes, self._addresses = engine, {}, {}
        self._profile = None
        if not engine._in_use:
            self._take(0)

    def set_optimization_profile_async(self, profile, stream):
        assert isinstance(stream, int)
        if not 0 <= profile < self._engine.num_optimization_profiles:
            return self._error("profile index is out of range")
        if profile != self._profile and profile in self._engine._in_use:
            return self._error(f"profile {profile} is in use by another context")
        self._take(profile)
        self._shapes = {}
        return True

    def set_input_shape(self, name, shape):
        assert self._profile is not None, "a context needs a profile first"
        if name not in self._engine._inputs:
            return self._error(f"{name} is no input")
        least, _, most = self._engine.get_tensor_profile_shape(name, self._profile)
        if len(shape) != len(least) or any(not a <= n <= b for a, n, b in zip(least, shape, most, strict=True)):
            return self._error(f"{tuple(shape)} of {name} is not within profile {self._profile}")
        self._shapes[name] = tuple(shape)
        return True

    def infer_shapes(self):
        return [name for name in self._engine._inputs if name not in self._shapes]

    def get_tensor_shape(self, name):
        if name in self._shapes:
            return self._shapes[name]
        said = self._engine._known(name)
        if self.infer_shapes() or said.get("data_dependent"):
            return tuple(said["shape"])
        zeros = {each: np.zeros(shape, self._array(each)) for each, shape in self._shapes.items()}
        return self._values(zeros)[name].shape

    def set_tensor_address(self, name, address):
        if name not in self._engine._tensors:
            return self._error(f"no tensor is called {name}")
        if address % 256 and not _driver.stand_in_covers(address, 1):
            return self._error("an address must be aligned, and of the device")
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream):
        engine = self._engine
        if self.infer_shapes():
            return self._error(f"no shapes of {self.infer_shapes()}")
        if set(self._addresses) != set(engine._tensors):
            return self._error(f"no address of {set(engine._tensors) - set(self._addresses)}")
        shapes = {name: self.get_tensor_shape(name) for name in engine._tensors}
        if engine._said.get("refuses_rows") in {shapes[name][0] for name in engine._inputs}:
            return self._error("condition failed at run time")
        for name, shape in shapes.items():
            nbytes = int(np.prod(shape)) * np.dtype(self._array(name)).itemsize
            assert _driver.stand_in_covers(self._addresses[name], nbytes), f"{name} lies in memory that is too small"
            alias = engine.get_aliased_input_tensor(name)
            assert not alias or self._addresses[alias] == self._addresses[name], f"{name} lies not where {alias} lies"
        if _driver.stand_in_captures() and engine._said.get("no_capture"):
            return self._error("this network cannot be captured")
        token = next(_tokens)
        _launched[token] = (self, shapes, dict(self._addresses), _driver.stand_in_captures())
        assert _driver.stand_in_launch(stream, _run, token) == 0, "the stream is none"
        return True

    def _take(self, profile):
        self._engine._in_use.discard(self._profile)
        self._profile = profile
        self._engine._in_use.add(profile)

    def _array(self, name):
        return _ARRAYS[self._engine.get_tensor_dtype(name).name]

    def _values(self, inputs):
        found = {}
        for each in self._engine._said["outputs"]:
            made = eval(each["make"], {"np": np, **inputs})  # noqa: S307 - the test's own file
            found[each["name"]] = np.asarray(made).astype(self._array(each["name"]))
        return found

    def _error(self, text):
        self._engine._logger.log(ILogger.Severity.ERROR, f"IExecutionContext: Error Code 3: API Usage Error ({text})")
        return False


@_KERNEL
def _run(token):
    """What the stream does of an execution, at last."""
    context, shapes, addresses, captured = _launched[token]
    if not captured:
        del _launched[token]

    def there(name):
        dtype, size = np.dtype(context._array(name)), int(np.prod(shapes[name]))
        if isinstance(_driver, Driver):
            memory = _driver.read(addresses[name], size * dtype.itemsize)
        else:
            memory = (ctypes.c_ubyte * (size * dtype.itemsize)).from_address(addresses[name])
        return np.frombuffer(memory, dtype, size).reshape(shapes[name])

    try:
        values = context._values({name: there(name).copy() for name in context._engine._inputs})
        if context._engine._said.get("fails_below") is not None:
            smallest = min(there(name).min(initial=0) for name in context._engine._inputs)
            if smallest < context._engine._said["fails_below"]:
                return 1
    except Exception as error:
        print(f"the stand-in's expression failed: {error!r}")
        return 1
    for name, array in values.items():
        if isinstance(_driver, Driver):
            _driver.write(addresses[name], array.tobytes())
        else:
            there(name)[...] = array
    return 0
