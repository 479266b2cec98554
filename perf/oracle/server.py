"""A server under measurement: started on free ports, awaited by its health route, watched, ended with its children."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Literal

from perf.oracle import launch
from perf.oracle.ports import held_ports

START_SECONDS_MAX: Final = 120
TRITON_STARTS_MAX: Final = 16
STOP_SECONDS_MAX: Final = 40
POLL_SECONDS: Final = 0.005  # a port that is not yet bound gives no event to wait for
LOG_TAIL_BYTES: Final = 4000
_REGION: Final = re.compile(r"/dev/shm/triton_python_backend_shm_region_[\w-]+")

Kind = Literal["triton", "tisfast"]


class StartFailed(RuntimeError):
    """The server ended, or was not ready in time; the text has the end of its log.  kind: which one."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class StartCrashed(StartFailed):
    """A signal ended it."""


class Server:
    """One server process as a context manager.

    kind: which server; repositories: model repositories; flags: further flags; wait_for: route that must answer 200;
    tree: a built source tree of tisfast other than the installed one; before_start: called before each start, of which
    there are several where the real Triton crashes: to forget what its models told meanwhile.
    Attributes after entering: http, grpc, metrics (ports; 0 where an older tree has none), start_seconds (process start
    to first 200), pid.
    """

    running: ClassVar[set[Server]] = set()
    """Those of this process that have started and are not stopped."""
    left_unwell: ClassVar[Counter[Kind]] = Counter()
    """Of each kind, how many contexts an error has left whose server was not `well` then."""

    def __init__(
        self,
        kind: Kind,
        repositories: Sequence[Path | str],
        flags: Sequence[str] = (),
        wait_for: str = "/v2/health/ready",
        tree: Path | None = None,
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self.tree, self.before_start = tree, before_start
        self.kind, self.repositories, self.flags, self.wait_for = kind, repositories, flags, wait_for
        self.http = self.grpc = self.metrics = 0
        self.start_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()  # its ports

    def __enter__(self) -> Server:
        """Start and wait until ready; raises StartFailed.

        The real Triton aborts now and then while it loads (boost's lock_exception, on a busy machine): it is started
        again then.
        """
        for _ in range(TRITON_STARTS_MAX - 1 if self.kind == "triton" else 0):
            with contextlib.suppress(StartCrashed):
                return self._start()
        return self._start()

    def _start(self) -> Server:
        if self.before_start is not None:
            self.before_start()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with this object; read while the server runs)
        with contextlib.ExitStack() as held:
            self.http, self.grpc, self.metrics = held.enter_context(held_ports(3))
            if not self._speaks_grpc():
                self.grpc = 0
            self._run(self._launch([*self._port_flags(), *self.flags]))
            self._held = held.pop_all()
        self.running.add(self)
        return self

    def _run(self, what: launch.Launch) -> None:
        began = time.perf_counter()
        self._process = subprocess.Popen(
            what.command,
            env=what.env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            self._await_ready(began)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - began

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        if error is not None and self in self.running and not self.well():
            self.left_unwell[self.kind] += 1
        self.stop()

    def well(self) -> bool:
        """Whether it says that it is alive, or has ended by itself: no signal has ended it, and it does not hang."""
        if self.ended:
            return (self.exit_code or 0) >= 0
        return self.get("/v2/health/live") != 0

    @property
    def pid(self) -> int:
        """The server's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether its process is no more."""
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def address(self) -> str:
        """HTTP host and port."""
        return f"localhost:{self.http}"

    @property
    def grpc_address(self) -> str:
        """gRPC host and port; empty where an older tree has none."""
        return f"localhost:{self.grpc}" if self.grpc else ""

    def _launch(self, flags: Sequence[str]) -> launch.Launch:
        if self.kind == "triton":
            return launch.triton(self.repositories, flags)
        return launch.tisfast(self.repositories, flags, self.tree)

    def _port_flags(self) -> list[str]:
        ports = [f"--http-port={self.http}", f"--metrics-port={self.metrics}"]
        return [*ports, *([f"--grpc-port={self.grpc}"] if self.grpc else [])]

    def _speaks_grpc(self) -> bool:
        """Trees from before gRPC refuse its flags."""
        return self.kind == "triton" or self.tree is None or launch.knows("grpc-port", self.tree)

    def _await_ready(self, began: float) -> None:
        while (elapsed := time.perf_counter() - began) < START_SECONDS_MAX:
            assert self._process is not None
            if self._process.poll() is not None:
                code = self._process.returncode
                failure = StartCrashed if code < 0 else StartFailed
                raise failure(self.kind, f"{self.kind} ended with {code} after {elapsed:.1f} s:\n{self.log()}")
            if self.get(self.wait_for) == 200:
                return
            time.sleep(POLL_SECONDS)
        late = f"{self.wait_for} did not answer 200 in {START_SECONDS_MAX} s"
        raise StartFailed(self.kind, f"{self.kind}: {late}:\n{self.log()}")

    def get(self, target: str) -> int:
        """Status of a GET on the HTTP port; 0 when nobody listens."""
        connection = http.client.HTTPConnection("localhost", self.http, timeout=5)
        try:
            connection.request("GET", target)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def dies_within(self, seconds: float) -> bool:
        """Whether the server has ended, or does so in this time."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def exit_code(self) -> int | None:
        """Once it has ended."""
        assert self._process is not None
        return self._process.returncode

    def log(self, most: int = LOG_TAIL_BYTES) -> str:
        """The end of what the server printed."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), most, max(0, size - most)).decode(errors="replace")

    def pids(self) -> list[int]:
        """The server and all its descendants."""
        return [self.pid, *descendants(self.pid)]

    def pss_bytes(self) -> int:
        """Proportional memory of the server and all its descendants."""
        return sum(pss_bytes(pid) for pid in self.pids())

    def descriptors(self) -> int:
        """Open file descriptors of the server process."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for what is left of its processes after the bound; its log is gone then.

        The real Triton gets SIGKILL at once: it takes 2 seconds to end, and 30 where polls have left models behind.
        """
        self.running.discard(self)
        if self._process is None:
            return
        with HeldSession(self.pid, is_reaped=self.ended) as family:
            regions = shared_regions(family.pids)
            self._process.send_signal(signal.SIGKILL if self.kind == "triton" else signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            family.kill()
        for region in regions:
            region.unlink(missing_ok=True)
        self._process = None
        self._held.close()
        self._log.close()


def descendants(pid: int) -> Iterator[int]:
    """Children of all threads of a process, and theirs, by /proc."""
    for task in _listdir(f"/proc/{pid}/task"):
        try:
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except OSError:  # ended meanwhile
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


class HeldSession:
    """Everyone in the session of its leader, by pidfds: a number is somebody else's soon after its process has ended.

    A machine that starts servers all day goes through all numbers (kernel.pid_max) in minutes: threads have some, too.
    """

    def __init__(self, leader: int, *, is_reaped: bool = False) -> None:
        """is_reaped: the leader has ended, and somebody has waited for it."""
        self._pidfds: dict[int, int] = {}
        if is_reaped and Path(f"/proc/{leader}").exists():  # another one: so nobody of the session is left
            return
        for pid in session(leader):
            with contextlib.suppress(ProcessLookupError):
                self._pidfds[pid] = os.pidfd_open(pid)
        for pid in self.pids:
            if _session_of(pid) != leader:  # it had ended before it was opened
                os.close(self._pidfds.pop(pid))

    @property
    def pids(self) -> list[int]:
        """Their numbers, as they were."""
        return list(self._pidfds)

    def kill(self) -> None:
        """Who has not ended."""
        for each in self._pidfds.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(each, signal.SIGKILL)

    def __enter__(self) -> HeldSession:
        """Hold them."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let them go."""
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])


def session(leader: int) -> list[int]:
    """Everyone in the session of its leader, who may be gone: a server that crashed leaves its children to init."""
    return [pid for pid in map(int, filter(str.isdigit, _listdir("/proc"))) if _session_of(pid) == leader]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:  # ended meanwhile
        return 0


def shared_regions(pids: Sequence[int]) -> set[Path]:
    """Files of /dev/shm that are the Python backend's and mapped by these: it leaves some there when it ends."""
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            found |= set(_REGION.findall(Path(f"/proc/{pid}/maps").read_text()))
    return {Path(name) for name in found}


def pss_bytes(pid: int) -> int:
    """Pss of one process from smaps_rollup; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
