"""A GPU, or a reason to skip; and clients' processes with memory on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.conftest import serve, write_model  # noqa: F401 - fixtures
from tisfast.native.cuda import Cuda, CudaMissing


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """This machine's GPUs."""
    try:
        return Cuda()
    except CudaMissing as error:
        pytest.skip(f"no GPU: {error}")


class Exported:
    """Device memory of another process."""

    def __init__(self, nbytes: int) -> None:
        script = str(Path(__file__).parent / "exporter.py")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, script, str(nbytes)], stdin=pipe, stdout=pipe, text=True)
        self.nbytes = nbytes
        self.handle = bytes.fromhex(self._line())

    def write(self, data: bytes) -> None:
        """Its first bytes."""
        self._tell(f"write {data.hex()}")
        assert self._line() == "ok"

    def read(self, nbytes: int) -> bytes:
        """Its first bytes."""
        self._tell(f"read {nbytes}")
        return bytes.fromhex(self._line())

    def end(self) -> None:
        """The client goes, and its memory with it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the exporting process has ended; its stderr says why"
        return line


@pytest.fixture
def export(cuda: Cuda) -> Iterator[Callable[[int], Exported]]:
    """Make device memory of so many bytes in a process of its own."""
    made: list[Exported] = []

    def start(nbytes: int) -> Exported:
        made.append(Exported(nbytes))
        return made[-1]

    yield start
    for each in made:
        each.end()
