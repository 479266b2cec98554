"""The model of a load message, checked, and the rules that its shapes obey."""

from tisfast_worker import dtypes, limits
from tisfast_worker.failure import WireError


class TensorSpec:
    """One configured input or output.  dims and reshape leave out the batch dimension; -1 is any size."""

    __slots__ = ("code", "dims", "index", "name", "reshape")

    def __init__(self, index, name, code, dims, reshape=None):
        """`reshape` is the shape the model sees, None when it is `dims`."""
        if code not in dtypes.TYPES:
            raise WireError(f"tensor '{name}' has the unknown data type number {code!r}")
        self.index, self.name, self.code = index, name, code
        self.dims = tuple(dims)
        self.reshape = None if reshape is None else tuple(reshape)
        if reshape is not None and self.reshape.count(-1) != self.dims.count(-1):
            raise WireError(f"tensor '{name}': dims {dims} and reshape {reshape} differ in free dimensions")


class StateSpec:
    """One tensor of a sequence's implicit state."""

    __slots__ = ("code", "dims", "initial_dims", "initial_path", "input_name", "output_name", "same_buffer")

    def __init__(self, input_name, output_name, code, dims, *more):
        """`more`: same_buffer, growable, initial as in WIRE.md.  Without an initial state, it is zeros.

        `growable` asks for nothing here: a state takes the memory that it needs.
        """
        same_buffer, _, initial = more
        if code not in dtypes.TYPES:
            raise WireError(f"state '{input_name}' has the unknown data type number {code!r}")
        self.input_name, self.output_name, self.code, self.dims = input_name, output_name, code, tuple(dims)
        self.same_buffer = same_buffer
        given, self.initial_path = initial or (dims, "")
        self.initial_dims = tuple(max(dim, 1) if initial is None else dim for dim in given)


class SequenceSpec:
    """How a model meets its sequences."""

    __slots__ = ("controls", "direct", "input_names", "iterative", "states")

    def __init__(self, message):
        """From the `model` map of a load message."""
        self.direct, self.iterative = message["sequence"]["strategy"] == "direct", message["sequence"]["iterative"]
        self.controls = [tuple(control) for control in message["controls"]]  # name, kind, dtype code, false, true
        self.states = [StateSpec(*state) for state in message["states"]]
        # What the model sees beside what clients send, in its order.
        self.input_names = tuple([control[0] for control in self.controls] + [each.input_name for each in self.states])


class Model:
    """One model version as this instance serves it."""

    def __init__(self, message):
        """From the `model` map of a load message (WIRE.md, 4).  Raises WireError when something is missing or wrong."""
        try:
            self.name, self.version, self.instance = message["name"], str(message["version"]), message["instance"]
            self.repository, self.version_dir = message["repository"], message["version_dir"]
            self.file, self.backend = message["file"], message.get("backend", "python")
            self.module = message.get("module", "")  # file of a backend that is not one of ours
            self.python_based = message.get("python_based", False)  # it is a model.py, for all models of the backend
            self.settings = message.get("settings", {})  # of --backend-config: texts by their names
            self.kind, self.device_id = message["kind"], message["device_id"]
            self.config = message["config"]
            self.threads, self.serves = 1, True  # of its numerics; instance.py sets both
            self.cache = message.get("cache", "")  # folder for files that a framework makes of the model's; "": none
            self.decoupled = message["decoupled"]
            self.max_batch_size = message["max_batch_size"]
            self.default_max_batch_size = message.get("default_max_batch_size", 0)  # of a completed configuration
            self.inputs = [TensorSpec(i, *spec) for i, spec in enumerate(message["inputs"])]
            self.outputs = [TensorSpec(i, *spec) for i, spec in enumerate(message["outputs"])]
            self.spin_ns = message.get("spin_us", 0) * 1000
            self.log_verbose = message.get("log_verbose", 0)
            self.retry = message.get("retry", "never")  # of an execution that ran out of memory: memory_retry.py
            self.strict_outputs = message.get("strict_outputs", False)  # output_differences.py
            self.saved_lately = message.get("saved_lately", False)
            self.sequences = SequenceSpec(message) if message.get("sequence") else None
        except (KeyError, TypeError) as error:
            raise WireError(f"the load message lacks or garbles {error}") from None
        if len(self.outputs) > limits.OUTPUTS_MAX:
            raise WireError(
                f"model '{self.name}' has {len(self.outputs)} outputs; at most {limits.OUTPUTS_MAX} are served"
            )

    @property
    def batched(self):
        """Whether tensors carry a batch dimension in front."""
        return self.max_batch_size > 0

    @property
    def iterative(self):
        """Whether requests may be rescheduled."""
        return self.sequences is not None and self.sequences.iterative

    def failed_text(self, message):
        """The text for clients when an execution fails as a whole."""
        return f"Failed to process the request(s) for model '{self.instance}', message: {message}"


def model_shape(spec, shape, batched):
    """The shape the model sees for a wire shape: the config's reshape, its -1s filled from dims' -1s in order."""
    if spec.reshape is None:
        return shape
    return _refill(shape, spec.dims, spec.reshape, batched)


def wire_shape(spec, shape, batched):
    """The reverse, for an output; None where its free dimensions cannot be told.  Without them, a model may have
    returned any shape of as many elements.
    """
    if spec.reshape is None:
        return shape
    if len(shape) == batched + len(spec.reshape):
        return _refill(shape, spec.reshape, spec.dims, batched)
    if -1 in spec.dims or (batched and not shape):
        return None
    return (*shape[:1], *spec.dims) if batched else spec.dims


def _refill(shape, pattern, target, batched):
    lead = shape[:1] if batched else ()
    if len(shape) != len(lead) + len(pattern):
        raise WireError(f"shape {list(shape)} does not have the dimensions of {list(pattern)}")
    free = iter([size for wanted, size in zip(pattern, shape[len(lead) :]) if wanted < 0])
    return (*lead, *(next(free) if wanted < 0 else wanted for wanted in target))


def fits(spec, shape, batch, batched):
    """Whether an output of this shape is what the config says, for a request of this batch size."""
    wanted = spec.dims if spec.reshape is None else spec.reshape
    if batched:
        wanted = (batch, *wanted)
    return len(shape) == len(wanted) and all(w < 0 or w == s for w, s in zip(wanted, shape))
