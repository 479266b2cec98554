"""Charts as SVG within a page: lines and stacked bars, with axes that are labelled.  Layer 5 (bench).

A chart is 360 units wide, so that its text can be read on a phone; colours are the page's CSS variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 360
HEIGHT: Final = 230
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 40
COLOURS: Final = 8
"""--c0 to --c7 of the page."""
TICKS: Final = 5
DECADES_MAX: Final = 4
"""Of a logarithmic axis that also has ticks between powers of ten."""
CHARACTER: Final = 5.4
"""Its width, on the average."""
BAR: Final = 22
GAP: Final = 10


class Series(NamedTuple):
    """One line.  points: x, y and what is said where somebody points at it; joined: by a line."""

    name: str
    points: Sequence[tuple[float, float, str]]
    joined: bool = True


@dataclass(frozen=True)
class Axis:
    """ticks: where; None: by the values."""

    label: str
    logarithmic: bool = False
    from_zero: bool = True
    ticks: Sequence[tuple[float, str]] | None = None


class Scale:
    """From values to places."""

    def __init__(self, axis: Axis, values: Sequence[float], begin: float, end: float) -> None:
        self._axis, self._begin, self._end = axis, begin, end
        used = [each for each in values if math.isfinite(each) and (not axis.logarithmic or each > 0)] or [1.0]
        low, high = min(used), max(used)
        if axis.logarithmic:
            low, high = (low, high) if high > low else (low / 2, high * 2)
        else:
            low = 0.0 if axis.from_zero else low
            high = high if high > low else low + (abs(low) or 1.0)
            if axis.ticks is None:
                step = nice_step(high - low)
                low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        """Its place."""
        if self._axis.logarithmic:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[tuple[float, str]]:
        """Values and their texts."""
        if self._axis.ticks is not None:
            return [each for each in self._axis.ticks if self.low <= each[0] <= self.high * (1 + 1e-9)]
        if self._axis.logarithmic:
            return [(each, number(each)) for each in log_ticks(self.low, self.high)]
        step = nice_step(self.high - self.low)
        count = round((self.high - self.low) / step)
        return [(self.low + step * each, number(self.low + step * each)) for each in range(count + 1)]


def nice_step(span: float) -> float:
    """1, 2 or 5 by a power of ten, so that a span has about five."""
    rough = span / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next((power * each for each in (1, 2, 5) if power * each >= rough * (1 - 1e-9)), power * 10)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, fewer of them over many, and 2 and 5 between where there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    between = (1, 2, 5) if last - first <= DECADES_MAX else (1,)
    step = -(-(last - first) // (2 * TICKS)) or 1
    found = [each * 10.0**power for power in range(first, last + 1, step) for each in between]
    within = [each for each in found if low * (1 - 1e-9) <= each <= high * (1 + 1e-9)]
    return within if len(within) >= 2 else [low, high]


def number(value: float) -> str:
    """Short: 1200 is 1.2k."""
    for bound, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g}{unit}"
    return f"{value:.3g}"


class Bound(NamedTuple):
    """A line across the chart at one value of an axis, and what it is."""

    value: float
    text: str
    upright: bool = False


def line_chart(
    title: str, series: Sequence[Series], x: Axis, y: Axis, *, points: bool = True, bounds: Sequence[Bound] = ()
) -> str:
    """Lines with a legend below."""
    shown = [each for each in series if each.points][:COLOURS]
    if not shown:
        return f'<p class="none">{escape(title)}: there were no answers to draw.</p>'
    limits_x, limits_y = ([each.value for each in bounds if each.upright is upright] for upright in (True, False))
    across = Scale(x, [*(each[0] for line in shown for each in line.points), *limits_x], LEFT, WIDTH - RIGHT)
    up = Scale(y, [*(each[1] for line in shown for each in line.points), *limits_y], HEIGHT - BOTTOM, TOP)
    parts = [_open(title, HEIGHT), _axes(across, up, x, y), *(_bound(each, across, up) for each in bounds)]
    for colour, line in enumerate(shown):
        places = [(across.at(a), up.at(b), text) for a, b, text in line.points]
        if line.joined:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)
            parts.append(f'<polyline class="line" style="stroke:var(--c{colour})" points="{path}"/>')
        if points or len(places) == 1 or not line.joined:
            parts += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" style="fill:var(--c{colour})">'
                f"<title>{escape(text)}</title></circle>"
                for a, b, text in places
            ]
    parts.append("</svg>")
    return "".join(parts) + legend([each.name for each in shown])


def _open(title: str, height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'


def _bound(bound: Bound, across: Scale, up: Scale) -> str:
    """With its text at the end of the line."""
    if bound.upright:
        at = across.at(bound.value)
        line = f'x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
        text = f'x="{at + 4:.1f}" y="{TOP + 8}"'
    else:
        at = up.at(bound.value)
        line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
        text = f'x="{LEFT + 4}" y="{at - 4:.1f}"'
    return f'<line class="bound" {line}/><text {text}>{escape(bound.text)}</text>'


def _axes(across: Scale, up: Scale, x: Axis, y: Axis) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value, text in up.ticks():
        at = up.at(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 3.5:.1f}" text-anchor="end">{escape(text)}</text>')
    last = -math.inf
    for value, text in across.ticks():
        at = across.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
        if at - last >= 6 * len(text) + 6:  # texts do not lie on each other
            parts.append(f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{escape(text)}</text>')
            last = at
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text class="label" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>'
    )
    parts.append(
        f'<text class="label" transform="translate(11 {middle:g}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.label)}</text>"
    )
    return "".join(parts)


def stacked_bars(title: str, label: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """A horizontal bar for each row, of parts by name."""
    height = TOP + len(rows) * (BAR + GAP) + BOTTOM
    totals = [sum(max(value, 0) for value in values) for _, values in rows]
    axis = Axis(label)
    room = max(LEFT + 15.0, min(max((len(name) for name, _ in rows), default=0) * CHARACTER, WIDTH / 2))
    across = Scale(axis, totals, room + 5, WIDTH - RIGHT)
    parts = [_open(title, height)]
    for value, text in across.ticks():
        at = across.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - BOTTOM + 14}" text-anchor="middle">{escape(text)}</text>')
    for number_of, (name, values) in enumerate(rows):
        top, left = TOP + number_of * (BAR + GAP) + GAP / 2, 0.0
        parts.append(f'<text x="{room:g}" y="{top + BAR / 2 + 4:g}" text-anchor="end">{escape(name)}</text>')
        for colour, (part, value) in enumerate(zip(names, values, strict=True)):
            if value <= 0:
                continue
            begin, end = across.at(left), across.at(left + value)
            parts.append(
                f'<rect x="{begin:.1f}" y="{top:g}" width="{max(end - begin, 0.3):.1f}" height="{BAR}" '
                f'style="fill:var(--c{colour % COLOURS})"><title>{escape(f"{part}: {value:.0f}")}</title></rect>'
            )
            left += value
    parts.append(
        f'<text class="label" x="{(LEFT + WIDTH) / 2}" y="{height - 6:g}" text-anchor="middle">'
        f"{escape(label)}</text></svg>"
    )
    return "".join(parts) + legend(names)


def legend(names: Sequence[str]) -> str:
    """Which colour is what."""
    mark: Callable[[int], str] = lambda at: f'<i style="background:var(--c{at % COLOURS})"></i>'  # noqa: E731
    return (
        '<p class="legend">'
        + "".join(f"<span>{mark(at)}{escape(each)}</span>" for at, each in enumerate(names))
        + "</p>"
    )
