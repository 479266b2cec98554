"""Which of Triton's QA tests run here, with which models, flags and hooks.

Each suite does what its `test.sh` does, in so far as it needs no GPU, no framework that is not here, and no model file
that NVIDIA makes beforehand.  They were chosen on the tests of v2.51.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.triton_qa.layout import Layout

DELAY = "TRITONSERVER_DELAY_SCHEDULER"
BACKLOG = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"
RESPONSE = "TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC"
VERBOSE = "--log-verbose=1"
EXPLICIT = "--model-control-mode=explicit"


@dataclass(frozen=True)
class Suite:
    """Tests of one file with one repository.

    folder: below `qa`, where the tests run; file: theirs; models: lays the repository out; only: names of tests, all by
    default; left_out: those that do not run, with the reason; differs: those that Triton passes and tisfast does not,
    on purpose, with the page that says why; server_env, test_env: variables; alone: a server for each test; says: texts
    of the log after the tests; refused: the server does not start, and its log has this text.
    """

    name: str
    folder: str
    models: Callable[[Layout], None]
    file: str = ""
    only: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    server_env: Mapping[str, str] = field(default_factory=dict)
    test_env: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    says: tuple[str, ...] = ()
    refused: str = ""


NO_TORCH = "needs torch"
NO_GPU = "needs a GPU"
ONNX = "needs an ONNX model that NVIDIA makes beforehand"
CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"
UNIT = "../test_infer_shm_leak.py"
BACKEND = "L0_backend_python"


def delay(milliseconds: int, more: str = "") -> str:
    """Lines of a configuration whose `identity` takes so long."""
    value = f'{{ key: "execute_delay_ms" value: {{ string_value: "{milliseconds}" }} }}'
    return f"parameters [ {value} {more} ]"


# ---- the Python backend


def _decoupled(layout: Layout) -> None:
    layout.copied(f"{BACKEND}/decoupled/models", without=("decoupled_bls", "decoupled_bls_stream"))  # they need torch
    layout.python("identity_fp32")
    layout.python("execute_cancel", more="model_transaction_policy { decoupled: True }")
    layout.example("decoupled/square_int32")


def _lifecycle(layout: Layout) -> None:
    layout.python("error_code", "execute_cancel", "execute_return_error")
    batches = "dynamic_batching { preferred_batch_size: [8], max_queue_delay_microseconds: 12000000 }"
    layout.python("execute_error", "execute_grpc_error", max_batch_size="8", more=batches)
    layout.python("wrong_model")
    layout.rename("wrong_model", "TYPE_FP32", "TYPE_UINT32")


def _senders(layout: Layout) -> None:
    decoupled = "model_transaction_policy { decoupled: True }"
    batches = "dynamic_batching { max_queue_delay_microseconds: 500000 }"
    for name, lines in (("", ""), ("_decoupled", decoupled)):
        for asynchronous, model in (("", "model.py"), ("_async", "model_async.py")):
            files = {"model.py": model, "model_common.py": "model_common.py"}
            for batching, more in (("", lines), ("_batching", f"{lines}\n{batches}")):
                layout.python(
                    f"response_sender{name}{asynchronous}{batching}", of="response_sender", files=files, more=more
                )


def _python_test(layout: Layout) -> None:
    layout.python("identity_fp32", "delayed_model", "optional", "non_contiguous", "string", "string_fixed")
    batches = "dynamic_batching { preferred_batch_size: [8], max_queue_delay_microseconds: 12000000 }"
    layout.python("identity_uint8", of="identity_fp32", max_batch_size="8", more=batches)
    layout.python("identity_uint8_nobatch", of="identity_fp32", max_batch_size="")
    layout.python("identity_uint32", "identity_bool", of="identity_fp32")
    for name, kind in (("uint8", "UINT8"), ("uint8_nobatch", "UINT8"), ("uint32", "UINT32"), ("bool", "BOOL")):
        layout.rename(f"identity_{name}", "TYPE_FP32", f"TYPE_{kind}")
    layout.python(
        "default_model_name", of="identity_fp32", files={"mymodel.py": "model.py"},
        more='default_model_filename: "mymodel.py"',
    )  # fmt: skip


def _unit(*models: str) -> Callable[[Layout], None]:
    return lambda layout: layout.python(*models)


PYTHON_BACKEND = (
    Suite(
        "decoupled", f"{BACKEND}/decoupled", _decoupled, "decoupled_test.py", flags=(VERBOSE,),
        left_out={"test_decoupled_bls": NO_TORCH, "test_decoupled_bls_stream": NO_TORCH},
        says=("Finalize invoked",),
    ),
    Suite("lifecycle", f"{BACKEND}/lifecycle", _lifecycle, "lifecycle_test.py", flags=(VERBOSE,)),
    Suite("init_error", f"{BACKEND}/lifecycle", _unit("init_error"), refused="name 'lorem_ipsum' is not defined"),
    Suite(
        "auto_complete_error", f"{BACKEND}/lifecycle", _unit("auto_complete_error"),
        flags=("--strict-model-config=false",), refused="name 'undefined_variable' is not defined",
    ),
    Suite(
        "bls_init_error", f"{BACKEND}/bls", _unit("bls_init_error"),
        refused="BLS is only supported during the 'execute' function.",
    ),
    Suite("async_execute", f"{BACKEND}/async_execute",
          _unit("async_execute_decouple", "async_execute_decouple_bls"), "concurrency_test.py"),
    Suite("response_sender", f"{BACKEND}/response_sender", _senders, "response_sender_test.py"),
    Suite("response_sender_complete_final", f"{BACKEND}/response_sender", _unit("response_sender_complete_final"),
          "response_sender_complete_final_test.py"),
    Suite("logging", f"{BACKEND}/logging", _unit("identity_fp32_logging"), "logging_test.py",
          says=("Specific Msg!", "Info Msg!", "Warning Msg!", "Error Msg!")),
    Suite("argument_validation", f"{BACKEND}/argument_validation",
          lambda layout: layout.copied(f"{BACKEND}/argument_validation/models"), UNIT,
          test_env={"MODEL_NAME": "argument_validation"}),
    Suite("custom_metrics", f"{BACKEND}/custom_metrics", _unit("custom_metrics"), UNIT,
          test_env={"MODEL_NAME": "custom_metrics"}),
    Suite("request_rescheduling_unit", f"{BACKEND}/request_rescheduling",
          _unit("bls_request_rescheduling", "request_rescheduling_addsub", "iterative_sequence", "wrong_return_type"),
          UNIT, flags=(EXPLICIT, "--load-model=*"), test_env={"MODEL_NAME": "bls_request_rescheduling"}),
    Suite("request_rescheduling", f"{BACKEND}/request_rescheduling",
          _unit("bls_request_rescheduling", "request_rescheduling_addsub", "iterative_sequence", "wrong_return_type"),
          "grpc_endpoint_test.py", flags=(EXPLICIT, "--load-model=*")),
    *(Suite(f"{name}_{kind}", f"{BACKEND}/bls", _unit(name, "add_sub", "identity_fp32", "execute_error"), UNIT,
            server_env={"BLS_KIND": kind}, test_env={"MODEL_NAME": name, "BLS_KIND": kind})
      for name in ("bls_memory", "bls_memory_async") for kind in ("non_decoupled", "decoupled")
      ),
    Suite("bls_parameters", f"{BACKEND}/bls", _unit("bls_parameters"), "bls_parameters_test.py"),
    Suite("restart", f"{BACKEND}/restart", lambda layout: layout.copied(f"{BACKEND}/restart/models"),
          "restart_test.py", only=("test_infer",)),
    Suite("model_control", f"{BACKEND}/model_control",
          lambda layout: [layout.python("identity_fp32"), layout.python("simple_identity_fp32", files={})],
          "model_control_test.py", flags=(EXPLICIT,)),
    Suite("ensemble", f"{BACKEND}/ensemble",
          lambda layout: [layout.python("ensemble", files={}), layout.python("add_sub_1", "add_sub_2", of="add_sub")],
          "ensemble_test.py", left_out={"test_ensemble_gpu": NO_GPU}),
    Suite("python", BACKEND, _python_test, "python_test.py",
          left_out={"test_infer_pytorch": NO_TORCH, "test_gpu_tensor_error": NO_GPU, "test_dlpack_tensor_error": NO_GPU,
                    "test_growth_error": "wants a container with 1 GiB of shared memory in all; there is no pool here",
                    "test_bf16": NO_TORCH, "test_init_args": "wants its own path below /opt/tritonserver"}),
)  # fmt: skip

# ---- protocols


def _own_folder(folder: str) -> Callable[[Layout], None]:
    return lambda layout: layout.copied(folder)


def _nan_inf(layout: Layout) -> None:
    layout.copied("L0_nan_inf/models")
    model = layout.models / "nan_inf_output/1/model.py"
    model.write_text(model.read_text().replace("np.NINF", "-np.inf"))  # NumPy 2 has no other name for it


OVER_HTTP = (
    "test_http_parameter", "test_async_http_parameter", "test_http_async_parameter",
    "test_ensemble_parameter_forwarding",
)  # fmt: skip


def _parameters(name: str, *flags: str) -> Suite:
    spaces = "docs/http.md: spaces at the ends of an HTTP header's value do not belong to it"
    forwarded = any(flag.startswith("--http") for flag in flags)
    return Suite(f"parameters_{name.removeprefix('test_')}", "L0_parameters",
                 _own_folder("L0_parameters/model_repository"), "parameters_test.py", flags=flags,
                 differs=dict.fromkeys(OVER_HTTP, spaces) if forwarded else {},
                 test_env={"TEST_HEADER": name})  # fmt: skip


def _forward(pattern: str) -> tuple[str, str]:
    return (f"--grpc-header-forward-pattern={pattern}", f"--http-header-forward-pattern={pattern}")


def _slow_identity(layout: Layout) -> None:
    tensor = '{ name: "%s" data_type: TYPE_INT32 dims: [ -1 ] }'
    layout.model(
        "custom_identity_int32",
        f"""backend: "identity"
