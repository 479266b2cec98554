"""Rows in which requests are not alike: mixed lengths on several instances, and small requests beside busy neighbours.

An open-loop client (perf.open_loop) measures both servers, alternating, with the same requests at the same moments.
Neighbours never rest, so the faster server answers more of their requests, and has less left for the small ones.  In
the group "paced" tisfast's neighbours ask no faster than Triton's were answered in the same round.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from perf.bars import EXAMPLES, PIPELINES
from perf.figures import RunFailed, ServerDied
from perf.open_loop import Ask, Tail, play, post, tail
from perf.oracle.launch import ROOT
from perf.oracle.server import Server

Group = Literal["mixed", "neighbours", "paced"]
Arrivals = Callable[[random.Random, float], list[Ask]]
"""Requests of so many seconds."""

MIXED_MODELS: Final = ROOT / "perf/mixed_models"
MIXED_MOST: Final = 1.1
"""Of Triton's p99 and longest."""
NEIGHBOURS_MOST: Final = 1.0
"""Of Triton's p50 and p99."""
RELOADED: Final = "reloaded"
EXPLICIT: Final = ("--model-control-mode=explicit", "--load-model=*")
NEIGHBOUR_STARTS_SECONDS_MAX: Final = 60.0
NEIGHBOUR_START_SECONDS: Final = 1.0
"""About, for the forecast."""
SMALL_EACH_SECONDS: Final = 0.005

FOUR_BUSY: Final = 0.7 * 4
"""Seconds of work in a second for four instances at 70 % load."""
SHORT_MS, LONG_MS, LONG_SHARE = 20, 200, 0.05
BIMODAL_MS: Final = SHORT_MS * (1 - LONG_SHARE) + LONG_MS * LONG_SHARE
EXPONENTIAL_MS: Final = 25
SEQUENCE_LENGTH: Final = 4


class Unlike(NamedTuple):
    """One row: what arrives, beside how many neighbours of which kind, and the greatest ratios tisfast / Triton."""

    group: Group
    title: str
    seconds: float
    arrivals: Arrivals
    most: dict[str, float]
    neighbour: str = ""
    neighbours: int = 0

    def line(self) -> str:
        """What selects this row (perf.bench --only)."""
        return f"{self.group}: {self.title}"

    def seconds_each(self) -> float:
        """About how long one run takes."""
        return self.seconds + NEIGHBOUR_START_SECONDS * self.neighbours


def ask(model: str, due: float, milliseconds: int, *, counted: bool = True) -> Ask:
    """A request of a model of perf/mixed_models."""
    if model == "decoupled":
        return Ask(due, post(f"/v2/models/{model}/generate", {"MS": milliseconds}), counted=counted)
    return Ask(due, _infer(model, milliseconds), counted=counted)


def _infer(model: str, milliseconds: int, parameters: dict[str, Any] | None = None) -> bytes:
    shape = [1, 1] if model in {"batching", "sequence"} else [1]
    tensor = {"name": "MS", "shape": shape, "datatype": "INT32", "data": [milliseconds]}
    return post(f"/v2/models/{model}/infer", {"inputs": [tensor], "parameters": parameters or {}})


def one_busy(_: random.Random, __: float) -> list[Ask]:
    """One of two instances is busy for 5 s; six requests of 0.2 s come meanwhile."""
    return [ask("two", 0.0, 5000, counted=False), *(ask("two", 0.02 * (i + 1), 200) for i in range(6))]


def half_load(chance: random.Random, seconds: float) -> list[Ask]:
    """30 a second of 20 ms, and each 2 s one of 1 s, which is not counted: 1.1 of two instances are busy."""
    short = [ask("two", due, 20) for due in poisson(chance, 30.0, seconds)]
    return [*short, *(ask("two", 0.5 + 2.0 * i, 1000, counted=False) for i in range(int(seconds / 2)))]


def bimodal(chance: random.Random) -> int:
    """One in twenty is ten times as long."""
    return LONG_MS if chance.random() < LONG_SHARE else SHORT_MS


def exponential(chance: random.Random) -> int:
    """Most are short, few are long."""
    return round(chance.expovariate(1 / EXPONENTIAL_MS))


def poisson(chance: random.Random, rate: float, seconds: float) -> Iterator[float]:
    """When independent clients ask."""
    due = chance.expovariate(rate)
    while due < seconds:
        yield due
        due += chance.expovariate(rate)


def independent(model: str, length: Callable[[random.Random], int], mean_ms: float) -> Arrivals:
    """Requests at 70 % load of four instances."""

    def arrivals(chance: random.Random, seconds: float) -> list[Ask]:
        return [ask(model, due, length(chance)) for due in poisson(chance, FOUR_BUSY / (mean_ms / 1e3), seconds)]

    return arrivals


