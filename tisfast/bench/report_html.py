"""The page of a run: `--report out.html`.  One file that loads nothing and runs no script.  Layer 5 (bench)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from tisfast.bench.figures import needed_for
from tisfast.bench.histogram import Histogram
from tisfast.bench.json_output import unpacked
from tisfast.bench.report_tokens import tokens_section
from tisfast.bench.svg import COLOURS, Axis, Series, line_chart, number, stacked_bars

LEVELS_DRAWN: Final = 8
"""Lines in one chart of distributions."""
TIMES_DRAWN: Final = 150
"""Points of a timeline: pieces of time are joined until there are no more."""
SHARES: Final = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999)
PARTS: Final = (
    ("client sends", "client", "send_us"),
    ("network", "server", "network_us"),
    ("queue", "server", "queue_us"),
    ("compute input", "server", "compute_input_us"),
    ("compute infer", "server", "compute_infer_us"),
    ("compute output", "server", "compute_output_us"),
    ("cache", "server", "cache_hit_us"),
    ("client receives", "client", "receive_us"),
)
STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1c2330;--soft:#5b6577;--rule:#dde2ea;--card:#f6f8fb;
--bad:#b3261e;--good:#1b7a3d;
--c0:#2563a8;--c1:#d9730d;--c2:#2f8f5b;--c3:#b8398a;--c4:#7a5cc4;--c5:#8a6d1f;--c6:#1d8ca3;--c7:#7c8698}
@media(prefers-color-scheme:dark){:root{--bg:#12161d;--ink:#e6eaf1;--soft:#9aa5b8;--rule:#2d3542;--card:#1a202a;
--bad:#ff8a80;--good:#7bd69a;--c0:#6aa9f0;--c1:#f5a25d;--c2:#6fcf97;--c3:#ee8bc9;--c4:#b39df3;--c5:#d8bd6a;--c6:#66c9de;--c7:#a6b0c2}}
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:1120px;
background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 2px}h2{font-size:1.05rem;margin:0 0 6px}p{margin:4px 0}
.soft,.none{color:var(--soft)}.bad{color:var(--bad)}.good{color:var(--good)}
.cards,.figures{display:grid;gap:12px;margin:14px 0}
.cards{grid-template-columns:repeat(auto-fit,minmax(140px,1fr))}
.figures{grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.card,figure,section{background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:12px;margin:0;min-width:0}
.card{overflow-wrap:anywhere}.card b{display:block;font-size:1.35rem;font-weight:600}section{margin:12px 0}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--soft);font-weight:500}
.text td,.text th{white-space:normal;text-align:left;overflow-wrap:anywhere}
.card.wide{grid-column:1/-1;overflow-wrap:break-word}.named td{vertical-align:top}
.named :is(th,td):first-child{position:sticky;left:0;background:var(--card);white-space:pre-wrap;width:min(36vw,300px);
box-shadow:inset -1px 0 var(--rule)}
.named :is(th,td):last-child{text-align:left;white-space:normal;overflow-wrap:break-word;width:min(70vw,360px);
min-width:min(70vw,300px)}
@media(max-width:640px){.named{font-size:.8rem}}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font:10px system-ui,sans-serif}
svg .label{fill:var(--ink);font-size:10.5px}.grid{stroke:var(--rule);stroke-width:.7}
.bound{stroke:var(--bad);stroke-width:1.2;stroke-dasharray:5 3}.line{fill:none;stroke-width:1.8}
.legend{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:.82rem;color:var(--soft)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
figcaption{font-size:.85rem;color:var(--soft);margin-top:4px}
code{overflow-wrap:anywhere}
@media print{body{max-width:none}figure,section,.card{break-inside:avoid}}
"""


def page(document: Mapping[str, Any]) -> str:
    """The page of a run's document (json_output.document)."""
    target, levels = document["target"], document["levels"]
    title = f"{target['model']} at {target['url']}"
    body = "".join([_head(document, title), _cards(levels), _figures(levels), _table(levels)])
    body += tokens_section([(_name(level), level["tokens"]) for level in levels if level["tokens"]])
    body += _models(levels) + _errors(levels)
    body += "".join(_timeline(level) for level in levels) + _about(document)
    return whole(title, body)


