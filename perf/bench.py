"""`make bench`: the real Triton and tisfast on the same models, measured alternating; the table goes to perf/results/.

    python -m perf.bench                       all of it, about 40 minutes
    python -m perf.bench --quick               one short round of each case, about 8 minutes
    python -m perf.bench --only grpc           the rows whose line matches: 'http wrk', 'shared', 'grpc|start', ...
    python -m perf.bench --only 'mixed:|neighbours:|heavy:'    requests that are not alike, about 11 minutes
    python -m perf.bench --only pytriton:      tisfast.pytriton beside the real PyTriton, about 6 minutes
    python -m perf.bench --only growth:        whether what one costs grows with their number, about 2 minutes
    python -m perf.bench --only clients:       tisfast bench beside perf_analyzer, about 5 minutes
    python -m perf.bench --only http --list    which these are, and how long they take

A bar is a ratio tisfast / Triton within this run.  The exit status is 0 also when bars are missed: a busy machine must
not fail a build.  Status 1 means that something could not be measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from perf import agreement, beside_pytriton, machine, pytriton_rows
from perf.agreement import AGREEMENTS, Agreement
from perf.bars import BARS, EXAMPLES, MEMORY_RATIO_MAX, METRICS_BARS, START_RATIO_MAX, Bar, Stage
from perf.clients import WINDOWS, Client
from perf.compare import SHARED_FLAGS, Effort, Pair, address, complaining, pair, together
from perf.figures import RunFailed, ServerDied
from perf.oracle import launch
from perf.oracle.install import install
from perf.oracle.launch import ROOT
from perf.oracle.server import Kind, Server
from perf.scaling import SCALING, SCALING_HEAD, SECONDS_EACH, Scaling, grown
from perf.table import (
    HEAD,
    METRICS_HEAD,
    SINGLES_HEAD,
    Measured,
    Results,
    facts,
    foreign,
    load_row,
    lost,
    markdown,
    spread,
)
from perf.unlike import UNLIKE, UNLIKE_HEAD, Unlike
from perf.unlike import beside_triton as unlike_beside_triton
from perf.wrk import wrk_body

RESULTS: Final = ROOT / "perf/results"
TWO_MODELS: Final = ("add_sub", "identity_fp32")
THREE_MODELS: Final = (*TWO_MODELS, "digits")
KINDS: Final[tuple[Kind, Kind]] = ("triton", "tisfast")
TRITON_DEATHS_MAX: Final = 3
"""Of the real Triton under one load; it is played again before that."""
IDLE_SECONDS: Final = 3.0
FOREIGN_SECONDS: Final = 3.0
START_CASE, MEMORY_CASE = "start to ready, three models", "idle memory, two models"
METRICS_FLAGS: Final = (["--allow-metrics=false"], ["--metrics-config=histogram_latencies=true"])
METRICS_EFFORT: Final = Effort(16, 1.0)
"""With each pair of servers, of which there are as many as other rows have rounds.  One percent is asked for, and runs
of one server differ by more, and so do two starts of it: many short rounds, each compared in itself."""
CLIENT_SECONDS: Final = 1.0
"""What starting and ending a client takes, for the forecast."""
ROUND_SECONDS: Final = {START_CASE: 5, MEMORY_CASE: 16}


Row = tuple[Bar, Pair]


class Selection(NamedTuple):
    """The rows to measure."""

    loads: list[Bar]
    metrics: list[Bar]
    singles: list[str]
    unlike: list[Unlike]
    scaling: list[Scaling]
    pytriton: list[Bar]
    numbers: list[pytriton_rows.Number]
    agreements: list[Agreement]

    def lines(self) -> list[str]:
        """One for each row, as --only sees it."""
        rows = (*self.loads, *self.metrics, *self.unlike, *self.scaling, *self.pytriton, *self.numbers)
        rows = (*rows, *self.agreements)
        return [*self.singles, *(row.line() for row in rows)]

    def clients(self) -> set[Client]:
        """The load generators that this needs."""
        beside: set[Client] = {"perf_analyzer"} if self.agreements else set()
        return beside | {bar.load.client for bar in (*self.loads, *self.metrics, *self.pytriton)}

    def seconds(self, effort: Effort) -> float:
        """About how long it takes."""
        rows = [(bar, effort) for bar in self.loads] + [(bar, METRICS_EFFORT) for bar in self.metrics] * effort.rounds
        loads = sum(2 * each.rounds * (_run_seconds(bar, each) + CLIENT_SECONDS) for bar, each in rows)
        singles = ROUND_SECONDS[START_CASE] * effort.rounds * (START_CASE in self.singles)
        memory = ROUND_SECONDS[MEMORY_CASE] * (MEMORY_CASE in self.singles)
        unlike = sum(2 * effort.rounds * row.seconds_each() for row in self.unlike)
        scaling = SECONDS_EACH * effort.rounds * len(self.scaling)
        pytriton = beside_pytriton.seconds(self.pytriton, self.numbers, effort.rounds)
        agreements = agreement.SECONDS_EACH * effort.rounds * len(self.agreements)
        return 2 * FOREIGN_SECONDS + loads + unlike + singles + memory + scaling + pytriton + agreements


def _run_seconds(bar: Bar, effort: Effort) -> float:
    return effort.seconds * (WINDOWS if bar.load.client == "perf_analyzer" else 1)


def select(only: str) -> Selection:
    """The rows whose line a regular expression finds."""
    wanted = re.compile(only)
    loads, metrics = ([bar for bar in bars if wanted.search(bar.line())] for bars in (BARS, METRICS_BARS))
    singles = [case for case in (START_CASE, MEMORY_CASE) if wanted.search(case)]
    unlike, scaling = ([row for row in rows if wanted.search(row.line())] for rows in (UNLIKE, SCALING))
    pytriton = [bar for bar in pytriton_rows.BARS if wanted.search(bar.line())]
    numbers = [number for number in pytriton_rows.NUMBERS if wanted.search(number.line())]
    agreements = [row for row in AGREEMENTS if wanted.search(row.line())]
    return Selection(loads, metrics, singles, unlike, scaling, pytriton, numbers, agreements)


def repository(folder: str, models: tuple[str, ...]) -> Path:
    """A model repository of some of the examples."""
    target = Path(folder) / "-".join(models)
    for model in models:
        shutil.copytree(EXAMPLES.models / model, target / model, ignore=shutil.ignore_patterns("__pycache__"))
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


class _Loads:
    """The rows of one pair of servers, which are started again when one of them has died under a load.

    The real Triton does so now and then (sequences over gRPC): that row is then played again.  Where tisfast does, the
    row has failed.
    """

    def __init__(self, bars: list[Bar], effort: Effort, failures: list[str], *, close: bool = False) -> None:
        self.rows: list[Row] = []
        self._left, self._effort, self._failures, self._close = bars[::-1], effort, failures, close
        self._deaths: Counter[Bar] = Counter()

    def measure(self, servers: Callable[[], tuple[Server, Server]]) -> list[Row]:
        """Every bar; what fails is told and left out."""
        while self._left:
            a, b = servers()
            with a, b:
                self._until_death(a, b)
        return self.rows

    def _until_death(self, a: Server, b: Server) -> None:
        sides = address(a), address(b)
        while self._left:
            bar = self._left.pop()
            try:
                self.rows.append((bar, pair(bar.load, sides, self._effort, close=self._close)))
            except ServerDied as e:
                self._died(bar, e, [server.kind for server in (a, b) if server.ended])
                return
            except RunFailed as e:
                self._failed(e)
                continue
            print(load_row(*self.rows[-1]), flush=True)

    def _died(self, bar: Bar, e: ServerDied, ended: list[Kind]) -> None:
        self._deaths[bar] += 1
        if ended != ["triton"] or self._deaths[bar] == TRITON_DEATHS_MAX:
            self._failed(e)
            return
        print(f"AGAIN {e}", flush=True)
        self._left.append(bar)

    def _failed(self, e: RunFailed) -> None:
        self._failures.append(str(e))
        print(f"FAILED {str(e)[:600]}", flush=True)


def beside_triton(bars: list[Bar], effort: Effort, failures: list[str]) -> list[Row]:
    """tisfast over the real Triton."""
    print(HEAD, flush=True)
    rows = []
    for stage in dict.fromkeys(bar.stage for bar in bars):
        rows += _on_stage(stage, [bar for bar in bars if bar.stage == stage], effort, failures)
    return rows


def _on_stage(stage: Stage, bars: list[Bar], effort: Effort, failures: list[str]) -> list[Row]:
    flags = (*SHARED_FLAGS["tisfast"], *stage.flags)

    def servers() -> tuple[Server, Server]:
        return Server("triton", [stage.models], stage.flags), Server("tisfast", [stage.models], flags)

    return _Loads(bars, effort, failures).measure(servers)


def beside_no_metrics(bars: list[Bar], effort: Effort, failures: list[str]) -> list[Row]:
    """tisfast with metrics over tisfast without."""
    print(METRICS_HEAD, flush=True)

    def servers() -> tuple[Server, Server]:
        off, on = (Server("tisfast", [EXAMPLES.models], flags) for flags in METRICS_FLAGS)
        return off, on

    parts = [_Loads(bars, METRICS_EFFORT, failures, close=True).measure(servers) for _ in range(effort.rounds)]
    found = {bar: [pair for part in parts for each, pair in part if each == bar] for bar in bars}
    rows = [(bar, together(pairs)) for bar, pairs in found.items() if pairs]
    for row in rows:
        print(load_row(*row), spread(row[1]), sep="\n", flush=True)
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of a second each")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose title, protocol, client, conc. match")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window of perf_analyzer, or a run of others")
    parser.add_argument("--output", type=Path, help="folder of the table; a whole run writes to perf/results")
    return parser.parse_args()


def _bench(options: argparse.Namespace) -> int:
    effort = Effort(1, 1.0) if options.quick else Effort(options.rounds, options.seconds)
    selection = select(options.only)
    if not selection.lines():
        print(f"error: no row matches {options.only!r}; --list shows all", file=sys.stderr)
        return 1
    if options.list:
        print("\n".join(selection.lines()))
    print(f"{len(selection.lines())} rows, about {selection.seconds(effort) / 60:.0f} min", flush=True)
    if options.list:
        return 0
    _need_clients(selection.clients())
    results = _measure(selection, effort)
    if output := options.output or (None if options.quick or options.only else RESULTS):
        _write(results, effort, output)
    return 1 if results.failures else 0


def _need_clients(clients: set[Client]) -> None:
    """Install what is missing before anything is measured; raises OracleMissing with the command to type."""
    install()
    if "wrk" in clients:
        launch.wrk()
    if "h2load" in clients:
        launch.h2load()


def _measure(selection: Selection, effort: Effort) -> Results:
    results = Results(
        machine.busy_share(FOREIGN_SECONDS), machine.losses(FOREIGN_SECONDS), [], [], [], [], [], [], [], [], []
    )
    print(foreign(results), lost(results), sep="\n", flush=True)
    results.singles.extend(_measure_singles(selection.singles, effort))
    if selection.loads:
        results.loads.extend(beside_triton(selection.loads, effort, results.failures))
    if selection.metrics:
        results.metrics.extend(beside_no_metrics(selection.metrics, effort, results.failures))
    if selection.unlike:
        print(UNLIKE_HEAD, flush=True)
        show = functools.partial(print, flush=True)
        results.unlike.extend(unlike_beside_triton(selection.unlike, effort.rounds, results.failures, show))
    if selection.scaling:
        print(SCALING_HEAD, flush=True)
        show = functools.partial(print, flush=True)
        results.scaling.extend(grown(selection.scaling, effort.rounds, effort.seconds, results.failures, show))
    show = functools.partial(print, flush=True)
    beside = beside_pytriton.beside_pytriton(selection.pytriton, selection.numbers, effort, results.failures, show)
    results.pytriton.extend(beside.loads)
    results.numbers.extend(beside.numbers)
    if selection.agreements:
        print(agreement.HEAD, flush=True)
        results.agreed.extend(agreement.agreed(selection.agreements, effort.rounds, results.failures, show))
    met = results.met()
    print(f"{sum(met)} of {len(met)} rows meet all their bars.", flush=True)
    return results


def _measure_singles(cases: list[str], effort: Effort) -> list[Measured]:
    singles = []
    with tempfile.TemporaryDirectory() as folder:
        if START_CASE in cases:
            singles.append(measure_start(folder, effort.rounds))
        if MEMORY_CASE in cases:
            singles.append(measure_memory(folder))
    if singles:
        print("\n".join([SINGLES_HEAD, *(single.row() for single in singles)]), flush=True)
    return singles


def _write(results: Results, effort: Effort, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{machine.slug()}.md"
    page.write_text(markdown(results, effort))
    page.with_suffix(".json").write_text(json.dumps(facts(results, effort), indent=1, allow_nan=False) + "\n")
    print(f"written to {page} and .json beside it")


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _bench(_chosen)))
