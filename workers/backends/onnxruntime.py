"""The onnxruntime backend: ONNX models."""

import ctypes
import functools
import json
import os
import re

from tisfast_worker import limits
from tisfast_worker.artifact_cache import ArtifactCache, digest
from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.failure import Refusal
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

_DTYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float": "FP32",
    "double": "FP64", "string": "BYTES",
}  # fmt: skip
_TENSOR = re.compile(r"tensor\((\w+)\)$")
_SAID = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)
_ONNX_BF16 = 16
_NONE = ((), ())
FILE = "model.onnx"


class OnnxError(Refusal):
    """An error of ONNX Runtime, in Triton's words."""


class Backend(ArrayBackend):
    """One model in one session."""

    takes_text = True

    def load(self):
        """Open the session."""
        runtime = framework("onnxruntime")
        path = model_path(self.model)
        settings = backend_module("onnxruntime_options").SessionSettings(runtime, self.model)
        self._hold = None  # of files in the cache
        if not self.model.serves:  # what is told of tensors needs no more: folded constants can give their dims
            settings.fold_constants()
            settings.options.add_session_config_entry("session.disable_prepacking", "1")
        shared = ""
        if self.model.serves and settings.plain and settings.share_weights and self.model.cache:
            shared = self._with_shared_weights(runtime, settings, path)
        self._session = self._shared_session(runtime, settings, shared) if shared else None
        if self._session is None:
            with translated():
                self._session = runtime.InferenceSession(path, settings.options, providers=settings.providers)
        settings.tell()
        self._run_options = settings.run
        self.takes_device = self.model.kind == "GPU" and settings.on_cuda(self._session)
        self._gpu = backend_module("onnxruntime_gpu").GpuTensors(runtime) if self.takes_device else None

    def _with_shared_weights(self, runtime, settings, path):
        """The path of the graph whose weights all instances share; "" where that wins little, or fails."""
        weights = backend_module("onnxruntime_weights")
        folder = os.path.dirname(path)
        files = [os.path.join(inner, name) for inner, _, names in os.walk(folder) for name in names]
        beside = sorted(each for each in files if each != path and os.path.isfile(each))
        nbytes = sum(map(os.path.getsize, [path, *beside]))
        if nbytes < limits.SHARE_WEIGHTS_BYTES_MIN or not weights.can_share(runtime.__version__):
            return ""
        facts = [runtime.__version__, weights.processor(), settings.level, json.dumps(settings.entries)]
        try:
            key = "onnxruntime-" + digest(facts, [path], beside, folder)
            make = functools.partial(weights.make, path, level=settings.level, entries=settings.entries)
            home, self._hold = ArtifactCache(self.model.cache).find(key, make)
        except OSError as error:
            self._warn_of_own_weights(error)
            return ""
        return os.path.join(home, weights.GRAPH)

    def _shared_session(self, runtime, settings, path):
        """A session of a graph that is in the cache; None where it cannot be read, as after the machine has crashed."""
        settings.optimise(False)
        try:
            return runtime.InferenceSession(path, settings.options, providers=settings.providers)
        except Exception as error:  # whatever a damaged file makes it raise
            self._warn_of_own_weights(f"{path}: {error}")
            settings.optimise(True)
            self._hold.close()
            return None

    def _warn_of_own_weights(self, error):
        text = f"instances of model '{self.model.name}' have weights of their own, as none could be shared: {error}"
        current().log("WARN", text, "onnxruntime.py", 0, once="weights")

    def describe(self):
        """See ArrayBackend."""
        session = self._session
        parts = {
            "inputs": session.get_inputs(),
            "outputs": session.get_outputs(),
            "optional": session.get_overridable_initializers(),
        }
        return {key: [_described(each) for each in found] for key, found in parts.items()}

    def initialize(self):
        """Which outputs are computed: those of the configuration."""
        config, model = json.loads(self.model.config), self.model
        states = [] if model.sequences is None else model.sequences.states
        names = {item["name"] for item in config["output"]} | {state.output_name for state in states}
        given, made = self._session.get_inputs(), self._session.get_outputs()
        self._outputs = [each.name for each in made if each.name in names]
        # A tensor without dimensions is [1] to clients.
        optional = self._session.get_overridable_initializers()
        self._scalars = [each.name for each in (*given, *optional) if not each.shape]
        dims = {spec.name: spec.dims for spec in model.outputs}
        self._points = {each.name: dims[each.name] for each in made if not each.shape and each.name in dims}
        self._bits = {each.name for each in (*given, *made) if each.type == "tensor(bfloat16)"}
        self._texts = any(each.type == "tensor(string)" for each in given)
        if self._bits and self._texts:
            bits = ", ".join(sorted(self._bits))
            raise OnnxError(
                f"model '{model.name}' has tensors of BF16 ({bits}) beside inputs of strings, and ONNX Runtime takes "
                "the two in different calls: export it with FP32 or FP16 in place of BF16"
            )
        if self._texts:  # which cannot be bound
            self.takes_device, self._gpu = False, None
        self._shapes = {}  # of the outputs, by the inputs' shapes; {}: not worth a place, or they change
        self._binding = self._session.io_binding()

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        for name in self._scalars:
            if name in inputs:
                inputs[name] = inputs[name].reshape(())
        on_gpu, staying = _NONE if self._gpu is None else self._gpu.chosen(inputs, self._outputs, self.space)
        if on_gpu or staying:
            names = [name for name in self._outputs if name in staying or self.space.wants(name)]
            found = self._bound(inputs, {}, names, on_gpu, staying)
        elif self._bits:
            found = self._bound(inputs, {}, self._outputs)
        else:
            key = (*inputs, *[array.shape for array in inputs.values()])  # in the order of the client
            known = self._shapes.get(key)
            places = self.space.take(known) if known else None
            found = self._placed(inputs, places, key) if places else None
            if found is None:
                found = self._plain(inputs)
                if known is None:
                    self._learn(key, found)
        for name, dims in self._points.items():
            if name in found:  # all but what nobody asked for
                found[name] = found[name].reshape(dims)
        return found

    def free(self):
        """See Backend."""
        self._session = self._binding = None
        if self._hold is not None:
            self._hold.close()

    def _plain(self, inputs):
        with translated():
            return dict(zip(self._outputs, self._session.run(self._outputs, inputs, self._run_options)))

    def _learn(self, key, found):
        """Remember the shapes of large outputs: the next execution computes them where they go to the client from."""
        if len(self._shapes) >= limits.PLANS_MAX:
            self._shapes.clear()
        large = not self._texts and not self._points and all(array.dtype.char != "O" for array in found.values())
        large = large and sum(array.nbytes for array in found.values()) >= limits.RESERVE_BYTES_MIN
        self._shapes[key] = {name: array.shape for name, array in found.items()} if large else {}

    def _placed(self, inputs, places, key):
        """The outputs, computed in these places; None when they turn out to have other shapes this time."""
        try:
            return self._bound(inputs, places, self._outputs)
        except OnnxError as error:
            if "but the computed output shape" not in str(error):
                raise
            self._shapes[key] = {}
            return None

    def _bound(self, inputs, places, names, on_gpu=(), staying=()):  # noqa: PLR0913, PLR0917 - where tensors can be
        """Outputs of these names, in their places if they have some.  on_gpu, staying: see GpuTensors.chosen."""
        binding, kept = self._binding, []
        try:
            with translated():
                for name, array in inputs.items():
                    if name in on_gpu:
                        kept.append(self._gpu.bind(binding, name, array))
                    elif name in self._bits:
                        kept.append(_bind_bits(binding.bind_input, name, array))
                    else:
                        binding.bind_cpu_input(name, array)
                for name in names:
                    array = places.get(name)
                    if name in staying:
                        binding.bind_output(name, self._gpu.device)
                    elif array is None:
                        binding.bind_output(name, "cpu")
                    else:
                        binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, _address(array))
                self._session.run_with_iobinding(binding, self._run_options)
                found = dict(zip(names, binding.get_outputs()))
        finally:  # or the requests' memory would be kept until the next execution
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
        made = {name: self._gpu.left(found.pop(name)) for name in staying}
        for name, value in found.items():
            made[name] = places[name] if name in places else _read_bits(value) if name in self._bits else value.numpy()
        return made


