"""The end of a session: of all its processes.  Layer 5 (convert)."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from tisfast import limits


def end_session(leader: int) -> None:
    """End all processes of a session.  leader: a child that nobody has waited for, so its number is still its own.

    They are asked first, and may take a short time: they remove what has a name, as semaphores.  Then they are killed.
    """
    for number, seconds in ((signal.SIGTERM, limits.CONVERT_END_SECONDS_MAX), (signal.SIGKILL, 0.0)):
        alive: list[int] = []
        try:
            for pid in _members(leader):
                with suppress(OSError):  # it has ended
                    alive.append(os.pidfd_open(pid))
                    if os.getsid(pid) == leader:
                        signal.pidfd_send_signal(alive[-1], number)
            _wait(alive, time.monotonic() + seconds)
        finally:
            for each in alive:
                os.close(each)


def _members(leader: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                if os.getsid(int(name)) == leader:
                    yield int(name)


def _wait(pidfds: list[int], deadline: float) -> None:
    """Until they have ended, or the time is over."""
    poll, left = select.poll(), set(pidfds)
    for each in left:
        poll.register(each, select.POLLIN)
    while left and (found := poll.poll(max(0.0, deadline - time.monotonic()) * 1000)):
        for each, _ in found:
            poll.unregister(each)
            left.discard(each)
