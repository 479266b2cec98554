"""The processes of steps: a nursery, which has imported what they share, and one for each step.  Layer 5 (convert).

Frameworks are imported here alone, and used in forks of the nursery alone: there a step finds the function of its name,
and writes what it gives.  What goes wrong is told in the result; what frameworks print goes to the parent.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from tisfast import limits
from tisfast.convert.step_nursery import MESSAGE_BYTES_MAX, Order, temporary_folders
from tisfast.convert.steps import ERROR, FOUND, REFUSED, REQUEST, RESULT
from tisfast.errors import BadRequest
from tisfast.keeper import keep


def main(shared: str) -> int:
    """Fork a step for each order that comes by a socket, the standard input, until its other end is closed.

    shared: the module that all steps share, "" for none.  With an order comes the descriptor that the step prints to.
    The answer is a pidfd of the step's keeper, or why there is none.  Who has ordered it says when that process may be
    forgotten, and is told its exit status, null where somebody else was told it.
    """
    orders = _taken_from_standard_input()
    own = os.getpid()
    failure: Exception | None = None
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return 0
        (output,) = descriptors
        _print_to(output)
        if shared:
            failure, shared = _imported(shared), ""
            _print_to(output)  # what was imported may have closed these
        if output > 2:
            os.close(output)
        try:
            pid, pidfd = _forked()
        except OSError as error:
            orders.send(json.dumps({"error": error.strerror or str(error)}).encode())
            continue
        if not pid:
            orders.close()
            _become(Order(*json.loads(message)), own, failure)
        socket.send_fds(orders, [json.dumps({"forked": True}).encode()], [pidfd])
        os.close(pidfd)
        if not orders.recv(1):
            return 0  # the keeper's parent has ended then, and so it ends all
        orders.send(json.dumps({"status": _status(pid)}).encode())


def _taken_from_standard_input() -> socket.socket:
    """Nothing that is imported finds it there."""
    orders = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    return orders


def _print_to(descriptor: int) -> None:
    for each in (1, 2):
        os.dup2(descriptor, each)


def _imported(module: str) -> Exception | None:
    """Why it cannot be imported: then each step fails so."""
    try:
        importlib.import_module(module)
    except Exception as error:  # each framework has its own
        return error
    finally:
        _flush()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, or waits for all children, takes ends of steps
    return None


def _forked() -> tuple[int, int]:
    """As os.fork, and a pidfd in the parent.  The child goes on when that is open, as a thread of what was imported may
    wait for all children, and the number would be nobody's.  Raises OSError.
    """
    waits, goes_on = os.pipe()
    pid = -1
    try:
        with warnings.catch_warnings():  # of Python 3.12 and later: threads that an import has started are not missed
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid, _pidfd(pid)
        os.close(goes_on)
        os.read(waits, 1)
        return 0, -1
    finally:
        os.close(waits)
        if pid:
            os.close(goes_on)


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # it waits, so the number is still its own
        _status(pid)
        raise


def _status(pid: int) -> int | None:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # a thread of what was imported waits for all children
        return None


def _become(order: Order, nursery: int, failure: Exception | None) -> NoReturn:
    """The step's keeper, and below that the step."""
    os.setsid()
    os.environ.update(temporary_folders(order.temporary))
    tempfile.tempdir = None  # who was imported may have asked for it
    keep(nursery, limits.CONVERT_END_SECONDS_MAX)
    path = Path(order.folder)
    module, _, function = order.step.rpartition(".")
    try:
        if failure is not None:
            raise failure
        request = json.loads((path / REQUEST).read_text())
        found: Any = getattr(importlib.import_module(module), function)(request, path)
    except BadRequest as error:
        _tell(path, {ERROR: error.message}, REFUSED)
    except Exception as error:  # each framework has its own
        _print_traceback()
        _tell(path, {ERROR: f"{type(error).__name__}: {error}"}, 1)
    _tell(path, {FOUND: found or {}}, 0)


def _tell(folder: Path, result: dict[str, Any], status: int) -> NoReturn:
    (folder / RESULT).write_text(json.dumps(result))
    _flush()
    os._exit(status)  # what frameworks do at the end of a process may hang or crash, and nothing of it is wanted


def _print_traceback() -> None:
    with suppress(Exception):  # see _flush
        traceback.print_exc()


def _flush() -> None:
    for name in ("stdout", "stderr"):
        with suppress(Exception):  # a framework may have closed or deleted it, or put whatever it likes in its place
            getattr(sys, name).flush()
