"""One codec process as the server sees it: a job out, its result back, its end.  Layer 3 (codec)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from tisfast import limits
from tisfast.codec.jobs import Job
from tisfast.codec.messages import Inbox, packed
from tisfast.end_signals import blocked_signals
from tisfast.errors import BY_STATUS, Internal, TisError, Unavailable
from tisfast.types import Status
from tisfast.wire.plain_values import describe_model

if TYPE_CHECKING:
    from tisfast.executor import DaemonExecutor
    from tisfast.native.memory import MemoryFile
    from tisfast.wire.signature import ModelSignature

log = logging.getLogger("tisfast.codec")

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tisfast.codec.main import main; sys.exit(main(sys.argv[2:]))"
)
"""With the server's own search path: whatever it imported, its codecs import."""


def spawn(memory_bytes: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a codec process: isolated, in its own process group, with no descriptor of ours but its socket.

    Call it in the main thread: the process dies with the thread that started it.  Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    command = [sys.executable, "-I", "-c", START, path, str(theirs.fileno()), str(os.getpid()), str(memory_bytes)]
    own_group: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
    try:
        with blocked_signals():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, close_fds=True,
                pass_fds=(theirs.fileno(),), cwd="/", **own_group,
            )  # fmt: skip
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, ours


class Bounds(NamedTuple):
    """Bounds of one process: bytes of private memory, and seconds for a job."""

    memory_bytes: int
    job_seconds: float


