"""Rows that say whether a cost grows with its number: connections, models, instances; few beside many, tisfast alone.

Each row has the cost of one at both numbers, so a ratio of 1 is linear growth.
"""

from __future__ import annotations

import contextlib
import http.client
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perf.bars import EXAMPLES
from perf.clients import Load
from perf.clients import measure as run_load
from perf.compare import address
from perf.figures import RunFailed
from perf.oracle.server import Server

GROUP: Final = "growth"
CONNECTIONS: Final = (1_000, 12_000)
MODELS: Final = (50, 200)
INSTANCES: Final = (1, 16)
EXECUTION_MS: Final = 20
DESCRIPTORS: Final = CONNECTIONS[1] + 1_000  # of the client, and of the server
CODE: Final = f"""
import time

import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep({EXECUTION_MS / 1e3})
        tensors = [pb_utils.get_input_tensor_by_name(request, "INPUT0") for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", each.as_numpy())]) for each in tensors]
"""
CONFIG: Final = """
backend: "python"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1, 4 ] } ]
instance_group [ { kind: KIND_CPU count: %d } ]
"""
SLEEPER: Final = "sleeper"


class Scaling(NamedTuple):
    """One row.  measure: the cost of one at a number, in `unit`, from a run of so many seconds; most: of the ratio."""

    title: str
    unit: str
    few: int
    many: int
    measure: Callable[[int, float], float]
    most: float

    def line(self) -> str:
        """What selects this row (perf.bench --only)."""
        return f"{GROUP}: {self.title}, {self.few} and {self.many}"


class Scaled(NamedTuple):
    """A row and what it found: the medians."""

    row: Scaling
    few: float
    many: float

    @property
    def ratio(self) -> float:
        """The cost of one of many over that of one of few."""
        return self.many / self.few

    @property
    def met(self) -> bool:
        """Whether the ratio is within the bar."""
        return self.ratio <= self.row.most

    def facts(self) -> dict[str, float | str | bool]:
        """For programs."""
        return {"title": self.row.line(), "unit": self.row.unit, "few": self.few, "many": self.many,
                "ratio": self.ratio, "most": self.row.most, "met": self.met}  # fmt: skip


def memory_of_connections(count: int, _: float) -> float:
    """Kilobytes of the server for an idle connection that was answered once."""
    with Server("tisfast", [EXAMPLES.models]) as server:
        before = server.pss_bytes()
        with idle(server, count):
            return (server.pss_bytes() - before) / 1e3 / count


def request_beside_connections(count: int, seconds: float) -> float:
    """Microseconds of a request of eight connections beside idle ones."""
    with Server("tisfast", [EXAMPLES.models]) as server, idle(server, count):
        return 1e6 / run_load(Load("wrk", "bin4", 8), address(server), seconds).rate


def start_of_models(count: int, _: float) -> float:
    """Milliseconds of the start for each model."""
    with tempfile.TemporaryDirectory() as folder:
        for n in range(count):
            write_model(Path(folder), f"{SLEEPER}{n}", 1)
        with Server("tisfast", [folder]) as server:
            return server.start_seconds * 1e3 / count


def execution_of_instances(count: int, seconds: float) -> float:
    """Milliseconds of an instance for an execution, where two clients ask each of them."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), SLEEPER, count)
        with Server("tisfast", [folder]) as server:
            rate = run_load(Load("wrk", f"{SLEEPER}/bin1x4", 2 * count), address(server), seconds).rate
            return 1e3 * count / rate


def write_model(folder: Path, name: str, instances: int) -> None:
    """A model whose execution takes EXECUTION_MS."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(CODE)
    (folder / name / "config.pbtxt").write_text(CONFIG % instances)


@contextlib.contextmanager
def idle(server: Server, count: int) -> Iterator[None]:
    """So many connections, each of which was answered once."""
    with contextlib.ExitStack() as held:
        for _ in range(count):
            connection = held.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.http)))
            connection.request("GET", "/v2/health/live")
            if connection.getresponse().read() != b'{"live":true}':
                raise RunFailed("a connection was not answered")
        yield


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    """As many descriptors as this process, and what it starts, needs.  Raises RunFailed where it may not have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise RunFailed(f"a process may have {hard} descriptors here, and {count} are needed: ulimit -H -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


SCALING: Final = (
    Scaling("memory of an idle connection", "kB", *CONNECTIONS, memory_of_connections, 1.2),
    Scaling("a request beside idle connections", "us", *CONNECTIONS, request_beside_connections, 1.1),
    Scaling("time until ready, for each model", "ms", *MODELS, start_of_models, 1.2),
    Scaling("an execution of 20 ms, for each instance", "ms", *INSTANCES, execution_of_instances, 1.1),
)
SCALING_HEAD: Final = "| what | few | many | ratio | at most | |\n|---|---|---|---|---|---|"
SECONDS_EACH: Final = 10.0
"""About, for the forecast: of one row in one round."""


def scaling_row(found: Scaled) -> str:
    """A line under SCALING_HEAD."""
    row = found.row
    cells = [row.line(), *(f"{value:.2f} {row.unit}" for value in (found.few, found.many))]
    cells += [f"{found.ratio:.2f}", f"{row.most:.2f}", "met" if found.met else "**missed**"]
    return "| " + " | ".join(cells) + " |"


def measure(row: Scaling, rounds: int, seconds: float) -> Scaled:
    """Few, many, few, many, ...: medians.  Raises RunFailed."""
    with descriptors(DESCRIPTORS):
        runs = [[row.measure(count, seconds) for count in (row.few, row.many)] for _ in range(rounds)]
    return Scaled(row, *(statistics.median(each) for each in zip(*runs, strict=True)))


def grown(
    rows: list[Scaling], rounds: int, seconds: float, failures: list[str], show: Callable[[str], None]
) -> list[Scaled]:
    """Every row; what fails is told and left out."""
    found = []
    for row in rows:
        try:
            found.append(measure(row, rounds, seconds))
        except RunFailed as e:
            failures.append(f"{row.line()}: {e}")
            show(f"FAILED {failures[-1]}")
            continue
        show(scaling_row(found[-1]))
    return found
