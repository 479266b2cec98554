"""The process of a worker that a nursery forks: its birth, what it prints, its end.  Layer 4 (processes)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tisfast import limits
from tisfast.errors import Internal
from tisfast.processes.nursery import ForkOrder
from tisfast.processes.worker_output import LineReader

if TYPE_CHECKING:
    import asyncio

    from tisfast.processes.control_socket import Message
    from tisfast.processes.worker import Worker


class ForkedProcess:
    """See worker.WorkerBody.  Owns the pidfd, and reads what the process prints."""

    def __init__(self, worker: Worker) -> None:
        """Nothing is started yet."""
        self.pid = 0
        self._worker = worker
        self._place = worker.place
        self._pidfd = -1
        self._orphan = False  # its nursery is gone: only the pidfd tells its end
        self._is_dead = False  # the pidfd has told it
        self._is_killed = False  # by us; else it ends by itself, or somebody has killed it
        self._lingers = False  # it does not end, and the server goes on without that
        self._readers: list[LineReader] = []
        self._timer: asyncio.TimerHandle | None = None  # for its end once that has begun, then for its status
        self._thread = 0  # the number of its thread that speaks to us, while it is known
        self._may_end = False  # it was told to, in a time that has a bound
        self._look_timer: asyncio.TimerHandle | None = None

    async def begin(self, fds: Sequence[int]) -> None:
        """Fork.  Raises Internal, OSError."""
        worker, place = self._worker, self._place
        if len(place.lingering) >= limits.LINGERING_WORKERS_MAX:
            raise Internal(
                f"cannot fork a worker for {worker.birth.name}: {len(place.lingering)} killed processes of instances "
                f"have not ended, which is the limit; the pid of one is {min(place.lingering)}. The log says of each "
                "what may hold it; when one has ended, another worker is started"
            )
        assert worker.birth.nursery is not None
        place.control.expect(worker.id, worker.token, self._hear)
        order = ForkOrder(worker.id, place.control.endpoint, worker.token, worker.birth.env, worker.birth.threads)
        writes: list[int] = []
        try:
            for emit in (worker.printed, worker.complained):
                read, write = os.pipe()
                writes.append(write)
                self._readers.append(LineReader(read, emit, place.loop))
            child = await worker.birth.nursery.fork(order, [*fds, *writes], self._exited)
        finally:
            for write in writes:
                os.close(write)
        self.pid = child.pid
        if worker.ended.done():  # killed, or dead, before we knew it
            child.dismiss()
            return
        self._pidfd = child.pidfd
        place.loop.add_reader(self._pidfd, self._died)

    def tell(self, message: Message) -> None:
        """Send a control message."""
        self._may_end = self._may_end or message["t"] == "stop"
        self._place.control.send(self._worker.id, message)

    def kill(self, _verdict: str) -> None:
        """End it now."""
        if self._pidfd < 0:
            self._worker.over(None)
            return
        self._is_killed = True
        self._end()

    def _end(self) -> None:
        """It is over in a bounded time from now on."""
        with contextlib.suppress(ProcessLookupError):  # reaped already: its end is on the way to us
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._timer is None:
            self._wait(limits.KILL_SECONDS_MAX, self._linger)

    def _hear(self, message: Message) -> None:
        if message["t"] != "thread":
            self._worker.hear(message)
        elif isinstance(number := message.get("thread"), int) and not self._thread:
            self._thread = number
            self._look()

    def _look(self) -> None:
        """Kill it if it is ending: an end that hangs is to be over in a bounded time, whoever has told it to end.

        It is ending when its thread that speaks to us has gone.  A process that writes a core dump has all its threads
        until that is written.
        """
        if self._timer is not None or self._may_end:
            return
        if _has_gone(self.pid, self._thread):
            self._end()
        else:
            self._look_timer = self._place.loop.call_later(limits.WATCHDOG_SECONDS_MAX, self._look)

    def close(self) -> None:
        """It is over: what was held for it may go.  Its pidfd stays while it lingers."""
        self._place.control.forget(self._worker.id)
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        for reader in self._readers:
            reader.finish()
        if not self._lingers:
            self._close_pidfd()

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._place.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """For one thing at a time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._place.loop.call_later(seconds, then)

    def _linger(self) -> None:
        """It hangs in the kernel: only those wait for its end who must know that its memory is closed."""
        self._lingers = True
        self._place.lingering.add(self.pid)
        self._worker.over(None, lingers="was killed" if self._is_killed else "began to end")

    def _over(self, status: int | None) -> None:
        """It has ended."""
        if not self._lingers:
            self._worker.over(status)
            return
        self._lingers = False
        self._place.lingering.discard(self.pid)
        self.close()
        self._worker.gone(status)

    def _died(self) -> None:
        """The pidfd says that the process is gone; the nursery knows why, and says it at about the same time."""
        self._place.loop.remove_reader(self._pidfd)
        self._is_dead = True
        if self._orphan:
            self._over(None)
        else:
            self._wait(limits.EXIT_STATUS_SECONDS_MAX, partial(self._exited, None))

    def _exited(self, status: int | None) -> None:
        """status: None when there is nobody who knows it."""
        if status is None and self._pidfd >= 0 and not self._is_dead:
            # Its nursery was killed, and the kernel signals what that leaves; make sure of it.  It is over when its
            # pidfd says so: until then it may write to the memory that we share.
            self._orphan = True
            self.kill("")
        else:
            self._over(status)


def _has_gone(pid: int, thread: int) -> bool:
    """Whether a thread is not there any more, and its process is."""
    threads = f"/proc/{pid}/task"
    try:
        os.stat(f"{threads}/{thread}")
    except (FileNotFoundError, ProcessLookupError):
        return os.path.exists(threads)
    except OSError:
        pass  # it may be there: the system has no memory to tell, for example
    return False
