"""One environment's nursery as the server sees it: fork requests out, children and their ends back.

Layer 4 (processes).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from tisfast import limits
from tisfast.environments.environment import Interpreter
from tisfast.errors import Internal
from tisfast.processes.backoff import Backoff
from tisfast.processes.nursery_process import NurseryProcess, spawn_nursery

log = logging.getLogger("tisfast.nursery")


class NurseryFailed(Internal):
    """The environment's interpreter did not come up, or could not fork."""


class Child(NamedTuple):
    """A forked worker.  The receiver owns `pidfd` and closes it."""

    pid: int
    pidfd: int

    def dismiss(self) -> None:
        """Kill a child that is not wanted any more."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)


class NurseryFacts(NamedTuple):
    """Facts that a nursery reports when it is up."""

    pid: int
    python: str
    abi: int
    numpy: str | None
    numpy_error: str = ""


@dataclass(frozen=True)
class ForkOrder:
    """The order to fork a worker (workers/WIRE.md, 2)."""

    id: str
    endpoint: str
    token: bytes
    env: dict[str, str]
    threads: int

    def packet(self) -> bytes:
        """The fork request as it goes to the nursery."""
        return bytes(msgpack.packb({"t": "fork", **self.__dict__}))


ExitHandler = Callable[[int | None], None]
"""Called once with the wait status of a child, or None when the nursery died and it is not known."""


class _Life:
    """One nursery process and what is known of its children."""

    def __init__(self, spawned: NurseryProcess, loop: asyncio.AbstractEventLoop) -> None:
        self.spawned = spawned
        self.born = loop.time()
        self.facts: asyncio.Future[NurseryFacts | None] = loop.create_future()
        self.forks: dict[str, asyncio.Future[Child | str]] = {}
        self.exits: dict[str, ExitHandler] = {}
        self.sends: deque[tuple[bytes, Sequence[int]]] = deque()
        self.stderr = bytearray()
        self.dead = False


class Nursery:
    """Forks workers of one environment.  A nursery process that died is replaced at the next fork, after a delay."""

    def __init__(
        self,
        interpreter: str,
        loop: asyncio.AbstractEventLoop,
        spawned: NurseryProcess | None = None,
        about: Interpreter | None = None,
        imports: str = "",
    ) -> None:
        """interpreter: absolute path.  spawned: a process already under way (its socket and pipe become ours).

        about: the interpreter, unless it is the server's own.  imports: a module that its workers share, "" for none.
        """
        self.interpreter = interpreter
        self.about = about or Interpreter(interpreter)
        self.imports = imports
        self._loop = loop
        self._backoff = Backoff()
        self._not_before = 0.0
        self._life: _Life | None = self._adopt(spawned) if spawned is not None else None

    @property
    def pid(self) -> int | None:
        """The nursery's process id while it runs."""
        return self._life.spawned.process.pid if self._life is not None else None

    async def up(self) -> NurseryFacts:
        """Wait until the nursery has said that it is up, starting it when needed.  Raises NurseryFailed."""
        life = await self._alive()
        try:
            facts = await asyncio.wait_for(asyncio.shield(life.facts), limits.NURSERY_START_SECONDS_MAX)
        except asyncio.TimeoutError:
            self._lost(life)
            raise NurseryFailed(
                f"{self.interpreter} did not start the worker runtime within {limits.NURSERY_START_SECONDS_MAX} s"
                f"{_said(life)}"
            ) from None
        if facts is None:
            raise NurseryFailed(f"{self.interpreter} could not start the worker runtime{_said(life)}")
        return facts

    async def fork(self, order: ForkOrder, fds: Sequence[int], on_exit: ExitHandler) -> Child:
        """Fork one worker with the eight descriptors of WIRE.md, which stay the caller's.

        on_exit is called once if and only if this returns.  Raises NurseryFailed.
        """
        await self.up()
        life = self._life
        if life is None or len(life.sends) >= limits.NURSERY_SENDS_MAX:
            raise NurseryFailed(f"the nursery of {self.interpreter} is not up or has too many fork requests queued")
        copies = self._copies(fds)
        answer: asyncio.Future[Child | str] = self._loop.create_future()
        life.forks[order.id] = answer
        life.exits[order.id] = on_exit
        life.sends.append((order.packet(), copies))
        self._flush(life)
        child = await self._answer(life, order.id, answer)
        if isinstance(child, str):
            raise NurseryFailed(f"{self.interpreter} could not fork a worker: {child}")
        return child

    def _copies(self, fds: Sequence[int]) -> list[int]:
        """Duplicates, so that a request that waits for room does not depend on the caller's descriptors."""
        copies: list[int] = []
        try:
            for fd in fds:
                copies.append(os.dup(fd))
        except OSError as error:
            _close_all(copies)
            raise NurseryFailed(f"cannot pass descriptors to the nursery: {error.strerror}") from error
        return copies

    async def _answer(self, life: _Life, worker: str, answer: asyncio.Future[Child | str]) -> Child | str:
        """A nursery that does not answer in time is of no use to anybody."""
        try:
            await self._wait(life, answer)
        except asyncio.CancelledError:
            life.exits.pop(worker, None)
            if not answer.done():
                answer.cancel()  # a child that comes all the same is killed when it is announced
            elif isinstance(child := answer.result(), Child):
                child.dismiss()
            raise
        if not answer.done():
            self._lost(life)  # answers it
        return answer.result()

    async def _wait(self, life: _Life, answer: asyncio.Future[Child | str]) -> None:
        """Until it has answered, or is stopped, or time is up."""
        end = self._loop.time() + limits.NURSERY_START_SECONDS_MAX
        while self._loop.time() < end:
            if (await asyncio.wait({answer}, timeout=limits.NURSERY_LOOK_SECONDS))[0]:
                return
            if _stopped(life.spawned.process.pid):
                log.error(
                    "the nursery of %s was stopped by a signal; it is replaced, with its workers", self.interpreter
                )
                return

    def close(self) -> None:
        """End the nursery and, with it, whatever children it still has."""
        if self._life is not None:
            self._lost(self._life)

    async def _alive(self) -> _Life:
        while self._life is None:
            wait = self._not_before - self._loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            try:
                self._life = self._adopt(spawn_nursery(self.interpreter, self._variables(), self.imports))
            except OSError as error:
                raise NurseryFailed(
                    f"cannot execute {self.interpreter}: {error.strerror}; check EXECUTION_ENV_PATH"
                ) from None
        return self._life

    def _variables(self) -> dict[str, str] | None:
        return None if self.about.environment is None else dict(self.about.variables)

    def _adopt(self, spawned: NurseryProcess) -> _Life:
        life = _Life(spawned, self._loop)
        self._loop.add_reader(spawned.socket.fileno(), self._readable, life)
        self._loop.add_reader(spawned.stderr, self._complained, life)
        return life

    def _readable(self, life: _Life) -> None:
        try:
            packet, fds, _, _ = socket.recv_fds(
                life.spawned.socket, limits.NURSERY_MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return
        except OSError as error:
            log.error("nursery socket of %s failed: %s", self.interpreter, error)
            self._lost(life)
            return
        if not packet:
            self._lost(life)
            return
        try:
            self._handle(life, msgpack.unpackb(packet, raw=False), fds)
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            log.error("nursery of %s sent what is no message of ours: %r", self.interpreter, error)
            self._lost(life)
        finally:
            for fd in fds:
                os.close(fd)

    def _handle(self, life: _Life, message: dict[str, Any], fds: list[int]) -> None:
        """fds: emptied of what found an owner."""
        kind = message["t"]
        if kind == "nursery" and not life.facts.done():
            life.facts.set_result(
                NurseryFacts(
                    int(message["pid"]),
                    str(message["python"]),
                    int(message["abi"]),
                    message["numpy"],
                    str(message.get("numpy_error", "")),
                )
            )
        elif kind == "forked":
            self._forked(life, message["id"], int(message["pid"]), fds)
        elif kind == "fork_failed":
            life.exits.pop(message["id"], None)
            failed = life.forks.pop(message["id"])
            if not failed.done():
                failed.set_result(str(message["error"]))
        elif kind == "exited":
            handler = life.exits.pop(message["id"], None)
            if handler is not None:
                handler(int(message["status"]))
        else:
            raise ValueError(f"unknown message type {kind!r}")

    def _forked(self, life: _Life, worker: str, pid: int, fds: list[int]) -> None:
        answer = life.forks.pop(worker)
        if not fds:  # there was no room for its pidfd in this process
            life.exits.pop(worker, None)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if not answer.done():
                answer.set_result("the server has no descriptor left for it; raise the limit of open files (ulimit -n)")
        elif answer.done():  # nobody waits any more: the child is of no use
            Child(pid, fds.pop()).dismiss()
        else:
            answer.set_result(Child(pid, fds.pop()))

    def _flush(self, life: _Life) -> None:
        """Send what waits; what finds no room goes when the socket has some."""
        while life.sends:
            packet, fds = life.sends[0]
            try:
                socket.send_fds(life.spawned.socket, [packet], fds, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._loop.add_writer(life.spawned.socket.fileno(), self._flush, life)
                return
            except OSError:
                break  # it died; end-of-file on the socket follows and tells everybody
            life.sends.popleft()
            _close_all(fds)
        self._loop.remove_writer(life.spawned.socket.fileno())

    def _complained(self, life: _Life) -> None:
        """Keep the tail of what the nursery prints: it should print nothing, unless it cannot start."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(life.spawned.stderr, 4096)
            if not chunk:
                self._loop.remove_reader(life.spawned.stderr)
                return
            if life.facts.done():
                log.warning("nursery of %s: %s", self.interpreter, chunk.decode("utf-8", "replace").rstrip())
            life.stderr += chunk
            del life.stderr[: -limits.NURSERY_STDERR_BYTES_MAX]

    def _lost(self, life: _Life) -> None:
        """The nursery is gone or must go: its children with it."""
        if life.dead:
            return
        life.dead = True
        self._life = None
        self._complained_last(life)
        self._loop.remove_reader(life.spawned.socket.fileno())
        self._loop.remove_writer(life.spawned.socket.fileno())
        self._loop.remove_reader(life.spawned.stderr)
        # Before its socket ends: a nursery that sees that takes the server for dead, and removes the control directory,
        # which other nurseries use.
        life.spawned.process.kill()
        life.spawned.socket.close()
        os.close(life.spawned.stderr)
        for _, fds in life.sends:
            _close_all(fds)
        _reap(life.spawned.process)
        was_up = life.facts.done()
        self._not_before = self._loop.time() + self._backoff.next_seconds(
            was_ready=was_up, lived_seconds=self._loop.time() - life.born
        )
        if not was_up:
            life.facts.set_result(None)
        for worker, answer in life.forks.items():
            life.exits.pop(worker, None)
            if not answer.done():
                answer.set_result("the nursery ended")
        for handler in list(life.exits.values()):
            handler(None)

    def _complained_last(self, life: _Life) -> None:
        with contextlib.suppress(OSError):
            life.stderr += os.read(life.spawned.stderr, limits.NURSERY_STDERR_BYTES_MAX)


def _stopped(pid: int) -> bool:
    """Whether a process does nothing until SIGCONT."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read(4096).rpartition(b") ")[2][:1] in b"Tt"
    except OSError:
        return False  # it is gone; its socket says so


def _said(life: _Life) -> str:
    text = life.stderr.decode("utf-8", "replace").strip()
    return f"; it printed: {text}" if text else ""


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """It was killed; its children have that as death signal."""
    try:
        process.wait(limits.KILL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        log.error("nursery %d does not end after SIGKILL", process.pid)
