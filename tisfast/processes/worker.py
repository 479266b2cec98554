"""One worker, from its birth to its end.  What follows an end is instance.py's affair.  Layer 4 (processes)."""

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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tisfast import limits
from tisfast.engine.custom_metrics import CustomMetrics
from tisfast.environments.missing_modules import advice
from tisfast.errors import Internal
from tisfast.native.channel import abi_version
from tisfast.native.cuda_lanes import HANGS
from tisfast.processes import machine, metric_messages
from tisfast.processes.control_socket import ControlSocket, Message
from tisfast.processes.deaths import Deaths
from tisfast.processes.forked_process import ForkedProcess
from tisfast.processes.gpu_pool import BorrowerFace, GpuPool
from tisfast.processes.nursery import Nursery
from tisfast.processes.pinned_pool import PinnedPool
from tisfast.processes.readiness import ReadinessCheck
from tisfast.processes.worker_output import written_level
from tisfast.types import NO_DEVICE

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance

log = logging.getLogger("tisfast.processes")
printed = logging.getLogger("tisfast.model.output")
printed.setLevel(logging.DEBUG)  # what models write is the console's in Triton, whatever the log's switches say
spoken = logging.getLogger("tisfast.model")
MORE_MEMORY = "give it more, or lower the 'count' of its instance group"
LOADING_FREED = "what it had taken is free again; fewer loads at one time (--model-load-thread-count) take less, too"
NO_ROOM_IN_CPP = "std::bad_alloc"
FAREWELL = "tisfast worker: "
"""What the worker's own last line begins with (workers/tisfast_worker/control.py)."""
LEVELS = {"INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR, "VERBOSE": logging.DEBUG}


class WorkerFailed(Internal):
    """A worker did not become ready.  `traceback` is the model's, "" when there is none.

    missing: the module that was not found, "" when that was not it.
    """

    def __init__(self, message: str, *, traceback: str = "", kind: str = "died", missing: str = "") -> None:
        super().__init__(message, traceback=traceback, kind=kind)
        self.traceback = traceback
        self.kind = kind
        self.missing = missing

    def reword(self, change: Callable[[str], str]) -> None:
        """See TisError."""
        super().reword(change)
        self.traceback = change(self.traceback)


class End(NamedTuple):
    """How a worker ended.  text completes the sentence "the instance ..."; short: memory ran out, most likely."""

    status: int | None
    text: str
    short: bool = False


class ModelOrdersFace(Protocol):
    """The handler of a model's requests about models."""

    def answer(self, message: Message, reply: Callable[[Message], None]) -> None:
        """Answer one message of type "model" (workers/WIRE.md), now or later."""


@dataclass(frozen=True)
class Workplace:
    """The parts that every worker of a server uses."""

    loop: asyncio.AbstractEventLoop
    control: ControlSocket
    metrics: CustomMetrics
    models: ModelOrdersFace
    gpu_pool: GpuPool | None = None  # None: there is none to lend of
    pinned_pool: PinnedPool = field(default_factory=PinnedPool)
    lingering: set[int] = field(default_factory=set)  # processes that were killed and have not ended


class WorkerBody(Protocol):
    """The body of a worker: a process that a nursery forks (forked_process.py), or a thread of a guest (guests.py).

    It passes on what the worker says (Worker.hear), and tells its end (Worker.over) once, also after `kill`, or when
    the end has begun: within limits.KILL_SECONDS_MAX then.  Where the process has not ended by that time, it tells that
    later (Worker.gone).
    """

    @property
    def pid(self) -> int:
        """The process id, 0 while it is not known."""

    async def begin(self, fds: Sequence[int]) -> None:
        """Bring it to life with the seven data descriptors, which stay the caller's.  Raises Internal, OSError."""

    def tell(self, message: Message) -> None:
        """Send a control message."""

    def kill(self, verdict: str) -> None:
        """End it now.  verdict completes "the instance ..."."""

    def close(self) -> None:
        """It is over: what was held for it may go."""


class DeathsFace(Protocol):
    """The record of requests that were executing when a worker died (deaths.py)."""

    def advice(self, requests: Sequence[Any]) -> dict[str, list[Any]]:
        """The error text for each request."""


@dataclass(frozen=True)
class Birth:
    """A worker to be started: its name for the log, its load message, its descriptors.

    loading: entered while it loads; told: what is logged once of a model, whichever of its workers says it; deaths:
    what its workers were executing when they died; bear: makes what it lives in; once: when it is gone, there is nobody
    who could start another one.
    """

    name: str  # of the instance
    load: Message
    nursery: Nursery | None  # None of what a guest serves
    planned: PlannedInstance
    env: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    load_seconds_max: float = limits.LOAD_SECONDS_MAX
    loading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    told: set[str] = field(default_factory=set)
    deaths: DeathsFace = field(default_factory=Deaths)
    bear: Callable[[Worker], WorkerBody] = ForkedProcess
    once: bool = False

    @property
    def facts(self) -> dict[str, str]:
        """The fields of every log line about this worker."""
        model = self.load["model"]
        return {"model": model["name"], "version": str(model["version"]), "instance": self.name}


def describe_status(status: int | None) -> str:
    """A wait status in words: "was killed by signal 9 (SIGKILL)", "exited with code 3"."""
    if status is None:
        return "ended together with the process that had forked it, which is started again"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "real-time signal"
        return f"was killed by signal {number} ({name})"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"


class Worker:
    """A worker.  `ended` is done when it is over, and then everything it held is closed.

    One that was killed is over in a bounded time, but its process may still be there (`lingers`): what that has open
    stays open until it `is_gone`.
    """

    def __init__(self, birth: Birth, place: Workplace) -> None:
        self.birth = birth
        self.ended: asyncio.Future[End] = place.loop.create_future()
        self.serves = False  # it is loaded and warmed up
        self.on_calls: Callable[[], None] | None = None  # called when its model is about to call others
        self.trace_context: Callable[[object], str | None] | None = None  # of a request, by its ticket
        self.borrower: BorrowerFace | None = None  # who keeps GPU memory that it is lent
        self.place = place
        self.token = secrets.token_bytes(16)
        self.id = f"{birth.name}#{self.token[:4].hex()}"
        self._load_sent = False
        self._hello: asyncio.Future[Message] = place.loop.create_future()
        self._result: asyncio.Future[Message] = place.loop.create_future()
        self.is_gone = False
        self._when_gone: list[Callable[[], None]] = []
        self._verdict = ""  # why we killed it, if we did
        self._last_words = ""  # the last line that it printed
        self._farewell = ""  # the last line in which it told why it ends
        self._oom_kills = machine.oom_kills()
        self.readiness: ReadinessCheck | None = None  # of a loaded model that has `is_ready`
        self._body = birth.bear(self)

    @property
    def pid(self) -> int:
        """The process id, 0 while it is not known."""
        return self._body.pid

    @property
    def lingers(self) -> str:
        """Which process was killed, and has not ended; "" when it serves, or is gone."""
        if not self.ended.done() or self.is_gone:
            return ""
        return self.named()

    def named(self) -> str:
        """Which process it is, for texts."""
        return f"{self._who} (pid {self.pid})"

    def when_gone(self, work: Callable[[], None]) -> None:
        """Call this when its process has ended; now, where it has."""
        if self.is_gone:
            work()
        else:
            self._when_gone.append(work)

    @property
    def pins(self) -> bool:
        """It has pinned memory of its arenas, or may at any moment: their pages must stay."""
        return self.place.pinned_pool.bytes_of(self.id) > 0

    async def start(self, fds: Sequence[int]) -> Message:
        """Begin with the seven data descriptors (which stay the caller's), load, and return `ready` or `completed`.

        Raises WorkerFailed, after which the process is gone or about to be.
        """
        try:
            with self.birth.loading():
                await self._begin(fds)
                await self._first(self._hello, limits.HELLO_SECONDS_MAX, "say hello")
                self._body.tell(self.birth.load)
                self._load_sent = True
                result = await self._first(self._result, self.birth.load_seconds_max, "load the model")
        except BaseException:
            self.kill("did not start")
            raise
        if result["t"] == "failed":
            self.kill("failed to load")
            raise self._load_failure(result)
        if result.get("checks"):
            self.readiness = ReadinessCheck(self.birth.name, self.place.loop, self._body.tell)
        return result

    def _explained(self, failed: Message) -> str:
        """The model's error, and advice about a package that it lacks."""
        error = str(failed.get("error", "unknown error"))
        where = str(failed.get("looked_in", ""))
        return "; ".join(filter(None, (error, self._advice(failed), where)))

    def _advice(self, message: Message) -> str:
        """Advice about a package that the model lacks, "" when it lacks none."""
        error, module = str(message.get("error", "")), str(message.get("missing", ""))
        model, ignored = str(self.birth.load["model"]["name"]), os.environ.get("PYTHONPATH", "")
        if self.birth.nursery is None:
            return ""  # the process is its user's, who knows what is in it
        return advice(error, module, self.birth.nursery.about, model, ignored)

    def stop(self) -> None:
        """Ask it to finish what it holds, finalize and exit; `ended` tells when it did."""
        self._body.tell({"t": "stop"})

    def set_verbose(self, level: int) -> None:
        """Pass a new log_verbose_level on, unless the level comes with what it is still to load."""
        if self._load_sent:
            self._body.tell({"t": "verbose", "level": level})

    def kill(self, verdict: str) -> None:
        """End it now.  verdict completes "the instance ..." in what its requests are told."""
        if self.ended.done():
            return
        self._verdict = self._verdict or verdict
        self._body.kill(self._verdict)

    @property
    def _who(self) -> str:
        return f"instance {self.birth.name} of model '{self.birth.facts['model']}'"

    def _load_failure(self, message: Message) -> WorkerFailed:
        """The error of a model that raised, with advice where it ran out of memory."""
        text = self._explained(message)
        if message.get("shortage"):
            text += f"; {self._who} {message['shortage']} when it loaded: {MORE_MEMORY}; {LOADING_FREED}"
        kind, missing = str(message.get("kind", "init")), str(message.get("missing", ""))
        return WorkerFailed(text, traceback=str(message.get("traceback", "")), kind=kind, missing=missing)

    async def _begin(self, fds: Sequence[int]) -> None:
        try:
            await self._body.begin(fds)
        except Internal as error:
            raise WorkerFailed(error.message, kind="fork") from None
        except OSError as error:
            raise WorkerFailed(f"cannot fork a worker for {self.birth.name}: {error.strerror}", kind="fork") from error

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

    def hear(self, message: Message) -> None:
        """For the body: a control message of this worker's."""
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
            answer = metric_messages.answer(self.place.metrics, self.id, message)
            if answer is not None:
                self._body.tell(answer)
        elif kind == "model":
            self._asked_about_models(message)
        elif kind == "calls" and self.on_calls is not None:
            self.on_calls()
        elif kind in ("gpu_memory", "pin"):
            self._asked_for_memory(message)
        elif kind == "context":
            self._body.tell({"t": "answer", "n": message.get("n"), "context": self._context(message.get("request"))})

    def _context(self, ticket: object) -> str | None:
        return self.trace_context(ticket) if isinstance(ticket, int) and self.trace_context is not None else None

    def _asked_for_memory(self, message: Message) -> None:
        if message["t"] == "pin":
            if not self.ended.done():
                self._body.tell(self.place.pinned_pool.answer(self.id, message))
        elif "closed" in message:
            if self.borrower is not None and isinstance(message["closed"], int):
                self.borrower.closed_there(message["closed"], str(message.get("error", "")))
        elif "copied" in message:
            if self.borrower is not None and isinstance(message["copied"], int):
                self.borrower.copied(message["copied"])
        elif self.place.gpu_pool is None or self.borrower is None:
            self._body.tell({"t": "answer", "n": message.get("n"), "error": "the server lends none"})
        elif message.get("back"):
            self.borrower.lend(None, is_open=bool(message.get("unclosed")))
            self._body.tell({"t": "answer", "n": message.get("n")})
        elif "forgone" in message:
            self.place.gpu_pool.forgone(message, self.borrower)
        elif "unopened" in message:
            self.place.gpu_pool.unopened(message, self.borrower, self.named())
        elif "copy" in message:
            self.place.gpu_pool.copy(message, self.borrower, self._tell, self._who)
        else:
            self.place.gpu_pool.answer(message, self.borrower, self._tell, self._who)

    def _tell(self, message: Message) -> None:
        """An answer that took some time."""
        if not self.ended.done():
            self._body.tell(message)

    def _asked_about_models(self, message: Message) -> None:
        if message.get("do") == "takes_gpu":
            message = {**message, "gpu": NO_DEVICE if self.borrower is None else self.borrower.gpu}
        if self.serves or message.get("do") in ("ready", "takes_gpu"):
            self.place.models.answer(message, self._body.tell)
            return
        error = "a model that is being loaded or warmed up cannot load and unload models: its own load waits for it"
        self._body.tell({"t": "answer", "n": message.get("n"), "error": error})

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
        once = message.get("once")
        if isinstance(once, str):
            once = once[: limits.TOLD_ONCE_CHARS_MAX]
            if once in self.birth.told or len(self.birth.told) >= limits.TOLD_ONCE_MAX:
                return
            self.birth.told.add(once)
            extra["facts"] = {**self.birth.facts, "once": once}
        if isinstance(message.get("line"), int):
            extra["source"] = (str(message.get("file", "")), message["line"])
        text = self._naming_regions(message.get("msg", ""))
        spoken.log(LEVELS.get(str(message.get("level")), logging.INFO), "%s", text, extra=extra)

    def _naming_regions(self, text: object) -> str:
        return str(text) if self.borrower is None else self.borrower.name_regions(str(text))

    def _traced(self, message: Message) -> None:
        requests = message.get("requests")
        ids = [str(i) for i in requests if i] if isinstance(requests, (list, tuple)) else []
        facts = {**self.birth.facts, "request_ids": ids}
        advised = self._advice(message)
        spoken.error(
            "model '%s' version %s, instance %s %s%s: %s%s",
            facts["model"],
            facts["version"],
            self.birth.name,
            "raised" if message.get("traceback") else "failed",
            f" for request {', '.join(ids)}" if ids else "",
            self._naming_regions(message.get("error", "")),
            f"; {advised}" if advised else "",
            extra={"facts": facts, "traceback": str(message.get("traceback", ""))},
        )

    def complained(self, text: str) -> None:
        """Log a line of stderr: at the level that the line states, or as a warning."""
        self.printed(text, written_level(text))
        if self._last_words.startswith(FAREWELL):
            self._farewell = self._last_words.removeprefix(FAREWELL)

    def printed(self, text: str, level: int = logging.INFO) -> None:
        """For the body: one line of its output, or more of a model that prints many."""
        self._last_words = text[text.rfind("\n") + 1 :]
        more = text.count("\n")
        if more:
            text = f"{more + 1} lines:\n{text}"
        extra = {"facts": self.birth.facts, "indented": more > 0, "always": True}
        printed.log(level, "%s: %s", self.birth.name, text, extra=extra)

    def over(self, status: int | None, text: str = "", *, lingers: str = "") -> None:
        """For the body: it is gone, or it lingers: it does not end, and `gone` is to follow.

        status: as `os.waitpid` returns it, None where it is not known; text: how, as End has it, where that is known;
        lingers: what has happened to it ("was killed").
        """
        if self.ended.done():
            return
        if lingers:
            text = f"{lingers} (its process has not ended yet)"
        self._verdict = self._verdict or text
        self.place.metrics.forget(self.id)
        # The link's, whose memory is not to wait for the garbage collector.
        self.on_calls = self.trace_context = self.borrower = None
        if self.readiness is not None:
            self.readiness.close()
        self._body.close()
        self.ended.set_result(End(status, self._verdict) if self._verdict else self._end(status))
        if lingers:
            log.error(
                "%s %s and has not ended within %g s: %s. The server goes on without it. Until it ends, its memory "
                "stays taken%s",
                self.lingers, lingers, limits.KILL_SECONDS_MAX, *self._why_it_lingers,
                extra={"facts": self.birth.facts},
            )  # fmt: skip
        else:
            self._has_gone()

    @property
    def _why_it_lingers(self) -> tuple[str, str]:
        """What may hold a process that was killed, as far as is known here, and what to do."""
        look = f"'ps -L -o stat,wchan:40 -p {self.pid}' says what it waits for"
        others = "a file system that does not answer, a debugger, or much memory that it gives back"
        if self.birth.planned.kind == "GPU":
            return (
                f"most likely it hangs in its GPU's driver; else {others} may hold it ({look})",
                f", and clients' GPU memory stays open in it. {HANGS}",
            )
        return f"{others} may hold it, or a device that the model uses ({look})", ""

    def gone(self, status: int | None) -> None:
        """For the body: the process has ended of one that lingered.  status: see `over`."""
        how = "" if status is None else f": {self._described(status)}"
        log.info("%s has ended%s", self.lingers, how, extra={"facts": self.birth.facts})
        self._has_gone()

    def _has_gone(self) -> None:
        self.is_gone = True
        self.place.pinned_pool.forget(self.id)
        work, self._when_gone = self._when_gone, []
        for each in work:
            each()

    def _end(self, status: int | None) -> End:
        """Not by us.  Killed when the kernel kills for memory, or without room for a C++ object: it was short."""
        text = self._described(status)
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        if number == signal.SIGKILL and machine.oom_kills() > self._oom_kills:
            return End(status, f"{text}, most likely by the kernel, for want of memory: {MORE_MEMORY}", True)
        if number == signal.SIGABRT and NO_ROOM_IN_CPP in self._last_words:
            return End(status, f"{text}, for want of memory ({NO_ROOM_IN_CPP}): {MORE_MEMORY}", True)
        return End(status, text)

    def _described(self, status: int | None) -> str:
        """A wait status in words, and why, where the worker has said that."""
        return describe_status(status) + (f" ({self._farewell})" if self._farewell else "")
