"""The nursery of a conversion's steps: the conversion's side; `step_process` is the other one.  Layer 5 (convert)."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.convert.held_signals import held_signals
from tisfast.convert.sessions import end_session
from tisfast.convert.step_output import StepOutput
from tisfast.errors import Unavailable
from tisfast.local_server import ROOT

PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.keeper import keep; keep(int(sys.argv.pop(1)), float(sys.argv.pop(1))); "
    "from tisfast.convert.step_process import main; sys.exit(main(sys.argv[1]))"
)
MESSAGE_BYTES_MAX: Final = 1 << 16
"""A name and two paths are in an order."""
END_SECONDS_MAX: Final = 2 * limits.CONVERT_END_SECONDS_MAX + 1.0
"""Of a keeper: for those whom it asks to end, for those whom it kills, and for itself."""
QUIET: Final = {"ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""For frameworks, where the user's environment says nothing else."""


class Order(NamedTuple):
    """A step for a nursery to fork.

    step: PACKAGE.MODULE.FUNCTION; folder: for its files; temporary: its TMPDIR.
    """

    step: str
    folder: str
    temporary: str


class StepNursery:
    """A process that each step is forked from: it imports once what takes a framework seconds, and uses nothing of it.

    It is started by the first step, and again by a step behind its end.  One step at a time: `run`, then `end`.
    """

    def __init__(self, shared: str, temporary: Path) -> None:
        """shared: the module that it imports, "" for none; temporary: its own TMPDIR, which is there."""
        self._shared, self._temporary = shared, temporary
        self._process: _Process | None = None
        self._step = -1  # a pidfd of its keeper

    def run(self, order: Order, output: StepOutput, until: float) -> bool:
        """Whether the step has ended before that time, of time.monotonic(); or the nursery in its place.

        Raises Unavailable where there can be no process.
        """
        try:
            with held_signals():
                process = self._process = self._alive() or _Process.start(self._shared, self._temporary, output.given)
            socket.send_fds(process.orders, [json.dumps(order).encode()], [output.given])
        except ConnectionError:
            return True
        except OSError as error:
            raise no_process(error.strerror or str(error)) from error
        finally:
            output.given_away()
        if not output.read_until(process.orders.fileno(), until):
            return False
        with held_signals():
            step = process.forked_step()
            if step is None:
                return True
            self._step = step
        return output.read_until(self._step, until)

    def end(self, output: StepOutput, *, has_ended: bool) -> int | None:
        """End the step, and all that it has started: its exit status, or the nursery's where that has ended.

        has_ended: what `run` has said.  None: the nursery does not answer, or somebody else was told it there.
        """
        with held_signals():
            step, self._step = self._step, -1
            if step < 0:
                return self.close(has_ended=has_ended)
            if not has_ended:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(step, signal.SIGTERM)  # has the keeper end all
                has_ended = output.read_until(step, time.monotonic() + END_SECONDS_MAX)
            os.close(step)
            assert self._process is not None
            answer = self._process.status_of_step() if has_ended else None
            if answer == {}:
                return self.close(has_ended=True)
            status: int | None = answer["status"] if answer else None
            if status is None or status < 0:
                self.close()  # somebody may have killed the step's keeper: this ends what has lost it
            return status

    def close(self, *, has_ended: bool = False) -> int:
        """End the nursery, and all that its steps have left: its exit status, 0 where there is none.

        has_ended: by itself.
        """
        with held_signals():
            process, self._process = self._process, None
            return process.end(has_ended=has_ended) if process else 0

    def _alive(self) -> _Process | None:
        """None: there is none that could take an order."""
        if self._process is not None and _can_be_read(self._process.orders.fileno(), 0):  # nothing comes but its end
            self.close(has_ended=True)
        return self._process


class _Process(NamedTuple):
    """A nursery that runs.

    keeper: in a session of its own, as the terminal's Ctrl-C is for this program; pidfd: the keeper's; orders: the
    socket to the nursery.
    """

    keeper: subprocess.Popen[bytes]
    pidfd: int
    orders: socket.socket

    @classmethod
    def start(cls, shared: str, temporary: Path, output: int) -> _Process:
        """Raises OSError.  output: where it prints until there is another order."""
        keeping = [str(os.getpid()), str(limits.CONVERT_END_SECONDS_MAX)]
        environment = {**QUIET, **os.environ, **temporary_folders(str(temporary))}
        with ExitStack() as undone:
            orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undone.enter_context(orders)
            with theirs:
                keeper = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(ROOT), *keeping, shared],
                    stdin=theirs.fileno(), stdout=output, stderr=output, start_new_session=True, env=environment,
                )  # fmt: skip
            undone.callback(keeper.wait)
            undone.callback(keeper.kill)
            started = cls(keeper, os.pidfd_open(keeper.pid), orders)
            undone.pop_all()
        return started

    def forked_step(self) -> int | None:
        """A pidfd of the step's keeper, None where the nursery has ended.  Raises Unavailable."""
        answer, descriptors = self._answer()
        if answer and not descriptors:  # it could not fork, or this program can have no more files open
            raise no_process(answer.get("error") or os.strerror(errno.EMFILE))
        return descriptors[0] if descriptors else None

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        """With its descriptors; empty where the nursery has ended."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self.orders, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:  # with an order unread
            return {}, []
        return json.loads(message) if message else {}, descriptors

    def status_of_step(self) -> dict[str, Any] | None:
        """Of one that has ended, and may be forgotten.  Empty: the nursery has ended; None: it does not answer."""
        with suppress(ConnectionError):
            self.orders.send(b".")
        return self._answer()[0] if _can_be_read(self.orders.fileno(), END_SECONDS_MAX) else None

    def end(self, *, has_ended: bool) -> int:
        """See StepNursery.close."""
        if not has_ended:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)
        _can_be_read(self.pidfd, END_SECONDS_MAX)
        number_is_its_own = self._is_unreaped()
        os.close(self.pidfd)
        self.orders.close()  # both leave room, where there is none, for the files that a look at all processes needs
        try:
            if number_is_its_own:
                end_session(self.keeper.pid)  # where somebody has killed the keeper
        finally:
            status = self.keeper.wait()
        return status

    def _is_unreaped(self) -> bool:
        """Whether the keeper's number is still its own.  The kernel reaps it at once in a program that ignores SIGCHLD:
        what a keeper that was killed has left stays then.
        """
        try:
            signal.pidfd_send_signal(self.pidfd, 0)
        except ProcessLookupError:
            return False
        return True


def temporary_folders(path: str) -> dict[str, str]:
    """Variables for who looks for a temporary folder."""
    return dict.fromkeys(("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER"), path)


def no_process(why: str) -> Unavailable:
    """The error of a step that has none.  why: the system's reason."""
    return Unavailable(
        f"no process could be started for it ({why}): the system's limits of processes, memory or open files are "
        "reached; raise them (ulimit -u, ulimit -n, the container's), or end other programs"
    )


def _can_be_read(descriptor: int, seconds_max: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds_max * 1000))
