"""Fields and parameters that are known to Triton: what is not served is refused by name."""

from __future__ import annotations

import pytest

from tests.config.loading import load, told
from tisfast.config.backends import BUILT_IN, BackendInfo, Backends
from tisfast.config.resources import Resources

UNSUPPORTED = [
    (
        'model_repository_agents { agents { name: "checksum" } }',
        "1:1 model_repository_agents | 'model_repository_agents' is known, but not served yet for m | remove it, "
        "or serve this model with a server that has it",
    ),
    (
        'cc_model_filenames { key: "7.5" value: "x" }',
        "1:1 cc_model_filenames | 'cc_model_filenames' is known, but not served yet for m | remove it, or serve "
        "this model with a server that has it",
    ),
    (
        'model_operations { op_library_filename: "x.so" }',
        "1:1 model_operations | 'model_operations' is known, but not served yet for m | remove it, or serve this "
        "model with a server that has it",
    ),
    (
        "optimization { graph { level: 1 } }",
        "1:24 optimization.graph.level | 'optimization.graph.level' is known, but not served yet for m | remove "
        "it, or serve this model with a server that has it",
    ),
    (
        "optimization { priority: PRIORITY_MAX }",
        "1:16 optimization.priority | 'optimization.priority' is known, but not served yet for m | remove it, or "
        "serve this model with a server that has it",
    ),
    (
        "optimization { cuda { graphs: true busy_wait_events: true } }",
        "1:23 optimization.cuda.graphs | 'optimization.cuda.graphs' is known, but not served yet for m | remove "
        "it, or serve this model with a server that has it",
        "1:36 optimization.cuda.busy_wait_events | 'optimization.cuda.busy_wait_events' is known, but not served "
        "yet for m | remove it, or serve this model with a server that has it",
    ),
    (
        "optimization { cuda { graph_spec { batch_size: 1 } output_copy_stream: true } }",
        "1:23 optimization.cuda.graph_spec | 'optimization.cuda.graph_spec' is known, but not served yet for m | "
        "remove it, or serve this model with a server that has it",
        "1:52 optimization.cuda.output_copy_stream | 'optimization.cuda.output_copy_stream' is known, but not "
        "served yet for m | remove it, or serve this model with a server that has it",
    ),
    (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
        "1:16 optimization.execution_accelerators | 'optimization.execution_accelerators' is known, but not "
        "served yet for m | remove it, or serve this model with a server that has it",
    ),
    (
        "optimization { gather_kernel_buffer_threshold: 1 }",
        "1:16 optimization.gather_kernel_buffer_threshold | 'optimization.gather_kernel_buffer_threshold' is "
        "known, but not served yet for m | remove it, or serve this model with a server that has it",
    ),
    (
        "optimization { eager_batching: true }",
        "1:16 optimization.eager_batching | 'optimization.eager_batching' is known, but not served yet for m | "
        "remove it, or serve this model with a server that has it",
    ),
    (
        "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        "1:18 response_cache.enable | Response Cache does not currently support model m with 'decoupled' "
        "transaction policy. Please disable the response cache.",
    ),
    (
        'runtime: "libtriton_x.so"',
        "1:1 runtime | runtime 'libtriton_x.so' is known, but not served yet for m | remove 'runtime'",
    ),
    (
        'platform: "pytorch_libtorch"',
        "1:1 platform | unexpected 'platform' and 'backend' pair, got:pytorch_libtorch, python for m | remove "
        "'platform': 'backend' says enough",
    ),
    ('platform: "abacus"', '1:1 platform | unexpected platform type \'abacus\' for m | write backend: "python"'),
    (
        'platform: "onnxruntime_onx"',
        "1:1 platform | unexpected platform type 'onnxruntime_onx' for m | did you mean 'onnxruntime_onnx'?",
    ),
    (
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "YES" } }',
        '1:12 parameters.FORCE_CPU_ONLY_INPUT_TENSORS | Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: YES\' '
        'for m | "yes" or "no"',
    ),
    (
        'parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.so" } }',
        "1:12 parameters.TRITON_BATCH_STRATEGY_PATH | parameter 'TRITON_BATCH_STRATEGY_PATH' is 'x.so' for m: a "
        "batching strategy is a Python file here, where Triton's is a C library | see 'tisfast docs batching'",
    ),
    (
        'max_batch_size: 1 parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.py" } }',
        "1:30 parameters.TRITON_BATCH_STRATEGY_PATH | parameter 'TRITON_BATCH_STRATEGY_PATH' has no effect "
        "without dynamic batching for m | add dynamic_batching { } and max_batch_size, or remove it",
    ),
    (
        'dynamic_batching { } parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.py" } }',
        "1:33 parameters.TRITON_BATCH_STRATEGY_PATH | parameter 'TRITON_BATCH_STRATEGY_PATH' has no effect "
        "without dynamic batching for m | add dynamic_batching { } and max_batch_size, or remove it",
    ),
    (
        'name: "other"',
        "1:1 name | unexpected directory name 'm' for model 'other', directory name must equal model name | write "
        "name: \"m\", or leave it out",
    ),
    (
        'model_metrics { metric_control { metric_identifier { family: "nv_other" } } }',
        "1:32 model_metrics.metric_control[0] | model_metrics names the family 'nv_other'; it can change only "
        "nv_inference_first_response_histogram_ms",
    ),
    (
        'model_metrics { metric_control { metric_identifier { family: "nv_inference_first_response_histogram_ms" '
        '} } }',
        "1:32 model_metrics.metric_control[0] | histogram_options.buckets of "
        "nv_inference_first_response_histogram_ms must be 1 to 64 ascending numbers, not []",
    ),
    (
        'model_metrics { metric_control { metric_identifier { family: "nv_inference_first_response_histogram_ms" '
        '} histogram_options { buckets: [ 1, inf ] } } }',
        "1:32 model_metrics.metric_control[0] | histogram_options.buckets of "
        "nv_inference_first_response_histogram_ms must be 1 to 64 ascending numbers, not [1.0, inf]",
    ),
]  # fmt: skip

