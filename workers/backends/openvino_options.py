"""How OpenVINO compiles a model: what a configuration's parameters say, in OpenVINO's words.  Errors are Triton's."""

import os

from tisfast_worker.backend_options import OptionError, Options
from tisfast_worker.serving_context import current

CPU = "CPU"
_HINTS = ("latency", "throughput", "cumulative_throughput")
_COMPILATION = "COMPILATION_NUM_THREADS"


class InferenceSettings:
    """What one model's parameters say.

    extension: path of a library with operations, "" for none; device: OpenVINO's name; padding, reshape:
    ENABLE_BATCH_PADDING and RESHAPE_IO_LAYERS; properties: of the compilation.
    """

    def __init__(self, model):
        """Raises OptionError for what means nothing."""
        self._said = said = Options(model.config)
        self.extension = _beside(model, said.text("CPU_EXTENSION_PATH"))
        self.device = said.text("TARGET_DEVICE").upper() or CPU
        self.padding, self.reshape = self._flag("ENABLE_BATCH_PADDING"), self._flag("RESHAPE_IO_LAYERS")
        self._flag("SKIP_OV_DYNAMIC_BATCHSIZE")  # of devices that gather batches themselves: nothing does here
        self.properties = {"PERFORMANCE_HINT": self._hint(), "NUM_STREAMS": self._streams()}
        threads = self._count("INFERENCE_NUM_THREADS")
        precision = self._precision()
        if self.device == CPU:
            threads = model.threads if threads is None else threads
            precision = precision or "f32"
            # Each instance would hold its threads to the same cores as the others.
            self.properties["ENABLE_CPU_PINNING"] = False
        if threads is not None:
            self.properties["INFERENCE_NUM_THREADS"] = threads
        if precision:
            self.properties["INFERENCE_PRECISION_HINT"] = precision
        self._compilation = self._count(_COMPILATION)

    def supported_by(self, core):
        """The properties for a device that may not know all of them."""
        known = set(core.get_property(self.device, "SUPPORTED_PROPERTIES"))
        if self._compilation is not None:
            if _COMPILATION in known:
                self.properties[_COMPILATION] = self._compilation
            else:
                text = f"parameter '{_COMPILATION}' has no effect: {self.device} of this OpenVINO has no such property"
                current().log("INFO", text, "openvino.py", 0, once=_COMPILATION)
        return self.properties

    def tell(self, version):
        """Say in the log what was set."""
        properties = ", ".join(f"{key} {value}" for key, value in self.properties.items())
        said = "".join(f"; Configuring {each}" for each in self._said.said)
        current().log("VERBOSE", f"openvino {version}: {self.device}; {properties}{said}", "openvino.py", 0)

    def _flag(self, key):
        """Only yes is true."""
        return self._said.text(key).lower() == "yes"

    def _count(self, key):
        value = self._said.text(key)
        if not value:
            return None
        if not value.isdigit():
            raise OptionError(f"expected the parameter '{key}' to be a non-negative number, got {value.lower()}")
        return int(value)

    def _streams(self):
        value = self._said.text("NUM_STREAMS").lower()
        if not value or value.isdigit():
            return int(value or 1)
        if value not in ("auto", "numa"):
            raise OptionError(f"expected the parameter 'NUM_STREAMS' to be either AUTO/NUMA/<int_value>, got {value}")
        return value.upper()

    def _hint(self):
        value = self._said.text("PERFORMANCE_HINT").lower() or _HINTS[0]
        if value not in _HINTS:
            raise OptionError(
                f"expected the parameter 'PERFORMANCE_HINT' to be LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got {value}"
            )
        return value.upper()

    def _precision(self):
        value = self._said.text("HINT_BF16").lower()
        if value not in ("", "yes"):
            raise OptionError(f"expected the parameter 'HINT_BF16' to be YES, got {value}")
        return "bf16" if value else ""


def _beside(model, path):
    """In the model's folders where the path is relative."""
    for folder in (model.version_dir, model.repository):
        if path and os.path.exists(os.path.join(folder, path)):
            return os.path.join(folder, path)
    return path
