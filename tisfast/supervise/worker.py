"""One worker process, from its fork to its end.  What follows an end is instance.py's affair.  Layer 4 (supervise)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tisfast import limits
from tisfast.engine.custom_metrics import CustomMetrics
from tisfast.environments.missing import advice
from tisfast.errors import Internal
from tisfast.native.channel import abi_version
from tisfast.supervise import machine, metric_messages
from tisfast.supervise.control import Control, Message
from tisfast.supervise.nursery import ForkOrder, Nursery
from tisfast.supervise.output import LineReader
from tisfast.supervise.readiness import ReadinessCheck

if TYPE_CHECKING:
    from tisfast.config.instances import Instance as PlannedInstance
    from tisfast.supervise.model_control import ModelControl

printed = logging.getLogger("tisfast.model.output")
spoken = logging.getLogger("tisfast.model")
MORE_MEMORY = "give it more, or lower the 'count' of its instance group"
LOADING_FREED = "what it had taken is free again; fewer loads at one time (--model-load-thread-count) take less, too"
NO_ROOM_IN_CPP = "std::bad_alloc"
LEVELS = {"INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR, "VERBOSE": logging.DEBUG}


class WorkerFailed(Internal):
    """A worker did not become ready.  `traceback` is the model's, "" when there is none."""

    def __init__(self, message: str, *, traceback: str = "", kind: str = "died") -> None:
        super().__init__(message, traceback=traceback, kind=kind)
        self.traceback = traceback
        self.kind = kind


class End(NamedTuple):
    """How a worker ended.  text completes the sentence "the instance ..."; short: memory ran out, most likely."""

    status: int | None
    text: str
    short: bool = False


@dataclass(frozen=True)
class Workplace:
    """What every worker of a server needs."""

    loop: asyncio.AbstractEventLoop
    control: Control
    metrics: CustomMetrics
    models: ModelControl


@dataclass(frozen=True)
class Birth:
    """One worker to be: who it is for the log, what it loads, what it gets.  loading: entered while it loads."""

    name: str  # of the instance
    load: Message
    nursery: Nursery
    planned: PlannedInstance
    env: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    load_seconds_max: float = limits.LOAD_SECONDS_MAX
    loading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    @property
    def facts(self) -> dict[str, str]:
        """What every log line about this worker carries."""
        model = self.load["model"]
        return {"model": model["name"], "version": str(model["version"]), "instance": self.name}


def describe_status(status: int | None) -> str:
    """A wait status in words: "was killed by signal 9 (SIGKILL)", "exited with code 3"."""
    if status is None:
        return "ended with its nursery process"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "real-time signal"
        return f"was killed by signal {number} ({name})"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"