BACKENDS = [
    (
        'backend: "dali"',
        '1:1 backend | \'backend\': backend \'dali\' is known, but not served yet for m | served here: "python" '
        'or "onnxruntime" or "tensorrt" or "pytorch" or "tensorflow" or "openvino" or "fil" or "sklearn"',
    ),
    (
        'backend: "pyton"',
        "1:1 backend | unable to find backend library for backend 'pyton', try specifying runtime on the model "
        "configuration. Model m | did you mean 'python'?",
    ),
    (
        'backend: "abacus"',
        '1:1 backend | unable to find backend library for backend \'abacus\', try specifying runtime on the model '
        'configuration. Model m | served here: "python" or "onnxruntime" or "tensorrt" or "pytorch" or "tensorflow" or '
        '"openvino" or "fil" or "sklearn", and what --backend-directory has',
    ),
    ('platform: "abacus"', '1:1 platform | unexpected platform type \'abacus\' for m | write backend: "python"'),
    (
        'backend: "vllm" runtime: "model.py"',
        '1:1 backend | \'backend\': backend \'vllm\' is known, but not served yet for m | served here: "python" '
        'or "onnxruntime" or "tensorrt" or "pytorch" or "tensorflow" or "openvino" or "fil" or "sklearn"',
    ),
    (
        'backend: "abacus" runtime: "model.py"',
        "1:1 backend | unable to find Python backend based backend library 'model.py' for model 'm', searched: "
        "'/opt/tritonserver/backends/abacus/model.py' | write it, or name --backend-directory",
    ),
    (
        'platform: "onnxruntime_onnx" backend: "pytorch"',
        "1:1 platform | unexpected 'platform' and 'backend' pair, got:onnxruntime_onnx, pytorch for m | remove "
        "'platform': 'backend' says enough",
    ),
    (
        'platform: "onnxruntime_onnx" runtime: "x.so"',
        "1:30 runtime | runtime 'x.so' is known, but not served yet for m | remove 'runtime'",
    ),
]  # fmt: skip

