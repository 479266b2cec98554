"""How much of each package its own folder of tests runs:  python -m tests.coverage.measure [PACKAGE...]

`make coverage` builds what this needs: Cython modules that trace their lines, with the C code beside them.  The tests
of each package run in a process of their own.  What processes do that they start is counted, too, unless these are
killed.  Of Python lines and branches are counted, of Cython lines.  What did not run is listed in reports/PACKAGE.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import coverage
from coverage.exceptions import CoverageException

from tests.coverage.code_lines import lines_in
from tests.coverage.floors import FLOORS, Counts, Measured, shortfalls, spans, table

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = ROOT / "reports"
TESTS_SECONDS_MAX: Final = 1800
"""Of one package."""
PLUGIN: Final = "Cython.Coverage.Plugin"
NOT_TRACED: Final = ("tests/wire/test_costs.py",)
"""Tests that count memory or instructions, which tracing changes."""
SAID_LINES_MAX: Final = 40
SETTINGS: Final = """[run]
branch = true
core = ctrace
plugins = Cython.Coverage
patch = subprocess, _exit
data_file = {folder}/data
source = {source}
omit =
    *.pxd
    */testing.pyx
    */testing_*.pyx
"""


class Package(NamedTuple):
    """What is measured: a folder of tisfast/ by that of tests/."""

    name: str

    @property
    def folder(self) -> Path:
        """Of its code."""
        return ROOT / "tisfast" / self.name

    @property
    def tests(self) -> Path:
        """Of its tests."""
        return ROOT / "tests" / self.name

    @property
    def settings(self) -> Path:
        """What coverage.py reads."""
        return REPORTS / self.name / "settings"

    def sources(self) -> list[Path]:
        """Its modules, but for what is made for tests."""
        return sorted(path for kind in ("*.py", "*.pyx") for path in self.folder.rglob(kind) if not for_tests(path))

    def test_files(self) -> list[Path]:
        """Tests and their helpers."""
        return sorted(self.tests.rglob("*.py"))


class Ran(NamedTuple):
    """The tests of one package."""

    package: Package
    passed: bool
    seconds: float
    said: str


def for_tests(path: Path) -> bool:
    """Whether a module of a package is there for tests alone."""
    return path.stem.partition("_")[0] == "testing"


def packages() -> list[Package]:
    """All of tisfast/."""
    return [Package(path.parent.name) for path in sorted(ROOT.glob("tisfast/[!_]*/__init__.py"))]


def run(package: Package) -> Ran:
    """Run its tests, if it has some."""
    folder = package.settings.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    package.settings.write_text(SETTINGS.format(folder=folder, source=package.folder))
    if not package.tests.is_dir():
        return Ran(package, True, 0, "no tests")
    began = time.monotonic()
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={package.settings}", "-m", "pytest", "-q"]
    command += [str(package.tests), "-p", "no:cacheprovider", *(f"--ignore={path}" for path in NOT_TRACED)]
    with (folder / "log").open("w+") as log:
        try:
            code = subprocess.run(
                command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, timeout=TESTS_SECONDS_MAX, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
            log.write(f"ended after {TESTS_SECONDS_MAX} s\n")
        log.seek(0)
        said = "".join(log.readlines()[-SAID_LINES_MAX:])
    return Ran(package, code == 0, time.monotonic() - began, said)


def read(package: Package) -> Measured:
    """What ran, file by file into its report, and all of it together."""
    counts, listed = Counts(0, 0, 0, 0), []
    sources = package.sources()
    measured = joined(package, [path for path in sources if path.suffix == ".pyx"])
    if measured is not None:
        for path in sources:
            of_file, text = read_file(measured, path)
            counts += of_file
            listed.append(text)
        (REPORTS / f"{package.name}.txt").write_text("\n".join(listed) + "\n")
    return Measured(package.name, counts, lines_in(sources), lines_in(package.test_files()))


def joined(package: Package, cython: list[Path]) -> coverage.Coverage | None:
    """What all processes have run, None where none has told.  A Cython module that none has imported is code, too."""
    folder = package.settings.parent
    data = coverage.CoverageData(str(folder / "joined"))
    for path in sorted(folder.glob("data.*")):
        with contextlib.suppress(CoverageException):  # of a process that was killed while it wrote
            part = coverage.CoverageData(str(path))
            part.read()
            if all(part.file_tracer(file) == PLUGIN for file in part.measured_files() if file.endswith(".pyx")):
                data.update(part)
    if not data.measured_files():
        return None
    for path in cython:
        data.touch_file(str(path), PLUGIN)
    data.close()
    measured = coverage.Coverage(config_file=str(package.settings), data_file=str(folder / "joined"))
    measured.load()
    return measured


def read_file(measured: coverage.Coverage, path: Path) -> tuple[Counts, str]:
    """Counts of one file, and a line that names what did not run."""
    _, lines, _, missing, _ = measured.analysis2(str(path))
    ways = measured.branch_stats(str(path)) if path.suffix == ".py" else {}
    untaken = [line for line, (there, taken) in sorted(ways.items()) if taken < there and line not in missing]
    counts = Counts(
        len(lines), len(lines) - len(missing), sum(n for n, _ in ways.values()), sum(n for _, n in ways.values())
    )
    text = f"{path.relative_to(ROOT)}: {counts.lines_run} of {counts.lines} lines"
    if counts.branches:
        text += f", {counts.branches_run} of {counts.branches} branches"
    if missing:
        text += f"; lines that did not run: {spans(missing)}"
    if untaken:
        text += f"; branches taken one way only: {spans(untaken)}"
    return counts, text


def main() -> int:
    """Measure, print, judge; returns the exit code."""
    known = {package.name: package for package in packages()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(known)}; all when none is named")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), help="packages at one time")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.packages) - set(known))
    if unknown:
        parser.error(f"no such package: {', '.join(unknown)}; known are {', '.join(known)}")
    wanted = [known[name] for name in chosen.packages or known]
    failed = []
    with ThreadPoolExecutor(max(1, chosen.at_once)) as pool:
        for ran in pool.map(run, wanted):
            print(f"{ran.package.name}: {ran.said.strip().rpartition(chr(10))[2]} ({ran.seconds:.0f} s)", flush=True)
            if not ran.passed:
                print(ran.said)
                failed.append(f"{ran.package.tests} failed; all of it is in {ran.package.settings.parent / 'log'}")
    found = [read(package) for package in wanted]
    print(f"\n{table(found, FLOORS)}\n\nwhat did not run: {REPORTS}/PACKAGE.txt")
    for sentence in (faults := failed + shortfalls(found, FLOORS)):
        print(sentence, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
