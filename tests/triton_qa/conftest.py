"""The checkout that TISFAST_TRITON_CHECKOUT names, and a server for each suite."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.system.helpers import until
from tests.triton_qa.checkout import qa_folder
from tests.triton_qa.layout import STAND_INS, Layout
from tests.triton_qa.suites import Suite

ROOT = Path(__file__).parents[2]
SHARED = ("common", "python_models", "custom_models")
PORTS = (8000, 8001, 8002)
START_SECONDS_MAX = 60
END_SECONDS_MAX = 60
LOG_NAME = re.compile(r'"([\w.]*server\.log)"')


class Running:
    """A server with one suite's models, in a copy of the suite's folder."""

    def __init__(self, suite: Suite, qa: Path, scratch: Path) -> None:
        self.suite = suite
        for shared in SHARED:
            shutil.copytree(qa / shared, scratch / "qa" / shared)
        if suite.folder == BACKEND:
            (scratch / "qa" / BACKEND).mkdir()
            for file in (qa / BACKEND).glob("*.py"):
                shutil.copy(file, scratch / "qa" / BACKEND)
        else:
            shutil.copytree(qa / suite.folder, scratch / "qa" / suite.folder)
            for file in (qa / suite.folder).parent.glob("test_*.py"):
                shutil.copy(file, (scratch / "qa" / suite.folder).parent)
        self.folder = scratch / "qa" / suite.folder
        self.models = scratch / "models"
        self.models.mkdir()
        self.backends = scratch / "backends"  # configurations that tests send name them
        for file in STAND_INS.glob("*.py"):
            (self.backends / file.stem).mkdir(parents=True)
            shutil.copy(file, self.backends / file.stem / "model.py")
        suite.models(Layout(qa, self.models))
        self.log = scratch / "server.log"
        if suite.file:  # tests read the log under a name that Triton's `test.sh` gives it
            for name in LOG_NAME.findall((self.folder / suite.file.partition("::")[0]).read_text()):
                (self.folder / name).symlink_to(self.log)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it need not become ready."""
        flags = [f"--model-repository={self.models}", f"--backend-directory={self.backends}", *self.suite.flags]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tisfast", "serve", *flags],
                cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT), **self.suite.server_env},
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def ready(self) -> None:
        """Start it and wait until it serves."""
        self.start()
        until(lambda: self.process.poll() is not None or b" is ready after " in self.log.read_bytes(), "it is ready",
              START_SECONDS_MAX)  # fmt: skip
        assert self.process.poll() is None, self.log.read_text()

    def refuses(self) -> str:
        """Start it and wait until it has ended; returns its log."""
        self.start()
        assert self.process.wait(START_SECONDS_MAX) == 1
        return self.log.read_text()

    def end(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(END_SECONDS_MAX)

    def run(self, file: str, test: str, seconds: float, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """One test of Triton's, in a process of its own.  test: Class.test.

        Its collector of results wants to be run by unittest; files without one by pytest.
        """
        text = (self.folder / file).read_text()
        if "TestResultCollector" in text or "import sequence_util" in text:
            how = [file, test]
        else:
            name = f"{file}::{test.replace('.', '::')}"
            how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(self.folder), name]
        modules = str(Path(__file__).with_name("modules"))
        # Machines of TEST_JETSON have no pool of memory whose leaks are looked for.
        more = {"PYTHONPATH": modules, "SERVER_LOG": str(self.log), "TEST_JETSON": "1"}
        return subprocess.run(
            [sys.executable, *how], cwd=self.folder, capture_output=True, text=True, timeout=seconds, check=False,
            env={**os.environ, **more, **env},
        )  # fmt: skip


BACKEND = "L0_backend_python"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Servers]:
    """The server of a suite: the last one's goes on while its tests do."""
    kept = _Servers(tmp_path_factory)
    yield kept
    kept.end()


class _Servers:
    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._last: Running | None = None

    def of(self, suite: Suite) -> Running:
        if self._last is not None and self._last.suite is suite and not suite.alone:
            return self._last
        self.end()
        qa = qa_folder()
        assert qa is not None
        self._last = Running(suite, qa, self._folders.mktemp(suite.name))
        if not suite.refused:
            self._last.ready()
        return self._last

    def end(self) -> None:
        if self._last is not None:
            self._last.end()
            self._last = None