class Worker:
    """A worker process.  `ended` is done when it is gone, and then everything it held is closed."""

    def __init__(self, birth: Birth, place: Workplace) -> None:
        self.birth = birth
        self.ended: asyncio.Future[End] = place.loop.create_future()
        self.pid = 0
        self.serves = False  # it is loaded and warmed up
        self.on_calls: Callable[[], None] | None = None  # called when its model is about to call others
        self.trace_context: Callable[[object], str | None] | None = None  # of a request, by its ticket
        self._place = place
        self._token = secrets.token_bytes(16)
        self._id = f"{birth.name}#{self._token[:4].hex()}"
        self._pidfd = -1
        self._load_sent = False
        self._orphan = False  # its nursery is gone: only the pidfd tells its end
        self._readers: list[LineReader] = []
        self._hello: asyncio.Future[Message] = place.loop.create_future()
        self._result: asyncio.Future[Message] = place.loop.create_future()
        self._verdict = ""  # why we killed it, if we did
        self._last_words = ""  # the last line that it printed
        self._oom_kills = machine.oom_kills()
        self.readiness: ReadinessCheck | None = None  # of a loaded model that has `is_ready`
        self._no_status: asyncio.TimerHandle | None = None

    async def start(self, fds: Sequence[int]) -> Message:
        """Fork with the six data descriptors (which stay the caller's), load, and return `ready` or `completed`.

        Raises WorkerFailed, after which the process is gone or about to be.
        """
        try:
            with self.birth.loading():
                await self._fork(fds)
                await self._first(self._hello, limits.HELLO_SECONDS_MAX, "say hello")
                self._place.control.send(self._id, self.birth.load)
                self._load_sent = True
                result = await self._first(self._result, self.birth.load_seconds_max, "load the model")
        except BaseException:
            self.kill("did not start")
            raise
        if result["t"] == "failed":
            self.kill("failed to load")
            raise self._load_failure(result)
        if result.get("checks"):
            self.readiness = ReadinessCheck(self.birth.name, self._place.loop, self._tell)
        return result

    def _explained(self, failed: Message) -> str:
        """What the model raised, and where a package is to be had that it lacks."""
        error = str(failed.get("error", "unknown error"))
        interpreter, model = self.birth.nursery.about, str(self.birth.load["model"]["name"])
        advised = advice(error, str(failed.get("missing", "")), interpreter, model)
        return f"{error}; {advised}" if advised else error

    def stop(self) -> None:
        """Ask it to finish what it holds, finalize and exit; `ended` tells when it did."""
        self._place.control.send(self._id, {"t": "stop"})

    def set_verbose(self, level: int) -> None:
        """Pass a new log_verbose_level on, unless the level comes with what it is still to load."""
        if self._load_sent:
            self._place.control.send(self._id, {"t": "verbose", "level": level})

    def kill(self, verdict: str) -> None:
        """End it now.  verdict completes "the instance ..." in what its requests are told."""
        if self.ended.done():
            return
        self._verdict = self._verdict or verdict
        if self._pidfd < 0:
            self._over(None)
            return
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # reaped already: its end is on the way to us

    def _load_failure(self, message: Message) -> WorkerFailed:
        """Of a model that raised, with what to do where it ran out of memory."""
        text = self._explained(message)
        if message.get("shortage"):
            who = f"instance {self.birth.name} of model '{self.birth.facts['model']}'"
            text += f"; {who} {message['shortage']} when it loaded: {MORE_MEMORY}; {LOADING_FREED}"
        return WorkerFailed(text, traceback=str(message.get("traceback", "")), kind=str(message.get("kind", "init")))

    def _tell(self, message: Message) -> None:
        self._place.control.send(self._id, message)

    async def _fork(self, fds: Sequence[int]) -> None:
        place, birth = self._place, self.birth
        place.control.expect(self._id, self._token, self._told)
        order = ForkOrder(self._id, place.control.endpoint, self._token, birth.env, birth.threads)
        writes: list[int] = []
        try:
            for _ in range(2):
                read, write = os.pipe()
                writes.append(write)
                self._readers.append(LineReader(read, self._printed, place.loop))
            child = await birth.nursery.fork(order, [*fds, *writes], self._exited)
        except Internal as error:
            raise WorkerFailed(error.message, kind="fork") from None
        except OSError as error:
            raise WorkerFailed(f"cannot fork a worker for {birth.name}: {error.strerror}", kind="fork") from error
        finally:
            for write in writes:
                os.close(write)
        self.pid = child.pid
        if self.ended.done():  # killed, or dead, before we knew it
            child.dismiss()
            return
        self._pidfd = child.pidfd
        place.loop.add_reader(self._pidfd, self._died)

    async def _first(self, answer: asyncio.Future[Message], seconds: float, what: str) -> Message:
        """The answer, unless the worker ends or the time is up first."""
        either: set[asyncio.Future[Any]] = {answer, self.ended}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self.ended.done():
            end = self.ended.result()
            raise WorkerFailed(
                f"the worker process of {self.birth.name} {end.text} before it could {what}"
                + (f"; {LOADING_FREED}" if end.short else ""),
                kind="memory" if end.short else "died",
            )
        raise WorkerFailed(
            f"the worker process of {self.birth.name} did not {what} within {seconds:g} s", kind="timeout"
        )

    def _told(self, message: Message) -> None:
        """A control message of this worker's."""
        kind = message["t"]
        if kind == "hello":
            self._greeted(message)
        elif kind in ("ready", "completed", "failed"):
            if not self._result.done():
                self._result.set_result(message)
        elif kind == "log":
            self._logged(message)
        elif kind == "trace":
            self._traced(message)
        elif kind == "readiness" and self.readiness is not None:
            self.readiness.answered(message)
        elif kind in metric_messages.KINDS_OF_MESSAGE:
            answer = metric_messages.answer(self._place.metrics, self._id, message)
            if answer is not None:
                self._place.control.send(self._id, answer)
        elif kind == "model":
            self._asked_about_models(message)
        elif kind == "calls" and self.on_calls is not None:
            self.on_calls()
        elif kind == "context":
            self._tell({"t": "answer", "n": message.get("n"), "context": self._context(message.get("request"))})

    def _context(self, ticket: object) -> str | None:
        return self.trace_context(ticket) if isinstance(ticket, int) and self.trace_context is not None else None

    def _asked_about_models(self, message: Message) -> None:
        if self.serves or message.get("do") == "ready":
            self._place.models.answer(message, self._tell)
            return
        error = "a model that is being loaded or warmed up cannot load and unload models: its own load waits for it"
        self._tell({"t": "answer", "n": message.get("n"), "error": error})

    def _greeted(self, message: Message) -> None:
        if message.get("abi") != abi_version():
            failure = (
                f"the worker runtime speaks version {message.get('abi')} of the protocol, the server {abi_version()}"
            )
            if self._result.done():
                return
            self._result.set_result({"t": "failed", "error": failure + "; reinstall tisfast", "kind": "abi"})
        if not self._hello.done():
            self._hello.set_result(message)

    def _logged(self, message: Message) -> None:
        extra: dict[str, Any] = {"facts": self.birth.facts}
        if isinstance(message.get("line"), int):
            extra["source"] = (str(message.get("file", "")), message["line"])
        spoken.log(LEVELS.get(str(message.get("level")), logging.INFO), "%s", message.get("msg", ""), extra=extra)

    def _traced(self, message: Message) -> None:
        requests = message.get("requests")
        ids = [str(i) for i in requests if i] if isinstance(requests, (list, tuple)) else []
        facts = {**self.birth.facts, "request_ids": ids}
        spoken.error(
            "model '%s' version %s, instance %s %s%s: %s",
            facts["model"],
            facts["version"],
            self.birth.name,
            "raised" if message.get("traceback") else "failed",
            f" for request {', '.join(ids)}" if ids else "",
            message.get("error", ""),
            extra={"facts": facts, "traceback": str(message.get("traceback", ""))},
        )

    def _printed(self, text: str) -> None:
        """One line, or more of a model that prints many."""
        self._last_words = text[text.rfind("\n") + 1 :]
        more = text.count("\n")
        if more:
            text = f"{more + 1} lines:\n{text}"
        printed.info("%s: %s", self.birth.name, text, extra={"facts": self.birth.facts, "indented": more > 0})

    def _died(self) -> None:
        """The pidfd says that the process is gone; the nursery knows why, and says it at about the same time."""
        self._place.loop.remove_reader(self._pidfd)
        if self._orphan:
            self._over(None)
            return
        self._no_status = self._place.loop.call_later(limits.EXIT_STATUS_SECONDS_MAX, self._exited, None)

    def _exited(self, status: int | None) -> None:
        if status is None and self._pidfd >= 0 and self._no_status is None:
            self._kill_orphan()  # over when its pidfd says so: until then it may write to the memory that we share
            return
        self._over(status)

    def _kill_orphan(self) -> None:
        """A nursery that was killed leaves children that the kernel signals; make sure of it."""
        self._orphan = True
        self._no_status = self._place.loop.call_later(limits.KILL_SECONDS_MAX, self._over, None)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _over(self, status: int | None) -> None:
        if self.ended.done():
            return
        self._place.control.forget(self._id)
        self._place.metrics.forget(self._id)
        self.on_calls = self.trace_context = None  # the link's, whose memory is not to wait for the garbage collector
        if self.readiness is not None:
            self.readiness.close()
        if self._no_status is not None:
            self._no_status.cancel()
        if self._pidfd >= 0:
            self._place.loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        for reader in self._readers:
            reader.finish()
        self.ended.set_result(End(status, self._verdict) if self._verdict else self._end(status))

    def _end(self, status: int | None) -> End:
        """Not by us.  Killed when the kernel kills for memory, or without room for a C++ object: it was short."""
        text = describe_status(status)
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        if number == signal.SIGKILL and machine.oom_kills() > self._oom_kills:
            return End(status, f"{text}, most likely by the kernel, for want of memory: {MORE_MEMORY}", True)
        if number == signal.SIGABRT and NO_ROOM_IN_CPP in self._last_words:
            return End(status, f"{text}, for want of memory ({NO_ROOM_IN_CPP}): {MORE_MEMORY}", True)
        return End(status, text)
