"""How a session of ONNX Runtime is made: what a configuration says, in ONNX Runtime's words."""

import json
import os

from tisfast_worker.backend_options import OptionError, Options, truth
from tisfast_worker.failure import Refusal
from tisfast_worker.serving_context import current

CPU, CUDA, TENSORRT, OPENVINO = (
    name + "ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt", "OpenVINO")
)  # fmt: skip
_PACKAGES = {CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", OPENVINO: "onnxruntime-openvino"}
_LEVELS = {-1: "ORT_ENABLE_BASIC", 1: "ORT_ENABLE_EXTENDED", 2: "ORT_DISABLE_ALL"}
_SEQUENTIAL, _PARALLEL = 0, 1
_PRECISIONS = {"FP32": {}, "FP16": {"trt_fp16_enable": "1"}, "BF16": {"trt_bf16_enable": "1"},
               "INT8": {"trt_int8_enable": "1"}}  # fmt: skip
_TENSORRT_NAMES = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
    **{
        name: name
        for name in (
            *("trt_max_partition_iterations", "trt_min_subgraph_size", "trt_dla_enable", "trt_dla_core"),
            *("trt_engine_cache_enable", "trt_engine_cache_path", "trt_engine_cache_prefix", "trt_dump_subgraphs"),
            *("trt_force_sequential_engine_build", "trt_context_memory_sharing_enable", "trt_layer_norm_fp32_fallback"),
            *("trt_timing_cache_enable", "trt_timing_cache_path", "trt_force_timing_cache", "trt_detailed_build_log"),
            *("trt_build_heuristics_enable", "trt_sparsity_enable", "trt_builder_optimization_level"),
            *("trt_auxiliary_streams", "trt_tactic_sources", "trt_extra_plugin_lib_paths"),
            *("trt_profile_min_shapes", "trt_profile_max_shapes", "trt_profile_opt_shapes", "trt_cuda_graph_enable"),
            *("trt_dump_ep_context_model", "trt_ep_context_file_path", "trt_ep_context_embed_mode"),
        )
    },
}
_CUDA_NAMES = {"cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}, "gpu_mem_limit": None,
               "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
               "do_copy_in_default_stream": None}  # fmt: skip
_SHRINKAGE = "memory.enable_memory_arena_shrinkage"


