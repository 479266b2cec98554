"""A SavedModel or a frozen graph of TensorFlow as it was read: its tensors, a session of it, and what is damaged."""

import os
import re

from tisfast_worker.failure import Refusal
from tisfast_worker.serving_context import current

SAVED_MODEL, SAVED_MODEL_TEXT = "saved_model.pb", "saved_model.pbtxt"
TAG, SIGNATURE = "serve", "serving_default"
_OF_THE_LOADER = frozenset({"__saved_model_init_op", "__saved_model_train_op"})
_DTYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32",
    "float64": "FP64", "string": "BYTES",
}  # fmt: skip
_PLACEHOLDER = "Placeholder"
_PLACES = re.compile(r"^Graph execution error:|\{\{[^{}]*\}\} ?|\n\s*\[\[.*")  # which nodes
_ERROR_CHARS_MAX = 600


class TensorflowError(Refusal):
    """What TensorFlow says, or what is said about its files."""


class translated:  # noqa: N801 - read as a word
    """Within it, TensorFlow's errors become ours; a shortage of memory stays one.  doing: what was done."""

    def __init__(self, tf, doing):
        """See the class."""
        self._tf, self._doing = tf, doing

    def __enter__(self):
        """Nothing to do."""
        return self

    def __exit__(self, kind, error, _):
        """Raises TensorflowError."""
        of_memory = self._tf.errors.ResourceExhaustedError
        if isinstance(error, of_memory) or not isinstance(
            error, (self._tf.errors.OpError, ValueError, TypeError, KeyError, OSError, RuntimeError, AttributeError)
        ):
            return
        if not isinstance(error, Refusal):
            said = _PLACES.sub("", getattr(error, "message", "") or str(error)).strip()
            raise TensorflowError(f"TensorFlow error {self._doing}: {said[:_ERROR_CHARS_MAX]}") from None


class GraphTensor:
    """One input or output.  name: for clients; key: the tensor's in the graph; dtype: KServe's, else TensorFlow's own;
    dims: -1 for any size, the batch in front, None where the number of dimensions is open.
    """

    __slots__ = ("dims", "dtype", "key", "name")

    def __init__(self, name, key, dtype, dims):
        """See the class."""
        self.name, self.key, self.dtype, self.dims = name, key, _DTYPES.get(dtype, dtype), dims

    @property
    def can_be_sent(self):
        """Whether a request or an answer can carry it."""
        return self.dtype in _DTYPES.values()


