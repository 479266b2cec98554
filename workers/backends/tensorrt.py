"""The tensorrt backend: plans of TensorRT, through its Python package."""

import json
import os

from tisfast_worker.backend import ArrayBackend, framework
from tisfast_worker.serve import backend_module

FILE = "model.plan"


class Backend(ArrayBackend):
    """One engine on one GPU."""

    takes_device = joins_on_device = True

    def load(self):
        """Read the plan."""
        engines = backend_module("tensorrt_engine")
        model = self.model
        self._runs = None
        if model.kind != "GPU":
            raise engines.TensorrtError(
                f"unable to load model '{model.name}', TensorRT backend supports only GPU device: its instances are "
                f"KIND_{model.kind}, as its configuration says or as there is no GPU here that tisfast can use"
            )
        path = os.path.join(model.version_dir, model.file or FILE)
        if not os.path.exists(path):
            raise engines.TensorrtError(f"unable to find '{path}' for model '{model.name}'")
        self._package = framework("tensorrt")
        if not hasattr(self._package.ICudaEngine, "num_io_tensors"):
            raise engines.TensorrtError(
                f"model '{model.name}' needs TensorRT 10 or newer in its environment, which has "
                f"{self._package.__version__}"
            )
        self._settings = backend_module("tensorrt_options").EngineSettings(model)
        self._device = backend_module("tensorrt_device").Device(model.name)
        self._engine = engines.Engine(self._package, model, path, self._settings)
        self._fit = backend_module("tensorrt_fit")
        self._config = json.loads(model.config)

    def describe(self):
        """See ArrayBackend."""
        return self._fit.described(self._config, self._engine, self.model.batched)

    def complete(self):
        """By Triton's rules for this backend: what tensors lack is filled in, the batch size is the profiles'."""
        return json.dumps(self._fit.completed(json.loads(self.model.config), self._engine))

    def check(self):
        """See Backend."""
        self._fit.check_batch(self._config, self._engine)
        super().check()
        self._fit.check_ranges(self._config, self._engine)

    def initialize(self):
        """Make contexts, take memory, capture CUDA graphs."""
        strategy = self._settings.strategy(self._package)
        runs = backend_module("tensorrt_runs")
        self._runs = runs.Runs(self.model, self._engine, self._device, self._settings, strategy)

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        return self._runs.run(inputs, self.space)

    def free(self):
        """See Backend."""
        if self._runs is not None:
            self._runs.free()
        self._runs = self._engine = None
        self._device.close()
