"""The worker reads and writes the records of tests/golden as they stand there: compiled, and interpreted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import load
from tests.workers.driver import ROOT, WORKERS

ARENA_BYTES = 1 << 20
RECORD_AT = 64 << 10


def check() -> None:
    """In a process whose tisfast_worker is of the form that is tested."""
    from tests.workers.golden_reader import answer_as_written, request_as_read

    for golden in load("requests"):
        assert request_as_read(golden, RECORD_AT) == golden.meaning, golden
    for golden in load("answers"):
        assert answer_as_written(golden) == golden.block, golden


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worker's sources, with nothing compiled beside them but the library."""
    folder = tmp_path_factory.mktemp("interpreted")
    for path in WORKERS.glob("**/*.py"):
        to = folder / path.relative_to(WORKERS)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    shutil.copy(WORKERS / "libtisfast_shm.so", folder)
    return folder


@pytest.mark.parametrize("form", ["compiled", "interpreted"])
def test_records_mean_to_the_worker_what_stands_there(form: str, interpreted: Path) -> None:
    """Compiled is what this environment has; `make test-debug` has the interpreted form alone."""
    folder = interpreted if form == "interpreted" else WORKERS
    code = "import sys, tisfast_worker.record as r; from tests.workers.test_golden_forms import check; check()"
    code += "; print(r.__file__)"
    environ = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(folder))
