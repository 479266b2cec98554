"""Rows of perf.macro.frameworks that every framework has, and what a row is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from perf.clients import Load, perf_analyzer
from perf.compare import Effort
from perf.figures import Figures, middle
from perf.macro.framework_floor import least
from perf.macro.framework_models import CLASSES, IMAGE, LARGE_MB, Call, Framework
from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from perf.table import mark
from perf.wrk import wrk

SIZES: Final = {"600 KB": 150_528, "16 MB": 4_194_304}
INSTANCES: Final = 4
WARM_CALLS: Final = 20
WARM_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 3.0
IDENTITY_MOST, NETWORK_MOST, NETWORK_RATE_LEAST, MEMORY_MOST = 1.25, 1.10, 0.93, 1.3
CONFIG: Final = """
backend: "{backend}" max_batch_size: {batch}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {given} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {made} ] }} ]
instance_group {{ count: {count} kind: KIND_CPU }}
{more}
"""
HEAD: Final = "| row | A | B | B / A | bar | floor | |\n|---|---|---|---|---|---|---|"


class Row(NamedTuple):
    """One line of the table.  a, b: medians in `unit`; is_least: the ratio is to be high.

    floor: what the least program has in place of b, 0 for none: a bar that it misses, too, is met by whatever is there.
    """

    title: str
    unit: str
    a: float
    b: float
    bar: float
    is_least: bool = False
    floor: float = 0.0

    @property
    def is_met(self) -> bool:
        """Whether the ratio is on the right side of its bar, or no program's is."""
        return self._is_good(self.b) or bool(self.floor and not self._is_good(self.floor))

    def _is_good(self, value: float) -> bool:
        ratio = value / self.a
        return ratio >= self.bar if self.is_least else ratio <= self.bar

    def __str__(self) -> str:
        """A line under HEAD."""
        cells = [self.title, f"{self.a:.2f} {self.unit}", f"{self.b:.2f} {self.unit}", f"{self.b / self.a:.2f}"]
        bar = f"at {'least' if self.is_least else 'most'} {self.bar}"
        floor = f"{self.floor:.2f} {self.unit}" if self.floor else "-"
        return f"| {' | '.join([*cells, bar, floor, mark(self.is_met)])} |"


class Shape(NamedTuple):
    """What a configuration says of a model's tensors and instances.  more: further fields."""

    given: str
    made: str
    count: int = 1
    batch: int = 0
    more: str = ""


def write(home: Path, backend: str, model: Callable[[Path], None], shape: Shape) -> Path:
    """A model in `home`; its version's folder."""
    version = home / "1"
    version.mkdir(parents=True)
    model(version)
    (home / "config.pbtxt").write_text(CONFIG.format(backend=backend, **shape._asdict()))
    return version


def identities(chosen: dict[str, Framework], effort: Effort, folder: Path) -> Iterator[Row]:
    """Tensors passed on, by frameworks beside a Python model, and by the least servers of their calls."""
    models = folder / "identities"
    files = {
        name: write(models / name, framework.backend, framework.identity, Shape("-1", "-1"))
        for name, framework in chosen.items()
    }
    with ExitStack() as servers:
        server = servers.enter_context(Server("tisfast", [ROOT / "examples/models", models]))
        addresses = {(name, ""): server.address for name in ("identity_fp32", *chosen)}
        for name, version in files.items():
            addresses[name, "least"] = servers.enter_context(least(name, version, server))
        for size, count in SIZES.items():
            runs: dict[tuple[str, str], list[Figures]] = {key: [] for key in addresses}
            for _ in range(effort.rounds):
                for key, found in runs.items():
                    load = Load("perf_analyzer", f"{key[0]}:INPUT0:{count}", 1)
                    found.append(perf_analyzer(load, addresses[key], effort.seconds, [server.pid]))
            medians = {key: middle(found).p50 / 1e3 for key, found in runs.items()}
            for name in chosen:
                title = f"identity of {size}: Python, {name}; p50"
                a, b, floor = medians["identity_fp32", ""], medians[name, ""], medians[name, "least"]
                yield Row(title, "ms", a, b, IDENTITY_MOST, floor=floor)


def network(name: str, framework: Framework, effort: Effort, folder: Path) -> Iterator[Row]:
    """One network, alone, served, and behind the least server."""
    models = folder / f"network_{name}"
    shape = Shape(", ".join(map(str, (-1, *IMAGE[1:]))), f"-1, {CLASSES}")
    version = write(models / "network", framework.backend, framework.network, shape)
    call, array = framework.call(version), np.ones(IMAGE, np.float32)
    case = "network/bin" + "x".join(map(str, IMAGE))
    bare: list[Figures] = []
    runs: dict[str, list[Figures]] = {}
    with Server("tisfast", [models]) as server, least(name, version, server) as floor:
        for address in (server.address, floor):
            wrk(address, case, 1, WARM_SECONDS)
        for _ in range(effort.rounds):
            bare.append(alone(call, array, effort.seconds))
            for address in (server.address, floor):
                runs.setdefault(address, []).append(wrk(address, case, 1, effort.seconds))
        served, lowest = middle(runs[server.address]), middle(runs[floor])
    a, title = middle(bare), f"{name} network: bare call, served, concurrency 1"
    yield Row(f"{title}; p50", "ms", a.p50 / 1e3, served.p50 / 1e3, NETWORK_MOST, floor=lowest.p50 / 1e3)
    yield Row(f"{title}; rate", "/s", a.rate, served.rate, NETWORK_RATE_LEAST, is_least=True, floor=lowest.rate)


def alone(call: Call, array: np.ndarray, seconds: float) -> Figures:
    """One call after the other, without a server."""
    for _ in range(WARM_CALLS):
        call(array)
    took, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call(array)
        took.append((time.perf_counter() - began) * 1e6)
    return Figures(1e6 / statistics.fmean(took), statistics.median(took), max(took))


def memory(name: str, framework: Framework, folder: Path) -> Row:
    """Proportional memory of server and workers, with one instance and with several, when all have been busy."""
    found = []
    for count in (1, INSTANCES):
        models = folder / f"memory_{name}_{count}"
        write(models / "large", framework.backend, framework.large, Shape("1, 64", f"1, {CLASSES}", count))
        with Server("tisfast", [models], [f"--environment-cache-dir={folder / 'cache'}"]) as server:
            wrk(server.address, "large/bin1x64", 2 * INSTANCES, BUSY_SECONDS)
            found.append(server.pss_bytes() / 1e6)
    return Row(f"{name}, {LARGE_MB} MB of weights: 1 instance, {INSTANCES} instances; Pss", "MB", *found, MEMORY_MOST)
