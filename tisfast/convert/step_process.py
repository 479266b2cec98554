"""The processes of steps: a nursery, which has imported what they share, and one for each step.  Layer 5 (convert).

Frameworks are imported here alone, and used in forks of the nursery alone: there a step finds the function of its name,
and writes what it gives.  What goes wrong is told in the result; what frameworks print goes to the parent.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from tisfast.convert.steps import ERROR, FOUND, REFUSED, REQUEST, RESULT
from tisfast.errors import BadRequest
from tisfast.keeper import keep

ORDER_BYTES_MAX: Final = 1 << 16
"""A name and two paths."""


class Order(NamedTuple):
    """What the nursery is told of a step.

    step: PACKAGE.MODULE.FUNCTION; folder: for its files; temporary: its TMPDIR; keeper_seconds: see `keep`.
    """

    step: str
    folder: str
    temporary: str
    keeper_seconds: float


def main(arguments: Sequence[str]) -> int:
    """(descriptor of a socket, module that all steps share, "" for none): fork a step for each order.

    With an order comes the descriptor that the step prints to.  The answer is the step's keeper, its pid and a pidfd,
    or why there is none.  Who has ordered it says when the number may go, and is told the exit status.  The nursery
    ends when the socket's other end is closed.
    """
    descriptor, shared = arguments
    orders = socket.socket(fileno=int(descriptor))
    orders.set_inheritable(False)
    own = os.getpid()
    failure: Exception | None = None
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return 0
        _print_to(*descriptors)
        if shared:
            failure, shared = _imported(shared), ""
        try:
            pid = _forked()
        except OSError as error:
            _answer(orders, error=error.strerror or str(error))
            continue
        if not pid:
            orders.close()
            _take(Order(*json.loads(message)), own, failure)
        pidfd = os.pidfd_open(pid)
        socket.send_fds(orders, [json.dumps({"pid": pid}).encode()], [pidfd])
        os.close(pidfd)
        if not orders.recv(1):
            return 0  # the keeper's parent has ended then, and so it ends all
        _, status = os.waitpid(pid, 0)
        _answer(orders, status=os.waitstatus_to_exitcode(status))


def _print_to(descriptor: int) -> None:
    for each in (1, 2):
        os.dup2(descriptor, each)
    os.close(descriptor)


def _answer(orders: socket.socket, **answer: object) -> None:
    orders.send(json.dumps(answer).encode())


def _imported(module: str) -> Exception | None:
    """Why it cannot be imported: then each step fails so."""
    try:
        importlib.import_module(module)
    except Exception as error:  # each framework has its own
        return error
    finally:
        _flush()
    return None


def _forked() -> int:
    """As os.fork, which from Python 3.12 on warns where there are threads: libraries of linear algebra start anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _take(order: Order, nursery: int, failure: Exception | None) -> NoReturn:
    """Become the step's keeper, and below that the step."""
    os.setsid()
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER"), order.temporary))
    tempfile.tempdir = None  # who has imported something may have asked for it
    keep(nursery, order.keeper_seconds)
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
        traceback.print_exc()
        _tell(path, {ERROR: f"{type(error).__name__}: {error}"}, 1)
    _tell(path, {FOUND: found or {}}, 0)


def _tell(folder: Path, result: dict[str, Any], status: int) -> NoReturn:
    (folder / RESULT).write_text(json.dumps(result))
    _flush()
    os._exit(status)  # what frameworks do at the end of a process may hang or crash, and nothing of it is wanted


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
