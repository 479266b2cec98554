"""What a configuration says of how a PyTorch model runs: threads, modes, compilation, the device."""

import json

from tisfast_worker.backend_options import OptionError, Options
from tisfast_worker.failure import Refusal
from tisfast_worker.serving_context import current

RUNTIME = "model.py"
_COMPILE = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
_COMPILE_KEYS = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")


class ExecutionSettings:
    """Of one model.

    device: where it runs, None for the memory of the host; cleans: GPU memory is given back after each batch;
    shares_weights: with the model's other instances; compiles: the arguments of torch.compile, None where nobody asks.
    """

    def __init__(self, torch, model):
        """Raises Refusal for what this PyTorch cannot do, or what means nothing."""
        self._torch, self._model = torch, model
        said = self._said = Options(model.config)
        config = json.loads(model.config)
        self._has_parameters = bool(config.get("parameters"))
        self.by_module = config.get("runtime", "") == RUNTIME
        self.device = self._device()
        self._optimises = not said.flag("DISABLE_OPTIMIZED_EXECUTION", False)
        self._inference = said.flag("INFERENCE_MODE", True)
        self._cudnn = not said.flag("DISABLE_CUDNN", False)
        self._cleaning = said.flag("ENABLE_CACHE_CLEANING", said.flag("CACHE_CLEANING_ENABLED", False))
        self.cleans = self._cleaning and self.device is not None
        self.shares_weights = said.flag("ENABLE_WEIGHT_SHARING", True)
        self._profiles = said.flag("ENABLE_JIT_PROFILING")
        self._profiling_executor = said.flag("ENABLE_JIT_EXECUTOR")
        self._fuses = said.flag("ENABLE_TENSOR_FUSER")
        if said.flag("ENABLE_NVFUSER", False):
            raise OptionError(
                f"parameter ENABLE_NVFUSER of model '{model.name}' is true, and torch {torch.__version__} has no "
                "nvFuser: remove it, ENABLE_TENSOR_FUSER chooses the fuser that there is"
            )
        self._threads = self._count("INTRA_OP_THREAD_COUNT", "NUM_THREADS") or model.threads
        self._operators = self._count("INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS") or 1
        self.compiles = self._compile_arguments()

    def apply(self):
        """Set what belongs to the process.  Before the first tensor is made."""
        torch = self._torch
        torch.set_num_threads(self._threads)
        if torch.get_num_interop_threads() != self._operators:
            torch.set_num_interop_threads(self._operators)
        if self._profiles is not None:
            torch._C._jit_set_profiling_mode(self._profiles)
        if self._profiling_executor is not None:
            torch._C._jit_set_profiling_executor(self._profiling_executor)
        if self._fuses is not None:
            torch._C._jit_set_texpr_fuser_enabled(self._fuses)
        if not self._cudnn:
            torch.backends.cudnn.enabled = False
        torch._C._set_graph_executor_optimize(self._optimises)

    def contexts(self):
        """What all executions run in."""
        return [self._torch.inference_mode() if self._inference else self._torch.no_grad()]

    def compiled(self, module):
        """The module as a parameter wants it.  Raises OptionError."""
        if self.compiles is None:
            return module
        try:
            return self._torch.compile(module, **self.compiles)
        except (TypeError, ValueError, RuntimeError) as error:
            whose = f"of model '{self._model.name}'"
            raise OptionError(f"parameter {_COMPILE} {whose}: torch.compile says: {error}") from None

    def refuse_compile(self, what):
        """Of a program that cannot be compiled.  Raises OptionError where it was asked for."""
        if self.compiles is not None:
            raise OptionError(
                f"parameter {_COMPILE} of model '{self._model.name}': torch.compile takes programs of torch.export and "
                f"modules in a model.py, and this is {what}: remove it, or export the model with torch.export"
            )

    def tell(self):
        """Say in the log what was set, as Triton does."""
        torch, whose = self._torch, f"for model instance '{self._model.instance}'"
        if self._has_parameters:
            for what, is_on in (
                ("Optimized execution", self._optimises), ("Cache Cleaning", self._cleaning),
                ("Inference Mode", self._inference), ("cuDNN", self._cudnn),
            ):  # fmt: skip
                current().log("INFO", f"{what} is {'enabled' if is_on else 'disabled'} {whose}", "pytorch.py", 0)
        text = (
            f"torch {torch.__version__} on {self.device or 'cpu'}; {self._threads} thread(s) for an operator, "
            f"{self._operators} for operators at one time" + "".join(f"; {each}" for each in self._said.said)
        )
        current().log("VERBOSE", text, "pytorch.py", 0)

    def _count(self, *keys):
        return next(filter(None, [self._said.count(key) for key in keys]), 0)

    def _device(self):
        if self._model.kind != "GPU":
            return None
        torch = self._torch
        if not torch.cuda.is_available():
            raise Refusal(
                f"model '{self._model.name}' has an instance on a GPU, and torch {torch.__version__} of its "
                "environment finds none: install a build of torch for CUDA there, or set kind: KIND_CPU in its "
                "instance_group"
            )
        return torch.device("cuda", 0)  # a worker sees one GPU only

    def _compile_arguments(self):
        text = self._said.text(_COMPILE, None)
        if text is None:
            return None
        about = f"parameter {_COMPILE} of model '{self._model.name}'"
        try:
            found = json.loads(text or "{}")
        except ValueError as error:
            raise OptionError(f"{about} is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise OptionError(f'{about} is to be a JSON object, as {{"fullgraph": true}}')
        unknown = sorted(found.keys() - set(_COMPILE_KEYS))
        if unknown:
            raise OptionError(f"{about} has '{unknown[0]}'; it may have {', '.join(_COMPILE_KEYS)}")
        return found
