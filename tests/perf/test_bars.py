"""Bars, and whether ratios meet them."""

from __future__ import annotations

import math

import pytest

from perf.bars import BARS, METRICS_BARS
from perf.clients import ONLY
from perf.figures import Figures
from tests.perf.results import PREPARED, SMALL, TAILED


@pytest.mark.parametrize(
    ("ratio", "verdicts"),
    [
        (Figures(3.0, 0.35, 9.0), {"rate": True, "p50": True}),
        (Figures(2.99, 0.36, 0.1), {"rate": False, "p50": False}),
    ],
)
def test_rates_are_to_be_high_and_latencies_low(ratio, verdicts):
    assert SMALL.verdicts(ratio) == verdicts


@pytest.mark.parametrize(("p99", "met"), [(0.36, True), (0.37, False)])
def test_a_tail_is_measured_by_the_median(p99, met):
    assert TAILED.verdicts(Figures(3.0, 0.3, p99))["p99"] is met


def test_a_figure_without_bar_has_no_verdict():
    assert PREPARED.verdicts(Figures(4.0, math.nan, math.nan)) == {"rate": True}


def test_each_row_can_be_selected_alone():
    lines = [bar.line() for bar in (*BARS, *METRICS_BARS)]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("bar", [*BARS, *METRICS_BARS], ids=lambda bar: bar.line())
def test_clients_speak_the_protocol_of_their_rows(bar):
    assert ONLY.get(bar.load.client, bar.load.protocol) == bar.load.protocol
