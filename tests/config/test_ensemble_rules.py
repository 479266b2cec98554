"""Ensembles that one file gets wrong: whole messages with place and hint, and bounds."""

from __future__ import annotations

import pytest

from tests.config.loading import told
from tisfast import limits
from tisfast.config.ensemble_config import EnsembleConfig, Step
from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import finish, parse

REFUSED = [
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\n}',
        "2:1 ensemble_scheduling | must specify 'step' for ensemble 'm'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 }',
        "2:1 platform | ensemble scheduling must be set for ensemble m whose platform is ensemble | add "
        "ensemble_scheduling { step { ... } }",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { input_map { key: "i0" value: "IN" } output_map { key: "o0" value: "OUT" '
        '} }\n}',
        "3:6 ensemble_scheduling.step[0] | must specify 'model_name' in step 0 of ensemble 'm'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" output_map { key: "o0" value: "OUT" } }\n}',
        "3:6 ensemble_scheduling.step[0] | must specify 'input_map' in step 0 of ensemble 'm'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } }\n}',
        "3:6 ensemble_scheduling.step[0] | must specify 'output_map' in step 0 of ensemble 'm'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { }\n}',
        "3:6 ensemble_scheduling.step[0] | must specify 'model_name' in step 0 of ensemble 'm'",
        "3:6 ensemble_scheduling.step[0] | must specify 'input_map' in step 0 of ensemble 'm'",
        "3:6 ensemble_scheduling.step[0] | must specify 'output_map' in step 0 of ensemble 'm'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } model_namespace: "n" }\n}',
        "3:98 ensemble_scheduling.step[0].model_namespace | 'model_namespace' in step 0 of ensemble 'm' is known, "
        "but not served | remove it: --model-namespacing finds the model",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: "o0" '
        'value: "OUT" } }\n}',
        "4:60 ensemble_scheduling.step[1].output_map | ensemble tensor 'OUT' can appear in an output map only "
        "once for ensemble 'm' step 1",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } output_map { key: "o1" value: "OUT" } }\n}',
        "3:60 ensemble_scheduling.step[0].output_map | ensemble tensor 'OUT' can appear in an output map only "
        "once for ensemble 'm' step 0",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "m" } }\nstep { model_name: "a" input_map { key: "i0" value: "m" } output_map { key: "o0" '
        'value: "OUT" } output_map { key: "o1" value: "IN" } }\n}',
        "4:59 ensemble_scheduling.step[1].output_map | ensemble tensor 'IN' is an input of ensemble 'm' and "
        "cannot be an output of its step 1 | rename one of the two",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 }\ninput { name: "IN2" data_type: TYPE_FP32 dims: 4 } '
        'output { name: "OUT" data_type: TYPE_FP32 dims: 4 }\nensemble_scheduling {\nstep { model_name: "a" '
        'input_map { key: "i0" value: "IN" } output_map { key: "o0" value: "OUT" } }\n}',
        "2:7 input[1] | ensemble input 'IN2' for ensemble m' is not used",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\noutput { name: "OUT2" data_type: TYPE_FP32 dims: 4 }\nensemble_scheduling {\nstep { model_name: "a" '
        'input_map { key: "i0" value: "IN" } output_map { key: "o0" value: "OUT" } }\n}',
        "2:8 output[1] | ensemble output 'OUT2' for ensemble m' is not used",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } input_map { key: '
        '"i1" value: "y" } output_map { key: "o0" value: "x" } }\nstep { model_name: "a" input_map { key: "i0" '
        'value: "x" } output_map { key: "o0" value: "y" } }\nstep { model_name: "a" input_map { key: "i0" value: '
        '"x" } output_map { key: "o0" value: "OUT" } }\n}',
        "1:58 output[0] | output 'OUT' for ensemble 'm' is not written: at least one of its depending tensors, "
        "'y', is not connected",
        "2:1 ensemble_scheduling | ensemble tensor 'x' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
        "2:1 ensemble_scheduling | ensemble tensor 'y' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "x" } output_map { key: '
        '"o0" value: "OUT" } }\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: "o0" '
        'value: "z" } }\n}',
        "1:58 output[0] | output 'OUT' for ensemble 'm' is not written: at least one of its depending tensors, "
        "'x', is not connected",
        "2:1 ensemble_scheduling | ensemble tensor 'x' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
        "2:1 ensemble_scheduling | ensemble tensor 'z' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
    ),
    (
        'output { name: "OUT" data_type: TYPE_FP32 dims: 4 }\nensemble_scheduling {\nstep { model_name: "a" '
        'input_map { key: "i0" value: "IN" } output_map { key: "o0" value: "OUT" } }\n}',
        "1:8 output[0] | output 'OUT' for ensemble 'm' is not written: at least one of its depending tensors, "
        "'IN', is not connected",
        "2:1 ensemble_scheduling | ensemble tensor 'IN' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } output_map { key: "o1" value: "waste" } }\n}',
        "2:1 ensemble_scheduling | ensemble tensor 'waste' is unused in ensemble 'm' | leave it out of the map, "
        "or make it an output of the ensemble",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: "o0" '
        'value: "waste" } }\n}',
        "2:1 ensemble_scheduling | ensemble tensor 'waste' is unused in ensemble 'm' | leave it out of the map, "
        "or make it an output of the ensemble",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "a" } }\nstep { model_name: "a" input_map { key: "i0" value: "b" } output_map { key: "o0" '
        'value: "OUT" } }\n}',
        "1:58 output[0] | output 'OUT' for ensemble 'm' is not written: at least one of its depending tensors, "
        "'b', is not connected",
        "2:1 ensemble_scheduling | ensemble tensor 'a' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
        "2:1 ensemble_scheduling | ensemble tensor 'b' is unused in ensemble 'm' | leave it out of the map, or "
        "make it an output of the ensemble",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\ninstance_group { }',
        "5:1 instance_group | instance group should not be specified for ensemble 'm' | write it into the "
        "composing models' configurations",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\noptimization { }',
        "5:1 optimization | optimization should not be specified for ensemble 'm' | write it into the composing "
        "models' configurations",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\nmodel_warmup { }',
        "5:1 model_warmup | model_warmup can not be specified for ensemble 'm' | write it into the composing "
        "models' configurations",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\nmax_batch_size: -1',
        "5:1 max_batch_size | 'max_batch_size' must be non-negative value for m | 0 means that the model has no "
        "batch dimension",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\nbackend: "python"',
        "5:1 backend | Ensemble model 'm' must have platform type 'ensemble' and empty backend type | remove "
        "'backend'",
    ),
    (
        'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 '
        '}\nensemble_scheduling {\nstep { model_name: "a" input_map { key: "i0" value: "IN" } output_map { key: '
        '"o0" value: "OUT" } }\n}\nresponse_cache { enable: true } model_transaction_policy { decoupled: true }',
        "5:18 response_cache.enable | Response Cache does not currently support model m with 'decoupled' "
        "transaction policy. Please disable the response cache.",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_an_ensemble_that_cannot_be_is_told_with_its_place_and_hint(row):
    text, *expected = row
    assert told(text, end='platform: "ensemble"') == expected


IN = 'input { name: "IN" data_type: TYPE_FP32 dims: 4 } '
OUT = 'output { name: "OUT" data_type: TYPE_FP32 dims: 4 } '
OF = "whose platform is not ensemble | set platform: \"ensemble\" and remove 'backend'"


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (
            "",
            "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. "
            "Expected model name of the form 'model.<backend_name>'. | write platform: \"ensemble\"",
        ),
        ('backend: "python"', f"ensemble scheduling cannot be set for model 'm' {OF}"),
        ('backend: "ensemble"', f"ensemble scheduling cannot be set for model 'm' {OF}"),
        ('platform: "onnxruntime_onnx"', f"ensemble scheduling cannot be set for model 'm' {OF}"),
    ],
)
def test_steps_make_no_ensemble_of_a_model_of_another_platform(end, error):
    assert told(f"{IN}{OUT} ensemble_scheduling {{ {step('IN', 'OUT')} }}", end=end) == [
        f"1:104 ensemble_scheduling | {error}"
    ]


def step(source, target, version=""):
    maps = f'input_map {{ key: "x" value: "{source}" }} output_map {{ key: "y" value: "{target}" }}'
    return f'step {{ model_name: "a" {maps} {version} }}'


def ensemble(*steps, more=""):
    text = f'platform: "ensemble" {IN}{OUT} ensemble_scheduling {{ {" ".join(steps)} {more} }}'
    return finish(parse(text, "f"), "e")


@pytest.mark.parametrize(("version", "number"), [("", 0), ("model_version: -1", -1), ("model_version: 7", 7)])
def test_each_field_of_a_step_becomes_a_value(version, number):
    assert ensemble(step("IN", "OUT", version)).ensemble == EnsembleConfig(
        (Step("a", number, (("x", "IN"),), (("y", "OUT"),)),), 0
    )


@pytest.mark.parametrize("most", [0, 1, 2**32 - 1])
def test_requests_of_a_step_at_one_time_may_be_bounded(most):
    config = ensemble(step("IN", "OUT"), more=f"max_inflight_requests: {most}")
    assert config.ensemble.max_inflight_requests == most


def chain(count):
    """Steps of which each waits for the next one in the file."""
    names = ["IN", *(f"t{n}" for n in range(1, count)), "OUT"]
    return [step(names[n], names[n + 1]) for n in reversed(range(count))]


def test_steps_may_stand_in_any_order_and_are_bounded():
    assert len(ensemble(*chain(limits.ENSEMBLE_STEPS_MAX)).ensemble.steps) == limits.ENSEMBLE_STEPS_MAX
    steps = chain(limits.ENSEMBLE_STEPS_MAX + 1)
    steps[0] = step("nothing", "OUT")  # not looked at any more
    with pytest.raises(ConfigErrors) as caught:
        ensemble(*steps)
    assert [f"{error.message}; {error.hint}" for error in caught.value.errors] == [
        "ensemble 'e' has 1025 steps, more than 1024; split it into several ensembles"
    ]


def test_an_ensemble_has_no_instances_no_backend_and_no_buffers():
    config = ensemble(step("IN", "OUT"))
    assert (config.backend, config.instances, config.instance_groups) == ("", (), ())
    assert "optimization" not in config.as_dict and config.as_dict["instance_group"] == []
