"""tisfast.pytriton beside the real PyTriton: the same program on both packages, measured in turn.

    python -m perf.beside_pytriton                      one table, about 3 minutes
    python -m perf.beside_pytriton --output perf/results    and a page of it, named after the machine

`make bench` has the same rows, `--only pytriton:`.  A ratio is ours over PyTriton's within this run.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from perf import machine
from perf.bars import Bar
from perf.clients import Address
from perf.compare import Effort, Pair, complaining, pair
from perf.figures import RunFailed
from perf.oracle.install import facts, install
from perf.oracle.launch import ROOT
from perf.oracle.ports import held_ports
from perf.oracle.server import descendants, pss_bytes, session
from perf.pytriton_rows import (
    BARS,
    BIND,
    GROUP,
    IDLE_CLIENTS,
    MEMORY,
    NUMBERS,
    NUMBERS_HEAD,
    PROCESSES,
    RUN,
    START,
    STOP,
    Beside,
    Number,
)
from perf.table import FOREIGN_BUSY_MAX, PYTRITON_HEAD, load_row, pytriton_lines

PACKAGES: Final = ("pytriton", "tisfast.pytriton")
HOST: Final = ROOT / "perf/pytriton_host.py"
ANSWER_SECONDS_MAX: Final = 120
IDLE_SECONDS: Final = 2.0
SECONDS_EACH_LOAD: Final = 5.0
SECONDS_OF_NUMBERS: Final = 55.0
"""About, for the forecast: PyTriton's stop takes 30 s of it."""
BUSY_SECONDS: Final = 3.0


class Results(NamedTuple):
    """All rows that could be measured."""

    loads: list[tuple[Bar, Pair]]
    numbers: list[Beside]

    def met(self) -> list[bool]:
        """Whether each row meets all its bars."""
        rows = [all(bar.verdicts(found.ratio).values()) for bar, found in self.loads]
        return rows + [each.met for each in self.numbers]


class Host:
    """A program with some models, started and told what to do.  http, grpc: its ports."""

    def __init__(self, package: str, models: Sequence[str]) -> None:
        """Nothing starts before `with`."""
        self._package, self._models = package, models
        self._left = contextlib.ExitStack()
        self.start_seconds = self.run_seconds = 0.0

    def __enter__(self) -> Host:
        """Return when the models can be asked.  Raises RunFailed."""
        with contextlib.ExitStack() as made:
            self._log = made.enter_context(tempfile.TemporaryFile())
            ports = made.enter_context(held_ports(3))
            self.http, self.grpc = ports[:2]
            self._told, pipe = os.pipe()
            made.callback(os.close, self._told)
            python, env = _python(self._package)
            env["PYTRITON_HOME"] = made.enter_context(tempfile.TemporaryDirectory())
            command = [python, str(HOST), self._package, str(pipe), *map(str, ports), ",".join(self._models)]
            began = time.perf_counter()
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env=env, pass_fds=(pipe,),
                    start_new_session=True,
                )  # fmt: skip
            finally:
                os.close(pipe)
            made.callback(self._kill)
            self.run_seconds = self._answer()
            self.start_seconds = time.perf_counter() - began
            self._left = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, by force where it does not end by itself."""
        self._left.close()

    @property
    def address(self) -> Address:
        """For load generators."""
        return Address(f"localhost:{self.http}", f"localhost:{self.grpc}", (self._process.pid,))

    def order(self, what: str) -> float:
        """Have it done: bind or stop.  Returns the seconds that it took.  Raises RunFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def pids(self) -> list[int]:
        """The program and all its descendants."""
        return [self._process.pid, *descendants(self._process.pid)]

    def connected(self) -> http.client.HTTPConnection:
        """A client that was answered once."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=ANSWER_SECONDS_MAX)
        connection.request("GET", "/v2/health/live")
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.client.OK:
            raise RunFailed(f"{self._package}: an idle client was answered {answer.status}")
        return connection

    def _answer(self) -> float:
        found = select.select([self._told], (), (), ANSWER_SECONDS_MAX)[0]
        line = os.read(self._told, 4096) if found else b""
        if not line:
            size = os.fstat(self._log.fileno()).st_size
            log = os.pread(self._log.fileno(), 3000, max(0, size - 3000)).decode(errors="replace")
            raise RunFailed(f"{self._package} gave no answer within {ANSWER_SECONDS_MAX} s:\n{log}")
        seconds: float = json.loads(line)["seconds"]
        return seconds

    def _kill(self) -> None:
        """Its server, too, which may be in a session of its own."""
        for pid in {*self.pids(), *session(self._process.pid)}:  # at once, so the numbers are still theirs
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def _python(package: str) -> tuple[str, dict[str, str]]:
    """The interpreter that has a package, and its environment.  The real one's stub links a libpython."""
    if package != PACKAGES[0]:
        return sys.executable, {**os.environ, "PYTHONPATH": str(ROOT)}
    python = install() / "server/bin/python"
    return str(python), {**os.environ, "LD_LIBRARY_PATH": facts(python).libraries}


