"""A keeper: a process that lets a child do its work, and ends all that the child has started.  Layer 0.

Whatever loses its parent below a keeper becomes its child (PR_SET_CHILD_SUBREAPER), also what has a session of its own.
It imports nothing of tisfast, so that it forks before there are threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from typing import Final

STOPPED: Final = 124
"""The keeper's exit status where it was told to end before the child had ended."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGCHLD)
# Of linux/prctl.h.
SET_DEATH_SIGNAL: Final = 1
SET_DUMPABLE: Final = 4
SET_SUBREAPER: Final = 36


def keep(parent: int, seconds_max: float) -> None:
    """Fork: it returns in the child, and this process becomes its keeper, which does not return.

    When the child has ended, or SIGTERM comes, or the parent has ended, all descendants are ended: they are asked
    first, and may take seconds_max, and so long again when they are killed.  The keeper's exit status is the child's,
    or its signal, or STOPPED.  parent: pid of the process that started this one; its thread waits.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it, as some service managers do, is told of no end
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _prctl(SET_SUBREAPER, 1)
    _die_with(parent, signal.SIGTERM)
    keeper = os.getpid()
    child = os.fork()
    if not child:
        _die_with(keeper, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return
    _let_go()
    status = _status(child)
    _end_all(seconds_max)
    _end_as(status)


def _let_go() -> None:
    """Close all files.  Who waits for the end of one that the child has would wait for the keeper's end, too."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in range(3):
        os.dup2(null, each)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the listing's own
                os.close(int(name))


def _die_with(parent: int, number: int) -> None:
    _prctl(SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it ended before the call: nobody would ever signal us
        os._exit(STOPPED)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _status(child: int) -> int:
    """Exit status of the child (negative: the signal that ended it), STOPPED where an end is wanted before."""
    while signal.sigwait(SIGNALS) != signal.SIGTERM:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:  # also others, which have lost their parent
            if found[0] == child:
                return os.waitstatus_to_exitcode(found[1])
    return STOPPED


def _end_all(seconds_max: float) -> None:
    """Ask the children to end, then kill them: theirs become ours when they end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until, told = time.monotonic() + seconds_max, set[int]()
        while _any_left():
            for pid in _children() - told:
                with suppress(OSError):  # another user's
                    os.kill(pid, number)  # ours, and not reaped yet, so the number is still its own
                told.add(pid)
            left = until - time.monotonic()
            if left <= 0 or not signal.sigtimedwait((signal.SIGCHLD,), left):
                break


def _any_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> set[int]:
    """By /proc, as not every kernel lists children."""
    found, own = set(), os.getpid()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # Behind the name, which may hold anything, come the state and the parent.
                if int(file.read().rpartition(b")")[2].split()[1]) == own:
                    found.add(int(name))
    return found


def _end_as(status: int) -> None:
    if status < 0:
        _prctl(SET_DUMPABLE, 0)  # the child has left its memory already
        with suppress(OSError, ValueError):  # of SIGKILL, which has no handler
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)