class SavedModel:
    """A folder with a saved_model.pb and variables, with the tensors of one signature."""

    def __init__(self, tf, path, tag, signature, model):
        """`tag` and `signature`: "" for the usual ones.  Reads the description, and no variables."""
        self._tf, self._path, self._tags, self._model = tf, path, [tag or TAG], model
        graph = self._meta_graph(self._read())
        self.signature = self._signature(graph.signature_def, signature)
        chosen = graph.signature_def[self.signature]
        self._known = {"input": self._tensors(chosen.inputs), "output": self._tensors(chosen.outputs)}

    def open(self, config):
        """A session of it; its variables, tables and assets are read.  `config`: a ConfigProto."""
        tf = self._tf
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph, config=config)
        with translated(tf, f"loading '{self._path}'"), graph.as_default():
            tf.compat.v1.saved_model.load(session, self._tags, self._path)
        return session

    def tensors(self, role, _):
        """All GraphTensors of the signature, "input" or "output"."""
        return self._known[role]

    def _read(self):
        from google.protobuf import text_format  # noqa: PLC0415 - TensorFlow needs it itself
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from tensorflow.core.protobuf import saved_model_pb2  # noqa: PLC0415

        found = saved_model_pb2.SavedModel()
        binary = os.path.join(self._path, SAVED_MODEL)
        try:
            if os.path.exists(binary):
                with open(binary, "rb") as file:
                    found.ParseFromString(file.read())
            else:
                with open(os.path.join(self._path, SAVED_MODEL_TEXT), encoding="utf-8") as file:
                    text_format.Parse(file.read(), found)
        except FileNotFoundError:
            raise TensorflowError(
                f"'{self._path}' is no SavedModel: it has neither {SAVED_MODEL} nor {SAVED_MODEL_TEXT}"
            ) from None
        except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
            raise TensorflowError(f"'{self._path}' is no SavedModel, or it is damaged: {error}") from None
        if not found.meta_graphs:
            raise TensorflowError(f"'{self._path}' holds no graph: it is no SavedModel, or it is cut off")
        return found

    def _meta_graph(self, saved):
        there = [sorted(each.meta_info_def.tags) for each in saved.meta_graphs]
        for each, tags in zip(saved.meta_graphs, there):
            if tags == self._tags:
                return each
        raise TensorflowError(
            f"unable to load model '{self._model}', no graph in '{self._path}' has the tag '{self._tags[0]}' alone: "
            f"it has {'; '.join(','.join(tags) or 'none' for tags in there)}; parameter TF_GRAPH_TAG names one"
        )

    def _signature(self, known, wanted):
        names = sorted(name for name in known if name not in _OF_THE_LOADER)
        name = wanted or (SIGNATURE if SIGNATURE in names or not names else names[0])
        if name != (wanted or SIGNATURE):
            text = f"unable to find serving signature '{SIGNATURE}' of model '{self._model}', using signature '{name}'"
            current().log("WARN", text, "tensorflow.py", 0, once="signature")
        if name not in names:
            raise TensorflowError(
                f"unable to load model '{self._model}', expected '{name}' signature: '{self._path}' has "
                f"{', '.join(names) or 'none: save it with signatures=...'}"
            )
        return name

    def _tensors(self, said):
        found = []
        for name in sorted(said):
            each = said[name]
            if each.WhichOneof("encoding") not in ("name", None):
                raise TensorflowError(
                    f"tensor '{name}' of signature '{self.signature}' is sparse or made of several: export the model "
                    "with dense tensors"
                )
            dims = None if each.tensor_shape.unknown_rank else [dim.size for dim in each.tensor_shape.dim]
            found.append(GraphTensor(name, each.name, self._tf.dtypes.as_dtype(each.dtype).name, dims))
        return found


class FrozenGraph:
    """A GraphDef: its tensors are named after nodes, and only the configuration says which are inputs and outputs."""

    signature = ""

    def __init__(self, tf, path, model):
        """Reads all of it."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - TensorFlow needs it itself

        self._tf, self._model = tf, model
        definition = tf.compat.v1.GraphDef()
        try:
            with open(path, "rb") as file:
                definition.ParseFromString(file.read())
        except DecodeError as error:
            raise TensorflowError(f"'{path}' is no GraphDef, or it is damaged: {error}") from None
        self._graph = tf.Graph()
        with translated(tf, f"reading '{path}'"), self._graph.as_default():
            tf.import_graph_def(definition, name="")
        if not self._graph.get_operations():
            raise TensorflowError(f"'{path}' holds no nodes: it is no GraphDef, or it is cut off")

    def open(self, config):
        """A session of it."""
        return self._tf.compat.v1.Session(graph=self._graph, config=config)

    def tensors(self, role, names):
        """GraphTensors of these nodes, as far as there are such, and of those that look like inputs or outputs:
        placeholders, and as outputs what no other node reads.
        """
        found = [each for each in map(self._named, names) if each is not None]
        for operation in self._graph.get_operations():
            if role == "input":
                wanted = operation.type == _PLACEHOLDER
            else:
                ends = operation.outputs and not any(each.consumers() for each in operation.outputs)
                wanted = ends and operation.type != _PLACEHOLDER and not names
            if wanted and operation.name not in names:
                found.append(self._described(operation.name, operation.outputs[0]))
        return found

    def _named(self, name):
        """A node's first output, or NODE:1; None where there is no such node."""
        try:
            return self._described(name, self._graph.get_tensor_by_name(name if ":" in name else f"{name}:0"))
        except (KeyError, ValueError):
            return None

    @staticmethod
    def _described(name, tensor):
        dims = None if tensor.shape.rank is None else [-1 if dim is None else dim for dim in tensor.shape.as_list()]
        return GraphTensor(name, tensor.name, tensor.dtype.base_dtype.name, dims)
