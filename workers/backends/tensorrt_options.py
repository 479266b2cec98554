"""How a plan is read and run: by the configuration and --backend-config.  Errors are Triton's where it has one."""

import ctypes
import json

from tisfast_worker.backend_options import OptionError, Options, truth
from tisfast_worker.serving_context import current

_POLICIES = ("DEVICE_BLOCKING", "BLOCKING")
_STRATEGIES = ("STATIC", "ON_PROFILE_CHANGE")
_STRATEGY = "execution_context_allocation_strategy"
_GRAPH_SIZES = (1, 2, 3, 4, 6, 8, 12, 16)


class EngineSettings:
    """What is said about one instance's engine.  runs_host_code: version-compatible plans may bring code."""

    def __init__(self, model):
        """Raises OptionError for what means nothing."""
        self._model, self._config = model, json.loads(model.config)
        said = model.settings
        self.runs_host_code = truth("version-compatible", said.get("version-compatible", "false"))
        # Batches are joined anyway, and each instance is a process with a thread of its own: both have no effect here.
        truth("coalesce-request-input", said.get("coalesce-request-input", "false"))
        policy = said.get("execution-policy", _POLICIES[0])
        if policy not in _POLICIES:
            raise OptionError(f"execution-policy is '{policy}', and can be {' or '.join(_POLICIES)}")
        self._plugins = [path for path in said.get("plugins", "").split(";") if path]
        self._strategy = Options(model.config).text(_STRATEGY)
        if self._strategy and self._strategy not in _STRATEGIES:
            raise OptionError(
                f"Invalid value for '{_STRATEGY}': '{self._strategy}' for model instance '{model.name}': it is "
                f"{' or '.join(_STRATEGIES)}"
            )
        self._cuda = self._config.get("optimization", {}).get("cuda", {})
        if self._cuda.get("graph_spec") and not self._cuda.get("graphs"):
            raise OptionError(
                f"model '{model.name}' has optimization.cuda.graph_spec and not 'graphs: true', without which it has "
                "no effect"
            )

    def load_plugins(self, package, log):
        """TensorRT's own plugins, and those of --backend-config; one that fails is logged, as in Triton."""
        package.init_libnvinfer_plugins(log, "")
        for path in self._plugins:
            try:
                ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            except OSError as error:
                current().log("ERROR", f"plugin '{path}' of TensorRT cannot be loaded: {error}", "tensorrt.py", 0, path)

    def strategy(self, package):
        """How contexts get their memory, None for TensorRT's own way."""
        return getattr(package.ExecutionContextAllocationStrategy, self._strategy) if self._strategy else None

    def profiles_of(self, count):
        """Indexes of the profiles that are used.  Raises OptionError."""
        groups = self._config.get("instance_group", ())
        if self._model.serves:
            own = self._model.instance.rpartition("_")[0]
            groups = [group for group in groups if group.get("name") == own]
        named = [text for group in groups for text in group.get("profile", ())] or ["0"]
        for text in named:
            if not text.isdecimal() or int(text) >= count:
                raise OptionError(
                    f"instance group of model '{self._model.name}' names profile '{text}': its plan has "
                    f"{count}, from 0 to {count - 1}"
                )
        return sorted({int(text) for text in named})

    def graph_shapes(self, inputs, profiles):
        """Shapes by the inputs' names, for each CUDA graph that is captured at load.  Raises OptionError."""
        if not self._cuda.get("graphs"):
            return []
        specs = self._cuda.get("graph_spec", ())
        if not specs:
            return [self._shapes(inputs, profiles, size, {}) for size in self._default_sizes()]
        return [self._of_spec(inputs, profiles, spec) for spec in specs]

    def _default_sizes(self):
        most = self._model.max_batch_size
        if most == 0:
            return [0]
        batching = self._config.get("dynamic_batching")
        sizes = _GRAPH_SIZES if batching is None else (1, *batching.get("preferred_batch_size", ()))
        return sorted({size for size in (*sizes, most) if size <= most})

    def _of_spec(self, inputs, profiles, spec):
        size, most = spec.get("batch_size", 0), self._model.max_batch_size
        if not (1 <= size <= most if most else size == 0):
            wanted = f">= 1 and <= {most}" if most else "0"
            raise OptionError(
                f"model '{self._model.name}': graph spec expects 'batch_size' to be {wanted}, got {size}"
            )
        if spec.get("graph_lower_bound"):
            raise OptionError(
                f"model '{self._model.name}': graph_spec has graph_lower_bound, which is not served: a graph runs "
                "batches of its own size; write a graph_spec for each size"
            )
        said = {name: [int(dim) for dim in shape.get("dim", ())] for name, shape in spec.get("input", {}).items()}
        unknown = sorted(set(said) - {each.name for each in inputs})
        if unknown:
            raise OptionError(f"model '{self._model.name}': graph spec names input '{unknown[0]}', which it has not")
        return self._shapes(inputs, profiles, size, said)

    def _shapes(self, inputs, profiles, size, said):
        """With the sizes that the profile is made for where neither the plan nor the spec says them."""
        lead, shapes = ([size] if size else []), {}
        for each in inputs:
            best = each.ranges[profiles[0]][1]
            shapes[each.name] = tuple([*lead, *(said.get(each.name) or best[len(lead) :])])
        return shapes