PARAMS = [
    (
        'parameters { key: "CPU_THREADS" value { string_value: "0" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '0' | give a whole number from 1 to 1024",
    ),
    (
        'parameters { key: "CPU_THREADS" value { string_value: "1025" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '1025' | give a whole number from 1 to 1024",
    ),
    (
        'parameters { key: "CPU_THREADS" value { string_value: "+1" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '+1' | give a whole number from 1 to 1024",
    ),
    (
        'parameters { key: "CPU_THREADS" value { string_value: "1.0" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '1.0' | give a whole number from 1 to 1024",
    ),
    (
        'parameters { key: "CPU_THREADS" value { string_value: "" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '' | give a whole number from 1 to 1024",
    ),
    (
        'parameters { key: "CPU_THREADS" value { string_value: "999999999999999999999999999999" } }',
        "1:12 parameters.CPU_THREADS | parameter CPU_THREADS of m is '999999999999999999999999999999' | give a "
        "whole number from 1 to 1024",
    ),
    (
        'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "twice" } }',
        "1:12 parameters.OUT_OF_MEMORY_RETRY | parameter OUT_OF_MEMORY_RETRY of m is 'twice' | give never, once, "
        "halves",
    ),
    (
        'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "" } }',
        "1:12 parameters.OUT_OF_MEMORY_RETRY | parameter OUT_OF_MEMORY_RETRY of m is '' | give never, once, halves",
    ),
    (
        'parameters { key: "GPU_PLACEMENT" value { string_value: "best" } }',
        "1:12 parameters.GPU_PLACEMENT | parameter GPU_PLACEMENT of m is 'best' | give every_gpu, free_memory",
    ),
    (
        'parameters { key: "KEEP_AWAKE" value { string_value: "TRUE" } }',
        "1:12 parameters.KEEP_AWAKE | parameter KEEP_AWAKE of m is 'TRUE' | give false, true",
    ),
    (
        'parameters { key: "STRICT_OUTPUTS" value { string_value: "on" } }',
        "1:12 parameters.STRICT_OUTPUTS | parameter STRICT_OUTPUTS of m is 'on' | give true, false",
    ),
    (
        'parameters { key: "BACKEND_ENVIRONMENT" value { string_value: "true" } }',
        "1:12 parameters.BACKEND_ENVIRONMENT | parameter BACKEND_ENVIRONMENT of m is 'true' | give auto, off",
    ),
    (
        'parameters { key: "EXECUTION_TIMEOUT_SECONDS" value { string_value: "0" } }',
        "1:12 parameters.EXECUTION_TIMEOUT_SECONDS | parameter EXECUTION_TIMEOUT_SECONDS of m is '0' | give a "
        "number of seconds above 0",
    ),
    (
        'parameters { key: "EXECUTION_TIMEOUT_SECONDS" value { string_value: "inf" } }',
        "1:12 parameters.EXECUTION_TIMEOUT_SECONDS | parameter EXECUTION_TIMEOUT_SECONDS of m is 'inf' | give a "
        "number of seconds above 0",
    ),
    (
        'parameters { key: "EXECUTION_TIMEOUT_SECONDS" value { string_value: "1s" } }',
        "1:12 parameters.EXECUTION_TIMEOUT_SECONDS | parameter EXECUTION_TIMEOUT_SECONDS of m is '1s' | give a "
        "number of seconds above 0",
    ),
    (
        'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "once" } } sequence_batching { }',
        "1:12 parameters.OUT_OF_MEMORY_RETRY | parameter OUT_OF_MEMORY_RETRY 'once' of m: a model with sequences "
        "cannot be executed again, as a part may be done already | remove it",
    ),
    (
        'parameters { key: "OUT_OF_MEMORY_RETRY" value { string_value: "halves" } } model_transaction_policy { '
        'decoupled: true }',
        "1:12 parameters.OUT_OF_MEMORY_RETRY | parameter OUT_OF_MEMORY_RETRY 'halves' of m: a model with "
        "decoupled answers cannot be executed again, as a part may be done already | remove it",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", UNSUPPORTED)
def test_what_is_not_served_is_refused_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text) == expected


@pytest.mark.parametrize("row", BACKENDS)
def test_a_backend_that_is_not_here_is_told_with_those_that_are(row):
    text, *expected = row
    assert told(text, end="") == expected


@pytest.mark.parametrize("row", PARAMS)
def test_a_parameter_that_means_nothing_is_told_with_what_may_be(row):
    text, *expected = row
    assert told(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "model_repository_agents { }",
        "model_operations { }",
        "optimization { graph { level: 0 } priority: PRIORITY_DEFAULT cuda { graphs: false } eager_batching: false }",
        "optimization { execution_accelerators { } gather_kernel_buffer_threshold: 0 }",
        "optimization { input_pinned_memory { enable: false } output_pinned_memory { enable: true } }",
        'instance_group { passive: false host_policy: "" }',
        "response_cache { enable: false } sequence_batching { }",
        'runtime: "model.py"',
        'runtime: ""',
        'platform: "python"',
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "yes" } }',
        'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }',
        'parameters { key: "ANYTHING" value { string_value: "else" } }',
        "max_batch_size: 1 dynamic_batching { } "
        'parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "s.py" } }',
    ],
)
def test_what_asks_for_nothing_that_is_not_served_passes(text):
    assert load(text).backend == "python"


