"""Buckets of a model's own: which there may be, and where there are none."""

from __future__ import annotations

import pytest

from tests.config.loading import IO, errors_of, load
from tisfast import limits
from tisfast.config.metric_control import FIRST_RESPONSE, FIRST_RESPONSE_BOUNDS_MS, first_response_bounds_ms


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
