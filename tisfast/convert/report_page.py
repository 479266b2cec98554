"""The page of a conversion: report.html.  One file that loads nothing and runs no script.  Layer 5 (convert)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from tisfast.bench.report_html import facts, figure, whole
from tisfast.bench.svg import COLOURS, Axis, Series, line_chart, stacked_bars
from tisfast.convert.report import p99, percent, size, unstable, within
from tisfast.convert.results import P99_REQUESTS

KINDS: Final = {"ok": "good", "wrong": "bad", "failed": "bad", "skipped": "soft"}
"""Classes of the page's style."""


def page(document: Mapping[str, Any]) -> str:
    """The page of report.document's dictionary."""
    title = f"{document['name']}: {document['source']} converted"
    tries = document["tries"]
    body = "".join(
        [_head(document, title), _cards(document), _figures(tries), _table(document), _reasons(tries), _about(document)]
    )
    return whole(title, body)


def _head(document: Mapping[str, Any], title: str) -> str:
    samples = "random samples" if document["drawn"] else "samples"
    said = f"{document['rows']} {samples} were compared, {document['asked']}"
    return f'<h1>{escape(title)}</h1><p class="soft">{escape(said)}</p><p>{escape(document["why"])}.</p>'


def _cards(document: Mapping[str, Any]) -> str:
    tries = document["tries"]
    right = sum(each["status"] == "ok" for each in tries)
    wrong = sum(each["status"] == "wrong" for each in tries)
    cards = [(document["best"] or "none", "the best format", "" if document["best"] else "bad")]
    best = next((each for each in tries if each["name"] == document["best"]), None)
    if best is not None:
        level = next(each for each in best["measured"] if each["concurrency"] == document["best_load"])
        load = f"with {level['concurrency']} at one time"
        cards.append((f"{level['throughput']:.4g}/s", f"requests, {load}", ""))
        cards.append((f"{p99(level['p99_ms'], known=level['p99_known'])} ms", f"p99 latency, {load}", ""))
        cards.append((_number(best["max_absolute"]), "largest difference from the source", ""))
    cards.append((f"{right} of {len(tries)}", "formats are right", "good" if right else "bad"))
    cards.append((f"{wrong}", "answer otherwise than the source", "bad" if wrong else "good"))
    inner = "".join(
        f'<div class="card"><b class="{kind}">{escape(top)}</b>{escape(text)}</div>' for top, text, kind in cards
    )
    return f'<div class="cards">{inner}</div>'


def _figures(tries: Sequence[Mapping[str, Any]]) -> str:
    shown = [each for each in tries if each["measured"]][:COLOURS]
    if not shown:
        return ""
    lines = [Series(each["name"], [_point(each, level) for level in each["measured"]]) for each in shown]
    rows = [(each["name"], [max(float(level["throughput"]) for level in each["measured"])]) for each in shown]
    load = line_chart("Latency against throughput", lines, Axis("requests a second"), Axis("average latency, ms"))
    most = stacked_bars("Throughput", "requests a second", ["most requests a second"], rows)
    return (
        '<div class="figures">'
        + figure(
            "Latency against throughput",
            load,
            "Each point is a load, with its average latency. To the right and low is good.",
        )
        + figure("Throughput", most, "Of the load with the most.")
        + "</div>"
    )


def _point(each: Mapping[str, Any], level: Mapping[str, Any]) -> tuple[float, float, str]:
    said = f"{each['name']}, {level['concurrency']} at one time: {level['throughput']:.4g}/s, {level['mean_ms']:.3g} ms"
    return float(level["throughput"]), float(level["mean_ms"]), said


def _table(document: Mapping[str, Any]) -> str:
    tries = document["tries"]
    loads = list(dict.fromkeys(level["concurrency"] for each in tries for level in each["measured"]))
    heads = [("format", ""), ("result", "")]
    heads += [(what, f"at {load}") for load in loads for what in ("requests/s", "within", "p50 ms", "p99 ms")]
    heads += [("max abs", "diff"), ("max rel", "diff"), ("size", ""), ("made in s,", "loaded in s")]
    rows = []
    for each in tries:
        levels = {level["concurrency"]: level for level in each["measured"]}
        cells: list[str] = []
        for load in loads:
            level = levels.get(load)
            if level is None:
                cells += [""] * 4
                continue
            cells += [f"{level['throughput']:.4g}", percent(level["within"]), f"{level['p50_ms']:.4g}"]
            cells.append(p99(level["p99_ms"], known=level["p99_known"]))
        cells += [_number(each["max_absolute"]), _number(each["max_relative"]), size(each["nbytes"])]
        times = [f"{each[key]:.1f}" for key in ("convert_seconds", "load_seconds") if each[key]]
        cells.append(", ".join(times))
        mark = " *" if each["name"] == document["best"] else ""
        status = each["status"]
        result = f'<td class="{KINDS[status]}">{status}</td>'
        first = f"<td>{escape(each['name'] + mark)}</td>{result}"
        rows.append(f"<tr>{first}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th>{escape(above)}<br>{escape(below)}</th>" for above, below in heads)
    shown = f'<table style="font-size:13px"><tr>{head}</tr>{"".join(rows)}</table>'
    return f'<section><h2>Formats</h2><div class="scroll">{shown}</div></section>'


def _reasons(tries: Sequence[Mapping[str, Any]]) -> str:
    told = [(each["name"], each["status"], each["reason"] or each["note"]) for each in tries]
    said = [(name, text if status == "ok" else f"{status}: {text}") for name, status, text in told if text]
    loads = ((f"{each['name']} at {level['concurrency']}", level) for each in tries for level in each["measured"])
    said += [
        (each["name"], f"it differs most in {each['differs_most']}: {_number(each['max_relative'])} of the size there")
        for each in tries
        if each["status"] == "ok" and each["differs_most"]
    ]
    if any(not level["p99_known"] for each in tries for level in each["measured"]):
        said.append(("~", f"of fewer than {P99_REQUESTS} requests, which are too few for a p99"))
    said += [("not stable", f"{names}: {reason}") for names, reason in unstable(loads)]
    rows = "".join(
        f'<tr><td style="white-space:nowrap">{escape(name)}</td><td>{escape(text)}</td></tr>' for name, text in said
    )
    if not rows:
        return ""
    return f'<section><h2>What is to be known</h2><table class="text">{rows}</table></section>'


def _about(document: Mapping[str, Any]) -> str:
    signature = document["signature"]
    rows = [
        (f"{role} {each['name']}", f"{each['datatype']} {each['dims']}")
        for role, key in (("input", "inputs"), ("output", "outputs"))
        for each in signature[key]
    ]
    rows += [("note", each) for each in document["notes"]]
    rows += [(f"{name} may differ by", text) for name, text in within(document["tolerances"])]
    rows += [
        (f"scale of {name}" + (", by place" if len(each) > 1 else ""), ", ".join(f"{scale:.3g}" for scale in each))
        for name, each in document["scales"].items()
    ]
    wanted = document["wanted"]
    rows += [("limit of the p99", f"{wanted['max_latency_ms']:g} ms")] if wanted["max_latency_ms"] else []
    rows += [("requests a second at least", f"{wanted['min_throughput']:g}")] if wanted["min_throughput"] else []
    return facts("Model and machine", [*rows, *document["machine"].items()])


def _number(value: float | str | None) -> str:
    """Of a difference."""
    return "-" if value is None else f"{float(value):.3g}"
