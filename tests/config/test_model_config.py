"""From text to the frozen result: slices, defaults, and how errors are collected."""
# ruff: noqa: E501 - one case, one line

import dataclasses

import pytest

from tests.config.loading import errors_of, load
from tisfast import limits
from tisfast.config.error_report import ConfigErrors, key_text
from tisfast.config.instance_groups import PlannedInstance, UsableGpus
from tisfast.config.model_config import finish, parse, parse_json_form, signature_fields
from tisfast.config.resources import Resources, thread_variables
from tisfast.config.scheduler_settings import QueuePolicy, SchedulerSettings
from tisfast.config.versions import VersionPolicy
from tisfast.errors import ConfigError


def test_tensors():
    config = load("""
        max_batch_size: 8
        input [ { name: "A" data_type: TYPE_FP32 dims: [ 4, -1 ] reshape { shape: [ 2, 2, -1 ] } optional: true } ]
        output [ { name: "B" data_type: TYPE_STRING dims: 3 label_filename: "labels.txt" } ]""")
    (a,), (b,) = config.inputs, config.outputs
    assert (a.name, a.dtype, a.dims, a.worker_dims, a.optional, a.reshaped) == (
        "A",
        11,
        (4, -1),
        (2, 2, -1),
        True,
        True,
    )
    assert (b.name, b.dtype, b.dims, b.worker_dims, b.label_filename) == ("B", 13, (3,), (3,), "labels.txt")
    assert signature_fields(config) == ([("A", 11, (4, -1), True, False)], [("B", 13, (3,))])


def test_an_empty_reshape_makes_scalars_of_batched_tensors():
    config = load('max_batch_size: 2 input { name: "A" data_type: TYPE_INT8 dims: 1 reshape { } }')
    assert config.inputs[0].worker_dims == ()


def test_dynamic_batching():
    settings = load("""
        max_batch_size: 8
        dynamic_batching {
          preferred_batch_size: [ 8, 2, 2 ] max_queue_delay_microseconds: 100 preserve_ordering: true
          default_queue_policy { default_timeout_microseconds: 5 allow_timeout_override: true max_queue_size: 10 }
        }""").scheduler
    assert settings == SchedulerSettings(8, True, (2, 8), 100_000, True, QueuePolicy(10, 5, True, "REJECT"))


def test_instances_are_numbered_within_their_group():
    config = load('instance_group [ { count: 2 }, { name: "x" kind: KIND_MODEL } ]')
    assert config.instances == (
        PlannedInstance("m_0_0", "CPU", 0),
        PlannedInstance("m_0_1", "CPU", 0),
        PlannedInstance("x_0", "MODEL", 0),
    )


def test_instances_on_each_gpu():
    config = load("instance_group { count: 2 kind: KIND_GPU }", gpus=(0, 1))
    assert [(i.name, i.device_id) for i in config.instances] == [("m_0_0", 0), ("m_0_1", 1), ("m_0_2", 0), ("m_0_3", 1)]


def test_a_gpu_that_is_not_there():
    assert "are: 0, 1; name a GPU" in errors_of("instance_group { kind: KIND_GPU gpus: 7 }", gpus=(0, 1))[0]


def test_version_policies():
    assert load("").version_policy == VersionPolicy("latest", 1)
    assert load("version_policy { all { } }").version_policy.choose([3, 1]) == (1, 3)
    assert load("version_policy { latest { num_versions: 2 } }").version_policy.choose([3, 1, 2]) == (2, 3)
    assert load("version_policy { specific { versions: [ 1, 9 ] } }").version_policy.choose([3, 1]) == (1,)
    assert load("version_policy { latest { } }").version_policy.choose([1]) == ()


def test_parameters_are_read_only():
    parameters = load('parameters { key: "a" value { string_value: "x" } }').parameters
    assert dict(parameters) == {"a": "x"}
    with pytest.raises(TypeError):
        parameters["b"] = "y"


def test_the_result_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load("").name = "other"


def test_errors_of_text_and_of_rules_come_together_in_the_order_of_the_file():
    assert [e.split(": ")[0] for e in errors_of("""
        max_batch_size: 4
        input [ { name: "A" data_type: TYPE_FP32 dims: 0 } ]
        outputt [ ]
        dynamic_batching { preferred_batch_size: [ 8 ] }
        optimization { eager_batching: true }""")] == [
        "m/config.pbtxt:3:56", "m/config.pbtxt:4:9", "m/config.pbtxt:5:52", "m/config.pbtxt:6:24",
    ]  # fmt: skip


def test_a_value_that_could_not_be_read_is_not_missed_as_well():
    assert len(errors_of('input [ { name: "A" data_typ: TYPE_FP32 dims: [ x ] } ]')) == 2
    assert len(errors_of('max_batch_size: "8" dynamic_batching { preferred_batch_size: 4 }')) == 1


def test_unbalanced_brackets_are_the_only_complaint():
    assert len(errors_of('input [ { name: "A" ] max_batch_size: -1')) == 1


