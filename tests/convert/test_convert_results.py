"""Which format is the best, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import replace

from tisfast.convert.results import P99_REQUESTS, Measured, Try, Wanted, choose, failure, shown


def made(name: str, *levels: tuple[int, float, float], status="ok") -> Try:
    """levels: concurrency, throughput, latency in ms, of which the p99 is the double."""
    measured = tuple(Measured(at, rate, ms, ms, 2 * ms, 100, 0, True, "") for at, rate, ms in levels)
    return Try(name, "fp32", name, status, measured=measured)


SLOW = made("slow", (1, 100.0, 2.0), (8, 200.0, 40.0))
QUICK = made("quick", (1, 90.0, 1.0), (8, 150.0, 10.0))


def test_the_one_that_answers_most_is_the_best():
    best, why = choose((SLOW, QUICK), Wanted())
    assert best is SLOW and why == "slow fp32 answers most: 200 requests a second"


def test_what_is_wrong_or_was_not_measured_is_not_chosen():
    wrong = made("wrong", (1, 1000.0, 1.0), status="wrong")
    assert choose((wrong, made("failed", status="failed"), QUICK), Wanted())[0] is QUICK
    assert choose((wrong,), Wanted()) == (None, "no format could be made whose answers are the source's")


def test_only_loads_within_the_latency_count():
    best, why = choose((SLOW, QUICK), Wanted(max_latency_ms=20))
    assert best is QUICK and "150 requests a second with a p99 within 20 ms" in why
    best, why = choose((SLOW, QUICK), Wanted(max_latency_ms=1))
    assert best is None and why.startswith("no format answers within 1 ms (p99): the least that was measured is 2 ms")


def test_of_those_that_answer_enough_the_quickest_is_the_best():
    best, why = choose((SLOW, QUICK), Wanted(min_throughput=120))
    assert best is QUICK and "quick fp32 answers soonest, within 1 ms" in why
    assert choose((SLOW, QUICK), Wanted(min_throughput=180))[0] is SLOW
    best, why = choose((SLOW, QUICK), Wanted(min_throughput=500))
    assert best is None and "no format answers 500 requests a second: the most is 200" in why


def test_of_those_that_are_alike_the_one_that_changes_less_is_taken():
    """Else chance would take one."""
    first, second = made("first", (1, 100.0, 1.0)), made("second", (1, 102.0, 0.99))
    best, why = choose((first, second), Wanted())
    assert best is first and why == (
        "first fp32 answers 100 requests a second: 102 is the most, which the figures do not tell apart, and it "
        "changes less of the source"
    )
    assert choose((first, second), Wanted(min_throughput=1))[0] is first


def test_how_well_figures_are_known_tells_whether_they_are_alike():
    first, second = made("first", (1, 100.0, 1.2)), made("second", (1, 120.0, 1.0))
    assert choose((first, second), Wanted())[0] is second
    doubtful = replace(second, measured=(replace(second.measured[0], within=0.2),))
    assert choose((first, doubtful), Wanted())[0] is first
    assert choose((first, doubtful), Wanted(min_throughput=1))[0] is first
    unknown = replace(second, measured=(replace(second.measured[0], within=math.inf),))
    assert choose((first, unknown), Wanted())[0] is first


def test_a_figure_of_which_nothing_is_known_is_not_like_all():
    """Else the first format would win against one that is a hundred times as quick."""
    slow, quick = made("slow", (1, 10.0, 100.0)), made("quick", (1, 1000.0, 1.0))
    unknown = replace(slow, measured=(replace(slow.measured[0], within=math.inf),))
    assert choose((unknown, quick), Wanted())[0] is quick
    assert choose((unknown, quick), Wanted(min_throughput=1))[0] is quick


def test_a_format_that_failed_under_load_does_not_win():
    level = replace(QUICK.measured[1], throughput=9000.0, errors=7, error="out of memory")
    failed = replace(QUICK, measured=(QUICK.measured[0], level))
    assert choose((failed, SLOW), Wanted())[0] is SLOW
    assert failure(failed) == "7 of 107 requests failed with 8 at one time: out of memory" and failure(SLOW) == ""
    assert choose((failed,), Wanted())[0] is None


def test_the_load_that_is_shown_holds_the_latency():
    assert shown(SLOW, Wanted()).concurrency == 8 and shown(SLOW, Wanted(max_latency_ms=20)).concurrency == 1
    assert shown(SLOW, Wanted(max_latency_ms=0.1)).concurrency == 8 and shown(made("none"), Wanted()) is None


def test_what_another_one_clearly_beats_is_out():
    """Also where the best figure of all is so badly known that it is like any other."""

    def known(name, rate, ms, within):
        each = made(name, (1, rate, ms))
        return replace(each, measured=(replace(each.measured[0], within=within),))

    slow, quick, doubtful = (
        known("slow", 500.0, 2.0, 0.05), known("quick", 800.0, 1.3, 0.05), known("doubtful", 1000.0, 1.0, 2.0),
    )  # fmt: skip
    assert choose((slow, doubtful), Wanted())[0] is slow
    assert choose((slow, quick, doubtful), Wanted())[0] is quick
    assert choose((slow, quick, doubtful), Wanted(min_throughput=1))[0] is quick


def test_with_both_limits_the_load_that_is_chosen_by_holds_the_latency():
    """The first one answers soonest with one under way, but only on the average."""
    uneven = made("uneven", (1, 100.0, 1.0), (8, 600.0, 9.0))
    uneven = replace(uneven, measured=(replace(uneven.measured[0], p99_ms=500.0), uneven.measured[1]))
    steady = made("steady", (1, 100.0, 3.0), (8, 600.0, 9.0))
    best, why = choose((uneven, steady), Wanted(20.0, 500.0))
    assert best is steady and "within 3 ms on the average" in why and why.endswith("with a p99 within 20 ms")


def test_a_p99_of_few_requests_does_not_win_against_one_that_is_known():
    """Four requests that came soon tell nothing of one in a hundred."""
    known, few = made("known", (1, 100.0, 5.0)), made("few", (1, 200.0, 5.0))
    few = replace(few, measured=(replace(few.measured[0], p99_known=False, requests=4),))
    assert choose((known, few), Wanted())[0] is few
    for wanted in (Wanted(20.0), Wanted(20.0, 50.0)):
        assert choose((known, few), wanted)[0] is known
    best, why = choose((few,), Wanted(20.0))
    assert best is few and why.endswith(
        f"that p99 is of 4 requests alone, and {P99_REQUESTS} tell one: give more --seconds"
    )
    best, why = choose((known, few), Wanted(20.0, 150.0))
    assert best is few and f"{P99_REQUESTS} tell one" in why


def test_of_those_that_are_alike_fp32_is_taken_before_fp16():
    """Whatever their order in the table is."""
    half, whole = replace(made("a", (1, 101.0, 1.0)), precision="fp16"), made("b", (1, 100.0, 1.0))
    best, why = choose((half, whole), Wanted())
    assert best is whole and "it changes less of the source" in why
    assert choose((replace(half, measured=made("a", (1, 200.0, 0.5)).measured), whole), Wanted())[0].name == "a fp16"


def test_a_format_that_lacks_an_output_is_taken_where_no_other_fits():
    lacking = replace(made("forest", (1, 900.0, 1.0)), lacks=("predict",))
    assert choose((lacking, SLOW), Wanted())[0] is SLOW
    assert choose((lacking,), Wanted())[0] is lacking
    assert choose((lacking, SLOW), Wanted(min_throughput=500.0))[0] is lacking
