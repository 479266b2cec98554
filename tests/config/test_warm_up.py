"""Warm-up samples that the model would not take, told from the configuration alone."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

import pytest

from tisfast.config.error_report import ConfigErrors
from tisfast.config.model_config import finish, parse

INPUTS = """
input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2 ] }
input { name: "O" data_type: TYPE_INT32 dims: 1 optional: true }
"""
CONTROL = 'sequence_batching { control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }'


def given(name="A", dtype="TYPE_FP32", dims="[ 3, 2 ]"):
    return f'inputs {{ key: "{name}" value {{ data_type: {dtype} dims: {dims} zero_data: true }} }}\n'


def sample(*inputs, batch_size=1):
    return f'model_warmup {{ name: "w" batch_size: {batch_size}\n{"".join(inputs)}}}\n'


def load(text, **options):
    return finish(parse(f'backend: "python"\n{INPUTS}{text}', "m/config.pbtxt"), "m", **options)


def errors_of(text):
    with pytest.raises(ConfigErrors) as caught:
        load(text)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(
    "text",
    [
        sample(given()),
        sample(given(), given("O", "TYPE_INT32", "1")),
        sample(given(dims="[ 0, 2 ]")),
        "max_batch_size: 4\n" + sample(given(), batch_size=4),
        sample(given("Z"), batch_size=0),
        CONTROL + sample(given(), given("S", "TYPE_INT32", "1")),
    ],
)
def test_samples_that_fit(text):
    assert load(text).name == "m"


def test_a_size_that_is_left_open_is_told_once():
    assert len(errors_of(sample(given(dims="[ -1, 3 ]")))) == 1


def test_what_the_model_may_still_complete_is_not_judged():
    assert load(sample(given("Z")), partial=True).partial
