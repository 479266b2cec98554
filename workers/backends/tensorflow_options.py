"""How TensorFlow runs a model: what a configuration and --backend-config say, in TensorFlow's words."""

import json
import os

from tisfast_worker.backend_options import OptionError, Options, truth
from tisfast_worker.serving_context import current

_XLA_FLAGS, _XLA_ON_CPU = "TF_XLA_FLAGS", "--tf_xla_cpu_global_jit"
_ACCELERATORS = frozenset({"tensorrt", "gpu_io", "auto_mixed_precision"})


class SessionSettings:
    """What one configuration says.  tag, signature: "" for the usual ones; config: the session's ConfigProto."""

    def __init__(self, tf, model):
        """Raises Refusal for what means nothing, or what this TensorFlow cannot do."""
        self._tf, self._model, self._config = tf, model, json.loads(model.config)
        self._said = said = Options(model.config)
        self.tag, self.signature = said.text("TF_GRAPH_TAG"), said.text("TF_SIGNATURE_DEF")
        self._init_file = said.text("TF_INIT_OPS_FILE")
        self._check_sharing()
        self._check_version()
        self._check_accelerators()
        self.config = tf.compat.v1.ConfigProto(
            allow_soft_placement=truth("allow-soft-placement", model.settings.get("allow-soft-placement", "true")),
            intra_op_parallelism_threads=self._threads("TF_NUM_INTRA_THREADS"),
            inter_op_parallelism_threads=self._threads("TF_NUM_INTER_THREADS", negative=True),
            use_per_session_threads=True,  # a process has one session, so either way the threads are its own
        )
        self._set_devices()
        self._set_compilation()

    def load_libraries(self):
        """Operations that the model brings."""
        for path in self._config.get("model_operations", {}).get("op_library_filename", ()):
            self._tf.load_op_library(self._beside(path))

    def init_operations(self):
        """Names of the operations that are run once, before the first execution.  Raises OptionError."""
        if not self._init_file:
            return []
        path = self._beside(self._init_file)
        whose = f"file '{path}' of parameter TF_INIT_OPS_FILE of model '{self._model.name}'"
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
        except OSError as error:
            raise OptionError(f"{whose} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise OptionError(f"{whose} is no JSON: {error}") from None
        names = said.get("init_ops") if isinstance(said, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise OptionError(f'{whose} has no list of names: write {{"init_ops": ["NODE", ...]}}')
        return names

    def tell(self, what):
        """Say in the log what was set."""
        config = self.config
        said = "".join(f"; Configuring {each}" for each in self._said.said)
        text = (
            f"tensorflow {self._tf.__version__}: {what}; {config.intra_op_parallelism_threads} thread(s) for an "
            f"operation, {config.inter_op_parallelism_threads} for operations at one time{said}"
        )
        current().log("VERBOSE", text, "tensorflow.py", 0)

    def _threads(self, key, negative=False):
        """0 or left out: the instance's share of the cores."""
        count = self._said.number(key, 0)
        if count < 0 and not negative:
            raise OptionError(
                f"parameter '{key}' must be non-negative number for TensorFlow model '{self._model.name}': it is "
                f"{count}"
            )
        return count or self._model.threads

    def _check_sharing(self):
        self._flag("TF_USE_PER_SESSION_THREADS")
        count = self._said.number("MAX_SESSION_SHARE_COUNT", 1)
        if count <= 0:
            raise OptionError(
                "parameter 'MAX_SESSION_SHARE_COUNT' must be positive number for TensorFlow model "
                f"'{self._model.name}': it is {count}"
            )
        if count > 1:
            text = (
                f"parameter MAX_SESSION_SHARE_COUNT of model '{self._model.name}' has no effect: each instance is a "
                "process with a session of its own; threads of one session serve as many requests as its batches hold"
            )
            current().log("WARN", text, "tensorflow.py", 0, once="share")

    def _flag(self, key):
        """Triton takes yes for this one, too."""
        value = self._said.text(key, "false")
        return value.lower() == "yes" or truth(key, value)

    def _check_version(self):
        version = self._model.settings.get("version", "2")
        if version != "2":
            raise OptionError(
                f"--backend-config=tensorflow,version={version}: models run with TensorFlow "
                f"{self._tf.__version__.partition('.')[0]}, which serves graphs of TensorFlow 1, too; remove it"
            )

    def _check_accelerators(self):
        asked = self._config.get("optimization", {}).get("execution_accelerators", {})
        if asked.get("cpu_execution_accelerator"):
            raise OptionError(
                f"CPU Execution Accelerator is not supported in TensorFlow backend: model '{self._model.name}' asks "
                f"for '{asked['cpu_execution_accelerator'][0]['name']}'; remove it"
            )
        names = [each["name"] for each in asked.get("gpu_execution_accelerator", ())]
        for name in names:
            if name not in _ACCELERATORS:
                raise OptionError(f"unknown Execution Accelerator '{name}' is requested")
        if names and self._model.kind != "GPU":
            text = "GPU Execution Accelerator will be ignored for model instance on CPU"
            current().log("WARN", f"{text}: {', '.join(names)} of '{self._model.name}'", "tensorflow.py", 0, once="gpu")
        elif names:
            raise OptionError(
                f"gpu_execution_accelerator '{names[0]}' of model '{self._model.name}' is not served: remove it, or "
                "convert the model to ONNX or to a plan of TensorRT"
            )

    def _set_devices(self):
        if self._model.kind != "GPU":
            self.config.device_count["GPU"] = 0
            return
        if not self._tf.config.list_physical_devices("GPU"):
            raise OptionError(
                f"model '{self._model.name}' asks for a GPU, and TensorFlow {self._tf.__version__} in its environment "
                "finds none: install tensorflow[and-cuda] there in place of tensorflow-cpu, or set kind: KIND_CPU in "
                "its instance_group"
            )
        options = self.config.gpu_options  # a worker sees one GPU only
        options.allow_growth = True
        fraction = self._model.settings.get("gpu-memory-fraction")
        if fraction is not None:
            options.per_process_gpu_memory_fraction = _fraction(fraction)

    def _set_compilation(self):
        """XLA: graph.level above 0 compiles what it can, -1 nothing."""
        level = self._config.get("optimization", {}).get("graph", {}).get("level", 0)
        levels = self._tf.compat.v1.OptimizerOptions
        choices = {-1: levels.OFF, 1: levels.ON_1}
        choice = levels.ON_2 if level > 1 else choices.get(level, levels.DEFAULT)
        self.config.graph_options.optimizer_options.global_jit_level = choice
        if level > 0 and self._model.kind != "GPU":
            # Read when the first session is made; without it XLA leaves the CPU out.
            os.environ[_XLA_FLAGS] = f"{os.environ.get(_XLA_FLAGS, '')} {_XLA_ON_CPU}".strip()

    def _beside(self, path):
        """In the model's folders where the path is relative."""
        for folder in (self._model.version_dir, self._model.repository):
            if os.path.exists(os.path.join(folder, path)):
                return os.path.join(folder, path)
        return path


def _fraction(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise OptionError(f"--backend-config=tensorflow,gpu-memory-fraction={text}: it is a number above 0, up to 1")
    return value
