"""A model of OpenVINO before it is compiled: its tensors, and how it is fitted to its configuration."""

from tisfast_worker.backend import framework
from tisfast_worker.failure import Refusal

_DTYPES = {
    "boolean": "BOOL", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "i8": "INT8", "i16": "INT16",
    "i32": "INT32", "i64": "INT64", "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64", "string": "BYTES",
}  # fmt: skip
_CONFIG_TYPES = {"TYPE_" + name.replace("BYTES", "STRING"): ours for ours, name in _DTYPES.items()}
_PLACES = ("Exception from ", "Check '", "Exception:")
_ERROR_CHARS_MAX = 600


class OpenvinoError(Refusal):
    """What OpenVINO says, without the places in its source."""


class translated:  # noqa: N801 - read as a word
    """Within it, OpenVINO's errors become ours.  doing: what was being done."""

    def __init__(self, doing):
        """See the class."""
        self._doing = doing

    def __enter__(self):
        """Nothing to do."""
        return self

    def __exit__(self, kind, error, _):
        """Raises OpenvinoError."""
        if isinstance(error, RuntimeError) and not isinstance(error, Refusal):
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            said = [line for line in lines if not line.startswith(_PLACES)] or lines
            raise OpenvinoError(f"openvino error {self._doing}: {' '.join(said)[:_ERROR_CHARS_MAX]}") from None


class Graph:
    """A graph that was read.

    batched: max_batch_size is above 0; fixed: the batch size that is written into the graph, 0 where any size will do.
    """

    def __init__(self, runtime, graph, config):
        """`config`: the configuration as a dict."""
        self.graph, self.fixed = graph, 0
        self._runtime, self._config = runtime, config
        self.batched = config.get("max_batch_size", 0) > 0

    @property
    def has_batch_layout(self):
        """Whether the layout of every tensor says which dimension is the batch."""
        layouts = self._runtime.layout_helpers
        ports = [*self.graph.inputs, *self.graph.outputs]
        return all(layouts.has_batch(layouts.get_layout(port)) for port in ports)

    def fit(self, reshape):
        """Let the graph take what the configuration says: batches of any size, types; with `reshape` its dims, too."""
        graph, shapes = self.graph, {}
        items = self._items("input")
        for port in graph.inputs:
            shape = self._wanted(port, items.get(name_of(port)) if reshape else None)
            if shape != _dims(port):
                shapes[port] = shape
        try:
            self._reshape(shapes)
        except OpenvinoError:
            if not self.batched:
                raise
            self._fix()
        if self.batched and not self.fixed and any(_dims(port)[:1] != [-1] for port in graph.outputs):
            self._fix()
        self._convert()

    def describe(self, batched):
        """See ArrayBackend.describe.  A free size of the configuration's is taken, as Triton does."""
        found = {}
        for role, ports in (("input", self.graph.inputs), ("output", self.graph.outputs)):
            items = self._items(role)
            found[role + "s"] = [self._described(port, items.get(name_of(port)), batched) for port in ports]
        return found

    def _items(self, role):
        return {item["name"]: item for item in self._config.get(role, ())}

    def _described(self, port, item, batched):
        dims, dtype = _dims(port), port.element_type.get_type_name()
        lead = 1 if batched else 0
        if batched and dims:
            dims[0] = -1
        said = _said_dims(item)
        if len(said) == len(dims) - lead:
            dims[lead:] = [-1 if free == -1 else dim for free, dim in zip(said, dims[lead:])]
        return name_of(port), _DTYPES.get(dtype, dtype), dims

    def _wanted(self, port, item):
        """The dims that an input is to have."""
        dims = _dims(port)
        lead = 1 if self.batched else 0
        said = _said_dims(item)
        if item is not None and len(said) == len(dims) - lead:
            dims[lead:] = said
        if self.batched and dims:
            dims[0] = -1
        return dims

    def _reshape(self, shapes):
        if not shapes:
            return
        with translated("while the graph was given the configuration's shapes"):
            self.graph.reshape({port: self._runtime.PartialShape(shape) for port, shape in shapes.items()})

    def _fix(self):
        """A graph that has a batch size of its own in the middle gets that of the configuration, as in Triton."""
        self.fixed = size = self._config["max_batch_size"]
        shapes = {port: [size, *_dims(port)[1:]] for port in self.graph.inputs if _dims(port)}
        self._reshape(shapes)

    def _convert(self):
        """Types that the configuration says differ from the graph's: OpenVINO converts."""
        steps, wanted = framework("openvino.preprocess").PrePostProcessor(self.graph), False
        for role, ports in (("input", self.graph.inputs), ("output", self.graph.outputs)):
            items = self._items(role)
            for at, port in enumerate(ports):
                item = items.get(name_of(port))
                kind = None if item is None else _CONFIG_TYPES.get(item.get("data_type"))
                said = port.element_type.get_type_name()
                if kind is None or kind == said or "string" in (kind, said):
                    continue
                step = steps.input(at) if role == "input" else steps.output(at)
                step.tensor().set_element_type(getattr(self._runtime.Type, kind))
                wanted = True
        if wanted:
            with translated("while types were converted"):
                self.graph = steps.build()


def name_of(port):
    """A tensor's name; of one without, that of the operation that makes it."""
    names = port.get_names()
    if names:
        return port.get_any_name()
    node = port.get_node()
    return node.get_friendly_name() if not node.get_input_size() else node.input_value(0).get_node().get_friendly_name()


def _dims(port):
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        raise OpenvinoError(f"tensor '{name_of(port)}' has any number of dimensions: export it with a rank")
    return [-1 if dim.is_dynamic else dim.get_length() for dim in shape]


def _said_dims(item):
    if item is None:
        return []
    return [int(dim) for dim in (item.get("reshape") or item).get("shape", item.get("dims", []))]
