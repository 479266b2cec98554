"""The ranked table, as text and as CSV.  Layer 5 (analyze)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tisfast.analyze.aims import Ranked
from tisfast.analyze.trials import Trial
from tisfast.analyze.variants import INSTANCES, MAX_BATCH, configured, in_force

HEADS = ("rank", "variant", "load", "inferences/s", "gain", "avg", "p99", "batch", "queue", "memory", "")


def cells(place: int, ranked: Ranked) -> list[str]:
    """One row of the table."""
    trial, served = ranked.trial, ranked.trial.served
    notes = [*ranked.broken, *([] if trial.stable else ["not stable"]), *(["client limited"] if trial.limited else [])]
    return [
        str(place),
        trial.variant.text,
        trial.load,
        f"{trial.throughput:.4g}",
        "-" if ranked.gain is None else f"{ranked.gain:+.3g} %",
        milliseconds(trial, "avg"),
        milliseconds(trial, "p99"),
        "-" if served is None else f"{served.batch:.3g}",
        "-" if served is None else f"{100 * served.queue_share:.0f} %",
        "-" if trial.memory_mb is None else f"{trial.memory_mb:.4g} MB",
        "; ".join(notes),
    ]


def milliseconds(trial: Trial, name: str) -> str:
    """With ~ where too few requests support it."""
    if name not in trial.latency_ms:
        return "-"
    return f"{'~' if name == 'p99' and not trial.supported else ''}{trial.latency_ms[name]:.4g} ms"


def table(ranked: Sequence[Ranked]) -> str:
    """In columns."""
    rows = [list(HEADS), *(cells(place, each) for place, each in enumerate(ranked, 1))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    left = {1, 2, len(HEADS) - 1}
    lines = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def failures(trials: Sequence[Trial]) -> list[str]:
    """A line for each row without figures."""
    return [f"{each.variant.text}, {each.load}: {each.failure}" for each in trials if each.failure]


def csv_text(model: str, batch_size: int, config: Mapping[str, Any], ranked: Sequence[Ranked]) -> str:
    """Model Analyzer's columns, the variants in their order."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(
        ["Model", "Batch", "Concurrency", "Request Rate", "Model Config", "Instance Group", "Max Batch Size"]
        + ["Satisfies Constraints", "Throughput (infer/sec)", "p99 Latency (ms)", "CPU Memory (MB)"]
    )
    for each in ranked:
        trial = each.trial
        made = configured(trial.variant, config)
        counts = in_force(INSTANCES, made)
        level = f"{trial.level:g}"
        rows.writerow(
            [
                model,
                batch_size,
                level if trial.mode == "concurrency" else "",
                level if trial.mode != "concurrency" else "",
            ]
            + [trial.variant.text, "" if counts is None else counts, in_force(MAX_BATCH, made)]
            + ["No" if each.broken else "Yes", f"{trial.throughput:.6g}", f"{trial.latency_ms.get('p99', 0):.6g}"]
            + ["" if trial.memory_mb is None else f"{trial.memory_mb:.6g}"]
        )
    return out.getvalue()
