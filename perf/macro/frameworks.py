"""What serving costs beside a framework itself: tensors passed on, one network, weights of several instances.

    make bench-backends                          # all rows, and a forest beside MLServer (perf.macro.forests)
    python -m perf.macro.frameworks              # these; needs torch, onnx and onnxruntime; 3 minutes
    python -m perf.macro.frameworks --framework TorchScript --only network

| row | A | B |
|---|---|---|
| identity | tisfast's Python identity | the same by a framework, in the same server, over HTTP by perf_analyzer |
| network | the bare call, in this process | the same network, served, over HTTP by wrk with one connection |
| memory | the server with one instance of a model with 200 MB of weights, proportional | the same with four |

A and B alternate, medians are shown, and the ratio B / A with its bar.  The bare call has as many threads as an
instance, and the machine to itself; the served one shares it with the server and the client.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from perf import machine
from perf.clients import Load, perf_analyzer
from perf.compare import complaining
from perf.figures import Figures, middle
from perf.macro.framework_models import FRAMEWORKS, IMAGE, LARGE_MB, Call, Framework
from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from perf.table import mark
from perf.wrk import wrk

SIZES: Final = {"600 KB": 150_528, "16 MB": 4_194_304}
INSTANCES: Final = 4
WARM_CALLS: Final = 20
WARM_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 3.0
IDENTITY_MOST, NETWORK_MOST, MEMORY_MOST = 1.25, 1.10, 1.3
CONFIG: Final = """
backend: "{backend}" max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {given} ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {made} ] }} ]
instance_group {{ count: {count} kind: KIND_CPU }}
"""


class Row(NamedTuple):
    """One line of the table.  a, b: medians in `unit`."""

    title: str
    unit: str
    a: float
    b: float
    most: float

    @property
    def is_met(self) -> bool:
        """Whether the ratio is within its bar."""
        return self.b / self.a <= self.most

    def __str__(self) -> str:
        """A line under HEAD."""
        cells = [self.title, f"{self.a:.2f} {self.unit}", f"{self.b:.2f} {self.unit}", f"{self.b / self.a:.2f}"]
        return f"| {' | '.join([*cells, str(self.most), mark(self.is_met)])} |"


HEAD: Final = "| row | A | B | B / A | at most | |\n|---|---|---|---|---|---|"


class Effort(NamedTuple):
    """rounds: of A and B in turn; seconds: of a run."""

    rounds: int
    seconds: float


def write(home: Path, backend: str, model: Callable[[Path], None], dims: tuple[str, str], count: int = 1) -> Path:
    """A model in `home`, of so many instances; its version's folder.  dims: of what it takes and gives."""
    version = home / "1"
    version.mkdir(parents=True)
    model(version)
    text = CONFIG.format(backend=backend, given=dims[0], made=dims[1], count=count)
    (home / "config.pbtxt").write_text(text)
    return version


def identities(chosen: dict[str, Framework], effort: Effort, folder: Path) -> Iterator[Row]:
    """Tensors passed on, by frameworks beside a Python model."""
    models = folder / "identities"
    for name, framework in chosen.items():
        write(models / name, framework.backend, framework.identity, ("-1", "-1"))
    with Server("tisfast", [ROOT / "examples/models", models]) as server:
        for size, count in SIZES.items():
            runs: dict[str, list[Figures]] = {name: [] for name in ("identity_fp32", *chosen)}
            for _ in range(effort.rounds):
                for name, found in runs.items():
                    load = Load("perf_analyzer", f"{name}:INPUT0:{count}", 1)
                    found.append(perf_analyzer(load, server.address, effort.seconds, [server.pid]))
            medians = {name: middle(found).p50 / 1e3 for name, found in runs.items()}
            for name in chosen:
                title = f"identity of {size}: Python, {name}; p50"
                yield Row(title, "ms", medians["identity_fp32"], medians[name], IDENTITY_MOST)


def network(name: str, framework: Framework, effort: Effort, folder: Path) -> Row:
    """One network, alone and served."""
    models = folder / f"network_{name}"
    version = write(models / "network", framework.backend, framework.network, (", ".join(map(str, IMAGE)), "1, 10"))
    call, array = framework.call(version), np.ones(IMAGE, np.float32)
    case = "network/bin" + "x".join(map(str, IMAGE))
    bare, served = [], []
    with Server("tisfast", [models]) as server:
        wrk(server.address, case, 1, WARM_SECONDS)
        for _ in range(effort.rounds):
            bare.append(_p50_ms(call, array, effort.seconds))
            served.append(wrk(server.address, case, 1, effort.seconds).p50 / 1e3)
    a, b = statistics.median(bare), statistics.median(served)
    return Row(f"{name} network: bare call, served, concurrency 1; p50", "ms", a, b, NETWORK_MOST)


def _p50_ms(call: Call, array: np.ndarray, seconds: float) -> float:
    for _ in range(WARM_CALLS):
        call(array)
    took, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call(array)
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def memory(name: str, framework: Framework, folder: Path) -> Row:
    """Proportional memory of server and workers, with one instance and with several, when all have been busy."""
    found = []
    for count in (1, INSTANCES):
        models = folder / f"memory_{name}_{count}"
        write(models / "large", framework.backend, framework.large, ("1, 64", "1, 10"), count)
        with Server("tisfast", [models], [f"--environment-cache-dir={folder / 'cache'}"]) as server:
            wrk(server.address, "large/bin1x64", 2 * INSTANCES, BUSY_SECONDS)
            found.append(server.pss_bytes() / 1e6)
    return Row(f"{name}, {LARGE_MB} MB of weights: 1 instance, {INSTANCES} instances; Pss", "MB", *found, MEMORY_MOST)


def rows(chosen: dict[str, Framework], effort: Effort, only: str) -> Iterator[Row]:
    """All rows whose kind is wanted, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if re.search(only, "identity"):
            yield from identities(chosen, effort, folder)
        for each, framework in chosen.items():
            if re.search(only, "network"):
                yield network(each, framework, effort, folder)
            if re.search(only, "memory"):
                yield memory(each, framework, folder)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append", help="default: all")
    parser.add_argument("--only", default="", metavar="REGEX", help="kinds of rows: identity, network, memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run, or of a window of perf_analyzer")
    options = parser.parse_args()
    chosen = {name: FRAMEWORKS[name] for name in options.framework or FRAMEWORKS}
    busy = machine.busy_share(LOOK_SECONDS)
    print(f"Other processes took {busy:.0%} of the machine before the run.\n\n{HEAD}", flush=True)
    for row in rows(chosen, Effort(options.rounds, options.seconds), options.only):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(complaining(main))
