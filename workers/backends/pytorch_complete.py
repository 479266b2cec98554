"""A configuration completed by what a program says of its tensors, or returns for a sample.

TorchScript and compiled packages know the names of their arguments, and neither types nor shapes.  Those come from the
configuration's inputs, or from `sample.npz` beside the file: an array for each argument, by its name.  The program is
called with the sample, and with one of twice as many rows; what it returns tells the outputs.
"""

import json
import os

from tisfast_worker import dtypes, file_signature
from tisfast_worker.failure import Refusal
from tisfast_worker.serve import backend_module

SAMPLE = "sample.npz"
_FREE = (2, 3)  # sizes that stand for a free dimension, in two calls


class CompletionError(Refusal):
    """What the configuration leaves open cannot be told; the text says what to write."""


class ConfigCompletion:
    """Of one model."""

    def __init__(self, torch, model, program, settings):
        """See pytorch.py."""
        self._torch, self._model, self._program, self._settings = torch, model, program, settings
        self._tensors = backend_module("pytorch_tensors")
        self._config = json.loads(model.config)

    def completed(self):
        """The configuration as a dictionary.  Raises CompletionError, SignatureError."""
        config = self._config
        if (config.get("input") or config.get("batch_input")) and config.get("output"):
            return config
        if self._program.tensors is not None:
            return self._by_signature(self._program.inputs, *self._program.tensors)
        if config.get("input") or config.get("batch_input"):
            return self._with_outputs()
        return self._by_sample()

    def _by_signature(self, names, taken, given):
        """By the types and dims of a program's arguments and outputs."""
        config, program = self._config, self._program
        said = {
            "inputs": [(name, *each) for name, each in zip(names, taken)],
            "outputs": [(name, *each) for name, each in zip(self._output_names(len(given)), given)],
        }
        default = self._model.default_max_batch_size
        if program.batch_max is not None:
            default = program.batch_max
        return file_signature.completed(config, file_signature.FileSignature(said), default)

    def _output_names(self, count):
        return self._program.outputs or [f"OUTPUT__{at}" for at in range(count)]

    # ---- by a sample

    def _by_sample(self):
        path = os.path.join(self._model.version_dir, SAMPLE)
        if not os.path.isfile(path):
            raise CompletionError(self._ask(f"there is no {SAMPLE} beside the model's file"))
        arrays = self._read(path)
        program = self._program
        names = list(arrays) if program.takes_dict else [name for name in program.inputs if name in arrays]
        values = [self._value(name, arrays[name]) for name in names]
        returned = self._run(names, values, path)
        taken = [self._described(arrays[name]) for name in names]
        given = [self._kind(each) for each in returned.values()]
        rows = {each.shape[0] if each.ndim else 0 for each in arrays.values()}
        if len(rows) == 1 and rows != {0} and self._doubles(names, arrays, returned):
            taken, given = (
                [(dtype, [-1, *dims[1:]]) for dtype, dims in taken],
                [(dtype, [-1, *dims[1:]]) for dtype, dims in given],
            )
        self._refuse_scalars(returned)
        self._program_outputs(returned)
        found = self._by_signature(names, taken, given)
        for item in found["input"]:
            if item["data_type"] == "TYPE_STRING" and found.get("max_batch_size", 0) > 0:
                item["dims"], item["reshape"] = [1], {"shape": []}
        return found

    def _read(self, path):
        import numpy  # noqa: PLC0415 - there where this runs

        try:
            with numpy.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError) as error:
            raise CompletionError(f"{path} of model '{self._model.name}' is no archive of arrays: {error}") from None
        program = self._program
        unknown = [] if program.takes_dict else sorted(arrays.keys() - set(program.inputs))
        missing = sorted(program.required - arrays.keys()) if not program.takes_dict else []
        if unknown or missing:
            raise CompletionError(
                f"{path} of model '{self._model.name}' "
                + (f"lacks an array '{missing[0]}'" if missing else f"has '{unknown[0]}'")
                + f": the arguments are {', '.join(program.inputs)}"
            )
        return arrays

    def _value(self, name, array):
        import numpy  # noqa: PLC0415 - there where this runs

        if array.dtype.kind in "US":
            return [item if isinstance(item, str) else item.decode() for item in array.reshape(-1).tolist()]
        if array.dtype.char not in dtypes.CODE_BY_CHAR or array.dtype.kind == "O":
            raise CompletionError(f"array '{name}' of {SAMPLE} has dtype {array.dtype}, which no tensor of KServe has")
        found = self._torch.from_numpy(numpy.ascontiguousarray(array))
        return found if self._settings.device is None else found.to(self._settings.device)

    def _doubles(self, names, arrays, returned):
        """Whether twice the rows give twice the rows."""
        import numpy  # noqa: PLC0415 - there where this runs

        values = [self._value(name, numpy.concatenate([arrays[name]] * 2)) for name in names]
        try:
            twice = self._call(names, values)
        except self._program.errors:
            return False
        return twice.keys() == returned.keys() and all(
            _shape(one)[:1] and _shape(two) == [2 * _shape(one)[0], *_shape(one)[1:]]
            for one, two in zip(returned.values(), twice.values())
        )

    def _described(self, array):
        wire = "BYTES" if array.dtype.kind in "US" else dtypes.TYPES[dtypes.CODE_BY_CHAR[array.dtype.char]][0]
        return wire, list(array.shape)

    # ---- by the configuration's inputs

    def _with_outputs(self):
        """Call the program with zeros of the configured shapes: what comes back are the outputs."""
        if "sequence_batching" in self._config:
            raise CompletionError(self._ask("a model of sequences is not called to find out"))
        names = backend_module("pytorch_names")
        batched = self._config.get("max_batch_size", 0) > 0
        places = names.input_places(self._torch, self._model, self._program)
        runs = []
        for size in _FREE:
            values = self._zeros(places, size, batched)
            runs.append(self._run([self._argument(at) for at in values], list(values.values()), "zeros"))
        self._refuse_scalars(runs[0])
        items = []
        for (name, one), two in zip(runs[0].items(), runs[1].values()):
            dtype, dims = self._kind(one)
            dims = [a if a == b else -1 for a, b in zip(dims, _shape(two))]
            if batched and dims[:1] != [-1]:
                raise CompletionError(
                    f"model '{self._model.name}' has max_batch_size {self._config['max_batch_size']}, and the first "
                    f"dimension of its output '{name}' does not follow that of the inputs: write max_batch_size: 0, or "
                    "the outputs"
                )
            described = file_signature.Described(name, dtype, dims[1:] if batched else dims)
            item = {"name": name, "data_type": described.config_type, "dims": described.dims or [1]}
            if batched and not described.dims:
                item["reshape"] = {"shape": []}
            items.append(item)
        self._config["output"] = items
        return self._config

    def _argument(self, at):
        return at if self._program.takes_dict else self._program.inputs[at]

    def _zeros(self, places, size, batched):
        """Values by the place of their argument, or by name in a dictionary."""
        torch, found = self._torch, {}
        codes = {names[1]: code for code, names in dtypes.TYPES.items()}
        for item in self._config.get("input", ()):
            dims = (item.get("reshape") or item).get("shape", item.get("dims", []))
            shape = [size if dim < 0 else dim for dim in ([-1, *dims] if batched else dims)]
            code = codes[item["data_type"]]
            at = item["name"] if self._program.takes_dict else places[item["name"]]
            if code == dtypes.BYTES:
                found[at] = [""] * (shape[0] if shape else 1)
            else:
                dtype = self._tensors.dtype_of(torch, code, f"input '{item['name']}' for model '{self._model.name}'")
                found[at] = torch.zeros(shape, dtype=dtype, device=self._settings.device or "cpu")
        return found

    # ---- both

    def _run(self, names, values, sample):
        try:
            returned = self._call(names, values)
        except self._program.errors as error:
            raise CompletionError(self._ask(f"it cannot be called with {sample}: {error}")) from error
        return returned

    def _call(self, names, values):
        """What the program returns, by name."""
        program, tensors = self._program, self._tensors
        with self._torch.no_grad():
            if program.takes_dict or program.by_name_only or names != program.inputs[: len(names)]:
                found = program.run_named(dict(zip(names, values)))
            else:
                found = program.run(values)
        if isinstance(found, (self._torch.Tensor, str)):
            found = (found,)
        keys, flat = tensors.keys_of(found), tensors.flat(found)
        return dict(zip(keys or self._output_names(len(flat)), flat))

    def _program_outputs(self, returned):
        self._program.outputs = list(returned)

    def _refuse_scalars(self, returned):
        for name, value in returned.items():
            if not isinstance(value, list) and not (isinstance(value, self._torch.Tensor) and value.dim()):
                what = "a scalar" if isinstance(value, self._torch.Tensor) else self._tensors.kind_of(value)
                raise CompletionError(
                    f"output '{name}' of model '{self._model.name}' is {what}, which is not supported: return tensors "
                    "with a dimension, or lists of str"
                )

    def _kind(self, value):
        """(KServe's type, dims) of an output."""
        if isinstance(value, list):
            return "BYTES", [len(value)]
        wire = self._tensors.wire_types(self._torch).get(value.dtype)
        if wire is None:
            raise CompletionError(f"model '{self._model.name}' returns {value.dtype}, which no tensor of KServe has")
        return wire, list(value.shape)

    def _ask(self, why):
        """What a person is to write."""
        program = self._program
        missing = "input" if not self._config.get("input") else "output"
        arguments = "a dictionary" if program.takes_dict else ", ".join(program.inputs)
        return (
            f"model configuration must contain at least one {missing}, none were specified. {program.what} of model "
            f"'{self._model.name}' says neither types nor shapes, and {why}. Write its {missing}s into config.pbtxt, "
            f"or put {SAMPLE} there, with an array for each argument: numpy.savez('{SAMPLE}', "
            f"**{{{', '.join(f'{name!r}: ...' for name in program.inputs) or '...'}}}). It takes {arguments}"
        )


def _shape(value):
    return [len(value)] if isinstance(value, list) else list(value.shape)
