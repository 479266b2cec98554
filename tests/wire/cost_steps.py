"""Counts the instructions that inputs cost, in a process of its own under valgrind."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).parent


def why_not():
    """Why instructions cannot be counted here; "" where they can."""
    if not shutil.which("valgrind"):
        return "valgrind is missing"
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        return "valgrind and AddressSanitizer do not go together"
    return ""


class Counter:
    """Of the process that it is in, which valgrind runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._library = ctypes.CDLL(str(folder / "steps.so"))

    def steps(self, take, *arguments):
        """Instructions of take(*arguments)."""
        self._library.steps_begin()
        take(*arguments)
        self._library.steps_end()
        (dump,) = self._folder.glob("dump.*")
        found = re.search(r"^(?:summary|totals): (\d+)$", dump.read_text(), re.MULTILINE)
        dump.unlink()
        return int(found[1])


def counted(cases: Iterable[tuple[str, bytes]], folder: Path) -> list[int]:
    """Instructions of each: the kind, and what is taken."""
    (folder / "cases").write_bytes(pickle.dumps(list(cases)))
    run_counted("tests.wire.cost_steps", folder)
    return pickle.loads((folder / "counts").read_bytes())


def run_counted(program: str, folder: Path, *arguments: str) -> None:
    """Run a module that has a Counter of this folder."""
    cc = os.environ.get("CC", "cc").split()
    subprocess.run([*cc, "-O1", "-shared", "-fPIC", "-o", folder / "steps.so", HERE / "cost_steps.c"], check=True)
    found = subprocess.run(
        [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/dump", "--instr-atstart=no",
            sys.executable, "-m", program, folder, *arguments,
        ],
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-4000:]


def main(folder: Path) -> None:
    """Count what lies in the folder."""
    from tests.wire.cost_kinds import taken  # noqa: PLC0415 - the server, which who only starts this need not import

    counter, counts = Counter(folder), []
    for kind, data in pickle.loads((folder / "cases").read_bytes()):
        taken(kind, b"")  # so that what is made once is there
        counts.append(counter.steps(taken, kind, data))
    (folder / "counts").write_bytes(pickle.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
