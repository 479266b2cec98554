"""Programs of torch.export: archives that say names, types and shapes of what they take and return."""

import warnings

from tisfast_worker.serve import backend_module


class ExportedProgram:
    """One program, in memory."""

    what = "the exported program"
    errors = (RuntimeError, ValueError, TypeError, AssertionError, IndexError)
    takes_dict = by_name_only = keyed = in_order = False
    texts = frozenset()

    def __init__(self, torch, model, settings, path):
        """Raises FileError."""
        self.files = [path]
        self._torch, self._settings = torch, settings
        files, script = backend_module("pytorch_files"), backend_module("pytorch_script")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = torch.export.load(path)
            except Exception as error:  # whatever a damaged archive makes it raise
                raise files.FileError(
                    f"model '{model.name}': torch {torch.__version__} cannot load {path}: {script.first_lines(error)}. "
                    "Programs are read by the version that exported them, and by most that are newer"
                ) from error
            if settings.device is not None:
                from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - torch does not import it

                program = move_to_device_pass(program, settings.device)
            self._module = program.module()
        self._read_signature(program, model, files)
        self._call = settings.compiled(self._module)
        self._flatten, self._unflatten = torch.utils._pytree.tree_leaves, torch.utils._pytree.tree_unflatten

    def _read_signature(self, program, model, files):
        tree = backend_module("pytorch_tree")
        said, self._spec = program.graph_signature, program.call_spec.in_spec
        known = {node.name: node for node in program.graph.nodes}
        for name in said.user_inputs:
            if not isinstance(name, str) or "val" not in known[name].meta or not _is_tensor(self._torch, known[name]):
                raise files.FileError(f"model '{model.name}': argument {name} of its exported program is no tensor")
        self.inputs = list(said.user_inputs)
        self.required = set(self.inputs)
        self.aliases = {name: at for at, name in enumerate(tree.argument_places(self._spec))}
        places = tree.places_of(program.call_spec.out_spec, "RESULT")
        self.output_places = {name: at for at, name in enumerate(places)}
        self.outputs = _output_names(program.call_spec.out_spec, len(places))
        self.output_places.update({name: at for at, name in enumerate(self.outputs)})
        bounds = {str(symbol): bound for symbol, bound in program.range_constraints.items()}
        values = {name: known[name].meta["val"] for name in self.inputs}
        results = [known.get(name) for name in said.user_outputs]
        if any(node is None or not _is_tensor(self._torch, node) for node in results):
            raise files.FileError(f"model '{model.name}': its exported program returns what is no tensor")
        self.tensors = (
            [self._described(value) for value in values.values()],
            [self._described(node.meta["val"]) for node in results],
        )
        self.batch_max = _batch_max(list(values.values()), bounds)

    def _described(self, value):
        """(KServe's type, dims) of an example that the program was exported with."""
        wire = backend_module("pytorch_tensors").wire_types(self._torch)
        dims = [dim if isinstance(dim, int) else -1 for dim in value.shape]
        return wire.get(value.dtype, str(value.dtype)), dims

    def settle(self):
        """Nothing is left to do."""

    def run(self, values):
        """The outputs, in their order."""
        arguments, named = self._unflatten(values, self._spec)
        return self._flatten(self._call(*arguments, **named))

    def modules(self):
        """What has weights."""
        return [self._module]

    def free(self):
        """Let go of it."""
        self._module = self._call = None


def _is_tensor(torch, node):
    return isinstance(node.meta.get("val"), torch.Tensor)


def _output_names(spec, count):
    """Keys where a dictionary is returned, else by number."""
    if spec.type is dict and len(spec.context) == count:
        return [str(key) for key in spec.context]
    return [f"OUTPUT__{at}" for at in range(count)]


def _batch_max(values, bounds):
    """The most rows: the bound of the symbol that is the first dimension of all inputs; None where there is none."""
    symbols = {str(value.shape[0]) if value.dim() else "" for value in values}
    if len(symbols) != 1 or next(iter(symbols)) not in bounds:
        return None
    upper = bounds[next(iter(symbols))].upper
    try:
        found = int(upper)
    except (TypeError, ValueError, OverflowError, AttributeError):  # the last one is what an open bound gives
        return None
    return found if found < 1 << 31 else None
