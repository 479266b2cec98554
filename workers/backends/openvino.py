"""The openvino backend: models in OpenVINO's own format, ONNX, and what else OpenVINO reads."""

import json
import os

from tisfast_worker import file_signature, limits
from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.serve import backend_module

FILE = "model.xml"


class Backend(ArrayBackend):
    """One compiled model, and one request of it."""

    takes_text = True

    def load(self):
        """Read the graph, and fit it to the configuration."""
        import numpy  # noqa: PLC0415 - there where this runs

        self._numpy = numpy
        self._graphs = graphs = backend_module("openvino_graph")
        model = self.model
        self._settings = settings = backend_module("openvino_options").InferenceSettings(model)
        self._runtime = runtime = framework("openvino")
        if model.kind == "GPU":
            raise graphs.OpenvinoError(
                f"unable to load model '{model.name}', Triton OpenVINO backend supports only Kind CPU and AUTO: "
                "parameter TARGET_DEVICE names other devices"
            )
        path = os.path.join(model.version_dir, model.file or FILE)
        if not os.path.exists(path):
            raise graphs.OpenvinoError(f"unable to find '{path}' for model '{model.name}'")
        self._core = runtime.Core()
        if settings.extension:
            with graphs.translated("loading custom CPU extensions"):
                self._core.add_extension(settings.extension)
        with graphs.translated("reading model"):
            read = self._core.read_model(path)
        self._graph = graphs.Graph(runtime, read, json.loads(model.config))
        if model.serves:
            self._graph.fit(settings.reshape)

    def describe(self):
        """See ArrayBackend."""
        return self._graph.describe(self._graph.batched)

    def complete(self):
        """By Triton's rules for this backend: batches are for models whose layouts name the batch dimension."""
        config, graph = json.loads(self.model.config), self._graph
        batched = graph.batched or graph.has_batch_layout
        said = file_signature.FileSignature(graph.describe(batched))
        size = max(self.model.default_max_batch_size, 1) if batched else 0
        return json.dumps(file_signature.completed(config, said, size))

    def initialize(self):
        """Compile."""
        graphs, runtime, settings = self._graphs, self._runtime, self._settings
        with graphs.translated(f"loading model on device {settings.device}"):
            properties = settings.supported_by(self._core)
            compiled = self._core.compile_model(self._graph.graph, settings.device, properties)
            self._request = compiled.create_infer_request()
        settings.tell(runtime.__version__)
        ports = self._graph.graph.inputs
        self._inputs = [(graphs.name_of(port), port.element_type) for port in ports]
        self._points = {graphs.name_of(port) for port in ports if not len(port.get_partial_shape())}
        dims = {spec.name: spec.dims for spec in self.model.outputs}
        sequences = self.model.sequences
        dims.update({} if sequences is None else {state.output_name: state.dims for state in sequences.states})
        self._outputs = []
        for at, port in enumerate(self._graph.graph.outputs):
            name = graphs.name_of(port)
            if name in dims:
                self._outputs.append((at, name, port.element_type, dims[name]))
        batched = self._graph.batched
        self._knowable = all(_has_known_size(port, batched) for port in self._graph.graph.outputs)
        self._own = []  # tensors of OpenVINO's, for runs that have no place for their outputs
        self._shapes = {}  # of the outputs, by the inputs' shapes; {}: not worth a place

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        rows = len(inputs[self._inputs[0][0]]) if self._graph.batched else 0
        if self._graph.fixed:
            inputs = self._whole_batch(inputs, rows)
        key = tuple([array.shape for array in inputs.values()])
        known = self._shapes.get(key)
        found = self._run(inputs, self._places(known) if known else {})
        if self._graph.batched:
            self._check_rows(found, self._graph.fixed or rows)
        if known is None:
            self._learn(key, found)
        return {name: array[:rows] for name, array in found.items()} if self._graph.fixed else found

    def free(self):
        """See Backend."""
        self._request = self._graph = self._core = None

    def _places(self, shapes):
        """Arrays to compute into: where the answer is sent from, or at least fresh ones, that need no copy."""
        if not self._own:
            self._own = [_own_tensor(self._runtime, port) for port in self._graph.graph.outputs]
        places = {} if self._graph.fixed else self.space.take(shapes)
        for _, name, kind, _ in self._outputs:
            if name not in places:
                places[name] = self._numpy.empty(shapes[name], kind.to_dtype())
        return places

    def _run(self, inputs, places):
        request, kept = self._request, []
        with self._graphs.translated("running inference"):
            for at, (name, kind) in enumerate(self._inputs):
                kept.append(self._given(name, inputs[name], kind))
                request.set_input_tensor(at, kept[-1][0])
            try:
                for at, name, _, _ in self._outputs:
                    if places:
                        request.set_output_tensor(at, self._runtime.Tensor(places[name], shared_memory=True))
                request.infer()
                if places and self._filled(places):
                    return places
                return {name: self._taken(at, dims) for at, name, _, dims in self._outputs}
            finally:
                for at, _, _, _ in self._outputs if places else ():  # the next run finds memory of its own
                    request.set_output_tensor(at, self._own[at])

    def _filled(self, places):
        """Whether the outputs have their places' shapes; behind fewer rows there would be what was there before."""
        tensors = ((name, self._request.get_output_tensor(at)) for at, name, _, _ in self._outputs)
        return all(tuple(tensor.shape) == places[name].shape for name, tensor in tensors)

    def _given(self, name, array, kind):
        """(tensor, what it lies in, which OpenVINO does not keep) of one input."""
        numpy, runtime = self._numpy, self._runtime
        if name in self._points:
            array = array.reshape(())
        if not array.size:
            return runtime.Tensor(kind, runtime.Shape(array.shape)), None
        if array.dtype.char == "O":
            return runtime.Tensor(numpy.array(array.tolist(), str)), None
        array = numpy.ascontiguousarray(array).reshape(array.shape)
        return runtime.Tensor(array, runtime.Shape(array.shape), kind), array

    def _taken(self, at, dims):
        """A copy of one output: the next run writes over it."""
        numpy, tensor = self._numpy, self._request.get_output_tensor(at)
        kind = tensor.element_type.get_type_name()
        if kind == "string":
            array = tensor.str_data.astype(object)
        elif kind == "bf16":
            array = tensor.data.view(numpy.uint16).copy()
        else:
            array = tensor.data.copy()
        return array if array.ndim else array.reshape(dims)

    def _learn(self, key, found):
        """Remember the shapes of large outputs: the next execution computes them where they go to the client from."""
        if len(self._shapes) >= limits.PLANS_MAX:
            self._shapes.clear()
        large = sum(array.nbytes for array in found.values()) >= limits.RESERVE_BYTES_MIN
        self._shapes[key] = {name: array.shape for name, array in found.items()} if large and self._knowable else {}

    def _whole_batch(self, inputs, rows):
        """Inputs with as many rows as the graph has."""
        size = self._graph.fixed
        if rows == size:
            return inputs
        if not self._settings.padding:
            raise self._graphs.OpenvinoError(
                f"expected requests with batch size '{size}', got '{rows}'... this error can be avoided by setting "
                "'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
            )
        padded = {}
        for name, array in inputs.items():
            padded[name] = self._numpy.zeros((size, *array.shape[1:]), array.dtype)
            padded[name][:rows] = array
        return padded

    def _check_rows(self, found, rows):
        for name, array in found.items():
            if len(array) != rows:
                raise self._graphs.OpenvinoError(
                    f"expected the batch size of openvino model output to be {rows}, got {len(array)}: output '{name}'"
                )


def _has_known_size(port, batched):
    """Whether it is plain numbers, and equal shapes of the inputs mean an equal shape of it, whatever their values."""
    if port.element_type.get_type_name() in ("bf16", "string"):
        return False
    dims = list(port.get_partial_shape())
    return not any(dim.is_dynamic for dim in (dims[1:] if batched else dims))


def _own_tensor(runtime, port):
    """Of no rows: OpenVINO makes it as large as it must be."""
    dims = [0 if dim.is_dynamic else dim.get_length() for dim in port.get_partial_shape()]
    return runtime.Tensor(port.element_type, runtime.Shape(dims))
