"""What wrk is sent, what it prints, and what it adds to what it measured."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.figures import RunFailed
from perf.wrk import figures, made, percentile, wrk_body

LATENCIES = st.dictionaries(st.integers(1, 3000), st.integers(1, 9), min_size=1)


def corrected(latencies: dict[int, int], interval: int) -> Counter[int]:
    """As wrk 4.1 goes about it: upwards, each latency with what smaller ones could not add to it."""
    shown = Counter(latencies)
    for us in range(2 * interval, max(latencies) + 1):
        less = us - interval
        while shown[us] and less > interval:
            shown[less] += shown[us]
            less -= interval
    return Counter({us: times for us, times in shown.items() if times and us >= min(latencies)})


@given(LATENCIES, st.integers(1, 500))
def test_what_was_made_is_found_again(latencies: dict[int, int], interval: int):
    assert made(corrected(latencies, interval), interval) == latencies


def test_a_pause_counts_once():
    shown = corrected({50: 9990, 60: 9, 5000: 1}, 55)
    assert percentile(dict(sorted(shown.items())), 0.995) > 1000
    output = f"FIGURES 10000 550000 0 {' '.join(f'{us}:{times}' for us, times in sorted(shown.items()))}\n"
    found = figures(f"Running 1s test\n{output}", 1)
    assert (round(found.rate), found.p50, found.p99) == (18182, 50, 50)


def test_what_wrk_cannot_have_printed_is_refused():
    with pytest.raises(RunFailed, match="shows 1 latencies of 900 us and must have added 5"):
        made({900: 1, 1000: 5}, 100)


@pytest.mark.parametrize(
    ("output", "why"),
    [("", "no figures"), ("FIGURES 0 1000 0\n", "0 bad answers of 0"), ("FIGURES 9 10 2 5:9\n", "2 bad answers of 9")],
)
def test_a_run_without_figures_is_refused(output: str, why: str):
    with pytest.raises(RunFailed, match=why):
        figures(output, 1)


@given(LATENCIES)
def test_percentiles_are_latencies_that_occurred(latencies: dict[int, int]):
    ordered = sorted(Counter(latencies).elements())
    by_count = dict(sorted(latencies.items()))
    assert percentile(by_count, 1.0) == ordered[-1]
    assert percentile(by_count, 0.5) == ordered[(len(ordered) + 1) // 2 - 1]


def test_a_list_of_floats_is_sent_as_json():
    body = wrk_body("json1024")
    (asked,) = json.loads(body.data)["inputs"]
    assert (asked["shape"], len(asked["data"]), body.json_bytes) == ([1024], 1024, None)


def test_a_body_for_a_named_model_has_the_shape_that_was_asked_for():
    body = wrk_body("sleep_2ms/bin1x4")
    (asked,) = json.loads(body.data[: body.json_bytes])["inputs"]
    assert (body.path, asked["name"], asked["shape"]) == ("/v2/models/sleep_2ms/infer", "INPUT0", [1, 4])
    assert len(body.data) == body.json_bytes + 16
