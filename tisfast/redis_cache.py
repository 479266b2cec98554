"""Answers kept in a Redis: what engine.response_cache asks where servers share their answers.

Layer 4½, beside listeners: owns sockets, through redis-py (the extra `redis`), which is imported only here.

A Redis that fails delays no request by more than socket_timeout and fails none: a lookup that is late counts as a miss,
and a lookup that finds Redis gone is the last one until it answers again, which a timer finds out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits
from tisfast.config.cache_flags import FLAG, RedisSettings
from tisfast.errors import ConfigError

if TYPE_CHECKING:
    from redis.asyncio import Connection, Redis
else:
    Connection = object

log = logging.getLogger("tisfast.cache")
Done = Callable[["bytes | None"], None]
RETRIES: Final = 1
"""Retries of a command on a connection that Redis had closed while it was idle: at once, on a new one."""


class RedisStore:
    """A RemoteStore of engine.response_cache.  Event-loop thread only."""

    def __init__(self, settings: RedisSettings, loop: asyncio.AbstractEventLoop) -> None:
        """Raises ConfigError when redis-py is missing."""
        self._settings = settings
        self._loop = loop
        self._client, self._failures = _connect(settings, settings.pool_size)
        self._prober, _ = _connect(settings, 1)  # of its own connection: a busy Redis is not a dead one
        self._wait_seconds = settings.socket_timeout_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._lookups = 0
        self._inserting_bytes = 0
        self._insert_slots = asyncio.Semaphore(max(1, settings.pool_size // 2))
        self._up = False
        self._verifying = False
        self._complaint = ""
        self._skipped_before = 0
        self.skipped = 0
        """Requests that were executed without asking Redis, since it was down or too much was being asked."""

    @property
    def up(self) -> bool:
        """Whether Redis answers."""
        return self._up

    async def open(self) -> None:
        """Look whether Redis answers, for connect_timeout at most; the server starts in any case."""
        why = await self._ping(self._settings.connect_timeout_ms / 1000)
        self._up = True
        if why:
            self._fall(why)
        else:
            log.info("the response cache is the Redis at %s", self._settings.where)

    async def close(self) -> None:
        """Let go of all connections; what is still being asked counts as missed."""
        self._up = False
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=limits.REDIS_CLOSE_SECONDS_MAX)
        for client in (self._client, self._prober):
            with contextlib.suppress(*self._failures), _within(limits.REDIS_CLOSE_SECONDS_MAX):
                await client.aclose(close_connection_pool=True)

    # ---- RemoteStore

    def look(self, key: bytes, done: Done) -> bool:
        """Ask for an answer: done(bytes or None) within socket_timeout.  False, and nothing is called: do without."""
        if not self._up or self._verifying or self._lookups >= limits.REDIS_LOOKUPS_MAX:
            self.skipped += 1
            return False
        self._lookups += 1
        lookup = _Lookup(self, done)
        lookup.task = self._start(self._look(key, lookup))
        lookup.timer = self._loop.call_later(self._wait_seconds, lookup.late)
        return True

    def has_room(self, nbytes: int) -> bool:
        """Whether `keep` would send so many bytes."""
        return (
            self._up
            and nbytes <= limits.REDIS_VALUE_BYTES_MAX
            and self._inserting_bytes + nbytes <= limits.REDIS_INSERTS_BYTES_MAX
        )

    def keep(self, key: bytes, value: bytes) -> None:
        """Send an answer away; nobody waits for it."""
        self._inserting_bytes += len(value)
        self._start(self._insert(key, value))

    def report(self, error: Exception) -> None:
        """Something is wrong with one answer: logged unless it was the last thing that was logged."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.warning("the response cache at %s: %s", self._settings.where, error)

    # ---- commands

    async def _look(self, key: bytes, lookup: _Lookup) -> None:
        value = None
        try:
            value = _bytes(await self._client.get(key))
        except self._failures as error:
            self._on_failure(error)
        finally:
            lookup.end(value)

    async def _insert(self, key: bytes, value: bytes) -> None:
        try:
            async with self._insert_slots:
                if self._up:
                    with _within(limits.REDIS_STORE_SECONDS_MAX):
                        await self._client.set(key, value)
                    self._complaint = ""
        except self._failures as error:
            self._on_failure(error)
        finally:
            self._inserting_bytes -= len(value)

    def doubt(self) -> None:
        """A command was given up or has failed: is the answer large, are all connections busy, or is Redis dead?"""
        if self._up and not self._verifying:
            self._verifying = True
            self._start(self._verify())

    async def _verify(self) -> None:
        try:
            why = await self._ping(self._wait_seconds)
            if why and self._up:
                self._fall(why)
        finally:
            self._verifying = False

    async def _ping(self, seconds: float) -> str:
        """Why Redis does not answer; "" when it does."""
        try:
            with _within(seconds):
                await _awaitable(self._prober.ping())
        except asyncio.TimeoutError:
            return f"no answer within {seconds * 1000:g} ms"
        except self._failures as error:
            return _reason(error)
        return ""

    # ---- up and down

    def _on_failure(self, error: Exception) -> None:
        from redis.exceptions import ConnectionError as Gone  # noqa: PLC0415 - the extra
        from redis.exceptions import ResponseError  # noqa: PLC0415

        if isinstance(error, ResponseError) and not isinstance(error, Gone):
            self.report(error)  # it lives, and refuses: out of memory, read-only, not permitted
        else:
            self.doubt()

    def _fall(self, why: str) -> None:
        self._up = False
        self._skipped_before = self.skipped
        log.warning(
            "the response cache's Redis at %s does not answer: %s; requests are executed without it until it does",
            self._settings.where, why,
        )  # fmt: skip
        self._start(self._rise())

    async def _rise(self) -> None:
        began = self._loop.time()
        delay = limits.REDIS_PROBE_SECONDS_FIRST
        while True:
            await asyncio.sleep(delay)
            if not await self._ping(self._settings.connect_timeout_ms / 1000):
                break
            delay = min(2 * delay, limits.REDIS_PROBE_SECONDS_MAX)
        self._up = True
        log.info(
            "the response cache's Redis at %s answers again after %.1f s; %d requests were executed without it",
            self._settings.where, self._loop.time() - began, self.skipped - self._skipped_before,
        )  # fmt: skip

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
        return task

    def ended(self) -> None:
        """A lookup has ended."""
        self._lookups -= 1


