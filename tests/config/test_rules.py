"""Rules of single parts of a configuration: batch inputs and outputs, rate limits, buckets, versions."""

from __future__ import annotations

import pytest

from tests.config.loading import IO, errors_of, load
from tisfast import limits
from tisfast.config.metric_control import FIRST_RESPONSE, FIRST_RESPONSE_BOUNDS_MS, first_response_bounds_ms
from tisfast.config.rate_limits import Demand
from tisfast.config.versions import VersionPolicy

BATCHING = "max_batch_size: 4 " + IO


def batch_input(data_type="TYPE_INT32", target="T", source='"A"'):
    of = f"data_type: {data_type}" if data_type else ""
    names = f'target_name: "{target}" source_input: [ {source} ]'
    return BATCHING + f"batch_input {{ kind: BATCH_ELEMENT_COUNT {of} {names} }}"


def batch_output(target="B", source='"A"'):
    kind = "BATCH_SCATTER_WITH_INPUT_SHAPE"
    return BATCHING + f'batch_output {{ kind: {kind} target_name: "{target}" source_input: [ {source} ] }}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (batch_input(data_type=""), "unexpected batch input data type 'TYPE_INVALID'"),
        (batch_input(data_type="TYPE_INT64"), "batch input data type must be TYPE_INT32 or TYPE_FP32 for m"),
        (batch_input(target="A"), "target input name 'A' can only be specified once for m"),
        (batch_input(source='"A", "A"'), "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 2 for m"),
        (batch_input(source='"Z"'), "unknown source input name 'Z' for m"),
        (batch_output(target="Z"), "unknown target output name 'Z' for m"),
        (batch_output(source='"Z"'), "unknown source input name 'Z' for m"),
        (batch_output() + batch_output()[len(BATCHING) :], "target output name 'B' can only be specified once for m"),
    ],
)
def test_batch_inputs_and_outputs_are_refused_in_triton_s_words(text, said):
    assert any(said in error for error in errors_of(text))


def rate_limiter(text):
    return IO + f"instance_group [ {{ rate_limiter {{ {text} }} }} ]"


def test_what_an_execution_takes():
    resources = 'resources [ { name: "R" count: 2 }, { name: "G" count: 1 global: true } ]'
    [instance] = load(rate_limiter(f"{resources} priority: 3")).instances
    assert instance.rate_limit.demands == (Demand("R", 2), Demand("G", 1, True))
    assert instance.rate_limit.priority == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"priority: {limits.RATE_LIMIT_PRIORITY_MAX + 1}", "rate limiter priority 1000001 is above 1000000 for m"),
        ('resources { name: "R" count: 1 } ' * 65, "65 rate limiter resources, more than 64, for m"),
    ],
)
def test_rate_limits_are_bounded(text, said):
    assert any(said in error for error in errors_of(rate_limiter(text)))


def histogram(family=FIRST_RESPONSE, buckets="1, 2"):
    control = f'metric_identifier {{ family: "{family}" }} histogram_options {{ buckets: [ {buckets} ] }}'
    return IO + f"model_metrics {{ metric_control {{ {control} }} }}"


@pytest.mark.parametrize("buckets", ["", "1, 1", "2, 1", ", ".join(map(str, range(limits.HISTOGRAM_BOUNDS_MAX + 1)))])
def test_buckets_rise_and_are_bounded(buckets):
    assert any("must be 1 to 64 ascending numbers" in error for error in errors_of(histogram(buckets=buckets)))


def test_only_one_family_has_buckets_of_a_model_s_own():
    assert any("names the family 'nv_other'" in error for error in errors_of(histogram("nv_other")))


def test_a_model_s_buckets_are_its_own_and_others_are_triton_s():
    load(histogram())
    control = {"metric_identifier": {"family": FIRST_RESPONSE}, "histogram_options": {"buckets": [1, 2.5]}}
    other = {"metric_identifier": {"family": "nv_other"}}
    assert first_response_bounds_ms({"model_metrics": {"metric_control": [other, control]}}) == (1.0, 2.5)
    for config in ({}, {"model_metrics": None}, {"model_metrics": {"metric_control": [other]}}):
        assert first_response_bounds_ms(config) == FIRST_RESPONSE_BOUNDS_MS


@pytest.mark.parametrize(
    ("policy", "chosen", "text"),
    [
        (VersionPolicy(), (7,), "latest { num_versions: 1 }"),
        (VersionPolicy(latest=2), (3, 7), "latest { num_versions: 2 }"),
        (VersionPolicy(latest=0), (), "latest { num_versions: 0 }"),
        (VersionPolicy("all"), (1, 3, 7), "all { }"),
        (VersionPolicy("specific", specific=(1, 7, 9)), (1, 7), "specific { versions: [1, 7, 9] }"),
    ],
)
def test_a_version_policy_chooses_of_what_is_there(policy, chosen, text):
    assert policy.choose([7, 1, 3, 1]) == chosen and str(policy) == text