def test_collected_errors_are_a_config_error_with_a_line_for_each():
    with pytest.raises(ConfigError) as caught:
        load("x: 1 y: 2")
    assert str(caught.value).count("\n") == 1
    assert [error.key for error in caught.value.errors] == ["x", "y"]


def test_many_errors_are_cut_with_a_count():
    errors = errors_of("x: 1 " * 150)
    assert len(errors) == limits.CONFIG_ERRORS_MAX + 1
    assert "and 50 more errors" in errors[-1]


def test_the_json_form_loads_the_same():
    text = load('max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: 4 }')
    json_form = finish(
        parse_json_form(
            '{"backend": "python", "max_batch_size": 2, "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": ["4"]}]}',
            "override",
        ),
        "m",
    )
    assert json_form.as_dict == text.as_dict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }", "is 18446744073709551615, above"),
        ("dynamic_batching { default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }", "above"),
        ("instance_group { count: 5000 }", "5000 instances for m, more than 1024"),
        ('input { name: "A" data_type: TYPE_FP32 dims: [' + "1," * 32 + "1 ] }", "has 33 dimensions, more than 32"),
        ("".join(f'output {{ name: "{n}" data_type: TYPE_FP32 dims: 1 }}' for n in range(65)), "has 65 outputs, more than 64"),
        ('platform: "pytorch_libtorhc"', "unexpected platform type 'pytorch_libtorhc' for m; did you mean 'pytorch_libtorch'?"),
        ('runtime: "libtriton_x.so"', "runtime 'libtriton_x.so' is known, but not served yet"),
        ('parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "YES" } }', "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: YES' for m"),
        ('parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.so" } }', "is 'x.so' for m: a batching strategy is a Python file here"),
        ('parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "x.py" } }', "has no effect without dynamic batching"),
        ("optimization { cuda { graphs: true } }", "'optimization.cuda.graphs' is known, but not served yet for m; remove it"),
    ],
)  # fmt: skip
def test_bounds_and_refusals(text, expected):
    (error,) = errors_of(text)
    assert expected in error


@pytest.mark.parametrize(("backend", "expected"), [
    ("dali", "backend 'dali' is known, but not served yet for m; served here: \"python\""),
    ("pyton", "unable to find backend library for backend 'pyton', try specifying runtime on the model configuration."),
])  # fmt: skip
def test_other_backends(backend, expected):
    with pytest.raises(ConfigErrors) as caught:
        finish(parse(f'backend: "{backend}"', "f"), "m")
    assert expected in str(caught.value)


def test_what_asks_for_nothing_passes():
    load("""optimization { graph { } cuda { } input_pinned_memory { enable: false } } response_cache { enable: false }
            model_transaction_policy { decoupled: false } model_metrics { } model_operations { }
            instance_group { rate_limiter { } } parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" }""")


def test_key_paths_as_people_write_them():
    assert key_text(("input", 0, "dims", 1)) == "input[0].dims[1]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sequence_batching { }",
            "Response Cache does not currently support model m with sequence batching scheduler. Please disable the "
            "response cache.",
        ),
        (
            "model_transaction_policy { decoupled: true }",
            "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable the "
            "response cache.",
        ),
    ],
)
def test_answers_of_sequences_and_streams_are_not_kept(text, message):
    assert any(message in error for error in errors_of(f"{text} response_cache {{ enable: true }}"))
    load("response_cache { enable: true }")


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '


def test_instances_by_free_memory_are_counted_over_all_gpus():
    config = load(parameter("GPU_PLACEMENT", "free_memory") + "instance_group { count: 2 kind: KIND_GPU }", gpus=(0, 1))
    assert [(i.name, i.candidates) for i in config.instances] == [("m_0_0", (0, 1)), ("m_0_1", (0, 1))]
    config = load(parameter("GPU_PLACEMENT", "free_memory") + "instance_group { count: 2 kind: KIND_CPU }", gpus=(0, 1))
    assert [(i.name, i.candidates) for i in config.instances] == [("m_0_0", ()), ("m_0_1", ())]


def test_gpus_that_are_there_and_not_able():
    assert (
        "compatibility of 7.500000 are: 1;"
        in errors_of("instance_group { kind: KIND_GPU gpus: 0 }", gpus=UsableGpus((1,), 7.5))[0]
    )


def test_what_a_model_needs_of_the_machine():
    assert load("").resources == Resources()
    text = parameter("CPU_THREADS", "3") + parameter("OUT_OF_MEMORY_RETRY", "halves") + parameter("KEEP_AWAKE", "true")
    assert load(text).resources == Resources(3, "halves", False, True)
    assert load(parameter("EXECUTION_TIMEOUT_SECONDS", "0.5")).resources == Resources(execution_seconds_max=0.5)
    assert load(parameter("EXECUTION_TIMEOUT_SECONDS", "")).resources == Resources()
    assert thread_variables(load(text).resources)["OMP_NUM_THREADS"] == "3"
    assert thread_variables(Resources()) == {}