max_batch_size: 1024
input [ {tensor % "INPUT0"} ]
output [ {tensor % "OUTPUT0"} ]
instance_group [ {{ kind: KIND_CPU }} ]
{delay(10000)}
""",
    )


def _schedulers(layout: Layout) -> None:
    tensor = '{ name: "%s" data_type: TYPE_FP32 dims: [ -1 ] }'
    oldest = "oldest { max_candidate_sequences: 1 }"
    for name, rows, more in (
        ("dynamic_batch", 2, "dynamic_batching { max_queue_delay_microseconds: 600000 }"),
        ("sequence_direct", 1, "sequence_batching { direct { } max_sequence_idle_microseconds: 6000000 }"),
        ("sequence_oldest", 1, f"sequence_batching {{ {oldest} max_sequence_idle_microseconds: 6000000 }}"),
    ):
        layout.model(
            name,
            f"""backend: "identity"
max_batch_size: {rows}
input [ {tensor % "INPUT0"} ]
output [ {tensor % "OUTPUT0"} ]
{CPU}
{more}
{delay(6000)}
""",
        )
    step = (
        '{ model_name: "dynamic_batch" model_version: -1 input_map { key: "INPUT0" value: "%s" }'
        ' output_map { key: "OUTPUT0" value: "%s" } }'
    )
    layout.model(
        "ensemble_model",
        f"""platform: "ensemble"
