"""Which argument and which output of a program each tensor of a configuration is, by Triton's rules.

Names of arguments; or NAME__INDEX, by the index; or the configuration's order.
"""

import json
import re

from tisfast_worker import dtypes, file_signature
from tisfast_worker.failure import Refusal
from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

_INDEXED = re.compile(r".*__(\d{1,4})$", re.DOTALL)


class PlaceError(Refusal):
    """A tensor of the configuration has no place in the program; the text says why."""


class Places:
    """Where the tensors are.

    inputs: places of arguments by the configuration's names; keywords: places by the arguments' names where the program
    is called so, else None; outputs: places in what it returns by the configuration's names.
    """

    __slots__ = ("inputs", "keywords", "outputs")

    def __init__(self, inputs, keywords, outputs):
        """See the class."""
        self.inputs, self.keywords, self.outputs = inputs, keywords, outputs


class Signature:
    """A configuration beside a program."""

    def __init__(self, torch, model, program):
        """`program`: see pytorch_files.py."""
        self._torch, self._model, self._program = torch, model, program
        config = self._config = json.loads(model.config)
        self._items = config.get("input", [])
        self._plain = [item["name"] for item in self._items]
        self._plain += [name for item in config.get("batch_input", ()) for name in item["target_name"]]
        sequences = model.sequences
        self._controls = [] if sequences is None else sequences.controls
        self._states = [] if sequences is None else sequences.states
        self._added = [control[0] for control in self._controls] + [state.input_name for state in self._states]
        self._results = [item["name"] for item in config.get("output", ())]
        self._results += [each.output_name for each in self._states if each.output_name not in self._results]

    def check(self):
        """Raises Refusal where configuration and program do not fit."""
        places = self.places()
        self._check_types(places)
        self._check_texts(places)
        program, model = self._program, self._model
        if program.tensors is not None:
            file_signature.check(model, file_signature.FileSignature(self.described(places)))
        if program.batch_max is not None and model.max_batch_size > program.batch_max:
            raise PlaceError(
                f"model '{model.name}' has max_batch_size {model.max_batch_size}, and its program was exported for "
                f"batches of at most {program.batch_max}: write max_batch_size: {program.batch_max}, or export it anew"
            )

    def places(self):
        """The Places.  Raises PlaceError."""
        self._refuse_optional()
        if self._program.takes_dict:
            inputs = {name: at for at, name in enumerate([*self._plain, *self._added])}
            return Places(inputs, dict(inputs), self._output_places())
        self._count()
        inputs = self._input_places()
        return Places(inputs, self._keywords(inputs), self._output_places())

    def described(self, places):
        """What ArrayBackend.describe says of a program that knows its tensors, in the configuration's names."""
        program = self._program
        taken, given = program.tensors
        names = {at: name for name, at in places.inputs.items()}
        results = {at: name for name, at in places.outputs.items()}
        return {
            "inputs": [(names.get(at, program.inputs[at]), *each) for at, each in enumerate(taken)],
            "outputs": [(results.get(at, program.outputs[at]), *each) for at, each in enumerate(given)],
        }

    def _refuse_optional(self):
        for item in self._items:
            if item.get("optional"):
                raise PlaceError(
                    f"'optional' is set to true for input '{item['name']}' while the backend model doesn't support "
                    f"optional input: remove it from the configuration of model '{self._model.name}'"
                )

    def _count(self):
        program, configured = self._program, len(self._plain) + len(self._added)
        if not len(program.required) <= configured <= len(program.inputs):
            raise PlaceError(
                f"unable to load model '{self._model.name}', configuration expects {configured} inputs, model provides "
                f"{len(program.inputs)}: {', '.join(program.inputs) or 'none'}"
            )

    def _input_places(self):
        program, names = self._program, [*self._plain, *self._added]
        known = {**program.aliases, **{name: at for at, name in enumerate(program.inputs)}}
        if program.in_order:
            found = self._ordered(names)
        elif all(name in known for name in names):
            found = {name: known[name] for name in names}
        elif all(map(_index, names)):
            found = {name: int(_index(name)[1]) for name in names}
        else:
            found = self._ordered(names)
        for name, at in found.items():
            if at >= len(program.inputs):
                raise PlaceError(
                    f"input '{name}' of model '{self._model.name}' is argument {at} by its name, and the model takes "
                    f"{len(program.inputs)}, from 0: {', '.join(program.inputs)}"
                )
        if len(set(found.values())) < len(found):
            raise PlaceError(
                f"two inputs of model '{self._model.name}' are one argument: "
                + ", ".join(f"{name} is {program.inputs[at]}" for name, at in found.items())
            )
        return found

    def _ordered(self, names):
        if self._states and not self._program.in_order:
            self._must_be_indexed(names, "input")
        for name in self._added:
            if not _index(name):
                raise PlaceError(
                    f"input '{name}' does not follow <name>__<index> naming convention. It is a control of model "
                    f"'{self._model.name}': say which argument it is, or name all inputs as the arguments are named: "
                    f"{', '.join(self._program.inputs)}"
                )
        if not self._program.in_order:
            self._warn(self._plain, "input")
        found = {name: at for at, name in enumerate(self._plain)}
        found.update({name: int(_index(name)[1]) for name in self._added})
        return found

    def _keywords(self, inputs):
        program, places = self._program, set(inputs.values())
        if not program.by_name_only and places == set(range(len(places))):
            return None
        missing = sorted(program.required - {program.inputs[at] for at in places})
        if missing:
            raise PlaceError(
                f"unable to load model '{self._model.name}': its configuration has no input for argument "
                f"'{missing[0]}', which has no value of its own; the arguments are {', '.join(program.inputs)}"
            )
        return {program.inputs[at]: at for at in places}

    def _output_places(self):
        program, names = self._program, self._results
        if program.in_order:
            return {name: at for at, name in enumerate(names)}
        if names and all(name in program.output_places for name in names):
            return {name: program.output_places[name] for name in names}
        if names and all(map(_index, names)):
            return {name: int(_index(name)[1]) for name in names}
        if not program.keyed:
            if self._states:
                self._must_be_indexed(names, "output")
            self._warn(names, "output")
        return {name: at for at, name in enumerate(names)}

    def _must_be_indexed(self, names, role):
        wrong = next(name for name in names if not _index(name))
        raise PlaceError(
            f"PyTorch model '{self._model.name}' is using sequence batching with state but {role} '{wrong}' does not "
            "follow the <name>__<index> naming convention."
        )

    def _warn(self, names, role):
        odd = [name for name in names if "__" in name and not _index(name)]
        if odd:
            text = (
                f"{role} '{odd[0]}' of model '{self._model.name}' does not end in __INDEX, so the {role}s are taken in "
                "the order of the configuration"
            )
            current().log("WARN", text, "pytorch.py", 0, once=f"names of {role}s")

    def _check_types(self, places):
        tensors = backend_module("pytorch_tensors")
        about = f"for model '{self._model.name}'"
        for role, specs in (("input", self._model.inputs), ("output", self._model.outputs)):
            for spec in specs:
                if spec.code != dtypes.BYTES:
                    tensors.dtype_of(self._torch, spec.code, f"{role} '{spec.name}' {about}")
        for state in self._states:
            if state.code != dtypes.BYTES:
                tensors.dtype_of(self._torch, state.code, f"state '{state.input_name}' {about}")

    def _check_texts(self, places):
        program, whose = self._program, f"model '{self._model.name}'"
        for spec in self._model.inputs:
            argument = spec.name if program.takes_dict else program.inputs[places.inputs[spec.name]]
            takes = program.texts is None or argument in program.texts
            if spec.code != dtypes.BYTES:
                if takes and program.texts is not None:
                    raise PlaceError(
                        f"unsupported datatype {dtypes.TYPES[spec.code][1]} for input '{spec.name}' for {whose}: its "
                        f"argument '{argument}' is a List[str]; write data_type: TYPE_STRING"
                    )
                continue
            if not takes:
                raise PlaceError(
                    f"unsupported datatype TYPE_STRING for input '{spec.name}' for {whose}: argument '{argument}' of "
                    f"its {program.what} is a tensor, and not a List[str]"
                )
            dims = spec.dims if spec.reshape is None else spec.reshape
            if len(dims) + self._model.batched != 1:
                raise PlaceError(
                    f"Triton only supports 1 dimensional List of String as input for '{spec.name}' for {whose}"
                    + (": write reshape { shape: [ ] } beside dims: [ 1 ]" if self._model.batched else "")
                )


def input_places(torch, model, program):
    """Places of arguments by the configuration's names, while it has no outputs yet.  Raises PlaceError."""
    return Signature(torch, model, program).places().inputs


def input_count(model):
    """How many inputs the configuration has."""
    config = json.loads(model.config)
    made = sum(len(item["target_name"]) for item in config.get("batch_input", ()))
    sequences = model.sequences
    return len(config.get("input", ())) + made + (0 if sequences is None else len(sequences.input_names))


def _index(name):
    return _INDEXED.match(name)
