"""The page of a run: whole, labelled, without anything from a network, and drawn by a browser where there is one."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.checked_html import BROWSER, Checked, draw
from tests.bench.made_levels import latencies, level_of, run_of, server_of
from tisfast.bench.json_output import document
from tisfast.bench.report_html import page
from tisfast.bench.results import Level, Target
from tisfast.bench.svg import Axis, Scale, Series, line_chart, stacked_bars

VOID = {"meta", "link", "br", "circle", "polyline", "line", "rect", "i"}


def levels():
    return [
        level_of(latencies(400 * number, requests=50 * number), Level("concurrency", float(number)))
        for number in (1, 2, 4)
    ]


def checked(text: str) -> Checked:
    found = Checked()
    found.feed(text)
    assert found.open == []
    return found


def test_each_figure_has_both_axes_labelled():
    charts = checked(page(document(run_of(*levels())))).charts

    assert len(charts) == 4 + 2 * 3
    labels = [("inferences a second", "latency, µs"), ("percentile", "latency, µs")]
    for chart, names in zip(charts, labels, strict=False):
        assert set(names) <= set(chart)
    assert "µs of a request, by level" in charts[2]
    assert all({"seconds"} < set(chart) for chart in charts[4:])


def test_nothing_is_loaded_and_no_script_runs():
    text = page(document(run_of(*levels())))

    assert "script" not in checked(text).tags
    assert not re.search(r"https?://|\bsrc=|@import|url\(", text)
    assert re.findall(r'href="([^"]*)"', text) == ["data:,"]


def test_what_a_server_says_is_text():
    bad = Target("x", "http", "<script>alert(1)</script>")
    text = page(document(run_of(level_of(latencies(500), reason='"<b>'), target=bad)))

    assert "<script>" not in text and "&lt;script&gt;" in text
    assert "the queue &lt;is&gt; full" in text
    assert "&quot;&lt;b&gt;" in text


def test_light_dark_and_phones_are_thought_of():
    text = page(document(run_of(*levels())))

    assert "prefers-color-scheme:dark" in text
    assert '<meta name="viewport" content="width=device-width,initial-scale=1">' in text


@pytest.mark.parametrize(
    "measured",
    [
        [],
        [level_of(np.empty((1, 0)), server=server_of(0))],
        [level_of(latencies(500, windows=1, requests=3), server=None)],
        [level_of(latencies(500), server=server_of(4000, batch_sizes={size: 9 for size in range(1, 70)}))],
    ],
    ids=["nothing", "no answers", "few answers", "many batch sizes"],
)
def test_a_page_is_made_of_any_run(measured):
    text = page(document(run_of(*measured)))

    checked(text)
    assert "nan" not in text.lower().replace("nanosecond", "")


@given(st.lists(st.floats(1e-9, 1e15), min_size=1, max_size=30), st.booleans())
def test_values_lie_within_their_axis_and_ticks_too(values, logarithmic):
    scale = Scale(Axis("x", logarithmic=logarithmic), values, 10, 200)

    assert all(10 - 1e-6 <= scale.at(value) <= 200 + 1e-6 for value in values)
    assert all(10 - 1e-6 <= scale.at(value) <= 200 + 1e-6 for value, _ in scale.ticks())
    assert 2 <= len(scale.ticks()) <= 20


def test_charts_without_values_say_so():
    assert "no answers" in line_chart("Latency", [Series("a", [])], Axis("x"), Axis("y"))
    checked(stacked_bars("Parts", "µs", ["a", "b"], [("1", [0, 0])]))


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_draws_it_without_a_complaint(tmp_path, width):
    draw(page(document(run_of(*levels()))), tmp_path, width)
