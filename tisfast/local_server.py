"""A server process of this program, and this program's guest connection to it.  Layer 5, beside app.

The server is started as a program of its own: nothing is forked, so it makes no difference which thread starts it,
whether an event loop runs, or whether a GPU is in use.  It ends when this program ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.errors import BadRequest, Unavailable
from tisfast.private_directory import PrivateDirectory, sweep
from tisfast.processes import machine

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.cli import main; sys.exit(main())"
)
"""Without the working directory in the path: a user's folder may have a `types.py`."""
GUESTS: Final = "guests"
TOKEN: Final = "control-token"
MODELS: Final = "models"


def server_command(arguments: Sequence[str]) -> list[str]:
    """The command line of a `tisfast serve` of this installation and this Python."""
    return [sys.executable, "-c", PROGRAM, str(ROOT), "serve", *arguments]


def guest_runtime() -> Any:
    """The module tisfast_worker.guest.  It is beside tisfast once that is installed; a checkout has it elsewhere."""
    try:
        return importlib.import_module("tisfast_worker.guest")
    except ModuleNotFoundError as error:
        if error.name != "tisfast_worker":
            raise
    from tisfast.processes.nursery_process import worker_main  # noqa: PLC0415 - no program needs it twice

    sys.path.append(str(worker_main().parent))
    return importlib.import_module("tisfast_worker.guest")


class LocalServer:
    """A server process of this program.  All methods may be called from any thread.

    flags: those of `tisfast serve`.  directory: where guests meet the server, by default a private temporary folder;
    environment: variables of the server's process beside those of this one; own_models: it serves a repository of its
    own, `models`, whose models are loaded by call; joins: this program is its guest;
    control_token: what such calls must have then, as loading runs code
    and other users of this machine reach the port, too.  Nothing starts before `start`.
    *_address: HOST:PORT for a client on this machine, with the port that the system chose for a 0; None where the
    server does not listen.
    """

    def __init__(
        self,
        flags: Sequence[str] = (),
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
        own_models: bool = False,
        control_token: str = "",
        joins: bool = True,
    ) -> None:
        self._flags, self._given, self._environment = tuple(flags), directory, dict(environment or {})
        self._own_models, self.control_token, self._joins = own_models, control_token, joins
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._starting: _Running | None = None
        self._given_up = False
        self._finalizer: weakref.finalize[..., LocalServer] | None = None
        self.http_address: str | None = None
        self.grpc_address: str | None = None
        self.metrics_address: str | None = None

    def start(self, seconds_max: float = limits.LOCAL_START_SECONDS_MAX) -> None:
        """Return when it answers.

        Raises BadRequest for flags that it does not take, Unavailable where it cannot start now, or takes too long.
        """
        with self._lock:
            if self._running is not None and self._running.alive():
                raise BadRequest(f"the server (pid {self._running.process.pid}) runs already; stop it first")
            running = self._starting = _Running(self._given)
            if self._given_up:
                running.give_up()
            try:
                # Vertex AI's variables are for the one server that its container is about, where flags say so.
                flags = [
                    "--allow-vertex-ai=false",
                    *self._flags,
                    *(running.serve_models(self.control_token) if self._own_models else ()),
                ]
                told = running.start(flags, self._environment, seconds_max)
                if self._joins:
                    running.join()
            except OSError as error:
                running.end(0.0)
                raise Unavailable(
                    f"the server could not be started ({error.strerror or error}): the system's limits of processes, "
                    "memory or open files, or the room of the temporary folder, are reached"
                ) from error
            except BaseException:
                running.end(0.0)
                raise
            finally:
                self._starting, self._given_up = None, False
            self._running = running
            self.http_address, self.grpc_address = told.get("http"), told.get("grpc")
            self.metrics_address = told.get("metrics")
            self._finalizer = weakref.finalize(self, running.end, limits.LOCAL_STOP_SECONDS_MAX)

    @property
    def guest(self) -> Any:
        """This program's connection: a tisfast_worker.guest.Server; None without `joins`.

        Raises Unavailable before `start`.
        """
        return self._started().guest

    @property
    def models(self) -> Path:
        """The repository of a server with `own_models`: empty at first, removed at the end."""
        return self._started().models

    @property
    def pid(self) -> int:
        """The server's process.  Raises Unavailable before `start`."""
        return self._started().process.pid

    def alive(self) -> bool:
        """Whether it runs."""
        return self._running is not None and self._running.alive()

    def wait(self, timeout: float | None = None) -> int | None:
        """Until it ends: its exit status (negative: the signal that ended it).  None when the time is over."""
        return self._started().wait(timeout)

    def stop(self, seconds_max: float = limits.LOCAL_STOP_SECONDS_MAX) -> None:
        """End it: what it executes is answered first, for at most so long; then it is killed.  Again: nothing."""
        running = self._running
        if running is not None:
            running.end(seconds_max)
            if self._finalizer is not None:
                self._finalizer.detach()

    def give_up(self) -> None:
        """Have a `start` fail that another thread is in, or that a signal handler interrupts; else the next one."""
        self._given_up = True
        starting = self._starting
        if starting is not None:
            starting.give_up()

    def _started(self) -> _Running:
        if self._running is None:
            raise Unavailable("the server has not been started; call start() first")
        return self._running


