"""The page's part on generated tokens.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from tisfast.bench.svg import Axis, Series, line_chart

TIMES: Final = (
    ("first token", "time_to_first_token"),
    ("inter-token", "inter_token_latency"),
    ("gap", "inter_event_gap"),
)
"""Names in the table, where room is short, and keys of the document."""
CHARTS: Final = (("Time to first token", "time_to_first_token"), ("Inter-token latency", "inter_token_latency"))
Level = tuple[str, Mapping[str, Any]]
"""A level's name, and its tokens in the document."""


def tokens_section(levels: Sequence[Level]) -> str:
    """A table and a chart; "" where no level has tokens."""
    if not levels:
        return ""
    heads = ["level", "output tokens/s", "output tokens", "input tokens"]
    heads += [f"{name} {what}" for name, _ in TIMES for what in ("mean", "p50", "p99")]
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(*each)) + "</tr>" for each in levels)
    guessed = any(tokens["counted_by_events"] for _, tokens in levels)
    note = " Of requests without usage each event with content counts as one token." if guessed else ""
    return (
        f'<section><h2>Tokens</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{_charts(levels)}'
        '<p class="soft">First token: until the first event with content. Inter-token: of a request, the '
        f"average time from one token to the next. Gap: from one event to the next, each one.{note}</p></section>"
    )


def _cells(name: str, tokens: Mapping[str, Any]) -> list[str]:
    counted = tokens["told_by_usage"] or tokens["counted_by_events"]
    cells = [name, f"{tokens['output_per_second']:.5g}" if counted else "-", str(tokens["output"]) if counted else "-"]
    cells.append(str(tokens["input"]) if tokens["input"] else "-")
    for _, key in TIMES:
        found = tokens[key]
        values = (found["mean_us"], found["percentiles_us"]["50"], found["percentiles_us"]["99"])
        cells += ["-" if value is None else f"{value / 1000:.3g} ms" for value in values]
    return cells


def _charts(levels: Sequence[Level]) -> str:
    """The usual picture: what one user waits for, against what all get together."""
    ordered = sorted(levels, key=lambda level: float(level[1]["output_per_second"]))
    charts = []
    for title, key in CHARTS:
        lines = []
        for percentile in ("50", "90", "99"):
            points = []
            for name, tokens in ordered:
                value = tokens[key]["percentiles_us"][percentile]
                if value is not None:
                    rate = tokens["output_per_second"]
                    points.append((rate, value / 1000, f"{name}: {rate:.4g} tokens/s, {value / 1000:.3g} ms"))
            lines.append(Series(f"p{percentile}", points))
        if any(line.points for line in lines):
            charts.append(
                f"<div>{line_chart(title, lines, Axis('output tokens a second'), Axis(f'{title}, ms'))}</div>"
            )
    return f'<div class="figures">{"".join(charts)}</div>' if charts else ""
