"""What PyTriton's functional tests are made with: scripts in threads, free ports, and looks at processes."""

from __future__ import annotations

import argparse
import logging
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

DEFAULT_LOG_FORMAT: Final = "%(asctime)s - %(levelname)8s - %(process)8d - %(threadName)s - %(name)s: %(message)s"
STOP_SECONDS_MAX: Final = 60.0
"""Until a script that got SIGINT is killed."""
log = logging.getLogger("tisfast.pytriton.check")


def find_free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
        return port


def search_warning_on_too_verbose_log_level(logs: str) -> bool:
    """Whether a server has warned of its verbose logs."""
    return "Triton Inference Server is running with enabled verbose logs" in logs


class ScriptThread(threading.Thread):
    """A program in a thread, and what it printed.  As a context manager it is started and stopped."""

    def __init__(  # noqa: PLR0913, PLR0917 - PyTriton's
        self,
        cmd: Sequence[str] | str,
        workdir: str | pathlib.Path | None = None,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        """cmd: with its arguments; workdir: where it runs."""
        super().__init__(group, target, name, tuple(args), kwargs, daemon=True)
        self.cmd = shlex.split(cmd) if isinstance(cmd, str) else [str(each) for each in cmd]
        self.workdir = workdir
        self.returncode: int | None = None
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._started_process = threading.Event()
        self._flag: threading.Event | None = None

    def start(self, flag: threading.Event | None = None) -> None:
        """Start it.  flag: set when it has printed something."""
        self._flag = flag
        super().start()
        self._started_process.wait()

    def run(self) -> None:
        """Until it ends."""
        try:
            self._process = subprocess.Popen(
                self.cmd,
                cwd=self.workdir,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        finally:
            self._started_process.set()
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.append(line)
                log.info("%s", line.rstrip())
                if self._flag is not None:
                    self._flag.set()
        self.returncode = process.returncode

    def stop(self) -> None:
        """Ctrl-C, and wait for its end; it is killed when that takes too long."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        self.join()

    def __enter__(self) -> ScriptThread:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def output(self) -> str:
        """What it printed so far."""
        return "".join(self._lines)

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """Its process."""
        return self._process


class ProcessMonitoring:
    """Looks at a process and its children, by /proc."""

    def __init__(
        self, pid: int, logger: logging.Logger | None = None, loglevel: int = logging.INFO, remove_color: bool = False
    ) -> None:
        """remove_color: for PyTriton's callers; nothing here has colours."""
        self._pid, self._log, self._level = pid, logger or log, loglevel
        self._monitors: list[Callable[[int], None]] = []

    def register_custom_monitor(self, custom_monitor: Callable[[int], None]) -> None:
        """Called with each process when the state is dumped."""
        self._monitors.append(custom_monitor)

    @property
    def children(self) -> list[int]:
        """Its children, and theirs."""
        found, waiting = [], [self._pid]
        while waiting:
            for task in pathlib.Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
                numbers = [int(each) for each in _read(task).split()]
                found += numbers
                waiting += numbers
        return found

    def dump_state(self) -> None:
        """Log command, state, memory and threads of all of them."""
        for pid in [self._pid, *self.children]:
            status = dict(line.partition(":")[::2] for line in _read(pathlib.Path(f"/proc/{pid}/status")).splitlines())
            facts = {name: status.get(name, "").strip() for name in ("Name", "State", "Threads", "VmRSS", "PPid")}
            self._log.log(self._level, "process %d: %s", pid, facts)
            for monitor in self._monitors:
                monitor(pid)


class ProcessMonitoringThread:
    """Dumps the state again and again."""

    def __init__(self, monitoring: ProcessMonitoring, interval: float = 60) -> None:
        """interval: seconds."""
        self._monitoring, self._interval = monitoring, interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tisfast-monitoring", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._end.set()
        self._thread.join()

    def __enter__(self) -> ProcessMonitoringThread:
        """Begin."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""
        self.stop()

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            self._monitoring.dump_state()


class TestMonitoringContext:
    """Looks at this process while a test runs, as its command line says."""

    __test__ = False

    @staticmethod
    def extend_args(parser: argparse.ArgumentParser) -> None:
        """Add its options."""
        parser.add_argument("--process-monitoring-interval", type=float, default=0.0, help="seconds; 0: not at all")

    def __init__(self, args: argparse.Namespace) -> None:
        """args: of a parser with `extend_args`."""
        interval = getattr(args, "process_monitoring_interval", 0.0)
        self._thread = ProcessMonitoringThread(ProcessMonitoring(os.getpid()), interval) if interval else None

    def __enter__(self) -> TestMonitoringContext:
        """Begin."""
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""
        if self._thread is not None:
            self._thread.stop()


def _read(path: pathlib.Path) -> str:
    """ "" of a process that has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
