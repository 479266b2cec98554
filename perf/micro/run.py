"""Run the micro benchmarks and write one table: so that a slower server has an address.

See perf/micro/README.md for what a benchmark prints.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from perf import machine
from perf.oracle.launch import ROOT

FOLDER: Final = Path(__file__).resolve().parent
RESULTS: Final = ROOT / "perf/results"
SECONDS_MAX: Final = 120


class MicroFailed(RuntimeError):
    """A benchmark ended badly or printed what is no figure."""


class Row(NamedTuple):
    """One operation over all runs, in ns."""

    name: str
    least: float
    median: float


def names(wanted: list[str]) -> list[str]:
    """All benchmarks, or those wanted; raises MicroFailed for one that is not there."""
    found = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in {"run", "__init__"})
    if unknown := set(wanted) - set(found):
        raise MicroFailed(f"no micro benchmark {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return wanted or found


def run_once(name: str) -> dict[str, float]:
    """One run in a process of its own: ns by operation."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, str(FOLDER / f"{name}.py")]
    try:
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired as e:
        raise MicroFailed(f"{name}: did not end within {SECONDS_MAX} s") from e
    if done.returncode:
        raise MicroFailed(f"{name}: ended with {done.returncode}\n{done.stderr[-2000:]}")
    return dict(parse(name, line) for line in done.stdout.splitlines() if line.strip())


def parse(benchmark: str, line: str) -> tuple[str, float]:
    """`name ns` as a pair."""
    try:
        name, ns = line.split()
        return name, float(ns)
    except ValueError as e:
        raise MicroFailed(f"{benchmark}: printed {line!r}; a line is `name ns_per_op`") from e


def measure(name: str, rounds: int) -> list[Row]:
    """Some runs of one benchmark."""
    runs = [run_once(name) for _ in range(rounds)]
    return [Row(op, min(r[op] for r in runs), statistics.median(r[op] for r in runs)) for op in runs[0]]


def markdown(rows: list[Row], before: dict[str, float]) -> str:
    """The table; with the least of an earlier run and the ratio to it where there is one."""
    lines = [
        "# Micro benchmarks",
        "",
        f"{machine.processor()}, {machine.cores()} cores; commit `{machine.commit()}`; Python {sys.version_info[:2]}.",
        "",
        "| operation | least ns | median ns |" + (" before | ratio |" if before else ""),
        "|---|---|---|" + ("---|---|" if before else ""),
    ]
    for row in rows:
        old = before.get(row.name)
        earlier = f" {old:.1f} | {row.least / old:.2f} |" if old else " | |" if before else ""
        lines.append(f"| {row.name} | {row.least:.1f} | {row.median:.1f} |{earlier}")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="JSON of an earlier run, to compare with")
    return parser.parse_args()


def main() -> int:
    """Measure, print, and write a whole run."""
    options = _options()
    before = {r["name"]: r["least"] for r in json.loads(options.against.read_text())} if options.against else {}
    rows: list[Row] = []
    failed = 0
    try:
        wanted = names(options.names)
    except MicroFailed as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    for name in wanted:
        try:
            rows += measure(name, options.rounds)
        except MicroFailed as e:
            failed += 1
            print(f"error: {e}", file=sys.stderr)
    page = markdown(rows, before)
    print(page)
    if not options.names and not failed:
        target = RESULTS / f"micro-{machine.slug()}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page)
        target.with_suffix(".json").write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
