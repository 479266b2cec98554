"""The bars that `make bench` holds tisfast to: ratios tisfast / Triton on one machine, over HTTP."""

from __future__ import annotations

from typing import Final, NamedTuple

from perf.clients import Client, Figures

P99_OVER_P50_RATIO_MAX: Final = 1.2
"""The ratio of p99 may be so many times the ratio of p50: a good median with a bad tail is no win."""
START_RATIO_MAX: Final = 0.4
"""Process start to ready, the three example models."""
MEMORY_RATIO_MAX: Final = 0.9
"""Proportional memory of server and workers when idle, two example models."""


class Bar(NamedTuple):
    """One row: what is measured, the greatest p50 ratio and the least throughput ratio."""

    title: str
    client: Client
    case: str
    concurrency: int
    p50_most: float
    rate_least: float

    def verdicts(self, ratio: Figures) -> dict[str, bool]:
        """What is met, by name."""
        return {
            "p50": ratio.p50 <= self.p50_most,
            "rate": ratio.rate >= self.rate_least,
            "p99": ratio.p99 <= P99_OVER_P50_RATIO_MAX * ratio.p50,
        }


_SMALL, _BINARY, _JSON = "add_sub, 4 floats", "add_sub, binary", "add_sub, JSON"
_IMAGE, _LARGE = "identity_fp32, 600 KB", "identity_fp32, 16 MB"
_IMAGE_CASE, _LARGE_CASE = "identity_fp32:INPUT0:150528", "identity_fp32:INPUT0:4194304"

BARS: Final = (
    Bar(_SMALL, "perf_analyzer", "add_sub", 1, 0.50, 2.0),
    Bar(_SMALL, "perf_analyzer", "add_sub", 4, 0.45, 2.5),
    Bar(_SMALL, "perf_analyzer", "add_sub", 16, 0.35, 3.0),
    Bar(_BINARY, "wrk", "bin4", 1, 0.60, 1.7),
    Bar(_BINARY, "wrk", "bin4", 8, 0.30, 4.0),
    Bar(_BINARY, "wrk", "bin4", 32, 0.25, 4.5),
    Bar(_JSON, "wrk", "json4", 1, 0.60, 1.7),
    Bar(_JSON, "wrk", "json4", 32, 0.30, 4.0),
    Bar(_IMAGE, "perf_analyzer", _IMAGE_CASE, 1, 0.40, 2.5),
    Bar(_IMAGE, "perf_analyzer", _IMAGE_CASE, 4, 0.30, 3.0),
    Bar(_LARGE, "perf_analyzer", _LARGE_CASE, 1, 0.25, 4.0),
    Bar(_LARGE, "perf_analyzer", _LARGE_CASE, 4, 0.40, 2.5),
)