def sequences(length: Callable[[random.Random], int], mean_ms: float) -> Arrivals:
    """The same load in sequences; each request of one is due when the one before is answered."""

    def arrivals(chance: random.Random, seconds: float) -> list[Ask]:
        rate = FOUR_BUSY / (SEQUENCE_LENGTH * mean_ms / 1e3)
        return [_sequence(due, i, length, chance) for i, due in enumerate(poisson(chance, rate, seconds), 1)]

    return arrivals


def _sequence(due: float, number: int, length: Callable[[random.Random], int], chance: random.Random) -> Ask:
    ends = range(SEQUENCE_LENGTH)
    known = [
        {"sequence_id": number, "sequence_start": i == ends[0], "sequence_end": i == ends[-1]} for i in ends
    ]
    first, *others = [_infer("sequence", length(chance), parameters) for parameters in known]
    return Ask(due, first, tuple(others))


def each_5_ms(_: random.Random, seconds: float) -> list[Ask]:
    """Small requests, one after the other."""
    inputs = [
        {"name": f"INPUT{i}", "shape": [4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]} for i in range(2)
    ]
    data = post("/v2/models/add_sub/infer", {"inputs": inputs})
    return [Ask(i * SMALL_EACH_SECONDS, data) for i in range(int(seconds / SMALL_EACH_SECONDS))]


def _mixed(title: str, seconds: float, arrivals: Arrivals, *names: str) -> Unlike:
    return Unlike("mixed", title, seconds, arrivals, dict.fromkeys(names or ("p99", "longest"), MIXED_MOST))


def _beside(group: Group, title: str, kind: str, count: int) -> Unlike:
    return Unlike(group, title, 5.0, each_5_ms, dict.fromkeys(("p50", "p99"), NEIGHBOURS_MOST), kind, count)


_LENGTHS: Final = (("bimodal", bimodal, BIMODAL_MS), ("exponential", exponential, EXPONENTIAL_MS))
_MODELS: Final = ("plain", "batching", "decoupled")

_NEIGHBOURS: Final = (
    ("beside two of JSON, 5.5 MB", "json", 2),
    ("beside two of the same in gzip", "gzip", 2),
    ("beside two of 16 MB, binary", "binary", 2),
    ("beside a scraper", "scraper", 1),
    ("beside a model that is reloaded", "reload", 1),
    ("beside new connections", "connections", 1),
)
_GROUPS: Final[tuple[Group, ...]] = ("neighbours", "paced")

UNLIKE: Final = (
    _mixed("two instances, one busy for 5 s", 6.5, one_busy, "longest"),
    _mixed("two instances at half load, 20 ms and 1 s", 10.0, half_load),
    *(
        _mixed(f"{name} lengths, {model}, 70 % load", 8.0, independent(model, length, mean))
        for name, length, mean in _LENGTHS
        for model in _MODELS
    ),
    *(_mixed(f"{name} lengths, sequence, 70 % load", 8.0, sequences(length, mean)) for name, length, mean in _LENGTHS),
    _beside("neighbours", "alone", "", 0),
    *(_beside(group, *each) for group in _GROUPS for each in _NEIGHBOURS),
)
"""tisfast over Triton."""


class Run(NamedTuple):
    """One run: the latencies, and how many answers a second each neighbour had."""

    latencies: Tail
    beside: float = 0.0


class Found(NamedTuple):
    """One row measured on both sides: the medians over the rounds, and every run."""

    row: Unlike
    runs_a: list[Run]
    runs_b: list[Run]

    @property
    def a(self) -> Tail:
        """Triton's."""
        return middle([run.latencies for run in self.runs_a])

    @property
    def b(self) -> Tail:
        """tisfast's."""
        return middle([run.latencies for run in self.runs_b])

    @property
    def beside(self) -> tuple[float, float]:
        """Answers a second of each neighbour, Triton's and tisfast's."""
        a, b = (statistics.median_low(run.beside for run in runs) for runs in (self.runs_a, self.runs_b))
        return a, b

    @property
    def ratio(self) -> Tail:
        """B over A."""
        return Tail(*(b / a for a, b in zip(self.a, self.b, strict=True)))

    @property
    def met(self) -> bool:
        """Whether all bars are."""
        return all(getattr(self.ratio, name) <= most for name, most in self.row.most.items())

    def facts(self) -> dict[str, Any]:
        """All figures, for a JSON file."""
        named = {name: getattr(self, name)._asdict() for name in ("a", "b", "ratio")}
        runs = {
            name: [{**run.latencies._asdict(), "beside": run.beside} for run in getattr(self, name)]
            for name in ("runs_a", "runs_b")
        }
        return {"title": self.row.line(), **named, **runs, "bars": self.row.most, "met": self.met}