max_batch_size: 1
input [ {tensor % "INPUT0"} ]
output [ {tensor % "OUTPUT0"} ]
ensemble_scheduling {{ step [ {step % ("INPUT0", "TMP")}, {step % ("TMP", "OUTPUT0")} ] }}
""",
    )


PROTOCOLS = (
    Suite("input_validation", "L0_input_validation", _own_folder("L0_input_validation/models"),
          "input_validation_test.py::InputValTest"),
    Suite("nan_inf", "L0_nan_inf", _nan_inf, "nan_inf_test.py"),
    Suite("optional_input", "L0_optional_input", _own_folder("L0_optional_input/models"), "optional_input_test.py",
          alone=True),  # they count executions
    Suite("generate", "L0_http", _own_folder("L0_http/generate_models"), "generate_endpoint_test.py",
          differs={"test_invalid_input_types": "docs/http.md: of two faults another may be told first",
                   "test_duplicate_inputs": "docs/coming_from_triton.md: of a field given twice the last one counts"}),
    _parameters("test_params"),
    _parameters("test_headers", *_forward("my_header.*")),
    _parameters("test_header_forward_pattern_case_insensitive", *_forward("MY_HEADER.*")),
    _parameters("test_grpc_header_forward_pattern_case_sensitive", "--grpc-header-forward-pattern=(?-i)MY_HEADER.*"),
    Suite("client_timeout", "L0_client_timeout", _own_folder("L0_client_timeout/models"),
          "client_infer_timeout_test.py"),
    Suite("client_timeout_other_calls", "L0_client_timeout", _own_folder("L0_client_timeout/models"),
          "client_non_infer_timeout_test.py", server_env={RESPONSE: "2"},
          flags=(EXPLICIT, "--load-model=custom_identity_int32", "--allow-client-shm=true"),
          left_out={"test_grpc_register_cuda_shared_memory": NO_GPU}),
    Suite("grpc_cancellation", "L0_request_cancellation", _slow_identity, "grpc_cancellation_test.py", alone=True,
          flags=(VERBOSE,), says=("Cancellation notification received for",),
          left_out={"test_grpc_async_infer_cancellation_at_step_start": "counts lines of Triton's own handlers"}),
    Suite("scheduler_cancellation", "L0_request_cancellation", _schedulers, "scheduler_test.py"),
)  # fmt: skip

# ---- schedulers


def _queue(policy: str, rows: int = 32, more: str = "") -> Callable[[Layout], None]:
    def lay_out(layout: Layout) -> None:
        layout.copied("L0_model_queue", only=("ensemble_zero_1_float32",))
        lines = f"{CPU}\ndynamic_batching {{ {policy} }}\n{more}"
        layout.custom("custom_zero_1_float32", lines, dims="[ -1 ]", max_batch_size=str(rows))

    return lay_out


SIZES = "preferred_batch_size: [ 4, 8 ]"
WAIT = f"{SIZES} max_queue_delay_microseconds: 10000000"


def _queue_suite(test: str, policy: str, more: str = "") -> Suite:
    return Suite(f"queue_{test}", "L0_model_queue", _queue(policy, more=more), "model_queue_test.py",
                 only=(f"test_{test}",))  # fmt: skip


_TIMEOUT = "default_timeout_microseconds"
QUEUES = (
    _queue_suite("max_queue_size", f"{SIZES} default_queue_policy {{ max_queue_size: 8 }}", delay(5000)),
    _queue_suite("policy_delay", f"{WAIT} default_queue_policy {{ timeout_action: DELAY {_TIMEOUT}: 100000 }}"),
    _queue_suite(
        "timeout_override", f"{WAIT} default_queue_policy {{ allow_timeout_override: true {_TIMEOUT}: 1000000 }}"
    ),
    _queue_suite("priority_levels", f"{WAIT} priority_levels: 2 default_priority_level: 2"),
    _queue_suite("max_priority_levels", f"{WAIT} priority_levels: {2**64 - 1} default_priority_level: {2**32}"),
    _queue_suite(
        "priority_with_policy",
        "preferred_batch_size: [ 4, 8, 32 ] max_queue_delay_microseconds: 10000000 priority_levels: 2 "
        "default_priority_level: 2 "
        f"default_queue_policy {{ timeout_action: DELAY allow_timeout_override: true {_TIMEOUT}: 11000000 }} "
        "priority_queue_policy { key: 2 value: "
        f"{{ timeout_action: REJECT allow_timeout_override: true {_TIMEOUT}: 11000000 }} }}",
    ),
)


def _add_sub(batching: str, dims: str = "16") -> Callable[[Layout], None]:
    tensor = f'{{ name: "%s" data_type: TYPE_FP32 dims: [ {dims} ] }}'

    def lay_out(layout: Layout) -> None:
        layout.python("python_float32_float32_float32", of="add_sub")
        (layout.models / "python_float32_float32_float32/config.pbtxt").write_text(f"""backend: "python"
