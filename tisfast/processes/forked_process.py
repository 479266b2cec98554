"""The process of a worker that a nursery forks: its birth, what it prints, its end.  Layer 4 (processes)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tisfast import limits
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
        self._readers: list[LineReader] = []
        self._no_status: asyncio.TimerHandle | None = None

    async def begin(self, fds: Sequence[int]) -> None:
        """Fork.  Raises NurseryFailed, OSError."""
        worker, place = self._worker, self._place
        assert worker.birth.nursery is not None
        place.control.expect(worker.id, worker.token, worker.hear)
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
        self._place.control.send(self._worker.id, message)

    def kill(self, _verdict: str) -> None:
        """End it now."""
        if self._pidfd < 0:
            self._worker.over(None)
            return
        with contextlib.suppress(ProcessLookupError):  # reaped already: its end is on the way to us
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """It is gone: what was held for it may go."""
        self._place.control.forget(self._worker.id)
        if self._no_status is not None:
            self._no_status.cancel()
        if self._pidfd >= 0:
            self._place.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        for reader in self._readers:
            reader.finish()

    def _died(self) -> None:
        """The pidfd says that the process is gone; the nursery knows why, and says it at about the same time."""
        self._place.loop.remove_reader(self._pidfd)
        if self._orphan:
            self._worker.over(None)
            return
        self._no_status = self._place.loop.call_later(limits.EXIT_STATUS_SECONDS_MAX, self._exited, None)

    def _exited(self, status: int | None) -> None:
        if status is None and self._pidfd >= 0 and self._no_status is None:
            self._kill_orphan()  # over when its pidfd says so: until then it may write to the memory that we share
            return
        self._worker.over(status)

    def _kill_orphan(self) -> None:
        """A nursery that was killed leaves children that the kernel signals; make sure of it."""
        self._orphan = True
        self._no_status = self._place.loop.call_later(limits.KILL_SECONDS_MAX, self._worker.over, None)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
