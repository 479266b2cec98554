"""Statistics and metrics of both servers, made comparable."""

from __future__ import annotations

import re
from typing import Any

PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


def counts(stats: dict[str, Any]) -> dict[str, int]:
    """All that counts, without times."""
    found = {name: stats[name] for name in ("inference_count", "execution_count")}
    found.update({phase: stats["inference_stats"][phase]["count"] for phase in PHASES})
    for batch in stats["batch_stats"]:
        found.update({f"batch {batch['batch_size']} {k}": batch[k]["count"] for k in batch if k != "batch_size"})
    return found


class Exposition:
    """One scrape: type and help by family, and value by name and labels, for one model."""

    def __init__(self, text: str) -> None:
        self.about: dict[str, tuple[str, str]] = {}
        helps = dict(re.findall(r"^# HELP (nv_\w+) (.*)$", text, re.MULTILINE))
        for name, kind in re.findall(r"^# TYPE (nv_\w+) (\w+)$", text, re.MULTILINE):
            self.about[name] = (kind, helps[name])
        self.samples: dict[tuple[str, frozenset[str]], float] = {}
        for name, labels, value in re.findall(r"^(nv_\w+?)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
            if not labels or 'model="add_sub"' in labels:
                self.samples[name, frozenset(labels.split(",")) - {""}] = float(value)
