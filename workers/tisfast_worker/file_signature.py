"""The tensors that a model's file declares: configurations are completed from them, and checked against them.

Texts up to a colon are Triton's, as clients match them; what follows says what to change.
"""

import json

from tisfast_worker import dtypes, tensor_completion
from tisfast_worker.failure import Refusal

_CONFIG_NAMES = {name: config for name, config, _, _ in dtypes.TYPES.values()}


class SignatureError(Refusal):
    """The configuration and the model's file cannot both be right; the text says why."""


class Described:
    """One tensor as the file has it."""

    __slots__ = ("dims", "dtype", "name")

    def __init__(self, name, dtype, dims):
        """dtype: KServe's name, or the framework's own for what has none; dims: -1 for any size, the batch in front."""
        self.name, self.dtype, self.dims = name, dtype, list(dims)

    @property
    def config_type(self):
        """Its type's name in a configuration."""
        return _CONFIG_NAMES.get(self.dtype, self.dtype)

    def __str__(self):
        """For people: `X FP32 [-1,4]`."""
        return f"{self.name} {self.dtype} {dtypes.dims_text(self.dims)}"


class FileSignature:
    """All tensors of a model's file.  optional: inputs that have a value in the file."""

    def __init__(self, said):
        """`said`: what ArrayBackend.describe returns."""
        self.inputs, self.outputs, self.optional = (
            [Described(*each) for each in said.get(key, ())] for key in ("inputs", "outputs", "optional")
        )

    @property
    def batches(self):
        """Whether the first dimension of every tensor can have any size."""
        return all(each.dims[:1] == [-1] for each in (*self.inputs, *self.outputs))

    def __str__(self):
        """For people."""
        return f"inputs {_listed(self.inputs)}; outputs {_listed(self.outputs)}"


def completed(config, signature, default_max_batch_size):
    """The configuration (a dict, changed in place) with what it leaves open, by Triton's rules for ONNX models.

    One that has inputs and outputs stays as it is.  Where the first dimension of every tensor can have any size, that
    is the batch.  A list of tensors that is there stays.  Raises SignatureError.
    """
    if (config.get("input") or config.get("batch_input")) and config.get("output"):
        return config
    size, can = config.get("max_batch_size", 0), signature.batches
    if size > 0 and not can:
        raise SignatureError(
            f"autofill failed for model '{config.get('name', '')}': model does not support batching while non-zero "
            f"max_batch_size is specified: the first dimension of every tensor would have to be free, and the file has "
            f"{signature}; remove max_batch_size, or export the model with a free first dimension"
        )
    if size == 0 and can:
        size = config["max_batch_size"] = default_max_batch_size
    tensor_completion.batch_dynamically(config, size if can else 0)
    for role, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        config[role] = config.get(role) or [tensor_completion.entry(each, size > 0) for each in tensors]
    return config


def check(model, signature):
    """Whether the model's configuration is about this file.  Raises SignatureError."""
    _Check(model, signature).run()


def check_names(model, signature):
    """Whether the file has the inputs and controls that the configuration names.  Raises SignatureError."""
    _Check(model, signature).run_names()


