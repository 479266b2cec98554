"""The report: one HTML page that loads nothing, in the form of bench's.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tisfast.analyze.aims import THROUGHPUT, UNITS, Aims, value_of
from tisfast.analyze.explain import out
from tisfast.analyze.ranking import Ranked
from tisfast.analyze.table import HEADS, counted, failed_cells, milliseconds, rows_of
from tisfast.analyze.trials import Trial
from tisfast.bench.report_html import facts, figure, whole
from tisfast.bench.svg import COLOURS, Axis, Bound, Series, line_chart, stacked_bars

TITLE: Final = "Configurations of "
"""How the page's title begins."""
LINES: Final = COLOURS - 1
"""Variants with a line of their own; the others share the last colour, as points."""
BARS: Final = 8
NAME_CHARACTERS: Final = 40
"""Of a variant's name beside its bar."""
PARTS: Final = ("queue", "compute input", "compute infer", "compute output", "remainder")


@dataclass(frozen=True)
class Result:
    """All that a search gives.

    ended: how, one sentence; about: of machine and settings, by name; diff: what the best configuration changes.
    """

    model: str
    ranked: Sequence[Ranked]
    trials: Sequence[Trial]
    aims: Aims
    explained: Sequence[str]
    ended: str
    about: Mapping[str, str]
    diff: Sequence[str]


def page(result: Result) -> str:
    """The whole page."""
    title = f"{TITLE}{result.model}"
    body = f'<h1>{escape(title)}</h1><p class="soft">{escape(result.ended)}</p>'
    body += _cards(result) + _why(result) + _figures(result) + _table(result) + _rows(result)
    body += facts("Machine and settings", list(result.about.items()))
    return whole(title, body)


def _cards(result: Result) -> str:
    if not result.ranked:
        return '<p class="none">Nothing could be measured.</p>'
    best, trial = result.ranked[0], result.ranked[0].trial
    failed = out(result.ranked, result.trials)
    variants, no_figures = len({each.variant.text for each in result.trials}), "bad" if failed else "good"
    chance = f", {best.note}" if best.note else ""
    cards = [
        (trial.variant.text, f"the best variant, at {trial.load}", "bad" if best.broken else "good"),
        (f"{trial.throughput:.4g}/s", "inferences there", ""),
        (milliseconds(trial, "p99"), "p99 latency there", ""),
        (best.gain_text, f"gain against the default{chance}", ""),
        (str(variants), "variant was measured" if variants == 1 else "variants were measured", ""),
        (str(len(failed)), "of them has no figures" if len(failed) == 1 else "of them have no figures", no_figures),
    ]
    inner = "".join(
        f'<div class="card{"" if at else " wide"}"><b class="{kind}">{escape(top)}</b>{escape(text)}</div>'
        for at, (top, text, kind) in enumerate(cards)
    )
    return f'<div class="cards">{inner}</div>'


def _why(result: Result) -> str:
    said = "".join(f"<p>{escape(each)}</p>" for each in result.explained)
    changes = escape("\n".join(result.diff))
    what = f"<h2>What it changes in config.pbtxt</h2><pre>{changes}</pre>" if changes else ""
    return f"<section><h2>Why</h2>{said}{what}</section>"


def _figures(result: Result) -> str:
    charts = [
        figure(
            "p99 latency against throughput",
            _chart(result, "latency_p99", "p99 latency, ms"),
            "Each point is a variant at a level; the best variants have lines. To the right and low is good; a broken "
            "line is a bound.",
        )
    ]
    if any(each.memory_mb is not None for each in result.trials):
        charts.append(
            figure(
                "Memory against throughput",
                _chart(result, "memory", "memory of the server's processes, MB"),
                "Proportional set size of the server and all its workers behind each level.",
            )
        )
    charts.append(
        figure(
            "Where the time goes",
            _split(result),
            "Averages of a request within the server, at each variant's best level.",
        )
    )
    return f'<div class="figures">{"".join(charts)}</div>'


def _chart(result: Result, metric: str, label: str) -> str:
    names = [each.trial.variant.text for each in result.ranked]
    lines = [Series(name, _points(result, metric, {name})) for name in names[:LINES]]
    if len(names) > LINES:
        lines.append(Series("the others", _points(result, metric, set(names[LINES:])), joined=False))
    bounds = [
        Bound(each.limit, each.text, upright=each.metric == THROUGHPUT)
        for each in result.aims.constraints
        if each.metric in (metric, THROUGHPUT)
    ]
    return line_chart(label, lines, Axis("inferences a second"), Axis(label), bounds=bounds)


def _points(result: Result, metric: str, names: set[str]) -> list[tuple[float, float, str]]:
    found = []
    for each in sorted(result.trials, key=lambda trial: trial.level):
        value = value_of(each, metric)
        if each.variant.text in names and not each.failure and value is not None:
            text = f"{each.variant.text}, {each.load}: {each.throughput:.4g}/s, {value:.4g}{UNITS[metric]}"
            found.append((each.throughput, value, text))
    return found


def _split(result: Result) -> str:
    rows = []
    for place, each in enumerate(result.ranked[:BARS], 1):
        served = each.trial.served
        if served is not None:
            parts = [served.queue_us, served.compute_input_us, served.compute_infer_us, served.compute_output_us]
            name = each.trial.variant.text
            short = name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 3]}..."
            times = [*parts, max(served.total_us - sum(parts), 0.0)]
            rows.append((f"{place}: {short}", [time / 1000 for time in times]))
    if not rows:
        return '<p class="none">The server gave no statistics.</p>'
    return stacked_bars("Where the time goes", "ms of a request, by variant", PARTS, rows)


def _table(result: Result) -> str:
    rows = [row for place, each in enumerate(result.ranked, 1) for row in rows_of(place, each)]
    rows += [failed_cells(each) for each in out(result.ranked, result.trials).values()]
    named = [[name, rank, *rest] for rank, name, *rest in (list(HEADS), *rows)]  # the name stays when it is scrolled
    return (
        f"<section><h2>Variants</h2>{_grid(named[0], named[1:])}"
        '<p class="soft">Each variant at its best level. batch: samples of an execution on average; queue: share of '
        "the time within the server. The first one is recommended, the rest follow by their gains; within "
        f"{result.aims.margin:g} % variants are alike, and the simpler one stands first. Where a level was measured "
        "again by turns, its figures are of the turns alone: inferences and latencies are medians, also p99; batch and "
        "queue are of all their requests, and memory is the most; the gain is that of the turns which it shares with "
        "the default.</p>"
        "</section>"
    )


def _rows(result: Result) -> str:
    """Each row that was measured, or the reason why there are no figures."""
    heads = ("variant", "load", "inferences/s", "avg", "p99", "requests", "what is to be known")
    lines: list[list[str]] = []
    for each in result.trials:
        told = each.failure or "; ".join(
            [
                *([f"measured again in {counted(len(each.turns), 'turn')}"] if each.turns else []),
                *result.aims.broken(each),
                *([] if each.stable else [each.reason]),
                *([each.limited] if each.limited else []),
            ]
        )
        values = [each.variant.text, each.load]
        values += [f"{each.throughput:.4g}", milliseconds(each, "avg"), milliseconds(each, "p99"), str(each.requests)]
        lines.append([*values, told])
    return f"<section><h2>All measurements</h2>{_grid(heads, lines)}</section>"


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls in its own box; its first column, the names, stays, and its last one has sentences."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="named"><tr>{head}</tr>{lines}</table></div>'