def middle(runs: Sequence[Tail]) -> Tail:
    """The median of each figure over some runs."""
    return Tail(*(sorted(values)[(len(values) - 1) // 2] for values in zip(*runs, strict=True)))


def measure(row: Unlike, servers: Sequence[Server], models: Path, rounds: int) -> Found:
    """A, B, A, B, ...; both have the same requests at the same moments.  Raises RunFailed, naming the side."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(rounds):
        rate = 0.0
        for server, found in zip(servers, runs, strict=True):
            try:
                found.append(_run(row, server, models, number, rate))
                rate = found[-1].beside if row.group == "paced" else 0.0
            except RunFailed as e:
                kind = ServerDied if server.ended else RunFailed
                raise kind(f"{row.line()}, {server.kind}: {e}") from e
    return Found(row, *runs)


def _run(row: Unlike, server: Server, models: Path, number: int, rate: float) -> Run:
    asks = row.arrivals(random.Random(number), row.seconds)  # noqa: S311  (the same for both sides)
    with contextlib.ExitStack() as stack:
        counter = os.eventfd(0, os.EFD_NONBLOCK)
        stack.callback(os.close, counter)
        beside = [stack.enter_context(_neighbour(row, server, models, counter, rate)) for _ in range(row.neighbours)]
        _answers(counter)
        began = time.monotonic()
        latencies = play(server.address, asks)
        each_second = _answers(counter) / (time.monotonic() - began) / max(row.neighbours, 1)
        for each in beside:
            if each.poll() is not None:
                raise RunFailed(f"the neighbour ({row.neighbour}) ended with {each.returncode}")
    return Run(tail(latencies), each_second)


def _answers(counter: int) -> int:
    """Of all neighbours since this was last asked."""
    try:
        return os.eventfd_read(counter)
    except BlockingIOError:
        return 0


@contextlib.contextmanager
def _neighbour(
    row: Unlike, server: Server, models: Path, counter: int, rate: float
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works already, until the context ends; what it complains of goes to our own output."""
    kind = row.neighbour
    places = [server.address, f"localhost:{server.metrics}", str(models / RELOADED)]
    command = [sys.executable, "-m", "perf.neighbour", kind, *places, str(counter), str(rate)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env, pass_fds=(counter,)
    ) as found:
        try:
            assert found.stdout is not None
            if not select.select([found.stdout], (), (), NEIGHBOUR_STARTS_SECONDS_MAX)[0]:
                raise RunFailed(f"the neighbour ({kind}) was not answered in {NEIGHBOUR_STARTS_SECONDS_MAX:g} s")
            if not found.stdout.readline():
                raise RunFailed(f"the neighbour ({kind}) could not work")
            yield found
        finally:
            found.kill()


def repository(group: Group, folder: Path) -> Path:
    """The models that both servers serve for a group; what is reloaded is a copy in this folder."""
    if group == "mixed":
        return MIXED_MODELS
    ignored = shutil.ignore_patterns("__pycache__")
    for model in ("add_sub", "identity_fp32"):
        shutil.copytree(EXAMPLES.models / model, folder / model, ignore=ignored)
    shutil.copytree(PIPELINES.models / "identity_1", folder / RELOADED, ignore=ignored)
    return folder


def beside_triton(rows: Sequence[Unlike], rounds: int, failures: list[str], show: Callable[[str], None]) -> list[Found]:
    """Every row; what fails is told and left out.  A server that died is started again for the next row."""
    found: list[Found] = []
    for group in dict.fromkeys(row.group for row in rows):
        left = [row for row in rows if row.group == group][::-1]
        with tempfile.TemporaryDirectory() as folder:
            models = repository(group, Path(folder))
            while left:
                _until_death(left, models, rounds, found, failures, show)
    return found


def _until_death(
    left: list[Unlike],
    models: Path,
    rounds: int,
    found: list[Found],
    failures: list[str],
    show: Callable[[str], None],
) -> None:
    flags = () if left[0].group == "mixed" else EXPLICIT
    with Server("triton", [models], flags) as a, Server("tisfast", [models], flags) as b:
        while left:
            row = left.pop()
            try:
                found.append(measure(row, (a, b), models, rounds))
            except RunFailed as e:
                failures.append(str(e))
                show(f"FAILED {str(e)[:600]}")
                if isinstance(e, ServerDied):
                    return
                continue
            show(unlike_row(found[-1]))


UNLIKE_HEAD: Final = (
    "| case | Triton p50 ms | tisfast | ratio | at most | | Triton p99 ms | tisfast | ratio | at most | "
    "| Triton longest ms | tisfast | ratio | at most | | a neighbour, 1/s: Triton | tisfast |\n" + "|---" * 18 + "|"
)


def unlike_row(found: Found) -> str:
    """A line under UNLIKE_HEAD."""
    cells = [found.row.line()]
    for name in Tail._fields:
        ratio, most = getattr(found.ratio, name), found.row.most.get(name)
        cells += [f"{getattr(side, name):.2f}" for side in (found.a, found.b)] + [f"{ratio:.2f}"]
        cells += ["", ""] if most is None else [f"{most:.2f}", "met" if ratio <= most else "**missed**"]
    cells += [f"{rate:.1f}" if found.row.neighbours else "" for rate in found.beside]
    return "| " + " | ".join(cells) + " |"
