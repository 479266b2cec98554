"""`make bench`: the real Triton and tisfast on the same models, measured alternating; the table goes to perf/results/.

    python -m perf.bench                       all of it, about 12 minutes
    python -m perf.bench --quick               one short round of each case, about 2 minutes
    python -m perf.bench --only 'wrk|start'    the cases whose line matches

A bar is a ratio tisfast / Triton within this run.  The exit status is 0 also when bars are missed: a busy machine must
not fail a build.  Status 1 means that something could not be measured.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from perf import machine
from perf.bars import BARS, MEMORY_RATIO_MAX, P99_OVER_P50_RATIO_MAX, START_RATIO_MAX, Bar
from perf.clients import RunFailed, wrk_body
from perf.compare import Effort, Pair, complaining, pair
from perf.oracle.launch import ROOT
from perf.oracle.server import Kind, Server

EXAMPLES: Final = ROOT / "examples/models"
RESULTS: Final = ROOT / "perf/results"
TWO_MODELS: Final = ("add_sub", "identity_fp32")
THREE_MODELS: Final = (*TWO_MODELS, "digits")
KINDS: Final[tuple[Kind, Kind]] = ("triton", "tisfast")
IDLE_SECONDS: Final = 3.0
FOREIGN_SECONDS: Final = 3.0
FOREIGN_BUSY_MAX: Final = 0.05
"""Above this share of the machine taken by others, the ratios are no verdict: a server that yields instead of sleeping
was seen at 22000 requests/s on a quiet machine and at 4000 beside a compiler, with one connection."""
START_CASE, MEMORY_CASE = "start to ready, three models", "idle memory, two models"


class Measured(NamedTuple):
    """One number of each server, with its bar: seconds to ready, or bytes."""

    title: str
    unit: str
    triton: float
    tisfast: float
    most: float

    @property
    def ratio(self) -> float:
        """tisfast over Triton."""
        return self.tisfast / self.triton

    @property
    def met(self) -> bool:
        """Whether the ratio is within the bar."""
        return self.ratio <= self.most


class Results(NamedTuple):
    """All that was measured, and what could not be."""

    foreign_busy: float
    loads: list[tuple[Bar, Pair]]
    singles: list[Measured]
    failures: list[str]


def repository(folder: str, models: tuple[str, ...]) -> Path:
    """A model repository of some of the examples."""
    target = Path(folder) / "-".join(models)
    for model in models:
        shutil.copytree(EXAMPLES / model, target / model, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def measure_start(folder: str, rounds: int) -> Measured:
    """Process start to ready, alternating; medians in seconds."""
    models = repository(folder, THREE_MODELS)
    seconds: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            with Server(kind, [models]) as server:
                seconds[kind].append(server.start_seconds)
    a, b = (statistics.median(seconds[kind]) for kind in KINDS)
    return Measured(START_CASE, "s", a, b, START_RATIO_MAX)


def measure_memory(folder: str) -> Measured:
    """Pss of server and workers after one request to each model and a rest.

    One server at a time: pages that two servers share would be counted half.
    """
    models = repository(folder, TWO_MODELS)
    sizes = []
    for kind in KINDS:
        with Server(kind, [models]) as server:
            for case in ("bin4", "bin16"):
                _send(server.http, case)
            time.sleep(IDLE_SECONDS)  # being idle is what is measured
            sizes.append(server.pss_bytes() / 1e6)
    return Measured(MEMORY_CASE, "MB", *sizes, MEMORY_RATIO_MAX)


def _send(port: int, case: str) -> None:
    body = wrk_body(case)
    headers = {"Inference-Header-Content-Length": str(body.json_bytes)}
    request = urllib.request.Request(f"http://localhost:{port}{body.path}", body.data, headers)
    urllib.request.urlopen(request, timeout=10).read()


def measure_loads(bars: list[Bar], effort: Effort, results: Results) -> None:
    """Every bar against two running servers."""
    with Server("triton", [EXAMPLES]) as a, Server("tisfast", [EXAMPLES]) as b:
        for bar in bars:
            try:
                found = pair(bar.client, bar.case, bar.concurrency, (a.address, b.address), effort)
            except RunFailed as e:
                results.failures.append(str(e))
                print(f"FAILED {str(e)[:600]}", flush=True)
                continue
            results.loads.append((bar, found))
            print(load_row(bar, found), flush=True)


def foreign(results: Results) -> str:
    """How busy the machine was before anything of ours ran, and what that means."""
    text = f"Other processes took {results.foreign_busy:.0%} of the machine before the run."
    return (
        text if results.foreign_busy <= FOREIGN_BUSY_MAX else f"{text}  **Not quiet: the verdicts below mean nothing.**"
    )


def mark(met: bool) -> str:
    """How a verdict is printed."""
    return "met" if met else "**missed**"


HEAD: Final = (
    "| case | client | conc. | Triton req/s | tisfast req/s | ratio | at least | "
    "| Triton p50 µs | tisfast p50 µs | ratio | at most | | Triton p99 µs | tisfast p99 µs | ratio | at most | |\n"
    + "|---" * 18
    + "|"
)


def load_row(bar: Bar, found: Pair) -> str:
    """A line of the Markdown table."""
    ratio, verdicts = found.ratio, bar.verdicts(found.ratio)
    cells = [bar.title, bar.client, str(bar.concurrency)]
    bounds = {"rate": bar.rate_least, "p50": bar.p50_most, "p99": P99_OVER_P50_RATIO_MAX * ratio.p50}
    for name, bound in bounds.items():
        a, b, r = (getattr(figures, name) for figures in (found.a, found.b, ratio))
        cells += [f"{a:.0f}", f"{b:.0f}", f"{r:.2f}", f"{bound:.2f}", mark(verdicts[name])]
    return "| " + " | ".join(cells) + " |"


def markdown(results: Results, effort: Effort) -> str:
    """The whole page."""
    return "\n".join(_lines(results, effort)) + "\n"


def _lines(results: Results, effort: Effort) -> Iterator[str]:
    met = [all(bar.verdicts(found.ratio).values()) for bar, found in results.loads] + [s.met for s in results.singles]
    yield "# tisfast beside the real Triton"
    yield ""
    yield f"{machine.processor()}, {machine.cores()} cores; commit `{machine.commit()}`; Triton 2.51, Python backend."
    yield f"{effort.rounds} rounds, alternating, of {effort.seconds:g} s; medians.  Only ratios mean something."
    yield foreign(results)
    yield f"{sum(met)} of {len(met)} rows meet all their bars.  How to read this: docs/benchmarks.md."
    yield ""
    yield HEAD
    yield from (load_row(*each) for each in results.loads)
    yield ""
    yield "| what | Triton | tisfast | ratio | at most | |"
    yield "|---|---|---|---|---|---|"
    for s in results.singles:
        a, b = f"{s.triton:.2f} {s.unit}", f"{s.tisfast:.2f} {s.unit}"
        yield f"| {s.title} | {a} | {b} | {s.ratio:.2f} | {s.most:.2f} | {mark(s.met)} |"
    for failure in results.failures:
        yield f"\nNot measured: {failure[:300]}"


def facts(results: Results, effort: Effort) -> dict[str, Any]:
    """The same, for programs."""
    return {
        "processor": machine.processor(),
        "cores": machine.cores(),
        "commit": machine.commit(),
        "effort": effort._asdict(),
        "foreign_busy": results.foreign_busy,
        "loads": [
            {"bar": bar._asdict(), "met": bar.verdicts(found.ratio), **found.facts()} for bar, found in results.loads
        ],
        "singles": [{**s._asdict(), "ratio": s.ratio, "met": s.met} for s in results.singles],
        "failures": results.failures,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of a second each")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose title, client and concurrency match")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window of perf_analyzer, or a run of wrk")
    parser.add_argument("--output", type=Path, help="folder of the table; a whole run writes to perf/results")
    return parser.parse_args()


def _bench(options: argparse.Namespace) -> int:
    effort = Effort(1, 1.0) if options.quick else Effort(options.rounds, options.seconds)
    wanted = re.compile(options.only)
    bars = [bar for bar in BARS if wanted.search(f"{bar.title} {bar.client} {bar.concurrency}")]
    results = Results(machine.busy_share(FOREIGN_SECONDS), [], [], [])
    print(foreign(results), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if wanted.search(START_CASE):
            results.singles.append(measure_start(folder, effort.rounds))
        if wanted.search(MEMORY_CASE):
            results.singles.append(measure_memory(folder))
    for s in results.singles:
        print(
            f"{s.title}: {s.triton:.2f} against {s.tisfast:.2f} {s.unit}, ratio {s.ratio:.2f}, {mark(s.met)}",
            flush=True,
        )
    if bars:
        print(HEAD, flush=True)
        measure_loads(bars, effort, results)
    if output := options.output or (None if options.quick or options.only else RESULTS):
        _write(results, effort, output)
    return 1 if results.failures else 0


def _write(results: Results, effort: Effort, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{machine.slug()}.md"
    page.write_text(markdown(results, effort))
    page.with_suffix(".json").write_text(json.dumps(facts(results, effort), indent=1) + "\n")
    print(f"written to {page} and .json beside it")


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _bench(_chosen)))
