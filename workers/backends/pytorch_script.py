"""TorchScript archives: torch.jit.script(...).save and torch.jit.trace(...).save."""

import warnings

from tisfast_worker.serve import backend_module

_DICT = ("Dict(str, Tensor)", "Dict[str, Tensor]")
_TENSORS = ("Tensor", "Optional[Tensor]")


class ScriptProgram:
    """One archive, in memory."""

    what = "TorchScript"
    errors = (RuntimeError, ValueError, TypeError)
    tensors = batch_max = None
    in_order = False

    def __init__(self, torch, model, settings, path):
        """Raises FileError."""
        self.files = [path]
        self._torch, self._model = torch, model
        settings.refuse_compile("TorchScript")
        files = backend_module("pytorch_files")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is to go some day, which whoever asks for it knows
            try:
                self._module = torch.jit.load(path, map_location=settings.device or "cpu").eval()
            except (RuntimeError, ValueError, OSError, EOFError) as error:
                text = first_lines(error)
                raise files.FileError(
                    f"model '{model.name}': torch {torch.__version__} cannot load {path}: {text}"
                ) from error
        module = self._module
        # Calling a module looks for hooks; where it has none, its method is a third of the price (2 of 6 us).
        hooks = module._forward_hooks or module._forward_pre_hooks
        self._call = module if hooks else module.forward
        self._read_schema(files)

    def _read_schema(self, files):
        schema = self._module.forward.schema
        arguments = schema.arguments[1:]  # the first one is the module
        kinds = {each.name: str(each.type) for each in arguments}
        dicts = [each for each in arguments if kinds[each.name] in _DICT or each.type.kind() == "DictType"]
        if len(dicts) > 1:
            raise files.FileError(
                f"model '{self._model.name}': Multiple inputs of kind DictType were detected. Only a single input of "
                "type Dict(str, Tensor) or input(s) of type Tensor are supported."
            )
        self.takes_dict = len(dicts) == 1 and len(arguments) == 1
        used = []
        for each in arguments:
            kind = kinds[each.name]
            if kind in _TENSORS or kind == "List[str]" or self.takes_dict:
                used.append(each)
            elif not each.has_default_value():
                raise files.FileError(
                    f"model '{self._model.name}': An input of type '{kind}' was detected in the model. Only a single "
                    f"input of type Dict(str, Tensor) or input(s) of type Tensor are supported. It is '{each.name}'"
                )
        self.inputs = [each.name for each in used]
        self.required = {each.name for each in used if not each.has_default_value()}
        self.texts = {each.name for each in used if kinds[each.name] == "List[str]"}
        # An argument that is no tensor keeps its value; those behind it can be given by name only.
        self.by_name_only = [each.name for each in arguments[: len(used)]] != self.inputs
        self.aliases = self.output_places = {}
        returned = schema.returns[0].type if schema.returns else None
        self.outputs = _outputs_of(returned)
        self.keyed = returned is not None and (
            returned.kind() == "DictType" or (returned.kind() == "TupleType" and not str(returned).startswith("Tuple["))
        )

    def settle(self):
        """Nothing is left to do."""

    def run(self, values):
        """What the module returns."""
        return self._call(*values)

    def run_named(self, values):
        """The same, of arguments by name."""
        return self._call(values) if self.takes_dict else self._call(**values)

    def modules(self):
        """What has weights."""
        return [self._module]

    def free(self):
        """Let go of it."""
        self._module = self._call = None


def first_lines(error):
    """Its text without the C++ functions that it came through."""
    return str(error).partition("\nException raised from ")[0].strip() or type(error).__name__


def _outputs_of(kind):
    """Names of outputs by their number; None where it is not known."""
    if kind is None:
        return None
    if kind.kind() == "TupleType":
        return [f"OUTPUT__{at}" for at in range(len(kind.elements()))]
    if kind.kind() in ("TensorType", "ListType") and str(kind) in ("Tensor", "List[str]"):
        return ["OUTPUT__0"]
    return None