class _Running:
    """One run of a server: its process, the folder and the connection, and how they end."""

    def __init__(self, directory: Path | None) -> None:
        self._owner = os.getpid()
        self._folder = PrivateDirectory()
        self._ending, self._guard = threading.RLock(), threading.RLock()
        self._is_ending = False  # under `_ending`
        self._given_up = False
        self._pidfd = -1  # of the server; closed under the guard
        self._oom_kills = machine.oom_kills()
        self.process: subprocess.Popen[bytes]
        self.guest: Any = None
        self.directory = directory or self._folder.path / GUESTS
        self.models = self._folder.path / MODELS
        _forget_in_children(self)

    def serve_models(self, token: str) -> list[str]:
        """Flags for a repository of its own.  token: of loads, "": none."""
        self.models.mkdir()
        flags = [f"--model-repository={self.models}", "--model-control-mode=explicit"]
        if token:
            file = self._folder.path / TOKEN
            file.write_text(token)  # in a folder that no other user can enter
            flags.append(f"--model-control-token-file={file}")
        return flags

    def start(self, flags: Sequence[str], variables: Mapping[str, str], seconds_max: float) -> dict[str, str]:
        """What the server tells when it serves.  Raises Unavailable."""
        log_target = _log_target()
        with _no_standard_numbers():
            ready, writer = os.pipe()
            ours = os.pidfd_open(os.getpid())
        arguments = [*flags, f"--guest-directory={self.directory}", f"--parent-pidfd={ours}", f"--ready-fd={writer}"]
        try:
            self.process = subprocess.Popen(
                server_command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=log_target,
                stderr=log_target,
                pass_fds=(ours, writer),
                env={**os.environ, **variables},
                start_new_session=True,  # the terminal's Ctrl-C is for this program
            )
            self._pidfd = os.pidfd_open(self.process.pid)
            if self._given_up:
                self.give_up()
        finally:
            os.close(ours)
            os.close(writer)
        guest_runtime()  # while it starts
        try:
            return self._told(ready, time.monotonic() + seconds_max, seconds_max)
        finally:
            os.close(ready)

    def give_up(self) -> None:
        """End a process that is starting; the thread that waits for it sees its end."""
        self._given_up = True
        with self._guard:
            if self._pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):  # it has ended, and its end has been looked at
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def join(self) -> None:
        """Be its guest.  Raises Unavailable."""
        guest = guest_runtime()
        try:
            self.guest = guest.join(self.directory)
        except guest.GuestError as error:
            raise Unavailable(f"the server (pid {self.process.pid}) cannot be joined: {error}") from error

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.wait(0.0) is None

    def wait(self, timeout: float | None) -> int | None:
        """The exit status, None when the time is over first."""
        with self._guard:
            ended = os.dup(self._pidfd) if self._pidfd >= 0 else -1
        if ended >= 0:
            try:
                poll = select.poll()
                poll.register(ended, select.POLLIN)
                if not poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
                    return None
            finally:
                os.close(ended)
        return self.process.wait()

    def end(self, seconds_max: float) -> None:
        """See LocalServer.stop.  In a forked child: nothing, as it is not its own."""
        if os.getpid() != self._owner:
            return
        with self._ending:
            if self._is_ending:  # a signal's handler calls: what it interrupts does the rest
                return
            self._is_ending = True
            try:
                if self._folder.path.exists() or self._pidfd >= 0:
                    self._end(seconds_max)
            finally:
                self._is_ending = False

    def leave_child(self) -> None:
        """In a child process that the user's code forked: nothing of it belongs to that."""
        self._folder.let_go()

    # ---- parts

    def _end_in_words(self) -> str:
        status = self.process.wait()
        if status >= 0:
            return f"has ended with exit status {status} before it served; its log says why"
        text = f"was killed by signal {-status} before it served"
        if status != -signal.SIGKILL:
            return f"{text}; its log may say why"
        if not self._given_up and machine.oom_kills() > self._oom_kills:
            text += ", most likely by the kernel, for want of memory: give it more, or run less beside it"
        return text

    def _told(self, ready: int, deadline: float, seconds_max: float) -> dict[str, str]:
        line = b""
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        while not line.endswith(b"\n"):
            found = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if not found:
                raise Unavailable(f"the server did not serve within {seconds_max:g} s; its log says what it was doing")
            chunk = os.read(ready, limits.START_LINE_BYTES_MAX) if ready in found else b""
            if not chunk:
                raise Unavailable(f"the server {self._end_in_words()}")
            line += chunk
        told: dict[str, str] = json.loads(line)
        if told["event"] == "refused":
            raise BadRequest(f"the server did not start: {told['error']}")
        if told["event"] != "ready":
            raise Unavailable(f"the server did not start: {told['error'] or 'it was told to stop'}")
        return told

    def _end(self, seconds_max: float) -> None:
        try:
            if self.guest is not None:
                self.guest.expect_end()
            if self._pidfd >= 0 and seconds_max > 0 and self.alive():
                self.process.terminate()
                self.wait(seconds_max)
        finally:  # a second Ctrl-C comes here
            if self._pidfd >= 0:
                self.process.kill()
                self.process.wait()
                with self._guard:
                    os.close(self._pidfd)
                    self._pidfd = -1
            if self.guest is not None:
                self.guest.close()
            self._folder.remove()
            sweep()  # what a server that was killed has left


def _log_target() -> int:
    """Where the server's log goes: to this program's stderr, if it has any."""
    if sys.__stderr__ is not None:  # else 2 is the number of something else, if of anything
        with contextlib.suppress(OSError):
            os.fstat(2)
            return 2
    return subprocess.DEVNULL


@contextlib.contextmanager
def _no_standard_numbers() -> Iterator[None]:
    """What is opened meanwhile has no number of a standard stream, also where this program has closed these."""
    held: list[int] = []
    try:
        while not held or held[-1] <= 2:
            held.append(os.open(os.devnull, os.O_RDWR))
        yield
    finally:
        for each in held:
            os.close(each)


_runs: weakref.WeakSet[_Running] = weakref.WeakSet()
_hooked: list[bool] = []


def _forget_in_children(running: _Running) -> None:
    _runs.add(running)
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(after_in_child=_leave_child)


def _leave_child() -> None:
    for running in list(_runs):
        running.leave_child()
