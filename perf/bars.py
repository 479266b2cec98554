"""The bars that `make bench` holds tisfast to: ratios within one run on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from perf.clients import Load
from perf.figures import Figures
from perf.oracle.launch import ROOT

P99_OVER_P50_RATIO_MAX: Final = 1.2
"""The ratio of p99 may be so many times the ratio of p50: a good median with a bad tail is no win."""
START_RATIO_MAX: Final = 0.4
"""Process start to ready, the three example models."""
MEMORY_RATIO_MAX: Final = 0.9
"""Proportional memory of server and workers when idle, two example models."""


class Stage(NamedTuple):
    """What both servers serve while some rows are measured; flags: what both are told."""

    models: Path
    flags: tuple[str, ...] = ()


EXAMPLES: Final = Stage(ROOT / "examples/models")
PIPELINES: Final = Stage(ROOT / "perf/models")
"""Schedulers, ensembles and calls between models."""
CACHED: Final = Stage(PIPELINES.models, ("--cache-config=local,size=268435456",))
"""The same with a response cache."""


class Bar(NamedTuple):
    """One row: what is measured, the greatest ratios of p50 and p99 (over that of p50), the least of throughput.

    None where there is no bar: the ratio is shown all the same.
    """

    title: str
    load: Load
    p50_most: float | None
    rate_least: float | None
    p99_over_p50_most: float | None = None
    stage: Stage = EXAMPLES

    def bounds(self, ratio: Figures) -> dict[str, float | None]:
        """The bar of each figure, in the order of the table."""
        p99 = None if self.p99_over_p50_most is None else self.p99_over_p50_most * ratio.p50
        return {"rate": self.rate_least, "p50": self.p50_most, "p99": p99}

    def verdicts(self, ratio: Figures) -> dict[str, bool]:
        """What is met, by name; only what has a bar."""
        bounds = {name: bound for name, bound in self.bounds(ratio).items() if bound is not None}
        return {name: is_met(name, getattr(ratio, name), bound) for name, bound in bounds.items()}

    def line(self) -> str:
        """What selects this row (perf.bench --only)."""
        load = self.load
        return f"{self.title} {load.protocol} {load.client} {load.concurrency}"


def is_met(name: str, ratio: float, bound: float) -> bool:
    """Rates are to be high, latencies low."""
    return ratio >= bound if name == "rate" else ratio <= bound


_SMALL, _BINARY, _JSON = "add_sub, 4 floats", "add_sub, binary", "add_sub, JSON"
_IMAGE, _LARGE = "identity_fp32, 600 KB", "identity_fp32, 16 MB"
_IMAGE_CASE, _LARGE_CASE = "identity_fp32:INPUT0:150528", "identity_fp32:INPUT0:4194304"
_IMAGE_BYTES: Final = 4 * 150528
_REGION = f"{_IMAGE}, shared memory"
_LIST = "identity_fp32, JSON of 1,024 floats"
_HIT, _HIT_CASE = "cache hit, 600 KB", "identity_cached:INPUT0:150528"
_HEAVY = "heavy: identity_fp32, JSON of 5.5 MB"
_TAIL: Final = P99_OVER_P50_RATIO_MAX

_SEQUENCES = "32 sequences of 100 requests"
_HUNDRED = ("--sequence-length=100", "--sequence-length-variation=0")
_EACH_A_THREAD = "--sync"  # over HTTP one thread for all, its default for sequences, is slower than either server

BARS: Final = (
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 1), 0.50, 2.0, _TAIL),
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 4), 0.45, 2.5, _TAIL),
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 16), 0.35, 3.0, _TAIL),
    Bar(_BINARY, Load("wrk", "bin4", 1), 0.60, 1.7, _TAIL),
    Bar(_BINARY, Load("wrk", "bin4", 8), 0.30, 4.0, _TAIL),
    Bar(_BINARY, Load("wrk", "bin4", 32), 0.25, 4.5, _TAIL),
    Bar(_JSON, Load("wrk", "json4", 1), 0.60, 1.7, _TAIL),
    Bar(_JSON, Load("wrk", "json4", 32), 0.30, 4.0, _TAIL),
    Bar(_LIST, Load("wrk", "json1024", 1), 0.50, 2.0),
    Bar(_LIST, Load("wrk", "json1024", 8), 0.35, 3.0),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 1), 0.40, 2.5, _TAIL),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 4), 0.30, 3.0, _TAIL),
    Bar(_LARGE, Load("perf_analyzer", _LARGE_CASE, 1), 0.25, 4.0, _TAIL),
    Bar(_LARGE, Load("perf_analyzer", _LARGE_CASE, 4), 0.40, 2.5, _TAIL),
    Bar(_REGION, Load("perf_analyzer", _IMAGE_CASE, 1, "http", _IMAGE_BYTES), 0.45, 2.2),
    Bar(_REGION, Load("perf_analyzer", _IMAGE_CASE, 4, "http", _IMAGE_BYTES), 0.35, 2.5),
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 1, "grpc"), 0.50, 2.0),
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 4, "grpc"), 0.35, 3.0),
    Bar(_SMALL, Load("perf_analyzer", "add_sub", 16, "grpc"), 0.30, 3.5),
    Bar("add_sub, prepared call", Load("h2load", "add_sub", 32, "grpc"), None, 4.0),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 1, "grpc"), 0.60, 1.7),
    Bar(_IMAGE, Load("perf_analyzer", _IMAGE_CASE, 4, "grpc"), 0.50, 2.0),
    Bar(_LARGE, Load("perf_analyzer", _LARGE_CASE, 1, "grpc"), 0.50, 2.0),
    Bar(_REGION, Load("perf_analyzer", _IMAGE_CASE, 1, "grpc", _IMAGE_BYTES), 0.45, 2.2),
    Bar(_REGION, Load("perf_analyzer", _IMAGE_CASE, 4, "grpc", _IMAGE_BYTES), 0.35, 2.5),
    Bar("batches of 32, 2 ms each", Load("wrk", "sleep_2ms/bin1x4", 8), 0.60, None, stage=PIPELINES),
    Bar("batches of 32, 2 ms each", Load("wrk", "sleep_2ms/bin1x4", 64), 0.70, 1.5, stage=PIPELINES),
    Bar("ensemble of three, 600 KB", Load("perf_analyzer", "identity_ensemble:INPUT0:150528", 1), 0.45, None,
        stage=PIPELINES),
    Bar("100 responses to a request", Load("perf_analyzer", "burst_100", 4, "grpc", 0, ("--streaming",)), None, 2.0,
        stage=PIPELINES),
    Bar("BLS, identity three times, 600 KB", Load("perf_analyzer", "bls_three:INPUT0:150528", 1), 0.45, None,
        stage=PIPELINES),
    Bar(_SEQUENCES, Load("perf_analyzer", "sequence_sum", 32, flags=(*_HUNDRED, _EACH_A_THREAD)), None, 2.0,
        stage=PIPELINES),
    Bar(_SEQUENCES, Load("perf_analyzer", "sequence_sum", 32, "grpc", 0, (*_HUNDRED, "--streaming")), None, 2.0,
        stage=PIPELINES),
    Bar(_HIT, Load("perf_analyzer", _HIT_CASE, 1), 0.50, 2.0, stage=CACHED),
    Bar(_HIT, Load("perf_analyzer", _HIT_CASE, 4), 0.50, 2.0, stage=CACHED),
    Bar(_HIT, Load("perf_analyzer", _HIT_CASE, 1, "grpc"), None, None, stage=CACHED),
    Bar("cache hit, 4 floats", Load("wrk", "identity_cached/bin4", 8), None, None, stage=CACHED),
    Bar(_HEAVY, Load("wrk", "long550000", 1), None, 2.0),
    Bar(_HEAVY, Load("wrk", "long550000", 4), None, 1.8),
)
"""tisfast over Triton."""

METRICS_BARS: Final = (Bar("metrics and histograms on, add_sub, binary", Load("wrk", "bin4", 8), None, 0.99),)
"""tisfast with all metrics over tisfast without."""
