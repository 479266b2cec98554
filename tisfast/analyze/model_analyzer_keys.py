"""The keys of Model Analyzer's files: what has a flag, what asks for nothing, what is refused.  Layer 5 (analyze)."""

from __future__ import annotations

from typing import Any, Final

NO_PROCESS: Final = "no perf_analyzer is started: the core of tisfast bench measures"
NO_DOCKER: Final = "no container is started; give model_repository, or triton_launch_mode remote with an endpoint"
ONE_FOLDER: Final = "all files go into one folder, -o FOLDER or export_path"
ONE_PAGE: Final = "report.html shows all variants and measurements, results.csv has the table"
COMPOSED: Final = "an ensemble has no instances; search the models that it is made of together, with -m A,B"
TOGETHER: Final = ("run_config_profile_models_concurrently_enable", "profile_models_concurrently_enable")
"""Several models are served and asked at one time."""
BY_NVML: Final = "the memory of all GPUs that the server uses is read, by NVML; the other figures of GPUs are not"
SCRATCH: Final = (
    "output_model_repository_path",
    "override_output_model_repository",
    "checkpoint_directory",
    "perf_output",
    "perf_output_path",
    "triton_output_path",
)
"""Keys that only say where files of the way are: there are none of these, or they are in the output directory."""
SEARCH_DECIDES: Final = "the search decides that itself (tisfast docs analyze)"
REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(("bls_composing_models", "ensemble_composing_models", "cpu_only_composing_models"), COMPOSED),
    "num_top_model_configs": "num_configs_per_model says how many are written",
    "weighting": "it is for models that are served together (run_config_profile_models_concurrently_enable: true)",
    **dict.fromkeys(("perf_analyzer_timeout", "perf_analyzer_cpu_util", "perf_analyzer_path"), NO_PROCESS),
    "perf_analyzer_max_auto_adjusts": NO_PROCESS,
    "genai_perf_flags": "models are not measured by tokens; tisfast bench --service-kind openai does that",
    "client_max_retries": "a server that is started tells when it serves, so nothing is asked again",
    **dict.fromkeys(("triton_docker_image", "triton_docker_labels", "triton_docker_mounts"), NO_DOCKER),
    **dict.fromkeys(("triton_docker_args", "triton_docker_shm_size"), NO_DOCKER),
    **dict.fromkeys(("triton_server_path", "triton_install_path"), "the server that is started is tisfast"),
    "triton_server_environment": "the server that is started has the variables of this program",
    "triton_metrics_url": "metrics of the server are not read; tisfast bench --collect-metrics does that",
    **dict.fromkeys(("dcgm_disable", "always_report_gpu_metrics"), BY_NVML),
    "monitoring_interval": "memory is read once behind each level, so there is no interval",
    "gpus": f"{BY_NVML}; CUDA_VISIBLE_DEVICES says which ones a server that is started has",
    "duration_seconds": "an idle server is not measured",
    "reload_model_disable": "a variant is loaded by a load with its configuration, and not otherwise",
    **dict.fromkeys(("run_config_search_max_binary_search_steps", "early_exit_enable"), SEARCH_DECIDES),
    **dict.fromkeys(("use_concurrency_formula", "concurrency_sweep_disable"), SEARCH_DECIDES),
    **dict.fromkeys(("optuna_min_trials", "optuna_early_exit_threshold"), "give optuna_max_trials alone"),
    "min_percentage_of_search_space": "give optuna_max_trials",
    "max_percentage_of_search_space": "give optuna_max_trials",
    "optuna_min_percentage_of_search_space": "give optuna_max_trials",
    "optuna_max_percentage_of_search_space": "give optuna_max_trials",
    **dict.fromkeys(("report_model_configs", "skip_summary_reports", "skip_detailed_reports", "plots"), ONE_PAGE),
    **dict.fromkeys(("inference_output_fields", "gpu_output_fields", "server_output_fields"), ONE_PAGE),
    **dict.fromkeys(("filename_model_inference", "filename_model_gpu", "filename_server_only"), ONE_PAGE),
    "summarize": ONE_PAGE,
    "cpu_only": "the kind of instances stands in the model's configuration (instance_group)",
}
"""Keys that ask for what is not done, and why."""
HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(TOGETHER, (False, True)),
    "run_config_search_disable": (False,),
    "model_type": ("generic",),
    "num_top_model_configs": (0,),
    "gpus": ("all",),
    "dcgm_disable": (True,),
    "collect_cpu_metrics": (False, True),
}
"""Values that ask for nothing."""
PASSED_OVER: Final = {
    "gpus": "the server has all GPUs that CUDA_VISIBLE_DEVICES leaves it",
    "collect_cpu_metrics": "the memory of a server that is started is always measured",
    "dcgm_disable": BY_NVML,
}
"""Of those, what is told."""
REASONS: Final = {
    "collect_cpu_metrics": "it is true or false",
    **dict.fromkeys(TOGETHER, "it is true or false"),
    "run_config_search_disable": "name what is searched in model_config_parameters, and only that is",
    "model_type": REFUSED["genai_perf_flags"],
}
PLAIN: Final = {
    "model_repository": "--model-repository",
    "export_path": "--output-directory",
    "latency_budget": "--latency-budget",
    "min_throughput": "--min-throughput",
    "num_configs_per_model": "--best",
    "client_protocol": "--protocol",
    "optuna_max_trials": "--trials",
    **{
        f"run_config_search_{end}_{what}": f"--run-config-search-{end}-{what.replace('_', '-')}"
        for end in ("min", "max")
        for what in ("concurrency", "model_batch_size", "instance_count", "request_rate")
    },
}
"""Keys with one value, and their flags."""
NUMBERS: Final = ("latency_budget", "min_throughput")
WHOLE_NUMBERS: Final = (
    "num_configs_per_model",
    "optuna_max_trials",
    *(key for key in PLAIN if key.startswith("run_config_search_")),
)
OF_A_MODEL: Final = ("parameters", "model_config_parameters", "objectives", "constraints", "perf_analyzer_flags")
AIMS: Final = ("objectives", "constraints", "latency_budget", "min_throughput")
OF_THE_PROCESSES: Final = ("memory", "cpu_used_ram", "gpu_memory", "gpu_used_memory")
LAUNCH_MODES: Final = ("local", "remote")
ENDPOINTS: Final = {"http": "triton_http_endpoint", "grpc": "triton_grpc_endpoint"}
DEFAULTS: Final = {"http": "localhost:8000", "grpc": "localhost:8001"}
ELSEWHERE: Final = (
    "profile_models",
    "triton_launch_mode",
    *ENDPOINTS.values(),
    "request_rate_search_enable",
    "perf_analyzer_flags",
)
"""Keys that are read with others."""
