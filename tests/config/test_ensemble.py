"""Ensemble configurations: what Triton 2.51 says of each wrong one."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tisfast.config.ensemble_config import EnsembleConfig, Step
from tisfast.config.ensemble_join import join
from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import finish, parse
from tisfast.errors import ConfigError
from tisfast.wire.signature import ModelSignature

FP32, INT32 = 11, 8
IN, OUT = 'input { name: "IN" data_type: TYPE_FP32 dims: 4 }', 'output { name: "OUT" data_type: TYPE_FP32 dims: 4 }'


def step(model="id8", inputs=None, outputs=None, more="model_version: -1"):
    inputs = {"INPUT0": "IN"} if inputs is None else inputs
    outputs = {"OUTPUT0": "OUT"} if outputs is None else outputs
    text = f'model_name: "{model}" ' if model else ""
    text += "".join(f'input_map {{ key: "{key}" value: "{value}" }} ' for key, value in inputs.items())
    text += "".join(f'output_map {{ key: "{key}" value: "{value}" }} ' for key, value in outputs.items())
    return f"step {{ {text} {more} }}"


def ensemble(*steps, inputs=IN, outputs=OUT, more="", mbs=8, platform='platform: "ensemble"'):
    return f"{platform} max_batch_size: {mbs} {inputs} {outputs} ensemble_scheduling {{ {' '.join(steps)} }} {more}"


def load(text, name="e"):
    return finish(parse(text, "e/config.pbtxt"), name)


def messages_of(text):
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    return [error.message for error in caught.value.errors]


def test_steps_and_their_maps():
    config = load(ensemble(step(outputs={"OUTPUT0": "a"}), step(inputs={"INPUT0": "a"}, more="model_version: 3")))
    assert config.ensemble == EnsembleConfig(
        (
            Step("id8", -1, (("INPUT0", "IN"),), (("OUTPUT0", "a"),)),
            Step("id8", 3, (("INPUT0", "a"),), (("OUTPUT0", "OUT"),)),
        ),
        0,
    )
    assert config.instances == ()


def test_the_limit_of_inflight_requests():
    text = ensemble(step()).replace("ensemble_scheduling {", "ensemble_scheduling { max_inflight_requests: 7")
    assert load(text).ensemble.max_inflight_requests == 7


def test_a_model_is_no_ensemble():
    assert load('backend: "python"', "m").ensemble is None


TWO = {"OUTPUT0": "OUT", "OUTPUT1": "OUT"}
WARMUP = 'model_warmup { name: "w" batch_size: 1 inputs { key: "IN" value: { data_type: TYPE_FP32 dims: 4 zero_data: true } } }'
Y = 'input { name: "IN2" data_type: TYPE_FP32 dims: 4 }'
Z = 'output { name: "OUT2" data_type: TYPE_FP32 dims: 4 }'
WRONG = {
    "no steps": (ensemble(), "must specify 'step' for ensemble 'e'"),
    "no scheduling": (f'platform: "ensemble" {IN} {OUT}', "ensemble scheduling must be set for ensemble e whose platform is ensemble"),
    "no model": (ensemble(step(model="")), "must specify 'model_name' in step 0 of ensemble 'e'"),
    "no input map": (ensemble(step(inputs={})), "must specify 'input_map' in step 0 of ensemble 'e'"),
    "no output map": (ensemble(step(outputs={})), "must specify 'output_map' in step 0 of ensemble 'e'"),
    "made twice": (ensemble(step(), step()), "ensemble tensor 'OUT' can appear in an output map only once for ensemble 'e' step 1"),
    "made twice by one": (ensemble(step(outputs=TWO)), "ensemble tensor 'OUT' can appear in an output map only once for ensemble 'e' step 0"),
    "unused input": (ensemble(step(), inputs=IN + Y), "ensemble input 'IN2' for ensemble e' is not used"),
    "unused output": (ensemble(step(), outputs=OUT + Z), "ensemble output 'OUT2' for ensemble e' is not used"),
    "a circle": (
        ensemble(step("add8", {"INPUT0": "IN", "INPUT1": "y"}, {"OUTPUT0": "x"}), step(inputs={"INPUT0": "x"}, outputs={"OUTPUT0": "y"}), step(inputs={"INPUT0": "x"})),
        "output 'OUT' for ensemble 'e' is not written: at least one of its depending tensors, 'y', is not connected",
    ),
    "not written": (
        ensemble(step(inputs={"INPUT0": "nobody"}), step(outputs={"OUTPUT0": "z"})),
        "output 'OUT' for ensemble 'e' is not written: at least one of its depending tensors, 'nobody', is not connected",
    ),
    "no inputs": (ensemble(step(), inputs=""), "output 'OUT' for ensemble 'e' is not written: at least one of its depending tensors, 'IN', is not connected"),
    "unused tensor": (ensemble(step(outputs={"OUTPUT0": "OUT", "OUTPUT1": "waste"})), "ensemble tensor 'waste' is unused in ensemble 'e'"),
    "unused branch": (ensemble(step(), step(outputs={"OUTPUT0": "waste"})), "ensemble tensor 'waste' is unused in ensemble 'e'"),
    "instance group": (ensemble(step(), more="instance_group { count: 1 }"), "instance group should not be specified for ensemble 'e'"),
    "optimization": (ensemble(step(), more="optimization { input_pinned_memory { enable: true } }"), "optimization should not be specified for ensemble 'e'"),
    "optimization not served": (ensemble(step(), more="optimization { eager_batching: true }"), "optimization should not be specified for ensemble 'e'"),
    "warm-up": (ensemble(step(), more=WARMUP), "model_warmup can not be specified for ensemble 'e'"),
    "backend too": (ensemble(step(), platform='platform: "ensemble" backend: "python"'), "Ensemble model 'e' must have platform type 'ensemble' and empty backend type"),
    "of a backend": (ensemble(step(), platform='backend: "python"'), "ensemble scheduling cannot be set for model 'e' whose platform is not ensemble"),
    "backend ensemble": (ensemble(step(), platform='backend: "ensemble"'), "ensemble scheduling cannot be set for model 'e' whose platform is not ensemble"),
    "negative batch": (ensemble(step(), mbs=-1), "'max_batch_size' must be non-negative value for e"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_one_file_gets_wrong_is_said_as_triton_says_it(case):
    text, message = WRONG[case]
    assert message in messages_of(text)


def test_without_a_platform_triton_looks_for_a_backend():
    (message,) = messages_of(ensemble(step(), platform=""))
    assert message.startswith("Invalid model name: Could not determine backend for model 'e' with no backend")


def test_a_tensor_is_made_once_also_where_the_client_makes_it():
    (message,) = messages_of(
        ensemble(
            step(inputs={"INPUT0": "IN2"}, outputs={"OUTPUT0": "OUT"}), step(outputs={"OUTPUT0": "IN2"}), inputs=IN + Y
        )
    )
    assert message == "ensemble tensor 'IN2' is an input of ensemble 'e' and cannot be an output of its step 1"


def test_namespaces_are_refused_by_name():
    (message,) = messages_of(ensemble(step(more='model_namespace: "n"')))
    assert message == "'model_namespace' in step 0 of ensemble 'e' is known, but not served"


# ---- beside its models


def model(
    name, mbs=8, dims=(4,), dtype=FP32, *, inputs=("INPUT0",), outputs=("OUTPUT0",), decoupled=False, optional=()
):
    ins = [(each, dtype, dims, each in optional, False) for each in inputs]
    return ModelSignature(name, "1", mbs, decoupled, ins, [(each, dtype, dims) for each in outputs])


TWO_IN, TWO_OUT = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
MODELS = {
    each.name: each
    for each in (
        model("id8"),
        model("id2", 2),
        model("id0", 0),
        model("id5", dims=(5,)),
        model("idv", dims=(-1,)),
        model("int8", dtype=INT32),
        model("add8", inputs=TWO_IN, outputs=TWO_OUT),
        model("opt8", inputs=TWO_IN, outputs=TWO_OUT, optional=("INPUT1",)),
        model("rep", 0, (1,), INT32, decoupled=True),
        model("idi1", 0, (1,), INT32),
        model("addi1", 0, (1,), INT32, inputs=TWO_IN, outputs=TWO_OUT),
    )
}


def joined(text):
    config = load(text)
    return join(config, [MODELS[each.model] for each in config.ensemble.steps])


def two(first, second, **more):
    return ensemble(step(first, outputs={"OUTPUT0": "m"}), step(second, {"INPUT0": "m"}), **more)


INT_IN, INT_OUT = IN.replace("FP32", "INT32"), OUT.replace("FP32", "INT32")
FIVE_IN, FIVE_OUT = IN.replace("dims: 4", "dims: 5"), OUT.replace("dims: 4", "dims: 5")
SQUARE = IN.replace("dims: 4", "dims: [ 2, 2 ]")
N = 'input { name: "N" data_type: TYPE_INT32 dims: 1 }'
R, R2 = (f'output {{ name: "{name}" data_type: TYPE_INT32 dims: 1 }}' for name in ("OUT", "OUT2"))


def stream(*steps, outputs=R):
    return ensemble(*steps, inputs=N, outputs=outputs, mbs=0)


def of_n(name, tensor, source="N"):
    return step(name, {"INPUT0": source}, {"OUTPUT0": tensor})


def sum_of(a, b):
    return step("addi1", {"INPUT0": a, "INPUT1": b})


MISFITS = {
    "batch": (two("id8", "id2"), "ensemble e allows maximum batch size 8, but it contains model id2 which only allows maximum batch size to be 2"),
    "unknown input": (ensemble(step(inputs={"INPUT0": "IN", "NOPE": "IN"})), "in ensemble e, ensemble tensor IN is mapping to non-existing input NOPE in model id8"),
    "unknown output": (
        ensemble(step(outputs={"OUTPUT0": "OUT", "NOPE": "OUT2"}), outputs=OUT + Z),
        "in ensemble e, ensemble tensor OUT2 is mapped from non-existing output NOPE in model id8",
    ),
    "unmapped": (ensemble(step("add8")), "in ensemble e, input INPUT1 in model add8 is not mapped to any ensemble tensors"),
    "input's type": (ensemble(step(), inputs=INT_IN), "in ensemble e, ensemble tensor IN: inconsistent data type: TYPE_INT32 is inferred from model e while TYPE_FP32 is inferred from model id8"),
    "output's type": (ensemble(step(), outputs=INT_OUT), "in ensemble e, ensemble tensor OUT: inconsistent data type: TYPE_INT32 is inferred from model e while TYPE_FP32 is inferred from model id8"),
    "type between": (two("id8", "int8", outputs=INT_OUT), "in ensemble e, ensemble tensor m: inconsistent data type: TYPE_FP32 is inferred from model id8 while TYPE_INT32 is inferred from model int8"),
    "input's shape": (ensemble(step(), inputs=FIVE_IN), "in ensemble e, ensemble tensor IN: inconsistent shape: [-1,5] is inferred from model e while [-1,4] is inferred from model id8"),
    "shape between": (two("id8", "id5", outputs=FIVE_OUT), "in ensemble e, ensemble tensor m: inconsistent shape: [-1,4] is inferred from model id8 while [-1,5] is inferred from model id5"),
    "rank": (ensemble(step(), inputs=SQUARE), "in ensemble e, ensemble tensor IN: inconsistent shape: [-1,2,2] is inferred from model e while [-1,4] is inferred from model id8"),
    "reshape": (
        ensemble(step(), inputs=IN.replace("dims: 4", "dims: 4 reshape { shape: [ 2, 2 ] }")),
        "in ensemble e, ensemble tensor IN: inconsistent shape: [-1,2,2] is inferred from model e while [-1,4] is inferred from model id8",
    ),
    "two streams meet": (stream(of_n("rep", "a"), of_n("rep", "b"), sum_of("a", "b")), "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"),
    "a stream meets the request": (stream(of_n("rep", "a"), sum_of("a", "N")), "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"),
    "outputs of a stream and not": (stream(of_n("rep", "OUT"), of_n("idi1", "OUT2"), outputs=R + R2), "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"),
    "outputs of two streams": (stream(of_n("rep", "OUT"), of_n("rep", "OUT2"), outputs=R + R2), "in ensemble e, step of model 'e' receives inputs originated from different decoupled models"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_the_models_is_said_as_triton_says_it(case):
    text, message = MISFITS[case]
    with pytest.raises(ConfigError) as caught:
        joined(text)
    assert caught.value.message == message
    assert caught.value.line


FITS = {
    "a chain": two("id8", "id8"),
    "variable dimensions": two("idv", "id8"),
    "batches through a model without": ensemble(step("id0")),
    "a batch as a dimension": ensemble(step(), inputs=IN.replace("dims: 4", "dims: [ -1, 4 ]"), outputs=OUT.replace("dims: 4", "dims: [ -1, 4 ]"), mbs=0),
    "an optional input left out": ensemble(step("opt8")),
    "a reshape that fits": ensemble(step(), inputs=IN.replace("dims: 4", "dims: [ 2, 2 ] reshape { shape: 4 }")),
    "an input that is an output": ensemble(step(), outputs=OUT + 'output { name: "IN" data_type: TYPE_FP32 dims: 4 }'),
}  # fmt: skip


@pytest.mark.parametrize("case", FITS)
def test_what_fits_is_served(case):
    found = joined(FITS[case])
    assert not found.config.decoupled
    assert found.config.as_dict["model_transaction_policy"] == {"decoupled": False}
    assert set(found.levels.values()) == {0}


def test_an_ensemble_is_decoupled_when_a_step_is():
    found = joined(stream(of_n("rep", "a"), of_n("rep", "b", "a"), of_n("idi1", "OUT", "b")))
    assert found.config.decoupled and found.config.as_dict["model_transaction_policy"] == {"decoupled": True}
    assert found.levels == {"N": 0, "a": 1, "b": 2, "OUT": 2}


def test_a_transaction_policy_of_its_own_changes_nothing():
    assert not joined(ensemble(step(), more="model_transaction_policy { decoupled: true }")).config.decoupled


def test_the_configuration_of_what_is_loaded_stays_as_it_was():
    config = load(ensemble(step()))
    before = SimpleNamespace(**config.as_dict)
    join(config, [MODELS["id8"]])
    assert vars(before) == load(ensemble(step())).as_dict
