"""The faces that a backend implements, to load and run the models of one framework.

A module of a backend has a class `Backend` that is one of the two.  One object serves one model version in one worker
process; it is made when the worker starts, and all of its methods are called from one thread (unless said otherwise).
Whatever a method raises is the model's fault for the server: its text goes to the log, and to the clients.

An ArrayBackend is the usual one: arrays come in and arrays go out.  A RequestBackend is given the requests themselves.
"""

import importlib
import json
import os
import sys

from tisfast_worker import file_signature
from tisfast_worker.failure import FrameworkMissing
from tisfast_worker.file_signature import FileSignature


class Backend:
    """The part that both faces share."""

    takes_arrays = False
    """Whether batches are given to `execute_arrays`, joined to one array for each input."""
    takes_text = False
    """See ArrayBackend."""
    joins_on_device = False
    """Whether it joins large inputs in host memory by its copies to the GPU, if it takes them as `DeviceParts`."""
    takes_device = False
    """Whether it can be given inputs, and give outputs, in the memory of its instance's GPU: `device_batches`."""
    has_readiness = False
    """Whether `unready_reason` has something to say."""

    def __init__(self, model):
        """`model`: the Model that is served.  Nothing is loaded yet, and nothing of the configuration is checked.

        `model.version_dir` is the folder of the version, `model.file` the name of the file in it that the configuration
        names ("" where it names none), `model.config` the configuration as JSON text, `model.kind` "CPU" or "GPU".
        `model.inputs` and `model.outputs` say names, dims and type codes when it is to execute.
        """
        self.model = model

    def load(self):
        """Read the model's files, as far as it takes to know what the model is."""

    def complete(self):
        """The configuration as JSON text, with what it leaves open filled in by what the model is.

        After `load`, in a process that ends then.
        """
        return self.model.config

    def check(self):
        """Raise what says that the model and its configuration do not fit.  After `load`, before `initialize`."""

    def initialize(self):
        """Be ready to execute.  After `load`; the configuration is complete."""

    def unready_reason(self):
        """Why the model cannot serve now, "" when it can.  Called from any thread, while the model executes, too."""
        return ""

    def free(self):
        """Let go of everything.  The last call; the process ends then."""


class ArrayBackend(Backend):
    """Models that make arrays of arrays.

    What the requests of a batch have in common is done for it: they are joined and cut apart, their types and shapes
    are checked, batch inputs are made, and a batch that ran out of memory is halved where the configuration allows it.
    """

    takes_arrays = True
    takes_text = False
    """Whether BYTES come as str; one that is not UTF-8 is then the error of its request."""
    space = None
    """Memory for outputs that go to the client without a copy: an OutputSpace, while `execute_arrays` runs."""

    def describe(self):
        """The tensors by the model's files: {"inputs": [...], "outputs": [...]}, after `load`.

        Each tensor is (name, data type, dims): "FP32" and the like, and dims with -1 for any size; with a batch
        dimension in front where the model takes batches.  None where the files do not tell.  "optional": inputs beside
        the others that may be left out.
        """
        return None

    def execute_arrays(self, inputs):
        """A dictionary of arrays by the outputs' names, from a dictionary of arrays by the inputs' names.

        The inputs may lie in shared memory.  They may be kept, and may be written to.  With `max_batch_size` above 0
        the first dimension is the batch.  BF16 is an array of its bits, uint16, both ways.  Control tensors and state
        of sequences are inputs and outputs like others.
        """
        raise NotImplementedError

    def complete(self):
        """The configuration with what `describe` says; see file_signature.completed for what stays."""
        said = self.describe()
        if said is None:
            return self.model.config
        config = json.loads(self.model.config)
        return json.dumps(file_signature.completed(config, FileSignature(said), self.model.default_max_batch_size))

    def check(self):
        """Hold the configuration against what `describe` says.  Raises SignatureError."""
        said = self.describe()
        if said is not None:
            file_signature.check(self.model, FileSignature(said))


TELEMETRY = {"openvino": "openvino_telemetry"}
"""Packages that frameworks tell their makers with that they are used: importing openvino starts a process that waits up
to 3 s for a network, and writes into the user's home."""
SWITCHES = {"onnxruntime": ("ORT_DISABLE_TELEMETRY", "1"), "tensorflow": ("TF_CPP_MIN_LOG_LEVEL", "2")}
"""Variables that switch off what is a part of the framework: onnxruntime 1.32 leaves a file in the temporary folder,
tensorflow tells of each session what it could do on other machines."""


def keep_quiet(name):
    """Have a framework do without its telemetry, as where that package is not installed, and without chatter.

    Before it is imported.
    """
    if name in TELEMETRY:
        sys.modules.setdefault(TELEMETRY[name], None)
    if name in SWITCHES:
        os.environ.setdefault(*SWITCHES[name])


def framework(name):
    """Import the package that a backend runs its models with.  Raises FrameworkMissing, which tells how to get it."""
    keep_quiet(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    raise FrameworkMissing(f"there is no {name}, which runs this model", name=name)


class RequestBackend(Backend):
    """Models that see requests: their ids, parameters and senders.  Python models, and what is built on them."""

    def __init__(self, model):
        """See Backend."""
        super().__init__(model)
        # Set for a decoupled model before the first `start`, to be called from any thread:
        self.failed = None  # with (requests, execution, error): what `start` left running raised
        self.finished = None  # with (execution): it has come to its end

    def execute(self, requests, execution):
        """A response to each request, None where one is in `execution.rescheduled`.  Raises ReturnError.

        `execution.senders` has those whose sender was asked for: `execution.take_answers()` says what they were given.
        """
        raise NotImplementedError

    def start(self, requests, execution):
        """Execute a batch of a decoupled model, which answers through the requests' senders, now or later."""
        raise NotImplementedError