class _Check:
    """Checks the tensors of one model."""

    def __init__(self, model, signature):
        self._model, self._signature = model, signature
        self._config = json.loads(model.config)
        self._batched = model.batched
        self._scattered = {name for item in self._config.get("batch_output", ()) for name in item["target_name"]}

    def run(self):
        """See `check`."""
        sequences = self._model.sequences
        inputs = self._config.get("input", ())
        made = [name for item in self._config.get("batch_input", ()) for name in item["target_name"]]
        controls = [] if sequences is None else sequences.controls
        states = [] if sequences is None else sequences.states
        needed = [each for each in inputs if not each.get("optional")]
        self._count(len(needed) + len(made) + len(controls) + len(states))
        known = {each.name: each for each in self._signature.inputs}
        for item in inputs:
            if item.get("optional"):
                self._optional(item)
            else:
                self._tensor(item, known, "input")
        for name in made:
            self._named(name, known, "input")
        for control in controls:
            self._control(control, known)
        outputs = {each.name: each for each in self._signature.outputs}
        for item in self._config.get("output", ()):
            self._tensor(item, outputs, "output")
        for state in states:
            self._type(self._named(state.input_name, known, "input"), dtypes.TYPES[state.code][1], "input")
            self._type(self._named(state.output_name, outputs, "output"), dtypes.TYPES[state.code][1], "output")

    def run_names(self):
        """See `check_names`."""
        known = {each.name: each for each in self._signature.inputs}
        for control in () if self._model.sequences is None else self._model.sequences.controls:
            self._control(control, known)
        for item in self._config.get("input", ()):
            self._named(item["name"], known, "input")

    def _count(self, configured):
        provided = len(self._signature.inputs)
        if configured != provided:
            raise SignatureError(
                f"unable to load model '{self._model.name}', configuration expects {configured} inputs, model provides "
                f"{provided}: {_listed(self._signature.inputs)}"
            )

    def _tensor(self, item, known, role):
        described = self._named(item["name"], known, role)
        self._type(described, item["data_type"], role)
        self._shape(item, described, role)

    def _named(self, name, known, role):
        if name in known:
            return known[name]
        allowed = sorted([*known, *(each.name for each in self._signature.optional if role == "input")])
        raise SignatureError(
            f"unexpected inference {role} '{name}', allowed {role}s are: {', '.join(allowed)}: correct the name in the "
            f"configuration of model '{self._model.name}'"
        )

    def _type(self, described, data_type, role):
        if described.config_type != data_type:
            raise SignatureError(
                f"unable to load model '{self._model.name}', configuration expects datatype {data_type} for {role} "
                f"'{described.name}', model provides {described.config_type}: write data_type: {described.config_type}"
            )

    def _shape(self, item, described, role):
        name, dims = described.name, described.dims
        wanted = list((item.get("reshape") or item).get("shape", item.get("dims", [])))
        if item.get("allow_ragged_batch"):
            self._ragged(name, dims)
            return
        if role == "output" and name in self._scattered:
            return
        if not dims and not self._batched:
            self._scalar(name, wanted)
            return
        given = list(wanted)
        if self._batched:
            if dims[:1] != [-1]:
                raise SignatureError(
                    f"model '{self._model.name}', tensor '{name}': for the model to support batching the shape should "
                    "have at least 1 dimension and the first dimension must be -1; but shape expected by the model is "
                    f"{dtypes.dims_text(dims)}: write max_batch_size: 0 and all dimensions, or export the model with a "
                    "free first dimension"
                )
            given = [-1, *wanted]
        fits = len(dims) == len(given) and all(
            there == said or (there == -1 and role == "input") for there, said in zip(dims, given)
        )
        if not fits:
            self._differs(name, dims, given)

    def _differs(self, name, dims, given):
        less = 1 if self._batched else 0
        raise SignatureError(
            f"model '{self._model.name}', tensor '{name}': the model expects {len(dims)} dimensions (shape "
            f"{dtypes.dims_text(dims)}) but the model configuration specifies {len(given)} dimensions "
            f"({'an initial batch dimension because max_batch_size > 0 followed by ' if less else ''}"
            f"the explicit tensor shape, making complete shape {dtypes.dims_text(given)}): write dims: "
            f"{dtypes.dims_text(dims[less:])}"
        )

    def _ragged(self, name, dims):
        if dims != [-1]:
            raise SignatureError(
                f"model '{self._model.name}', configuration expects model provides input with shape [-1]  for ragged "
                f"input '{name}', model provides {dtypes.dims_text(dims)}"
            )

    def _scalar(self, name, wanted):
        if any(dim != 1 for dim in wanted):
            raise SignatureError(
                f"model '{self._model.name}', scalar tensor '{name}', should only provide 1 in the model configuration "
                f"when the model doesn't support batching: it has {dtypes.dims_text(wanted)}"
            )

    def _optional(self, item):
        name, whose = item["name"], f"model '{self._model.name}', optional input '{item['name']}'"
        if self._batched:
            raise SignatureError(f"{whose} is not supported for models that support batching")
        if item.get("allow_ragged_batch"):
            raise SignatureError(f"{whose} cannot be ragged")
        known = {each.name: each for each in self._signature.optional}
        if name not in known:
            raise SignatureError(
                f"{whose} has no value in the model's file, so it cannot be left out: "
                f"{_listed(self._signature.optional)} can; remove 'optional'"
            )
        self._tensor(item, known, "input")

    def _control(self, control, known):
        name, _, code = control[:3]
        described = known.get(name)
        whose = f"unable to load model '{self._model.name}', configuration specified sequence control '{name}'"
        if described is None:
            raise SignatureError(f"{whose}, but model does not provide that input: {_listed(self._signature.inputs)}")
        dims = described.dims[1:] if self._batched else described.dims
        if dims not in ([1], [-1]):
            raise SignatureError(
                f"unable to load model '{self._model.name}', sequence control '{name}' in model has dims "
                f"{dtypes.dims_text(dims)} but dims [1] is expected"
            )
        if described.config_type != dtypes.TYPES[code][1]:
            raise SignatureError(
                f"unable to load model '{self._model.name}', sequence control '{name}', the model expects data-type "
                f"{described.dtype} but the model configuration specifies data-type {dtypes.TYPES[code][1]}"
            )


def _listed(tensors):
    return ", ".join(map(str, tensors)) or "none"