class _Lookup:
    """One question: `done` is called once, by Redis or by the timer, whichever is first."""

    def __init__(self, store: RedisStore, done: Done) -> None:
        self._store = store
        self._done: Done | None = done
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def end(self, value: bytes | None) -> None:
        """Redis has answered, or cannot."""
        done, self._done = self._done, None
        if done is None:
            return
        if self.timer is not None:
            self.timer.cancel()
        self._store.ended()
        done(value)

    def late(self) -> None:
        """Redis has not answered in time."""
        self.end(None)
        self._store.doubt()
        if self.task is not None:
            self.task.cancel()


class _AbortedAtDisconnect(Connection):
    """What our connections add to redis-py's: a disconnection waits for nothing.

    redis-py's own stays open, with all that it has to send, until a Redis that hangs reads on: an answer that was given
    up would take memory that nobody counts any more.
    """

    async def disconnect(self, *args: Any, **options: Any) -> None:
        """What is not sent yet is lost."""
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(*args, **options)


def _connect(settings: RedisSettings, connections: int) -> tuple[Redis, tuple[type[Exception], ...]]:
    """A client, which connects when it is asked something, and what its commands may raise."""
    try:
        from redis.asyncio import BlockingConnectionPool, Connection, Redis  # noqa: PLC0415 - the extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import ConnectionError as Gone  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"--{FLAG} redis needs redis-py, which cannot be imported: {error}", key=FLAG,
            hint="pip install 'tisfast[redis]'",
        ) from None  # fmt: skip

    class PlainConnection(_AbortedAtDisconnect, Connection):
        pass

    options: dict[str, Any] = {
        "connection_class": PlainConnection,
        "host": settings.host,
        "port": settings.port,
        "username": settings.user or None,
        "password": settings.password or None,
        "db": settings.db,
        "socket_connect_timeout": settings.connect_timeout_ms / 1000,
        "socket_timeout": limits.REDIS_STORE_SECONDS_MAX,  # of one read or write; lookups have a timer
        "retry": Retry(NoBackoff(), RETRIES, supported_errors=(Gone,)),
        "protocol": 2,
    }
    if settings.tls is not None:
        options.update(_tls_options(settings))
    pool = BlockingConnectionPool(max_connections=connections, timeout=settings.wait_timeout_ms / 1000, **options)
    return Redis(connection_pool=pool), (RedisError, OSError, asyncio.TimeoutError)


def _tls_options(settings: RedisSettings) -> dict[str, Any]:
    from redis.asyncio import SSLConnection  # noqa: PLC0415 - the extra

    tls = settings.tls
    assert tls is not None
    name = tls.sni or settings.host

    class NamedConnection(_AbortedAtDisconnect, SSLConnection):
        """Asks for, and checks, the name that `sni` says."""

        def _connection_arguments(self) -> dict[str, Any]:
            return {**super()._connection_arguments(), "server_hostname": name}

    return {
        "connection_class": NamedConnection,
        "ssl_certfile": tls.cert or None,
        "ssl_keyfile": tls.key or None,
        "ssl_ca_certs": tls.cacert or None,
        "ssl_ca_path": tls.cacert_dir or None,
    }


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raises asyncio.TimeoutError where the work inside takes longer: asyncio.timeout, which Python 3.10 lacks."""
    task = asyncio.current_task()
    assert task is not None
    late = False

    def give_up() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        yield
    except asyncio.CancelledError:
        if late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()


def _awaitable(value: Awaitable[bool] | bool) -> Awaitable[bool]:
    assert not isinstance(value, bool)  # redis-py's types serve its blocking client, too
    return value


def _bytes(value: bytes | str | None) -> bytes | None:
    assert not isinstance(value, str)  # the client does not decode
    return value


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
