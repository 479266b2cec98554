"""Measure two servers side by side, alternating, and print medians and the ratios B/A.

    python -m perf.compare --a triton --b tisfast --case add_sub --concurrency 1,4,16
    python -m perf.compare --a tree:../main --b tisfast --client wrk --case bin4 --case json4 --concurrency 1,8,32
    python -m perf.compare --a tree:../main --b tisfast --client h2load --case add_sub --concurrency 32
    python -m perf.compare --a triton --b tisfast --protocol grpc --case identity_fp32:INPUT0:150528 --shared 602112

A side is `triton`, `tisfast` (this one), `tree:FOLDER` (another built source tree of tisfast), all started here on
examples/models, or HOST:PORT of a server that runs already (HOST:PORT,HOST:PORT for its HTTP and its gRPC).  Each case
is measured A, B, A, B, ... and medians over the rounds are printed.  Only ratios within one run on one machine mean
something: latency ratios under 1 and rate ratios over 1 say that B is ahead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf.clients import ONLY, Address, Load, measure
from perf.figures import Figures, RunFailed, middle, ratio
from perf.oracle.install import OracleMissing
from perf.oracle.launch import ROOT
from perf.oracle.server import Kind, Server, StartFailed

SHARED_FLAGS: Final[dict[Kind, tuple[str, ...]]] = {"triton": (), "tisfast": ("--allow-client-shm=true",)}
"""Triton 2.51 has no such gate; newer ones ask for the same flag."""

HEADING: Final = (
    f"{'case':28} {'':4} {'client':>13} {'conc':>4} | {'A req/s':>8} {'B req/s':>8} {'ratio':>6} |"
    f" {'A p50us':>8} {'B p50us':>8} {'ratio':>6} | {'A p99us':>8} {'B p99us':>8} {'ratio':>6}"
)


class Pair(NamedTuple):
    """One load measured on both sides: medians over the rounds, and every run.

    close: the two runs of a round are compared with each other, and the ratio is the median of the rounds' ratios: what
    the machine does in seconds, or in minutes, then cancels out.
    """

    load: Load
    a: Figures
    b: Figures
    runs_a: list[Figures]
    runs_b: list[Figures]
    close: bool = False

    @property
    def ratio(self) -> Figures:
        """B over A."""
        return middle(self.ratios()) if self.close else ratio(self.a, self.b)

    def ratios(self) -> list[Figures]:
        """B over A in each round."""
        return [ratio(a, b) for a, b in zip(self.runs_a, self.runs_b, strict=True)]

    def line(self) -> str:
        """A row under HEADING."""
        parts = [f"{x:8.0f} {y:8.0f} {r:6.2f}" for x, y, r in zip(self.a, self.b, self.ratio, strict=True)]
        load = self.load
        return f"{load.case:28} {load.protocol} {load.client:>13} {load.concurrency:4} | " + " | ".join(parts)

    def facts(self) -> dict[str, object]:
        """All figures, for a JSON file."""
        named = {name: getattr(self, name).facts() for name in ("a", "b", "ratio")}
        runs = {name: [run.facts() for run in getattr(self, name)] for name in ("runs_a", "runs_b")}
        return {**self.load._asdict(), **named, **runs}


class Effort(NamedTuple):
    """How many rounds, and how long a run of each."""

    rounds: int
    seconds: float


def pair(load: Load, sides: tuple[Address, Address], effort: Effort, *, close: bool = False) -> Pair:
    """Measure A, B, A, B, ... (close: A, B, B, A, ...); raises RunFailed, naming the side."""
    runs: tuple[list[Figures], list[Figures]] = ([], [])
    for i in range(effort.rounds):
        for side in (1, 0) if close and i % 2 else (0, 1):
            try:
                runs[side].append(measure(load, sides[side], effort.seconds))
            except RunFailed as e:
                raise type(e)(f"{load}, side {'AB'[side]}: {e}") from e
    return Pair(load, middle(runs[0]), middle(runs[1]), *runs, close)


def together(pairs: Sequence[Pair]) -> Pair:
    """One pair of several that measured the same."""
    runs_a, runs_b = [run for each in pairs for run in each.runs_a], [run for each in pairs for run in each.runs_b]
    return Pair(pairs[0].load, middle(runs_a), middle(runs_b), runs_a, runs_b, pairs[0].close)


def address(server: Server) -> Address:
    """Where a server started here listens."""
    return Address(server.address, server.grpc_address, (server.pid,))


@contextlib.contextmanager
def side(wanted: str, repositories: Sequence[Path], *, shared: bool = False) -> Iterator[Address]:
    """The addresses of a side, started for the time of the context when it is not an address.

    shared: clients are to register shared memory, which tisfast must be told to allow.
    """
    if wanted not in {"triton", "tisfast"} and not wanted.startswith("tree:"):
        http, _, grpc = wanted.partition(",")
        yield Address(http, grpc)
        return
    tree = Path(wanted.removeprefix("tree:")).resolve() if wanted.startswith("tree:") else None
    kind: Kind = "triton" if wanted == "triton" else "tisfast"
    with Server(kind, repositories, SHARED_FLAGS[kind] if shared else (), tree=tree) as server:
        yield address(server)


def complaining(work: Callable[[], int]) -> int:
    """Run a program's body; known failures end it with their text and status 1, and SIGTERM as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return work()
    except (OracleMissing, StartFailed, RunFailed) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return 128 + signal.SIGINT


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", required=True, help="reference: triton, tisfast, tree:FOLDER or HOST:PORT")
    parser.add_argument("--b", required=True, help="under test: the same forms")
    parser.add_argument("--client", choices=("perf_analyzer", "wrk", "h2load"), default="perf_analyzer")
    parser.add_argument("--protocol", choices=("http", "grpc"), help="of perf_analyzer (default: http)")
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="system shared memory of each output")
    parser.add_argument(
        "--case", action="append", required=True, help="MODEL[:INPUT:DIMS]; binN / jsonN with wrk, add_sub with h2load"
    )
    parser.add_argument("--concurrency", default="1,4,16", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window of perf_analyzer, or a run of wrk")
    parser.add_argument("--repository", type=Path, action="append", help="for sides started here")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args()


def _loads(options: argparse.Namespace) -> Iterator[Load]:
    protocol = options.protocol or ONLY.get(options.client, "http")
    for case in options.case:
        for concurrency in map(int, options.concurrency.split(",")):
            yield Load(options.client, case, concurrency, protocol, options.shared)


def _compare(options: argparse.Namespace) -> int:
    repositories = options.repository or [ROOT / "examples/models"]
    effort = Effort(options.rounds, options.seconds)
    table: list[Pair] = []
    failed = 0
    shared = options.shared > 0
    with side(options.a, repositories, shared=shared) as a, side(options.b, repositories, shared=shared) as b:
        print(HEADING)
        for load in _loads(options):
            try:
                table.append(pair(load, (a, b), effort))
                print(table[-1].line(), flush=True)
            except RunFailed as e:
                failed += 1
                print(f"FAILED {str(e)[:600]}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([each.facts() for each in table], indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _compare(_chosen)))
