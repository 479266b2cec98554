"""The page's part on generated tokens.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from tisfast.bench.svg import Axis, Series, line_chart

TIMES: Final = (
    ("time to first token", "time_to_first_token"),
    ("inter-token latency", "inter_token_latency"),
    ("inter-event gap", "inter_event_gap"),
)
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
        f'<section><h2>Tokens</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{_chart(levels)}'
        '<p class="soft">Time to first token: until the first event with content. Inter-token latency: of a request, '
        f"the average from one token to the next. Inter-event gap: each one.{note}</p></section>"
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


def _chart(levels: Sequence[Level]) -> str:
    """The usual picture: what one user waits for, against what all get together."""
    lines = []
    for title, key in TIMES[:2]:
        points = [
            (
                tokens["output_per_second"],
                tokens[key]["mean_us"] / 1000,
                f"{name}: {tokens['output_per_second']:.4g} tokens/s, {title} {tokens[key]['mean_us'] / 1000:.3g} ms",
            )
            for name, tokens in sorted(levels, key=lambda level: float(level[1]["output_per_second"]))
            if tokens[key]["mean_us"] is not None
        ]
        lines.append(Series(title, points))
    if not any(line.points for line in lines):
        return ""
    return line_chart(
        "Waiting against tokens", lines, Axis("output tokens a second"), Axis("mean, ms", logarithmic=True)
    )
