"""The pytorch backend: TorchScript, programs of torch.export, AOTInductor packages, and modules in a model.py."""

import contextlib
import json

from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import Refusal
from tisfast_worker.memory_shortage import amount, trim_heap
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current


class TorchError(Refusal):
    """What PyTorch, or a model of it, says."""


class WrongOutput(TorchError):
    """The model returned something else than its configuration says."""

    code = ErrorCode.INVALID_ARG


class Backend(ArrayBackend):
    """One model: a program, and where the configuration's tensors are in its calls."""

    takes_text = takes_device = joins_on_device = True

    def load(self):
        """Read the file."""
        torch = self._torch = framework("torch")
        self._tensors = backend_module("pytorch_tensors")
        self._tensors.check_numpy(torch)
        self._settings = backend_module("pytorch_options").ExecutionSettings(torch, self.model)
        self._settings.apply()
        self._program = backend_module("pytorch_files").open_program(torch, self.model, self._settings)
        self._hold = None  # of files in the cache
        if self.model.serves and self._settings.device is None and self._settings.shares_weights:
            self._share_weights()
        self._settings.tell()

    def _share_weights(self):
        """With the model's other instances.  Where that fails it has its own."""
        try:
            share = backend_module("pytorch_weights").share
            shared, self._hold = share(self._torch, self.model, self._program.modules(), self._program.files)
        except OSError as error:
            text = f"instances of model '{self.model.name}' have weights of their own, as none could be shared: {error}"
            current().log("WARN", text, "pytorch.py", 0, once="weights")
            return
        if shared:
            trim_heap()  # of those that were read
            text = f"model '{self.model.name}' shares {amount(shared)} of weights with its other instances"
            current().log("VERBOSE", text, "pytorch.py", 0)

    def check(self):
        """Hold the configuration against what the program says."""
        self._signature().check()

    def initialize(self):
        """Find the places of all tensors, and leave gradients behind for good."""
        model, torch, places = self.model, self._torch, self._signature().places()
        self._codes = {spec.name: spec.code for spec in model.outputs}
        if model.sequences is not None:
            self._codes.update({state.output_name: state.code for state in model.sequences.states})
        self._inputs, self._names, self._outputs = places.inputs, places.keywords, places.outputs
        self._slots = 1 + max(self._inputs.values(), default=-1)
        self._by_key, self._keys = None, None
        device = self._settings.device
        if device is None:
            self._to, self._from = self._tensors.Reader(torch, model), self._tensors.Writer(torch, model)
        else:
            gpu = backend_module("pytorch_gpu")
            self._to = gpu.GpuReader(torch, model, device)
            self._from = gpu.GpuWriter(torch, model, device, self._settings.cleans)
        self._mode = contextlib.ExitStack()
        for context in self._settings.contexts():
            self._mode.enter_context(context)
        self._program.settle()

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        values, read, places = [None] * self._slots, self._to.read, self._inputs
        for name, array in inputs.items():
            values[places[name]] = read(name, array)
        try:
            found = self._program.run(values) if self._names is None else self._named(values)
        except self._program.errors as error:
            raise TorchError(f"PyTorch execute failure: {error}") from error
        outputs = self._chosen(found)
        if self._settings.device is not None:
            return self._from.outputs(outputs, self._codes, self.space)
        given = {id(values[at]): name for name, at in places.items()}
        return {name: self._array(name, value, inputs, given) for name, value in outputs.items()}

    def free(self):
        """See Backend."""
        self._program.free()
        self._program = None
        if self._hold is not None:
            self._hold.close()

    def _signature(self):
        return backend_module("pytorch_names").Signature(self._torch, self.model, self._program)

    def _named(self, values):
        """Of a program whose inputs are given by name."""
        return self._program.run_named({key: values[at] for key, at in self._names.items()})

    def _chosen(self, found):
        """The configured outputs by name, from what the program returned."""
        tensors = self._tensors
        if found.__class__ is not dict and isinstance(found, (self._torch.Tensor, str)):
            found = (found,)
        keys = tensors.keys_of(found)
        if keys is not None and keys != self._keys:
            self._keys, self._by_key = keys, set(self._outputs) <= set(keys)
        if keys is not None and self._by_key:
            values = found if isinstance(found, dict) else found._asdict()
            return {name: values[name] for name in self._outputs}
        values = tensors.flat(found)
        for name, at in self._outputs.items():
            if at >= len(values):
                raise WrongOutput(
                    f"The output {name} in the model configuration refers to an output index which doesn't exist. This "
                    f"model has {len(values)} outputs"
                )
        return {name: values[at] for name, at in self._outputs.items()}

    def _array(self, name, value, inputs, given):
        source = given.get(id(value))
        if source is not None and self._lies_as_given(value, source, inputs[source]):
            self._from.check(name, value, self._codes[name])
            return inputs[source]  # as it came, or written to where it lay
        return self._from.array(name, value, self._codes[name])

    def _lies_as_given(self, value, name, array):
        """Whether a tensor still is this array: a model may have transposed it in place, or given it other memory."""
        if not self._to.was_passed(array):
            return False
        same_place = value.data_ptr() == self._to.read(name, array).data_ptr()  # numpy would make a dictionary for it
        return same_place and value.shape == array.shape and value.is_contiguous()

    def complete(self):
        """The configuration with what the program says, or what it returns for a sample."""
        completion = backend_module("pytorch_complete").ConfigCompletion
        return json.dumps(completion(self._torch, self.model, self._program, self._settings).completed())