class SessionSettings:
    """How one model's session is made and run.

    options: the SessionOptions; level: of graph optimisation; entries: (key, value) of the session's configuration;
    providers: (name, options); run: the RunOptions, None for the default.
    """

    def __init__(self, runtime, model):
        """Raises Refusal for what this runtime cannot do, or what means nothing."""
        self._runtime, self._model = runtime, model
        self._config = json.loads(model.config)
        self._said = Options(model.config)
        self.options, self.run = runtime.SessionOptions(), None
        self.options.log_severity_level = 1 if model.log_verbose else 3  # what it warns of, no user can mend
        self._set_graph()
        self._set_threads()
        self._set_memory()
        self.providers = self._chosen_providers()
        self.share_weights = self._said.flag("share_weights", True)
        self.entries = self._said.beginning("session.", "optimization.", "ep.")
        for key, value in self.entries:
            self.options.add_session_config_entry(key, value)
        for path in self._config.get("model_operations", {}).get("op_library_filename", ()):
            self.options.register_custom_ops_library(self._library(path))

    @property
    def on_cpu(self):
        """Whether nothing but ONNX Runtime's own kernels run."""
        return [name for name, _ in self.providers] == [CPU]

    @property
    def plain(self):
        """Whether the graph can be read by another process alike: nothing is registered with this session only."""
        return self.on_cpu and not self._config.get("model_operations", {}).get("op_library_filename")

    def on_cuda(self, session):
        """Whether a session runs on CUDA: where it cannot, ONNX Runtime makes one for the CPU, and tells stderr why."""
        if CUDA in session.get_providers():
            return True
        text = f"model '{self._model.name}' runs on the CPU, as ONNX Runtime cannot make its {CUDA}: see stderr for why"
        current().log("WARN", text, "onnxruntime.py", 0, once="cuda")
        return False

    def tell(self):
        """Say in the log what was set."""
        options, threads = self.options, self.options.intra_op_num_threads
        said = "".join(f"; Configuring {each}" for each in self._said.said)
        text = (
            f"onnxruntime {self._runtime.__version__}: {', '.join(name for name, _ in self.providers)}; {threads} "
            f"thread(s) for an operator, {options.inter_op_num_threads} for operators at one time{said}"
        )
        current().log("VERBOSE", text, "onnxruntime.py", 0)

    def optimise(self, wanted):
        """Whether the session is to optimise its graph, as far as the configuration says."""
        level = self.level if wanted else "ORT_DISABLE_ALL"
        self.options.graph_optimization_level = getattr(self._runtime.GraphOptimizationLevel, level)

    def fold_constants(self):
        """Have the session optimise its graph so far only that constants are folded, where it may at all."""
        if self.level != "ORT_DISABLE_ALL":
            self.options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC

    def _set_graph(self):
        level = self._config.get("optimization", {}).get("graph", {}).get("level", 0)
        self.level = _LEVELS.get(level, "ORT_ENABLE_ALL")
        self.optimise(True)

    def _set_threads(self):
        options, said = self.options, self._said
        mode = said.number("execution_mode", _SEQUENTIAL)
        if mode not in (_SEQUENTIAL, _PARALLEL):
            raise OptionError(
                f"Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {mode} ."
            )
        modes = self._runtime.ExecutionMode
        options.execution_mode = modes.ORT_PARALLEL if mode == _PARALLEL else modes.ORT_SEQUENTIAL
        threads = self._model.threads
        options.intra_op_num_threads = said.count("intra_op_thread_count") or threads
        options.inter_op_num_threads = said.count("inter_op_thread_count") or (threads if mode == _PARALLEL else 1)

    def _set_memory(self):
        options, said = self.options, self._said
        attributes = {"enable_mem_arena": "enable_cpu_mem_arena", "enable_mem_pattern": "enable_mem_pattern"}
        for key, attribute in attributes.items():
            wanted = said.flag(key)
            if wanted is not None:
                setattr(options, attribute, wanted)
        shrink = said.text(_SHRINKAGE)
        if shrink:
            self.run = self._runtime.RunOptions()
            self.run.add_run_config_entry(_SHRINKAGE, shrink)

    def _chosen_providers(self):
        asked = self._config.get("optimization", {}).get("execution_accelerators", {})
        found = []
        if self._model.kind == "GPU":
            for each in asked.get("gpu_execution_accelerator", ()):
                found.append(self._gpu_provider(each["name"], each.get("parameters", {})))
            if CUDA not in dict(found):
                found.append((CUDA, self._cuda({})))
        for each in asked.get("cpu_execution_accelerator", ()):
            if each["name"] != "openvino":
                raise OptionError(f"unknown Execution Accelerator '{each['name']}' is requested")
            found.append((OPENVINO, {"device_type": "CPU"}))
        there = self._runtime.get_available_providers()
        for name, _ in found:
            if name not in there:
                raise Refusal(self._not_there(name, there))
        return [*found, (CPU, {})]

    def _not_there(self, name, there):
        version, package = self._runtime.__version__, _PACKAGES[name]
        cure = "set kind: KIND_CPU in its instance_group" if name == CUDA else "take the accelerator out"
        return (
            f"model '{self._model.name}' asks for {name}, and onnxruntime {version} in its environment has only "
            f"{', '.join(there)}: install {package} there in place of onnxruntime, or {cure}"
        )

    def _gpu_provider(self, name, parameters):
        if name == "cuda":
            return CUDA, self._cuda(parameters)
        if name == "tensorrt":
            return TENSORRT, _tensorrt(parameters)
        raise OptionError(f"unknown Execution Accelerator '{name}' is requested")

    def _cuda(self, parameters):
        options = {"device_id": "0"}  # a worker sees one GPU only
        for key, value in parameters.items():
            if key in ("do_copy_in_default_stream", "use_ep_level_unified_stream"):
                options[key] = str(int(truth(key, value)))
            else:
                options[key] = value
        for key, meanings in _CUDA_NAMES.items():
            value = self._said.text(key)
            if not value:
                continue
            if meanings is not None and value not in meanings:
                raise OptionError(f"unsupported {key} value '{value}' is requested")
            options[key] = value if meanings is None else meanings[value]
        return options

    def _library(self, path):
        """Beside the model where the path is relative."""
        for folder in (self._model.version_dir, self._model.repository):
            if os.path.exists(os.path.join(folder, path)):
                return os.path.join(folder, path)
        return path


def _tensorrt(parameters):
    options = {"device_id": "0"}
    for key, value in parameters.items():
        if key == "precision_mode":
            if value not in _PRECISIONS:
                raise OptionError(f"unsupported precision mode '{value}' is requested")
            options.update(_PRECISIONS[value])
        elif key in _TENSORRT_NAMES:
            options[_TENSORRT_NAMES[key]] = value
        else:
            raise OptionError(f"unknown parameter '{key}' is provided for TensorRT Execution Accelerator")
    return options
