"""Environments of a running server: each is prepared once, however many models ask, beside the event loop.

Layer 3 (environments).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tisfast import limits
from tisfast.environments import activation
from tisfast.environments.build import BuildContext, known_key
from tisfast.environments.build_errors import EnvironmentFailed, NoRoom, size_text
from tisfast.environments.build_job import order
from tisfast.environments.cache import EnvironmentCache, Lock
from tisfast.environments.environment import Environment, Interpreter
from tisfast.errors import BY_STATUS, TisError
from tisfast.types import Status

if TYPE_CHECKING:
    from tisfast.config.environments import EnvironmentSettings

log = logging.getLogger("tisfast.environments")
_FAILURES: Final[dict[Status, type[TisError]]] = {EnvironmentFailed.status: EnvironmentFailed, NoRoom.status: NoRoom}
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_JOB = """
import sys
if sys.argv[1] not in sys.path:
    sys.path.insert(0, sys.argv[1])
from tisfast.environments.build_job import main
sys.exit(main())
"""


class EnvironmentLease:
    """An interpreter that stays where it is until `release`."""

    def __init__(self, interpreter: Interpreter, lock: Lock | None = None) -> None:
        self.interpreter = interpreter
        self._lock = lock

    def release(self) -> None:
        """It does not run any more, so it may be removed from the cache."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class Environments:
    """Prepares environments.  Bound to the event loop it is first used in."""

    def __init__(self, settings: EnvironmentSettings) -> None:
        self._settings = settings
        self._running: dict[Environment, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # with those that are on their way out
        self._waiting: dict[asyncio.Task[None], int] = {}
        self._slots = asyncio.Semaphore(limits.ENVIRONMENT_BUILDS_MAX)

    async def prepare(self, environment: Environment, model: str) -> EnvironmentLease:
        """The interpreter of `environment`, which is prepared when it is not.  model: that needs it, for the log.

        Raises ConfigError, EnvironmentFailed, NoRoom.
        """
        if environment.interpreter is not None:
            return EnvironmentLease(await asyncio.to_thread(ready_made, environment))
        for _ in range(limits.ENVIRONMENT_ATTEMPTS_MAX):
            lease = await asyncio.to_thread(self._find, environment)
            if lease is not None:
                return lease
            await self._made(environment, model)
        raise EnvironmentFailed(f"{environment} is removed as often as it is prepared", "who prunes the cache?")

    async def close(self) -> None:
        """End what is under way.  Waits for what was given up, too: a second cancel would leave its process alone."""
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _context(self) -> BuildContext:
        return BuildContext(
            EnvironmentCache(Path(self._settings.folder())), self._settings.pyenv_root, self._settings.index
        )

    def _find(self, environment: Environment) -> EnvironmentLease | None:
        """The environment as it lies in the cache, held; None when it is to be prepared first."""
        context = self._context()
        try:
            key = known_key(context, environment)
            lock = None if key is None else context.cache.lock(key, exclusive=False)
        except OSError as error:
            raise EnvironmentFailed(f"{environment} cannot be looked up in {context.cache.folder}: {error}") from error
        if key is None or lock is None:
            return None
        entry, path = context.cache.find(key), context.cache.interpreter(key)
        if entry is None or path is None:
            lock.release()
            return None
        context.cache.used(key)
        variables = {**dict(entry.variables), **activation.variables(context.cache.home(key), os.environ)}
        return EnvironmentLease(Interpreter(str(path), tuple(sorted(variables.items())), environment), lock)

    async def _made(self, environment: Environment, model: str) -> None:
        """Wait until it is prepared.  The work ends when its last waiter stops waiting."""
        task = self._running.get(environment)
        if task is None:
            task = self._begun(environment, model)
        else:
            log.info("model '%s' waits for %s", model, environment, extra={"facts": {"model": model}})
        self._waiting[task] = self._waiting.get(task, 0) + 1
        try:
            await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                self._forget(environment, task)  # before it has ended: who comes now begins anew
                task.cancel()

    def _begun(self, environment: Environment, model: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._make(environment, model))
        self._running[environment] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda task: self._forget(environment, task))
        return task

    def _forget(self, environment: Environment, task: asyncio.Task[None]) -> None:
        if self._running.get(environment) is task:
            del self._running[environment]

    async def _make(self, environment: Environment, model: str) -> None:
        async with self._slots:
            await _prepared(order(self._context(), environment), environment, model)


async def _prepared(line: bytes, environment: Environment, model: str) -> None:
    """Have a process do it.  Raises what it says has failed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", _JOB, str(_PACKAGE), cwd="/", limit=limits.ENVIRONMENT_LINE_BYTES_MAX,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line)
        heard = _heard(process.stdout, environment, model)
        await asyncio.wait_for(heard, limits.ENVIRONMENT_BUILD_SECONDS_MAX)
    except asyncio.TimeoutError:
        raise EnvironmentFailed(
            f"{environment} was not prepared within {limits.ENVIRONMENT_BUILD_SECONDS_MAX} s"
        ) from None
    finally:
        process.stdin.close()  # whatever is still under way ends itself
        try:
            await asyncio.wait_for(process.wait(), limits.KILL_SECONDS_MAX)
        except asyncio.TimeoutError:
            process.kill()


async def _heard(lines: asyncio.StreamReader, environment: Environment, model: str) -> None:
    """Log what is told until it is done.  Raises what has failed."""
    printed: list[str] = []
    async for line in lines:
        try:
            message = json.loads(line)
            kind = message["t"]
        except (ValueError, TypeError, KeyError):  # a traceback
            printed = [*printed, line.decode("utf-8", "replace").rstrip()][-limits.ENVIRONMENT_OUTPUT_LINES :]
            continue
        if kind == "failed":
            status = Status(message["status"])
            raise _FAILURES.get(status, BY_STATUS[status])(message["text"])
        if kind == "ready":
            log.info("%s of model '%s' is ready after %.1f s: %s in %d files", environment, model, message["seconds"],
                     size_text(message["size_bytes"]), message["files"], extra={"facts": {"model": model}})  # fmt: skip
            return
        log.info("model '%s': %s", model, message["text"], extra={"facts": {"model": model}})
    said = "; it printed:\n" + "\n".join(printed) if printed else ""
    raise EnvironmentFailed(f"the process that prepares {environment} ended before it was done{said}")


def ready_made(environment: Environment) -> Interpreter:
    """The interpreter of an environment that needs no preparing.  Raises EnvironmentFailed."""
    assert environment.interpreter is not None
    folder = environment.path if environment.kind == "folder" else environment.path.parent.parent
    if environment.kind == "interpreter" and not any((folder / mark).exists() for mark in ("pyvenv.cfg", "conda-meta")):
        return Interpreter(str(environment.interpreter), (), environment)  # a system's: it has its surroundings already
    variables = {**activation.scripted(folder), **activation.variables(folder, os.environ)}
    return Interpreter(str(environment.interpreter), tuple(sorted(variables.items())), environment)
