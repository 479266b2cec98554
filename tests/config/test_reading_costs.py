"""What reading a configuration costs: work grows with its length, however wrong it is.

Nothing is timed: calls of Python and C functions are counted, which are the same on every machine.  Work that takes the
square of the length makes four times as many calls of a text twice as long.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast import limits
from tisfast.config.error_report import ConfigErrors, Report
from tisfast.config.lenient_json import loads
from tisfast.config.model_config import finish, parse, parse_json_form
from tisfast.config.pbtxt import parse_text

MORE = 2 * limits.CONFIG_ERRORS_MAX
"""Repetitions of a mistake: errors beyond the bound are counted, so both texts show equally many."""


def calls(work: Callable[[], object]) -> int:
    """Calls of functions, and steps of generators, that some work makes."""
    count = 0

    def seen(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def loaded(text):
    with suppress(ConfigErrors):
        finish(parse(text, "f"), "m")


def loaded_json(text):
    with suppress(ConfigErrors):
        finish(parse_json_form(text, "f"), "m")


def assert_linear(work: Callable[[int], object]) -> None:
    """`work` of twice as much takes no more than twice as many calls, and some."""
    work(1)  # what is made once: classes of messages
    once, twice = calls(lambda: work(MORE)), calls(lambda: work(2 * MORE))
    assert twice < 2.5 * once, f"{once} calls for {MORE}, {twice} for {2 * MORE}"


REPEATED = [
    "x: 1 ", "x { ", "x: [ ", "max_batch_sise: 8 ", "$ ", "} ", '"', '"a" ', "name: 5 ", "name: 'a' ", "name: 'a' 'b' ",
    "input { data_type: x } ", "input { data_type: FLOAT } ", "input { data_type: 'FP32' } ", "input { } ", "input { ",
    "input { dims: x name: 3 } ", "input [ { dims: [ 0, x ] } ] ", "output { dims: 0 reshape { shape: [ 2, 0 ] } } ",
    "instance_group { kind: GPUS } ", "instance_group { kind: 9 count: -1 } ",
    "instance_group { gpus: 3 kind: KIND_GPU } ", 'instance_group { name: "x" } ',
    "parameters { key: 'a' value: 'x' } ", "parameters { } ", "parameters { value { } } ",
    "model_warmup { batch_size: 1 } ", "batch_input { source_input: 'z' target_name: 't' } ", "batch_output { } ",
    "sequence_batching { control_input { } } ", "dynamic_batching { } ", "model_metrics { metric_control { } } ",
    "- ", "-1 ", "[a.b]: 3 ", "# x\n", "\n", "\\", "é", "<", "max_batch_size = 4 ", "max_batch_size 4 ", ", ", "; ",
]  # fmt: skip


@pytest.mark.parametrize("unit", REPEATED)
def test_a_mistake_that_comes_again_costs_the_same_again(unit):
    assert_linear(lambda count: loaded(unit * count))


INSIDE = {
    "dims": ("input { dims: [ ", "x, ", "] }"),
    "good dims": ("input { name: 'A' data_type: TYPE_FP32 dims: [ ", "1, ", "1 ] }"),
    "controls": ("sequence_batching { ", "control_input { name: 'c' control { } } ", "}"),
    "states": ("sequence_batching { ", "state { input_name: 'c' } ", "}"),
    "steps": ("platform: 'ensemble' ensemble_scheduling { ", "step { } ", "}"),
    "maps": ("platform: 'ensemble' ensemble_scheduling { step { ", "input_map { key: 'a' value: 'b' } ", "} }"),
    "samples": ("input { name: 'A' data_type: TYPE_FP32 dims: 1 } model_warmup { batch_size: 1 ",
                "inputs { key: 'a' value { zero_data: true } } ", "}"),
    "sizes": ("dynamic_batching { preferred_batch_size: [ ", "0, ", "1 ] }"),
    "levels": ("dynamic_batching { priority_levels: 2 default_priority_level: 1 ",
               "priority_queue_policy { key: 9 value { } } ", "}"),
    "limits": ("instance_group { rate_limiter { ", "resources { count: x } ", "} }"),
    "buckets": ("model_metrics { metric_control { histogram_options { buckets: [ ", "1, ", "2 ] } } }"),
    "versions": ("version_policy { specific { versions: [ ", "3, ", "1 ] } }"),
    "a text": ("name: ", "'a' ", ""),
    "escapes": ("name: '", r"\n", "'"),
    "an open text": ("name: '", r"\\", ""),
    "nesting": ("", "x { y [ ", ""),
    "nesting that ends": ("x { ", "} { ", "}"),
}  # fmt: skip


@pytest.mark.parametrize("case", INSIDE)
def test_a_long_value_costs_as_much_as_it_is_long(case):
    start, unit, end = INSIDE[case]
    assert_linear(lambda count: loaded(start + unit * count + end))


def test_different_names_cost_no_more_than_equal_ones():
    assert_linear(lambda count: loaded("".join(f"parameters {{ key: '{n}' value {{ }} }} " for n in range(count))))
    assert_linear(lambda count: loaded("".join(f"input {{ name: '{n}' dims: 1 }} " for n in range(count))))
    assert_linear(lambda count: loaded("".join(f"key{n}: 1 " for n in range(count))))


JSON = {
    "unknown keys": lambda n: {f"x{i}": 1 for i in range(n)},
    "wrong types": lambda n: {"input": [{"data_type": "FLOAT"}] * n},
    "no objects": lambda n: {"input": [None] * n},
    "wrong numbers": lambda n: {"input": [{"dims": ["x"] * n}]},
    "wrong map entries": lambda n: {"parameters": {str(i): "x" for i in range(n)}},
    "wrong map keys": lambda n: {"dynamic_batching": {"priority_queue_policy": {f"x{i}": {} for i in range(n)}}},
}


@pytest.mark.parametrize("case", JSON)
def test_a_mistake_that_comes_again_in_json_costs_the_same_again(case):
    assert_linear(lambda count: loaded_json(json.dumps(JSON[case](count))))


NOT_QUITE_JSON = ['"name":1,', "name:1,", "'a':'b',", "'", '"', "\\", "a", "a:", "{", "[", ",", ",}", "'\\'"]


@pytest.mark.parametrize("unit", NOT_QUITE_JSON)
def test_what_is_not_quite_json_costs_as_much_as_it_is_long(unit):
    assert_linear(lambda count: loaded_json("{" + unit * count))
    assert_linear(lambda count: loaded_json("{" + unit * count + "}"))


def test_text_that_is_not_quite_json_is_changed_once():
    pairs = []
    text = ",".join(f"k{n}: 'v'" for n in range(1000))
    value = loads(f"{{{text},}}", lambda found: pairs.append(len(found)) or dict(found))
    assert value == {f"k{n}": "v" for n in range(1000)} and pairs == [1000]


WORDS = [
    "name", "input", "dims", "parameters", "key", "value", "kind", "KIND_CPU", "x", "{", "}", "<", ">", "[", "]", ":",
    ",", ";", "-", "1", "2.5", "0x1f", '"a"', "'b'", '"', "#", "\n", "$", "=", "9e9", "true", "instance_group",
    "model_warmup", "inputs", "dynamic_batching", "sequence_batching", "TYPE_FP32", "data_type",
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join))
def test_no_words_that_come_again_and_again_cost_more_than_their_length(unit):
    assert_linear(lambda count: loaded((unit + " ") * count))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=200).map(" ".join))
def test_the_parser_steps_over_each_word_a_few_times(text):
    parse_text("", Report("f"))
    assert calls(lambda: parse_text(text, Report("f"))) < 20_000 + 400 * len(text)