max_batch_size: 8
input [ {tensor % "INPUT0"}, {tensor % "INPUT1"} ]
output [ {tensor % "OUTPUT0"}, {tensor % "OUTPUT1"} ]
{CPU}
dynamic_batching {{ {batching} }}
""")
        if dims == "-1":
            layout.custom("custom_zero_1_float32", f"{CPU}\ndynamic_batching {{ {batching} }}", dims="[ -1 ]",
                          max_batch_size="8")  # fmt: skip
            layout.rename("custom_zero_1_float32", 'name: "INPUT0"', 'name: "INPUT0" allow_ragged_batch: true')

    return lay_out


BATCHES = "preferred_batch_size: [ 2, 6 ] max_queue_delay_microseconds: 10000000"
NO_DELAY = (
    "static_batch_preferred", "static_batch_lt_any_preferred", "static_batch_not_preferred",
    "static_batch_gt_max_preferred", "multi_batch_not_preferred", "multi_batch_gt_max_preferred",
    "multi_batch_sum_gt_max_preferred", "multi_same_output0", "multi_same_output1", "multi_different_outputs",
    "multi_different_output_order",
)  # fmt: skip
SHAPES = (
    "multi_batch_not_preferred_different_shape", "multi_batch_preferred_different_shape",
    "multi_batch_different_shape_allow_ragged", "multi_batch_different_shape",
)  # fmt: skip
HELD = {
    "multi_batch_delayed_sum_gt_max_preferred": "2", "multi_batch_use_biggest_preferred": "6",
    "multi_batch_use_best_preferred": "3", "multi_batch_delayed_use_max_batch": "3",
}  # fmt: skip
PREFERRED = {
    "aligned": "4", "unaligned": "5", "use_biggest_preferred": "7", "use_no_preferred_size": "3",
}  # fmt: skip


def _batcher(name: str, models: Callable[[Layout], None], tests: tuple[str, ...], hold: str = "", **env: str) -> Suite:
    return Suite(
        f"batcher_{name}", "L0_batcher", models, "batcher_test.py", only=tuple(f"test_{test}" for test in tests),
        server_env={DELAY: hold} if hold else {}, alone=True,
        test_env={"BACKENDS": "python", **({DELAY: hold} if hold else {}), **env},
    )  # fmt: skip


BATCHERS = (
    _batcher("fixed", _add_sub(BATCHES), NO_DELAY, BATCHER_TYPE="FIXED"),
    *(_batcher(test, _add_sub(BATCHES), (test,), hold, BATCHER_TYPE="FIXED") for test, hold in HELD.items()),
    _batcher("shapes", _add_sub(BATCHES, "-1"), SHAPES, BATCHER_TYPE="VARIABLE"),
    _batcher("shapes_delayed", _add_sub(BATCHES, "-1"), ("multi_batch_delayed_preferred_different_shape",), "4",
             BATCHER_TYPE="VARIABLE"),
    *(_batcher(f"preferred_{test}", _add_sub("preferred_batch_size: [ 4, 6 ]"), (f"preferred_batch_only_{test}",), hold,
               BATCHER_TYPE="FIXED") for test, hold in PREFERRED.items()),
)  # fmt: skip


def _sequences(rows: int, count: int) -> Callable[[Layout], None]:
    def lay_out(layout: Layout) -> None:
        layout.custom("custom_sequence_int32", max_batch_size=str(rows))
        layout.rename("custom_sequence_int32", "kind: KIND_CPU", f"kind: KIND_CPU count: {count}")

    return lay_out


SEQUENCES_FREE = (
    "simple_sequence", "length1_sequence", "batch_size", "no_sequence_start", "no_sequence_start2", "no_sequence_end",
    "no_correlation_id",
)  # fmt: skip
SEQUENCES_HELD = {
    "backlog_fill": ("10", "2"), "backlog_fill_no_end": ("10", "3"), "backlog_same_correlation_id": ("12", "2"),
    "backlog_same_correlation_id_no_end": ("16", "0"), "backlog_sequence_timeout": ("4", "0"), "half_batch": ("8", "0"),
    "skip_batch": ("12", "0"), "full_batch": ("12", "0"), "backlog": ("12", "0"),
}  # fmt: skip


def _sequence(name: str, tests: tuple[str, ...], hold: tuple[str, str] | None, rows: int, count: int) -> Suite:
    held = {DELAY: hold[0], BACKLOG: hold[1]} if hold else {}
    return Suite(
        f"sequences_{name}_{count}", "L0_sequence_batcher", _sequences(rows, count), "sequence_batcher_test.py",
        only=tuple(f"test_{test}" for test in tests), server_env=held, alone=True,
        test_env={
            **held, "BACKENDS": "custom", "ENSEMBLES": "0", "NO_BATCHING": "0", "MODEL_INSTANCES": str(count),
            "BATCHER_TYPE": "FIXED", "IMPLICIT_STATE": "0", "INITIAL_STATE_FILE": "0",
        },
    )  # fmt: skip


SEQUENCES = (
    Suite("iterative_sequence", "L0_iterative_sequence", _own_folder("L0_iterative_sequence/models"),
          "iterative_sequence_e2e.py", flags=("--model-control-mode=EXPLICIT",),
          differs={"test_reschedule_error": "docs/sequences.md: a sequence that is executing is not idle"}),
    *(_sequence("free", SEQUENCES_FREE, None, rows, count) for rows, count in ((4, 1), (2, 2), (1, 4))),
    *(_sequence(test, (test,), hold, 4, 1) for test, hold in SEQUENCES_HELD.items()),
)  # fmt: skip

SUITES = (*PYTHON_BACKEND, *PROTOCOLS, *QUEUES, *BATCHERS, *SEQUENCES)
