"""The nursery of a conversion's steps: the conversion's side; `step_process` is the other one.  Layer 5 (convert)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from tisfast import limits
from tisfast.convert.sessions import end_session
from tisfast.convert.step_output import StepOutput
from tisfast.errors import Unavailable
from tisfast.local_server import ROOT

PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.keeper import keep; keep(int(sys.argv.pop(1)), float(sys.argv.pop(1))); "
    "from tisfast.convert.step_process import main; sys.exit(main(sys.argv[1:]))"
)
ANSWER_BYTES_MAX: Final = 4096
END_SECONDS_MAX: Final = 2 * limits.CONVERT_END_SECONDS_MAX + 1.0
"""Of a keeper: for those whom it asks to end, for those whom it kills, and for itself."""
QUIET: Final = {"ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""For frameworks, where the user's environment says nothing else."""


class StepNursery:
    """A process that each step is forked from: it imports once what takes a framework seconds, and uses nothing of it.

    shared: the module that it imports, "" for none.  The first step has the nursery started, and a step behind its end.
    There is one step at a time: `run`, then `end`.
    """

    def __init__(self, shared: str = "") -> None:
        self._shared = shared
        self._process: subprocess.Popen[bytes] | None = None  # its keeper, in a session of its own
        self._pidfd = self._step_pidfd = -1
        self._step = 0  # pid of the step's keeper

    def run(self, order: Sequence[object], output: StepOutput, until: float) -> bool:
        """Whether the step has ended before that time, of time.monotonic(); or the nursery in its place.

        order: a step_process.Order.  Raises Unavailable where there can be no process.
        """
        try:
            if self._process is None or _can_be_read(self._orders.fileno(), 0):  # nothing comes but its end
                self.close(has_ended=True)
                self._start()
            socket.send_fds(self._orders, [json.dumps(order).encode()], [output.given])
        except OSError as error:
            raise no_process(error.strerror or str(error)) from error
        finally:
            output.given_away()
        if not output.read_until(self._orders.fileno(), until):
            return False
        answer, descriptors = self._answer()
        if why := answer.get("error"):
            raise no_process(why)
        if not descriptors:
            return True
        self._step, (self._step_pidfd,) = answer["pid"], descriptors
        return output.read_until(self._step_pidfd, until)

    def end(self, output: StepOutput, *, has_ended: bool) -> int:
        """Of the step, and of all that it has started: its exit status, or the nursery's where that has ended.

        has_ended: what `run` has said.
        """
        if not self._step:
            return self.close(has_ended=has_ended)
        try:
            if not has_ended:
                signal.pidfd_send_signal(self._step_pidfd, signal.SIGTERM)  # has the keeper end all
                output.read_until(self._step_pidfd, time.monotonic() + END_SECONDS_MAX)
        finally:
            end_session(self._step)  # where somebody has killed the keeper: nobody has waited for it
            os.close(self._step_pidfd)
            self._step = 0
        try:
            self._orders.send(b".")  # its number may go
            return int(self._answer()[0]["status"])
        except (OSError, KeyError):
            return self.close(has_ended=True)

    def close(self, *, has_ended: bool = False) -> int:
        """End the nursery, and all that its steps have left: its exit status, 0 where there is none."""
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            if not has_ended:
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            _can_be_read(self._pidfd, END_SECONDS_MAX)
        finally:
            end_session(process.pid)  # where somebody has killed the keeper
            os.close(self._pidfd)
            self._orders.close()
        return process.wait()

    def _start(self) -> None:
        """Raises OSError.  The terminal's Ctrl-C is for this program."""
        self._orders, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keeping = [str(os.getpid()), str(limits.CONVERT_END_SECONDS_MAX)]
        with other:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, str(ROOT), *keeping, str(other.fileno()), self._shared],
                    stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[other.fileno()],
                    env={**QUIET, **os.environ},
                )  # fmt: skip
            except BaseException:
                self._orders.close()
                raise
            self._pidfd = os.pidfd_open(self._process.pid)

    def _answer(self) -> tuple[dict[str, Any], list[int]]:
        """And descriptors; an empty one where the nursery has ended."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._orders, ANSWER_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:  # with an order unread
            return {}, []
        return json.loads(message) if message else {}, descriptors


def _can_be_read(descriptor: int, seconds_max: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds_max * 1000))


def no_process(why: str) -> Unavailable:
    """The error of a step that has none.  why: the system's reason."""
    return Unavailable(
        f"no process could be started for it ({why}): the system's limits of processes, memory or open files are "
        "reached; raise them (ulimit -u, ulimit -n, the container's), or end other programs"
    )