@pytest.mark.parametrize(
    "text",
    [
        "optimization { graph { level: 1 } }",
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }',
        'model_operations { op_library_filename: "x.so" }',
    ],
)
def test_a_field_may_be_served_by_one_backend_alone(text):
    with pytest.raises(pytest.fail.Exception):
        told(text, end='backend: "onnxruntime"')
    assert len(told(text, end='backend: "pytorch"')) == 1


@pytest.mark.parametrize(
    ("library", "directory", "place"),
    [
        ("/models/m/1/libtriton_c.so", "", "DIRECTORY/c/backend.py with --backend-directory=DIRECTORY"),
        ("/models/m/1/libtriton_c.so", "/backends", "/backends/c/backend.py"),
        ("/backends/c/libtriton_c.so", "/backends", "/backends/c/backend.py"),
        ("/elsewhere/c/libtriton_c.so", "", "/elsewhere/c/backend.py"),
    ],
)
def test_a_library_in_c_is_refused_and_its_place_in_python_is_named(library, directory, place):
    backends = Backends([*BUILT_IN.all, BackendInfo("c", library=library)], directory)
    assert told("max_batch_size: 1", end='backend: "c"', backends=backends) == [
        f"2:1 backend | backend 'c' of m is a library in C for Triton's server ({library}), which tisfast cannot load "
        f"| write {place} in its place ('tisfast docs backends'); it may open C libraries with ctypes"
    ]


def test_a_backend_of_the_operators_own_is_named_among_those_that_there_are():
    backends = Backends([*BUILT_IN.all, BackendInfo("mlp", served=True)], "/backends")
    (error,) = told("max_batch_size: 1", end='backend: "abacus"', backends=backends)
    assert error.endswith('or "sklearn" or "mlp"')
    assert told("", end='backend: "mlpp"', backends=backends)[0].endswith("did you mean 'mlp'?")
    assert told("", end='backend: "x" runtime: "model.py"', backends=backends)[0].count("'/backends/x/model.py'") == 1


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '


@pytest.mark.parametrize(
    ("key", "value", "resources"),
    [
        ("CPU_THREADS", "1", Resources(cpu_threads=1)),
        ("CPU_THREADS", "0008", Resources(cpu_threads=8)),
        ("CPU_THREADS", "1024", Resources(cpu_threads=1024)),
        ("OUT_OF_MEMORY_RETRY", "never", Resources()),
        ("OUT_OF_MEMORY_RETRY", "once", Resources(retry="once")),
        ("OUT_OF_MEMORY_RETRY", "halves", Resources(retry="halves")),
        ("GPU_PLACEMENT", "every_gpu", Resources()),
        ("GPU_PLACEMENT", "free_memory", Resources(free_memory=True)),
        ("KEEP_AWAKE", "true", Resources(keep_awake=True)),
        ("KEEP_AWAKE", "false", Resources()),
        ("EXECUTION_TIMEOUT_SECONDS", "", Resources()),
        ("EXECUTION_TIMEOUT_SECONDS", "1e-3", Resources(execution_seconds_max=0.001)),
        ("EXECUTION_TIMEOUT_SECONDS", "90", Resources(execution_seconds_max=90.0)),
        ("STRICT_OUTPUTS", "", Resources()),
        ("STRICT_OUTPUTS", "true", Resources(strict_outputs=True)),
        ("STRICT_OUTPUTS", "false", Resources(strict_outputs=False)),
        ("BACKEND_ENVIRONMENT", "auto", Resources(backend_environment=True)),
        ("BACKEND_ENVIRONMENT", "off", Resources(backend_environment=False)),
    ],
)
def test_each_parameter_about_the_machine_becomes_a_value(key, value, resources):
    config = load(parameter(key, value))
    assert config.resources == resources and dict(config.parameters) == {key: value}


def test_a_parameter_that_cannot_be_read_is_told_once():
    assert told('parameters { key: "CPU_THREADS" value: "3" }') == [
        '1:40 parameters[0].value | \'value\' takes { ... }, found string "3" | write value { string_value: "3" }'
    ]
