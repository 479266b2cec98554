"""A conversion as JSON, and as a table for the terminal.  Layer 5 (convert)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tisfast.convert.results import P99_REQUESTS, Conversion, Try, shown

SCHEMA: Final = "tisfast-convert/1"
ADVICE: Final = re.compile(r"; |: look ")
SHARE: Final = re.compile(r"\d[\d.]*(?:e[+-]\d+)? ?%")
WORDS: Final = 2
HEAD: Final = (
    "format",
    "result",
    "max abs diff",
    "max rel diff",
    "size",
    "requests/s",
    "within",
    "p50 ms",
    "p99 ms",
    "at",
)


def document(found: Conversion) -> dict[str, Any]:
    """All of it, for report.json.  Numbers that JSON has not are null; a difference may be "inf"."""
    written: dict[str, Any] = _finite(asdict(found))
    for entry, each in zip(written["tries"], found.tries, strict=True):
        entry["name"] = each.name
        for key in ("max_absolute", "max_relative"):  # null: nothing was compared
            entry[key] = "inf" if getattr(each, key) == math.inf else entry[key]
    written["model"] = None if found.model is None else str(found.model)
    written["best"] = None if found.best is None else found.best.name
    load = None if found.best is None else shown(found.best, found.wanted)
    written["best_load"] = None if load is None else load.concurrency
    written["tolerances"] = {precision: each._asdict() for precision, each in found.tolerances.items()}
    written["asked"] = found.asked
    return {"schema": SCHEMA, **written}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(found: Conversion) -> str:
    """All tries, one line each, and below what stands behind them."""
    rows = [HEAD, *(_row(each, found) for each in found.tries)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = ["  ".join(map(_padded, range(len(HEAD)), row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_below(found)]) + "\n"


def _padded(column: int, cell: str, width: int) -> str:
    """Words to the left, numbers to the right."""
    return cell.ljust(width) if column < WORDS else cell.rjust(width)


def _row(each: Try, found: Conversion) -> tuple[str, ...]:
    best = shown(each, found.wanted)
    mark = " *" if found.best is not None and found.best == each else ""
    figures = (
        ("",) * 5
        if best is None
        else (
            f"{best.throughput:.4g}",
            percent(best.within),
            f"{best.p50_ms:.3g}",
            p99(best.p99_ms, known=best.p99_known),
            f"{best.concurrency}",
        )
    )
    differences = _number(each.max_absolute), _number(each.max_relative)
    return (each.name + mark, each.status, *differences, size(each.nbytes), *figures)


def p99(milliseconds: float, *, known: bool) -> str:
    """One of too few requests has a mark."""
    return f"{milliseconds:.3g}" if known else f"~{milliseconds:.3g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def within(tolerances: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(precision, how far its answers may be off, for people)."""
    for precision, each in tolerances.items():
        scale = " * scale" if each["scaled"] else ""
        yield precision, f"{each['absolute']:g}{scale} + {each['relative']:g} * |x|"


def percent(within: float | None) -> str:
    """Of an interval; one that nobody knows is infinite, and in the document null."""
    return f"{within:.0%}" if within is not None and math.isfinite(within) else "?"


def size(nbytes: int) -> str:
    """For people."""
    if not nbytes:
        return ""
    for bound, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= bound:
            return f"{nbytes / bound:.3g} {unit}"
    return f"{nbytes} B"


def _below(found: Conversion) -> Iterator[str]:
    for each in found.tries:
        if each.reason:
            yield f"{each.name}: {each.status}: {each.reason}"
        elif each.note:
            yield f"{each.name}: {each.note}"
        if each.status == "ok" and "[" in each.differs_most:
            yield f"{each.name}: it differs most in {each.differs_most}: {_number(each.max_relative)} of the size there"
    loads = ((f"{each.name} at {level.concurrency}", asdict(level)) for each in found.tries for level in each.measured)
    doubts = [f"{names}: {reason}" for names, reason in unstable(loads)]
    if any(each.status == "wrong" for each in found.tries):
        yield "Where less is enough for you, --atol and --rtol allow larger differences, in all outputs and formats."
    told = "; ".join(
        f"{name} {text}" for name, text in within({key: each._asdict() for key, each in found.tolerances.items()})
    )
    yield f"Compared with the source: {counted(found.rows, 'sample')}, {found.asked}."
    if told:
        yield f"They may differ by: {told}."
    yield from (f"Note: {each}." for each in found.notes)
    if any(not best.p99_known for each in found.tries if (best := shown(each, found.wanted))):
        yield f"~: of fewer than {P99_REQUESTS} requests, which are too few for a p99."
    yield from doubts
    if doubts:
        yield "More --seconds make figures surer, and so does a machine that does nothing else."
    yield f"Best: {found.why}." if found.best else f"Nothing was chosen: {found.why}."
    if found.model is not None:
        yield f"Written: {found.model}; serve it with: tisfast serve --model-repository {found.model.parent}"


def counted(count: int, noun: str) -> str:
    """For people."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def unstable(loads: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str]]:
    """(names of loads, why their figures are not known well): one pair for all that have a reason in common.

    loads: name and fields of Measured.  Reasons are bench's, without what to do about it there.
    """
    alike: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, level in loads:
        if not level["stable"] and not level["errors"]:
            reason = ADVICE.split(level["reason"])[0]
            alike.setdefault(tuple(SHARE.split(reason)), []).append((name, reason))
    for words, found in alike.items():
        shares = zip(*(SHARE.findall(reason) for _, reason in found), strict=True)
        yield ", ".join(name for name, _ in found), _joined(words, [_range(each) for each in shares])


def _joined(words: Sequence[str], between: Sequence[str]) -> str:
    return words[0] + "".join(share + word for share, word in zip(between, words[1:], strict=True))


def _range(shares: Sequence[str]) -> str:
    least, most = (pick(shares, key=lambda each: float(each.rstrip(" %"))) for pick in (min, max))
    return least if least == most else f"{least} to {most}"