class Codec:
    """One process.

    copies: threads for what jobs copy; free: called when it has done a job; ended: when it is dead, and may write to
    nothing any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bounds: Bounds,
        copies: DaemonExecutor | None,
        free: Callable[[Codec], None],
        ended: Callable[[Codec], None],
    ) -> None:
        self._loop, self._copies, self._free, self._ended = loop, copies, free, ended
        self._seconds = bounds.job_seconds
        self._process, self._socket = spawn(bounds.memory_bytes)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            self._socket.close()
            raise
        self._inbox = Inbox()
        self._outbox: deque[tuple[memoryview, int]] = deque()
        self._told: dict[tuple[str, int], tuple[int, weakref.ref[Any]]] = {}
        self._numbers = 0
        self._late: asyncio.TimerHandle | None = None
        self._why = ""  # it is being killed
        self._mute = False  # it says nothing any more: it is about to be dead
        self.job: Job | None = None
        loop.add_reader(self._socket.fileno(), self._readable)
        loop.add_reader(self._pidfd, self._dead)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def closing(self) -> bool:
        """It takes no further jobs."""
        return self._mute or bool(self._why)

    # ---- jobs

    def run(self, job: Job) -> None:
        """Do it; `free` is called afterwards, or `ended`."""
        self.job = job
        self._late = self._loop.call_later(self._seconds, self.kill, f"it took more than {self._seconds:g} s")
        try:
            job.begin(self)
        except Exception as error:
            self._over(error)

    def hurry(self) -> None:
        """The job's client has gone."""
        if self._late is not None:
            self._late.cancel()
            self._late = self._loop.call_later(limits.CODEC_CANCELLED_SECONDS_MAX, self.kill, "its client has gone")

    def _over(self, error: Exception | None, result: Any = None) -> None:
        """The job has ended; what it held is free."""
        job, self.job = self.job, None
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._free(self)  # first: whoever is told may have the next job, and would start another process for it
        if job is not None:
            end(job, error, result)

    def _heard(self, kind: str, *rest: Any) -> None:
        if self.job is None:
            raise ValueError(f"{kind!r} without a job")
        if kind == "done":
            self._over(None, *rest)
        elif kind == "failed":
            status, text, request_id = rest
            self._over(BY_STATUS[Status(status)](text, **({"id": request_id} if request_id else {})))
        elif kind == "broken":
            name, trace = rest
            log.error("a codec process failed in what is our fault, when it %s:\n%s", self.job.what, trace)
            self._over(Internal(f"unexpected {name} in the server; see its log"))
        else:
            try:
                self.job.asked(self, kind, *rest)
            except TisError as error:
                self.send("refused", int(error.status), error.message)

    # ---- what it knows

    def model(self, signature: ModelSignature) -> int:
        """See CodecFace."""
        return self._known("model", signature, lambda number: self.send("model", number, describe_model(signature)))

    def file(self, file: MemoryFile, *, writable: bool) -> int:
        """See CodecFace.  What is only read is shown as such."""

        def show(number: int) -> None:
            fd = file.fd if writable else os.open(f"/proc/self/fd/{file.fd}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.send("file", number, file.nbytes, writable, fd=fd)
            finally:
                if fd != file.fd:
                    os.close(fd)

        return self._known("file" if writable else "read", file, show)

    def _known(self, kind: str, thing: Any, tell: Callable[[int], None]) -> int:
        key = (kind, id(thing))
        found = self._told.get(key)
        if found is not None:
            return found[0]
        self._numbers += 1
        number = self._numbers
        tell(number)
        self._told[key] = (number, weakref.ref(thing, lambda _: self._gone(key)))
        return number

    def _gone(self, key: tuple[str, int]) -> None:
        """From a finaliser, so at any instruction, of `send` too: the loop does the rest."""
        number, _ = self._told.pop(key)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._forget, "model" if key[0] == "model" else "file", number)

    def _forget(self, kind: str, number: int) -> None:
        if not self._why:
            self.send("forget", kind, number)

    # ---- the socket

    def send(self, *message: object, fd: int = -1) -> None:
        """A message, and a copy of a descriptor.  What finds no room goes when the socket has some."""
        data = memoryview(packed(message, int(fd >= 0)))
        self._outbox.append((data, os.dup(fd) if fd >= 0 else -1))
        if len(self._outbox) == 1:
            self._flush()

    def send_after(self, work: Callable[[], None], kept: object, *message: object) -> None:
        """See CodecFace."""
        done = self._loop.run_in_executor(self._copies, work)
        done.add_done_callback(partial(self._send_after, self.job, kept, message))

    def _send_after(
        self, job: Job | None, kept: object, message: tuple[object, ...], done: asyncio.Future[None]
    ) -> None:
        """A thread has done its part, whatever has become of the job meanwhile."""
        del kept
        error = done.exception()
        if self.closing or self.job is not job:
            return
        if isinstance(error, TisError):
            self.send("refused", int(error.status), error.message)
        elif error is not None:
            self.kill(f"its copy failed: {error!r}")
        else:
            self.send(*message)

    def _flush(self) -> None:
        while self._outbox:
            data, fd = self._outbox[0]
            try:
                sent = socket.send_fds(self._socket, [data], [fd] if fd >= 0 else [], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return
            except OSError:  # it died: its pidfd tells
                sent = len(data)
            if fd >= 0:
                os.close(fd)
            if sent < len(data):
                self._outbox[0] = (data[sent:], -1)
            else:
                self._outbox.popleft()
        self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            if not self._inbox.read(self._socket):
                return self._cut()
            for message, _ in self._inbox.messages():
                self._heard(*message)
                if self._why:
                    return None
        except BlockingIOError:
            return None
        except OSError:
            return self._cut()
        except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
            log.error("codec process %d sent what is no message of ours: %r", self.pid, error)
            self.kill("it sent what is no message")

    def _cut(self) -> None:
        """End of the stream: it is about to be dead, and then tells how."""
        self._mute = True
        self._loop.remove_reader(self._socket.fileno())
        if self._late is not None:
            self._late.cancel()
        self._late = self._loop.call_later(limits.EXIT_STATUS_SECONDS_MAX, self._process.kill)

    # ---- its end

    def close(self) -> None:
        """End it; an idle one ends by itself."""
        self.kill("the server ends")

    def kill(self, why: str) -> None:
        """End it and what it does, which is told at once; its memory is held until it is dead."""
        if self._why:
            return
        self._why = why
        self._process.kill()
        if self.job is not None:
            fail(self.job, Unavailable(f"the process that {self.job.what} was ended: {why}"))

    def _dead(self) -> None:
        code = self._process.wait()
        for fd in (self._socket.fileno(), self._pidfd):
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
        os.close(self._pidfd)
        self._socket.close()
        self._inbox.close()
        for _, fd in self._outbox:
            if fd >= 0:
                os.close(fd)
        self._outbox.clear()
        if self._late is not None:
            self._late.cancel()
        job, self.job = self.job, None
        if not self._why:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self._why = how
            log.error("codec process %d ended by itself (%s)", self.pid, how)
        if job is not None:  # told once, if it was not when the process was killed
            fail(job, Unavailable(f"the process that {job.what} ended ({self._why}); the request may be sent again"))
            job.forget()
        self._ended(self)


def end(job: Job, error: Exception | None, result: Any = None) -> None:
    """Deliver what became of a job, and let go of its memory."""
    try:
        if error is None and not job.cancelled:
            job.finish(result)
    except Exception as raised:
        error = raised
    if error is not None:
        fail(job, error)
    else:
        _deliver(job)
    job.forget()


def _deliver(job: Job) -> None:
    if job.cancelled:
        return
    job.cancelled = True  # it is told once
    try:
        job.done(job)
    except Exception:  # of whoever waits for it; the process goes on
        log.exception("what a codec process did could not be used")


def fail(job: Job, error: Exception) -> None:
    """Tell its owner, once."""
    if job.cancelled:
        return
    if isinstance(error, OSError):
        error = Unavailable(f"the request cannot be worked on: {error.strerror}; retry later")
    if not isinstance(error, TisError):
        log.error("a job of a codec process failed", exc_info=error)
        error = Internal(f"unexpected {type(error).__name__} in the server; see its log")
    job.error = error
    _deliver(job)