def whole(title: str, body: str) -> str:
    """A page of its own, with the style of all reports."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    )


def _head(document: Mapping[str, Any], title: str) -> str:
    target, levels = document["target"], document["levels"]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(levels[0]["began_unix_ns"] / 1e9)) if levels else ""
    facts = [target["protocol"], f"batch size {target['batch_size']}", document["server_version"], when]
    return f'<h1>{escape(title)}</h1><p class="soft">{escape(" · ".join(each for each in facts if each))}</p>'


def _cards(levels: Sequence[Mapping[str, Any]]) -> str:
    if not levels:
        return '<p class="none">Nothing was measured.</p>'
    best = max(levels, key=lambda level: float(level["throughput"]))
    quick = min(levels, key=lambda level: level["response_time"]["mean_us"] or float("inf"))
    failed = sum(level["errors"]["count"] for level in levels)
    unstable = sum(not level["stable"] for level in levels)
    cards = [
        (f"{best['throughput']:.4g}/s", f"most inferences, at {_name(best)}", ""),
        (_us(best["response_time"]["percentiles_us"]["99"]), "p99 latency there", ""),
        (_us(quick["response_time"]["percentiles_us"]["50"]), f"least median, at {_name(quick)}", ""),
        (f"{failed}", "requests failed", "bad" if failed else "good"),
        (f"{len(levels) - unstable} of {len(levels)}", "levels are stable", "bad" if unstable else "good"),
    ]
    inner = "".join(
        f'<div class="card"><b class="{kind}">{escape(top)}</b>{escape(text)}</div>' for top, text, kind in cards
    )
    return f'<div class="cards">{inner}</div>'


def _figures(levels: Sequence[Mapping[str, Any]]) -> str:
    if not levels:
        return ""
    return (
        '<div class="figures">'
        + figure(
            "Latency against throughput", _load_chart(levels), "Each point is a level. To the right and low is good."
        )
        + figure(
            "Distribution of latency",
            _distribution(levels),
            "Each further mark to the right is a rarer request. A line ends where the requests no longer support it.",
        )
        + figure(
            "What the time is made of",
            _split(levels),
            "Averages of a request. The network is what neither the client nor the server's statistics account for.",
        )
        + figure(
            "Batches that the server executed", _batches(levels), "Executions by the size of their batch, in percent."
        )
        + "</div>"
    )


def figure(title: str, chart: str, caption: str) -> str:
    """A chart with its title and what it shows."""
    return f"<figure><h2>{escape(title)}</h2>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _load_chart(levels: Sequence[Mapping[str, Any]]) -> str:
    ordered = sorted(levels, key=lambda level: float(level["value"]))
    lines = []
    for key in ("50", "90", "95", "99"):
        points = []
        for level in ordered:
            value = level["response_time"]["percentiles_us"].get(key)
            if value is not None:
                points.append(
                    (level["throughput"], value, f"{_name(level)}: {level['throughput']:.4g}/s, p{key} {_us(value)}")
                )
        lines.append(Series(f"p{key}", points))
    return line_chart("Latency against throughput", lines, Axis("inferences a second"), Axis("latency, µs"))


def _distribution(levels: Sequence[Mapping[str, Any]]) -> str:
    step = max(-(-len(levels) // LEVELS_DRAWN), 1)
    lines = []
    for level in levels[::step]:
        histogram = unpacked(level["response_time"]["histogram"])
        points = [
            (
                1 / (1 - share),
                histogram.quantile(share) / 1000,
                f"p{100 * share:g}: {_us(histogram.quantile(share) / 1000)}",
            )
            for share in SHARES
            if histogram.count >= (1 if share == 0 else needed_for(share))
        ]
        lines.append(Series(_name(level), points))
    ticks = [(1 / (1 - share), f"{100 * share:g}") for share in (0, 0.5, 0.9, 0.99, 0.999, 0.9999)]
    x = Axis("percentile", logarithmic=True, ticks=ticks)
    return line_chart("Distribution of latency", lines, x, Axis("latency, µs", logarithmic=True))


def _split(levels: Sequence[Mapping[str, Any]]) -> str:
    shown = [level for level in levels if level["server"] is not None]
    if not shown:
        return '<p class="none">The server gave no statistics.</p>'
    rows = [(_short(level), [float(level[group][key]) for _, group, key in PARTS]) for level in shown]
    return stacked_bars("What the time is made of", "µs of a request, by level", [name for name, *_ in PARTS], rows)


def _batches(levels: Sequence[Mapping[str, Any]]) -> str:
    shown = [level for level in levels if level["server"] is not None and level["server"]["batch_sizes"]]
    if not shown:
        return '<p class="none">The server gave no sizes of batches.</p>'
    sizes = sorted({int(size) for level in shown for size in level["server"]["batch_sizes"]})
    groups = [range(size, size + 1) for size in sizes]
    if len(groups) > COLOURS:  # 1, 2, 3 to 4, 5 to 8, ...
        bounds = [1, *(2**power + 1 for power in range(max(sizes).bit_length() + 1))]
        doubled = [range(low, high) for low, high in pairwise(bounds)]
        groups = [each for each in doubled if any(size in each for size in sizes)]
    rows = []
    for level in shown:
        counts = {int(size): count for size, count in level["server"]["batch_sizes"].items()}
        total = sum(counts.values()) or 1
        shares = [100 * sum(count for size, count in counts.items() if size in each) / total for each in groups]
        rows.append((_short(level), shares))
    names = [f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in groups]
    return stacked_bars("Batches that the server executed", "executions, %, by level", names, rows)


def _table(levels: Sequence[Mapping[str, Any]]) -> str:
    heads: tuple[str, ...] = (
        "level",
        "inferences/s",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99, 95 % interval",
        "requests",
        "failed",
        "client",
    )
    beside = ("50", "99") if any(level["latency_from"] == "intended time" for level in levels) else ()
    heads = (*heads[:8], *(f"service time p{key}" for key in beside), *heads[8:])
    rows = []
    for level in levels:
        latency = level["response_time"]
        cells = [_name(level), f"{level['throughput']:.5g}", _us(latency["mean_us"])]
        cells += [_us(latency["percentiles_us"][key]) for key in ("50", "90", "95", "99")]
        low, high = latency["intervals_us"].get("99", (None, None))
        cells.append(f"{_us(low)} to {_us(high)}" if low is not None else "-")
        cells += [_us(level["service_time"]["percentiles_us"][key]) for key in beside]
        cells += [
            str(level["completed"]),
            str(level["errors"]["measured"]),
            f"{100 * level['client']['cpu_share']:.0f} % of a core",
        ]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return (
        f'<section><h2>Levels</h2><div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
        '<p class="soft">Latency counts from the intended time of sending, service time from the sending itself; '
        "where no rate is asked for, both are the same. A percentile is shown where enough requests "
        "support it (p99: 368).</p></section>"
    )


def _models(levels: Sequence[Mapping[str, Any]]) -> str:
    """Where several were measured at once."""
    rows = []
    for level in levels:
        for name, model in level["models"].items():
            latency = model["response_time"]
            cells = [_name(level), name, f"{model['throughput']:.5g}", _us(latency["mean_us"])]
            cells += [_us(latency["percentiles_us"][key]) for key in ("50", "90", "95", "99")]
            cells += [str(model["completed"]), str(model["errors"]["count"])]
            queue = model["server"]["queue_us"] if model["server"] else None
            infer = model["server"]["compute_infer_us"] if model["server"] else None
            cells += [_us(queue), _us(infer)]
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    if not rows:
        return ""
    heads = (
        "level",
        "model",
        "inferences/s",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "requests",
        "failed",
        "queue",
        "infer",
    )
    head = "".join(f"<th>{each}</th>" for each in heads)
    return (
        f'<section><h2>Models</h2><div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
        '<p class="soft">What each model did in the same time.</p></section>'
    )


def _errors(levels: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        f"<tr><td>{escape(_name(level))}</td><td>{count}</td><td>{escape(str(status))}</td>"
        f"<td>{escape(str(text))}</td></tr>"
        for level in levels
        for status, text, count in level["errors"]["by_text"]
    ]
    if not rows:
        return ""
    head = "<tr><th>level</th><th>requests</th><th>status</th><th>text</th></tr>"
    return (
        f'<section><h2>Errors</h2><div class="scroll"><table class="text">{head}{"".join(rows)}</table></div></section>'
    )


def _timeline(level: Mapping[str, Any]) -> str:
    pieces = list(_joined(level["windows"]))
    rate = [
        (at, count / seconds, f"{at:.1f} s: {count / seconds:.4g}/s") for at, seconds, count, _ in pieces if seconds
    ]
    lines = []
    for share in (0.5, 0.95):
        points = [
            (at, each.quantile(share) / 1000, f"{at:.1f} s: {_us(each.quantile(share) / 1000)}")
            for at, _, _, each in pieces
            if each.count >= needed_for(share)
        ]
        lines.append(Series(f"p{100 * share:g}", points))
    clock = Axis("seconds")
    responses = line_chart(
        "Responses a second", [Series("responses", rate)], clock, Axis("responses a second"), points=False
    )
    latency = line_chart("Latency", lines, clock, Axis("latency, µs"), points=False)
    return (
        f"<section><h2>{escape(_capital(level))} over time</h2>{_notes(level)}"
        f'<div class="figures"><div>{responses}</div><div>{latency}</div></div></section>'
    )


def _notes(level: Mapping[str, Any]) -> str:
    """What is to be known of a level before its figures are believed."""
    kind, word = ("good", "Stable") if level["stable"] else ("bad", "Not stable")
    notes = f'<p><b class="{kind}">{word}</b>: {escape(level["reason"])}</p>'
    if level["client"]["limited"]:
        notes += f'<p class="bad">{escape(level["client"]["limited"])}</p>'
    errors = level["errors"]
    if errors["count"]:
        failed = f"{errors['measured']} requests failed in the measured windows, {errors['count']} in the whole level."
        notes += f'<p class="bad">{escape(failed)}</p>'
    notes += "".join(f'<p class="bad">{escape(each)}</p>' for each in level["notes"])
    before = [f"a warm-up of {level['warm_up_seconds']:.1f} s"] if level["warm_up_seconds"] else []
    if level["windows_before"]:
        before.append(f"{level['windows_before']} windows that did not agree")
    if before:
        notes += f'<p class="soft">Before it came {escape(" and ".join(before))}, which are in no figure.</p>'
    return notes


def _joined(windows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float, int, Histogram]]:
    """Begin, length, responses and latencies of pieces of time."""
    step = max(-(-len(windows) // TIMES_DRAWN), 1)
    for first in range(0, len(windows), step):
        some = windows[first : first + step]
        total = Histogram()
        for each in some:
            total.merge(unpacked(each["histogram"]))
        yield (
            some[0]["began_seconds"],
            sum(each["seconds"] for each in some),
            sum(each["responses"] for each in some),
            total,
        )


def _about(document: Mapping[str, Any]) -> str:
    rows = [("command", " ".join(["tisfast bench", *document["arguments"]])), *document["machine"].items()]
    rows += [(f"setting {name.replace('_', ' ')}", str(value)) for name, value in document["settings"].items()]
    return facts("Machine and settings", rows)


def facts(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and values."""
    inner = "".join(f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f'<section><h2>{escape(title)}</h2><table class="text">{inner}</table></section>'


def _name(level: Mapping[str, Any]) -> str:
    return f"{str(level['mode']).replace('_', ' ')} {level['value']:g}"


def _capital(level: Mapping[str, Any]) -> str:
    name = _name(level)
    return name[0].upper() + name[1:]


def _short(level: Mapping[str, Any]) -> str:
    return number(level["value"])


def _us(value: float | None) -> str:
    """With the unit that suits."""
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"
