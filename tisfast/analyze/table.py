"""The ranked table, as text and as CSV.  Layer 5 (analyze)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from tisfast.analyze.ranking import Ranked
from tisfast.analyze.subject import Subject
from tisfast.analyze.trials import Share, Trial
from tisfast.analyze.variants import INSTANCES, MAX_BATCH, in_force

CSV_HEADS = (
    *("Model", "Batch", "Concurrency", "Request Rate", "Model Config", "Instance Group", "Max Batch Size"),
    *("Satisfies Constraints", "Throughput (infer/sec)", "p99 Latency (ms)", "CPU Memory (MB)", "GPU Memory (MB)"),
    *("Gain", "Remark", "Failure"),
)
HEADS = ("rank", "variant", "load", "inferences/s", "gain", "avg", "p99", "batch", "queue", "memory", "GPU memory", "")


def counted(count: int, what: str) -> str:
    """With its number."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def about(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def rows_of(place: int, ranked: Ranked) -> Iterator[list[str]]:
    """A variant's row, and one of each model, where several are served together."""
    yield cells(place, ranked)
    for name, share in ranked.trial.models.items():
        yield ["", f"  {name}", "", *_figures(share), *_times(share), "", "", ""]


def _figures(share: Share) -> list[str]:
    return [f"{share.throughput:.4g}", "", milliseconds(share, "avg"), milliseconds(share, "p99")]


def _times(figures: Trial | Share) -> list[str]:
    served = figures.served
    if served is None:
        return ["-", "-"]
    return [f"{served.batch:.3g}", f"{100 * served.queue_share:.0f} %"]


def cells(place: int, ranked: Ranked) -> list[str]:
    """A variant's row."""
    trial = ranked.trial
    return [
        str(place),
        trial.variant.text,
        trial.load,
        f"{trial.throughput:.4g}",
        ranked.gain_text,
        milliseconds(trial, "avg"),
        milliseconds(trial, "p99"),
        *_times(trial),
        "-" if trial.memory_mb is None else f"{trial.memory_mb:.4g} MB",
        "-" if trial.gpu_memory_mb is None else f"{trial.gpu_memory_mb:.4g} MB",
        remark(ranked),
    ]


def remark(ranked: Ranked) -> str:
    """What is to be known of a variant's figures, "" where it is nothing."""
    stable, limited = ranked.trial.stable, ranked.trial.limited
    notes = [*ranked.broken, ranked.note, "" if stable else "not stable", "client limited" if limited else ""]
    return "; ".join(each for each in notes if each)


def failed_cells(trial: Trial) -> list[str]:
    """The row of a variant without figures, with the reason."""
    return ["-", trial.variant.text, trial.load, *("-" for _ in HEADS[3:-1]), trial.failure]


def milliseconds(trial: Trial | Share, name: str) -> str:
    """With ~ where too few requests support it."""
    if name not in trial.latency_ms:
        return "-"
    return f"{'~' if name == 'p99' and not trial.supported else ''}{trial.latency_ms[name]:.4g} ms"


def table(ranked: Sequence[Ranked]) -> str:
    """In columns."""
    rows = [list(HEADS)]
    for place, each in enumerate(ranked, 1):
        rows += rows_of(place, each)
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


def csv_text(batch_size: int, subject: Subject, ranked: Sequence[Ranked], failed: Iterable[Trial] = ()) -> str:
    """Model Analyzer's columns, the variants in their order; of several models together a row for each.

    failed: variants without figures, behind the others, with the reason in a column of its own.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(CSV_HEADS)
    for each in ranked:
        trial = each.trial
        level = f"{trial.level:g}"
        for model, config in subject.configured(trial.variant).items():
            figures, counts = trial.models.get(model, trial), in_force(INSTANCES, config)
            rows.writerow(
                [
                    model,
                    batch_size,
                    level if trial.mode == "concurrency" else "",
                    level if trial.mode != "concurrency" else "",
                ]
                + [trial.variant.text, "" if counts is None else counts, in_force(MAX_BATCH, config)]
                + ["No" if each.broken else "Yes", f"{figures.throughput:.6g}"]
                + [
                    f"{figures.latency_ms['p99']:.6g}" if "p99" in figures.latency_ms else "",
                    "" if trial.memory_mb is None else f"{trial.memory_mb:.6g}",
                    "" if trial.gpu_memory_mb is None else f"{trial.gpu_memory_mb:.6g}",
                    each.gain_text,
                    remark(each),
                    "",
                ]
            )
    for trial in failed:
        for model in subject.served(trial.variant):
            columns = [f"{trial.level:g}", ""] if trial.mode == "concurrency" else ["", f"{trial.level:g}"]
            unknown = ["", "", "No", "", "", "", "", "", ""]
            rows.writerow([model, batch_size, *columns, trial.variant.text, *unknown, trial.failure])
    return out.getvalue()
