"""Models of `runtime: "model.py"`: a torch.nn.Module in a Python file, its weights beside it; or TorchScript."""

import importlib.util
import inspect
import os
import sys
import warnings

from tisfast_worker.serve import backend_module
from tisfast_worker.serving_context import current

_FILES = ("model.py", "model.pt")


def open_model(torch, model, settings):
    """The program.  Raises FileError, and what the model's own code raises."""
    files = backend_module("pytorch_files")
    names = [each for each in (model.file, *_FILES) if each]
    paths = [os.path.join(model.version_dir, name) for name in names]
    path = next(filter(os.path.isfile, paths), "")
    if not path:
        raise files.FileError(
            f"No model found in {model.version_dir}/[{', '.join(names)}] for model instance '{model.instance}'"
        )
    if path.endswith(".py"):
        return ModuleProgram(torch, model, settings, path)
    kind = files.kind_of(path)
    if kind != files.SCRIPT:
        raise files.FileError(
            f"{path} of model '{model.name}' is neither a Python file nor TorchScript, which are what a model with "
            'runtime: "model.py" has; remove the runtime from its configuration'
        )
    program = backend_module("pytorch_script").ScriptProgram(torch, model, settings, path)
    program.in_order = True
    return program


class ModuleProgram:
    """One module, made by its class."""

    what = "the module"
    errors = ()  # what the model's own code raises is told with the place where it did
    takes_dict = by_name_only = keyed = False
    in_order = True
    outputs = tensors = batch_max = texts = None

    def __init__(self, torch, model, settings, path):
        """Raises FileError."""
        self._files, self._model = backend_module("pytorch_files"), model
        kind = self._class_of(torch, path)
        weights = os.path.splitext(path)[0] + ".pt"
        self.files = [each for each in (path, weights) if os.path.isfile(each)]
        try:
            self._module = kind()
        except TypeError as error:
            raise self._files.FileError(
                f"model '{model.name}': class {kind.__name__} of {path} is made without arguments: {error}"
            ) from error
        self._load_weights(torch, weights)
        self._module.eval()
        if settings.device is not None:
            self._module.to(settings.device)
        self._call = settings.compiled(self._module)
        self.aliases, self.output_places = {}, {}
        self._read_arguments(self._module.forward)

    def _class_of(self, torch, path):
        """The module's own first subclass of Module by name; else the first that it has imported."""
        name = f"{self._model.version}.{os.path.splitext(os.path.basename(path))[0]}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        kinds = [
            each for _, each in sorted(vars(module).items())
            if inspect.isclass(each) and issubclass(each, torch.nn.Module) and each is not torch.nn.Module
        ]  # fmt: skip
        if not kinds:
            raise self._files.FileError(f"model '{self._model.name}': {path} has no class derived from torch.nn.Module")
        return next((each for each in kinds if each.__module__ == name), kinds[0])

    def _load_weights(self, torch, path):
        if not os.path.isfile(path):
            text = f"Model parameter file not found for '{self._model.name}': there is no {path}"
            current().log("WARN", text, "pytorch.py", 0)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                weights = torch.load(path, map_location="cpu", weights_only=True)
            self._module.load_state_dict(weights)
        except Exception as error:  # a pickle may be anything
            raise self._files.FileError(
                f"model '{self._model.name}': {path} is not taken as the weights of "
                f"{type(self._module).__name__}: {error}. It is what torch.save(module.state_dict(), ...) writes"
            ) from error

    def _read_arguments(self, forward):
        known = list(inspect.signature(forward).parameters.values())
        self.inputs = [each.name for each in known if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        self.required = {each.name for each in known if each.name in self.inputs and each.default is each.empty}
        if any(each.kind is each.VAR_POSITIONAL for each in known):
            count = backend_module("pytorch_names").input_count(self._model)
            self.inputs += [f"argument {at}" for at in range(len(self.inputs), count)]

    def settle(self):
        """Nothing is left to do."""

    def run(self, values):
        """What the module returns."""
        return self._call(*values)

    def run_named(self, values):
        """The same, of arguments by name."""
        return self._call(**values)

    def modules(self):
        """What has weights."""
        return [self._module]

    def free(self):
        """Let go of it."""
        self._module = self._call = None