class translated:  # noqa: N801 - read as a word
    """Within it, ONNX Runtime's errors become Triton's texts."""

    def __enter__(self):
        """Nothing to do."""
        return self

    def __exit__(self, kind, error, _):
        """Raises OnnxError."""
        said = None if error is None else _SAID.search(str(error))
        if said is not None:
            raise OnnxError(f"onnx runtime error {said[1]}: {said[2]}") from None


def model_path(model):
    """Where a model's graph is: its file, or the file in the folder of that name.  Raises OnnxError."""
    path = os.path.join(model.version_dir, model.file or FILE)
    if os.path.isdir(path):
        path = os.path.join(path, FILE)
    if not os.path.isfile(path):
        raise OnnxError(f"unable to find '{path}' for model instance '{model.instance}'")
    return path


def _described(argument):
    """(name, data type, dims).  Raises OnnxError for what is no tensor, or of a type that KServe has not."""
    kind = _TENSOR.match(argument.type)
    if kind is None:
        raise OnnxError(
            f"Unsupported ONNX Type '{argument.type}' for I/O '{argument.name}', expected 'ONNX_TYPE_TENSOR'. Export "
            "the model with tensors only (of scikit-learn: without ZipMap)"
        )
    if kind[1] not in _DTYPES:
        raise OnnxError(
            f"Unsupported ONNX Type '{argument.type}' for I/O '{argument.name}': no request can carry it. Cast it "
            f"in the model; served are {', '.join(sorted(_DTYPES))}"
        )
    dims = [dim if isinstance(dim, int) and dim >= 0 else -1 for dim in argument.shape]
    return argument.name, _DTYPES[kind[1]], dims


def _address(array):
    return array.__array_interface__["data"][0]


def _bind_bits(bind, name, array):
    """Returns what must be kept until the execution is done."""
    import numpy  # noqa: PLC0415 - there where this runs

    array = numpy.ascontiguousarray(array).reshape(array.shape)  # which makes one dimension of none
    bind(name, "cpu", 0, _ONNX_BF16, array.shape, _address(array))
    return array


def _read_bits(value):
    """A copy of BF16 as 16-bit numbers: numpy cannot look at such a tensor."""
    import numpy  # noqa: PLC0415 - there where this runs

    shape = value.shape()
    found = numpy.empty(shape, "<u2")
    ctypes.memmove(_address(found), value.data_ptr(), found.nbytes)
    return found
