"""The page and the facts of a run."""

from __future__ import annotations

import json
import math

import pytest

from perf.agreement import HEAD as AGREEMENT_HEAD
from perf.agreement import Said, agreed_row
from perf.compare import Effort, Pair, together
from perf.figures import Figures, middle
from perf.pytriton_rows import MEMORY, STOP, Beside
from perf.scaling import SCALING_HEAD, scaling_row
from perf.table import HEAD, METRICS_HEAD, SINGLES_HEAD, facts, load_row, markdown, spread
from perf.unlike import UNLIKE_HEAD, unlike_row
from tests.perf.results import GROWN, PREPARED, SMALL, START, TAILED, UNEVEN, results


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_says_figures_ratio_bar_and_verdict():
    bar, found = results().loads[0]
    assert cells(load_row(bar, found)) == [
        *("add_sub", "grpc", "perf_analyzer", "4"),
        *("1000", "3500", "3.50", "3.00", "met"),
        *("200", "60", "0.30", "0.35", "met"),
        *("400", "200", "0.50", "", ""),
    ]  # fmt: skip


def test_a_row_of_latencies_says_each_figure_and_whether_its_bar_is_met():
    assert cells(unlike_row(UNEVEN)) == [
        UNEVEN.row.line(),
        *("20.00", "21.00", "1.05", "", ""),
        *("100.00", "105.00", "1.05", "1.10", "met"),
        *("120.00", "150.00", "1.25", "1.10", "**missed**"),
        *("", ""),  # nobody is beside it
    ]


def test_a_tail_that_is_too_long_is_missed():
    bar, found = results().loads[1]
    assert bar is TAILED
    assert cells(load_row(bar, found))[-3:] == ["0.50", "0.36", "**missed**"]


def test_what_a_client_does_not_tell_is_a_dash():
    bar, found = results().metrics[0]
    assert bar is PREPARED
    assert cells(load_row(bar, found))[4:] == ["100", "390", "3.90", "4.00", "**missed**", *["–", "–", "–", "", ""] * 2]


def test_rows_have_as_many_cells_as_their_heads():
    page = results()
    rows = [load_row(*page.loads[0]), load_row(*page.metrics[0]), START.row(), unlike_row(UNEVEN), scaling_row(GROWN)]
    rows += [agreed_row(each) for each in page.agreed]
    heads = (HEAD, METRICS_HEAD, SINGLES_HEAD, UNLIKE_HEAD, SCALING_HEAD, AGREEMENT_HEAD, AGREEMENT_HEAD)
    for head, row in zip(heads, rows, strict=True):
        assert {line.count("|") for line in (*head.splitlines(), row)} == {row.count("|")}


def test_the_page_has_every_row_and_failure():
    page = results()
    text = markdown(page, Effort(3, 1.5))
    single = (START.row(), unlike_row(UNEVEN), scaling_row(GROWN), page.numbers[0].row())
    for row in (load_row(SMALL, page.loads[0][1]), load_row(*page.metrics[0]), *single):
        assert row in text
    assert all(agreed_row(each) in text for each in page.agreed)
    assert "3 of 9 rows meet all their bars" in text
    assert "Not measured: bin4, side B" in text
    assert "Not quiet" not in text
    assert "lost its core 12 times a second for more than 50 µs, 3.4% of the time, 5,100 µs at the longest" in text


def test_a_number_beside_pytriton_may_have_a_bar_of_its_own():
    """A ratio that looks well is not enough where a time was promised."""
    assert results().numbers[0].row() == (
        "| pytriton: stop() with 4 idle clients connected | 30.00 s | 0.60 s | 0.020 | 0.50 s | **missed** |"
    )
    assert Beside(STOP, 30.0, 0.4).met
    assert not Beside(MEMORY, 100.0, 101.0).met and Beside(MEMORY, 100.0, 99.0).met


def test_both_clients_agree_when_what_they_take_is_out():
    dear, alike = results().agreed
    assert not dear.met and dear.ratios == {"req per CPU s": 2.0}
    assert alike.met and [round(each, 3) for each in alike.ratios.values()] == [1.011, 0.992]
    assert agreed_row(alike).endswith(
        "| 1 ± 0.05 | req/s without the client 1.011, p50 without the client 0.992 | met |"
    )
    assert not alike._replace(bench=[Said(434.0, 2000.0, 70_000.0)]).met
    assert dear._replace(floor=[110_000.0]).met, "the least client misses the bar of 3, too"
    able = dear._replace(floor=[150_000.0])
    assert not able.met and "| 150000 (3.750) | at least 3 |" in agreed_row(able)


def test_close_rounds_are_compared_each_in_itself():
    """Both sides get slower by the minute; B is a tenth better in each round."""
    a = [Figures(rate, math.nan, math.nan) for rate in (1000.0, 800.0, 600.0, 400.0, 200.0)]
    b = [Figures(1.1 * each.rate, math.nan, math.nan) for each in a]
    one, two = (Pair(PREPARED.load, middle(a[at]), middle(b[at]), a[at], b[at], True) for at in (slice(2), slice(2, 5)))
    found = together([one, two])
    assert found.ratio.rate == pytest.approx(1.1) and len(found.runs_a) == 5
    assert spread(found) == (
        "The ratio is the median of 5 rounds' ratios, half of which lie between 1.100 and 1.100: 1.100 ± 0.000."
    )
    assert spread(one) == "The median of 2 rounds, too few to say what it is worth."


def test_a_page_of_one_kind_of_row_has_no_empty_tables():
    text = markdown(results()._replace(loads=[], metrics=[], unlike=[], scaling=[], failures=[]), Effort(3, 1.5))
    assert HEAD not in text and METRICS_HEAD not in text and UNLIKE_HEAD not in text and SINGLES_HEAD in text


def test_a_busy_machine_is_told():
    assert "**Not quiet" in markdown(results()._replace(foreign_busy=0.3), Effort(1, 1.0))


def test_facts_are_strict_json():
    found = json.loads(json.dumps(facts(results(), Effort(3, 1.5)), allow_nan=False))
    assert found["loads"][0]["ratio"]["rate"] == 3.5
    assert found["loads"][0]["bars"] == {"rate": 3.0, "p50": 0.35}
    assert found["metrics"][0]["a"] == {"rate": 100.0, "p50": None, "p99": None}
    assert found["singles"][0]["met"] is True
    assert found["scaling"][0]["ratio"] == pytest.approx(1.3) and found["scaling"][0]["met"] is False
    assert found["unlike"][0]["bars"] == {"p99": 1.1, "longest": 1.1} and found["unlike"][0]["met"] is False