def measure_loads(
    bars: Sequence[Bar], effort: Effort, failures: list[str], show: Callable[[str], None]
) -> list[tuple[Bar, Pair]]:
    """Both programs run; what fails is told and left out."""
    found: list[tuple[Bar, Pair]] = []
    models = ("add_sub", "identity_fp32")
    with Host(PACKAGES[0], models) as a, Host(PACKAGES[1], models) as b:
        for bar in bars:
            try:
                found.append((bar, pair(bar.load, (a.address, b.address), effort)))
            except RunFailed as e:
                failures.append(f"{bar.line()}: {e}")
                show(f"FAILED {failures[-1][:600]}")
                continue
            show(load_row(*found[-1]))
    return found


def measure_numbers(numbers: Sequence[Number], rounds: int) -> list[Beside]:
    """One program at a time, in turn.  Raises RunFailed."""
    runs: dict[str, list[dict[Number, float]]] = {package: [] for package in PACKAGES}
    for _ in range(rounds):
        for package in PACKAGES:
            runs[package].append(_numbers(package, stop=STOP in numbers))
    a, b = (
        {number: statistics.median(run[number] for run in runs[package]) for number in numbers} for package in PACKAGES
    )
    return [Beside(number, a[number], b[number]) for number in numbers]


def seconds(bars: Sequence[Bar], numbers: Sequence[Number], rounds: int) -> float:
    """About how long it takes."""
    return rounds * (2 * SECONDS_EACH_LOAD * len(bars) + SECONDS_OF_NUMBERS * bool(numbers))


def _numbers(package: str, *, stop: bool) -> dict[Number, float]:
    with Host(package, ("add_sub",)) as host, contextlib.ExitStack() as clients:
        time.sleep(IDLE_SECONDS)  # being idle is what is measured
        pids = host.pids()
        found = {
            START: host.start_seconds,
            RUN: host.run_seconds,
            PROCESSES: float(len(pids)),
            MEMORY: sum(map(pss_bytes, pids)) / 1e6,
            BIND: host.order("bind"),
        }
        if stop:
            for _ in range(IDLE_CLIENTS):
                clients.enter_context(contextlib.closing(host.connected()))
            found[STOP] = host.order("stop")
        return found


def beside_pytriton(
    bars: Sequence[Bar], numbers: Sequence[Number], effort: Effort, failures: list[str], show: Callable[[str], None]
) -> Results:
    """All rows; what fails is told and left out."""
    results = Results([], [])
    if bars:
        show(PYTRITON_HEAD)
        results.loads.extend(measure_loads(bars, effort, failures, show))
    if numbers:
        show(NUMBERS_HEAD)
        try:
            results.numbers.extend(measure_numbers(numbers, effort.rounds))
        except RunFailed as e:
            failures.append(str(e))
            show(f"FAILED {failures[-1][:600]}")
        for each in results.numbers:
            show(each.row())
    return results


def _page(results: Results, effort: Effort, busy: float, load: str) -> Iterator[str]:
    met = results.met()
    yield "# tisfast.pytriton beside the real PyTriton"
    yield ""
    yield f"{machine.processor()}, {machine.cores()} cores; commit `{machine.commit()}`; PyTriton 0.7.0 (Triton 2.51)."
    yield f"`python -m perf.beside_pytriton`: {effort.rounds} rounds, alternating, of {effort.seconds:g} s; medians."
    quiet = "" if busy <= FOREIGN_BUSY_MAX else "  **Not quiet: the verdicts below mean nothing.**"
    yield f"Other processes took {busy:.0%} of the machine before the run; load average {load}.{quiet}"
    yield f"{sum(met)} of {len(met)} rows meet all their bars.  How to read this: docs/benchmarks.md."
    yield from pytriton_lines(results.loads, results.numbers)


def main() -> int:
    """Measure, and write the page where one is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window of perf_analyzer, or a run of wrk")
    parser.add_argument("--output", type=Path, help="folder of the page")
    options = parser.parse_args()
    effort, failures = Effort(options.rounds, options.seconds), list[str]()
    install()
    busy, load = machine.busy_share(BUSY_SECONDS), ", ".join(f"{each:.2f}" for each in os.getloadavg())
    print(f"Other processes took {busy:.0%} of the machine before the run; load average {load}.", flush=True)
    results = beside_pytriton(BARS, NUMBERS, effort, failures, lambda line: print(line, flush=True))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        page = options.output / f"{GROUP}-{machine.slug()}.md"
        page.write_text("\n".join([*_page(results, effort, busy, load), *failures]) + "\n")
        print(f"written to {page}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(complaining(main))
