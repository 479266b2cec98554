"""The tensorflow backend: SavedModels, and frozen graphs of TensorFlow 1.

Both run in a session: for small models it takes a sixth of the time of calling a signature's function.
"""

import json
import os

from tisfast_worker import file_signature
from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.dtypes import BF16_BITS
from tisfast_worker.serve import backend_module

FILE = "model.savedmodel"
_OF_FOLDERS, _OF_FILES = "tensorflow_savedmodel", "tensorflow_graphdef"


class Backend(ArrayBackend):
    """One session."""

    def load(self):
        """Read the description of the model."""
        import numpy  # noqa: PLC0415 - there where this runs

        self._numpy, self._session = numpy, None
        self._graphs = graphs = backend_module("tensorflow_graph")
        self._fit = backend_module("tensorflow_fit")
        model, self._config = self.model, json.loads(self.model.config)
        path = os.path.join(model.version_dir, model.file or FILE)
        if not os.path.exists(path):
            raise graphs.TensorflowError(f"unable to find '{path}' for model '{model.name}'")
        self._check_platform(path)
        self._tf = tf = framework("tensorflow")
        tf.get_logger().setLevel("ERROR")  # it warns of what no user can mend
        self._settings = settings = backend_module("tensorflow_options").SessionSettings(tf, model)
        with graphs.translated(tf, "loading custom operations"):
            settings.load_libraries()
        if os.path.isdir(path):
            self._graph = graphs.SavedModel(tf, path, settings.tag, settings.signature, model.name)
        else:
            self._graph = graphs.FrozenGraph(tf, path, model.name)

    def describe(self):
        """See ArrayBackend."""
        return self._fit.described(self._config, self._tensors(), self.model.batched)

    def complete(self):
        """By Triton's rules for this backend: what tensors lack is filled in, the batch by the signature and hints."""
        return json.dumps(self._fit.completed(self._config, self._tensors(), self.model.default_max_batch_size))

    def check(self):
        """See Backend; names come first, as an input of a wrong name has one too many completed beside it."""
        file_signature.check_names(self.model, file_signature.FileSignature(self.describe()))
        super().check()

    def initialize(self):
        """Make the session, and read the variables."""
        graphs, tensors, model = self._graphs, self._tensors(), self.model
        self._session = self._graph.open(self._settings.config)
        names = self._settings.init_operations()
        with graphs.translated(self._tf, "running the operations of TF_INIT_OPS_FILE"):
            for name in names:
                self._session.run(name)
        self._inputs = {each.name: each for each in tensors["input"]}
        states = [] if model.sequences is None else model.sequences.states
        self._states = {each.output_name for each in states}
        dims = {each.output_name: each.dims for each in states}
        dims.update({spec.name: spec.dims for spec in model.outputs})
        self._outputs = [(each, dims[each.name]) for each in tensors["output"] if each.name in dims]
        self._settings.tell(f"signature '{self._graph.signature}'" if self._graph.signature else "frozen graph")

    def execute_arrays(self, inputs):
        """See ArrayBackend.  What no client of the batch asks for is not computed."""
        feeds = {self._inputs[name].key: self._fed(self._inputs[name], array) for name, array in inputs.items()}
        wants, states = self.space.wants, self._states
        asked = [(each, dims) for each, dims in self._outputs if each.name in states or wants(each.name)]
        with self._graphs.translated(self._tf, "running inference"):
            found = self._session.run([each.key for each, _ in asked], feeds)
        return {each.name: self._made(each, dims, value) for (each, dims), value in zip(asked, found)}

    def free(self):
        """See Backend."""
        if self._session is not None:
            self._session.close()
        self._session = self._graph = None

    def _check_platform(self, path):
        platform = self._config.get("platform", "")
        wanted = _OF_FOLDERS if os.path.isdir(path) else _OF_FILES
        if platform in (_OF_FOLDERS, _OF_FILES) and platform != wanted:
            raise self._graphs.TensorflowError(
                f"platform {platform} not supported for TensorFlow model '{self.model.name}': '{path}' is a "
                f"{'folder' if wanted == _OF_FOLDERS else 'file'}; write platform: \"{wanted}\""
            )

    def _tensors(self):
        """The model's GraphTensors by role."""
        return {role: self._graph.tensors(role, self._fit.names_of(self._config, role)) for role in ("input", "output")}

    def _fed(self, tensor, array):
        if tensor.dtype == "BF16":
            array = array.view(self._tf.bfloat16.as_numpy_dtype)
        return array.reshape(()) if tensor.dims == [] else array

    def _made(self, tensor, dims, value):
        """As an array that the server takes: of a tensor without dimensions, with those of the configuration."""
        numpy = self._numpy
        if tensor.dtype == "BYTES" and not isinstance(value, numpy.ndarray):
            value = numpy.array([value], object)
        array = numpy.asarray(value)
        if tensor.dtype == "BF16":
            array = array.view(BF16_BITS)
        return array if array.ndim and tensor.dims != [] else array.reshape(dims)
