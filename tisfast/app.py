"""The server: puts its parts together, loads the models, serves, drains, ends.  Layer 5 (app): the composition root."""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from tisfast import __version__, console, limits, logs, tuning
from tisfast.codec.pool import Codecs
from tisfast.config.cache_flags import CacheSettings, LocalCacheSettings
from tisfast.config.served_files import loose_file
from tisfast.config.settings import CPU_ONLY, LogSettings, Settings, TlsSettings
from tisfast.config.vertex_flags import SERVICE as VERTEX
from tisfast.engine.rate_limiter import RateLimiter
from tisfast.engine.registry import Registry, listed
from tisfast.engine.response_cache import LocalStore
from tisfast.errors import ConfigError, TisError
from tisfast.executor import DaemonExecutor
from tisfast.front.grpc.front import GrpcExtras, GrpcFront
from tisfast.front.http import HttpFront
from tisfast.listeners import Listener
from tisfast.models.gpu_placement import placement
from tisfast.models.loader import SharedResources
from tisfast.models.polling import Polling
from tisfast.models.supervisor import Supervisor
from tisfast.native.cuda import OneCuda
from tisfast.native.cuda_driver import CudaMissing
from tisfast.native.cuda_faces import Devices
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.nvml import open_nvml
from tisfast.operations.control_access import HttpGate, control_gate
from tisfast.operations.grpc.header_policy import GrpcRestriction, MetadataForward, grpc_restriction, metadata_forward
from tisfast.operations.grpc.methods import Methods
from tisfast.operations.header_policy import HeaderPolicy, Policy, http_policy
from tisfast.operations.log_settings import LiveLogSettings
from tisfast.operations.regions import ClientRegions
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service
from tisfast.operations.tokens import TokenFile
from tisfast.operations.vertex_policy import VertexPolicy
from tisfast.parent import Parent
from tisfast.private_directory import sweep
from tisfast.processes import machine
from tisfast.processes.clock import MachineClock
from tisfast.processes.nursery_process import NurseryProcess
from tisfast.redis_cache import RedisStore
from tisfast.shutdown import Countdown, FrontFace, drain, first
from tisfast.storage.face import open_storage
from tisfast.telemetry.access_log import AccessLog
from tisfast.telemetry.gpu_meter import GpuMeter
from tisfast.telemetry.metrics import MetricsRoutes, Sources
from tisfast.telemetry.tracer import Tracer
from tisfast.tls import Certificates, reload_all

log = logging.getLogger("tisfast.server")
GRPC = "GRPCInference"  # the service's name in Triton's messages
CHECK_TELLS = "'tisfast check REPOSITORY' says what it sees"
STARTED = {
    GRPC: "GRPCInferenceService", "HTTP": "HTTPService", "Metrics": "Metrics Service", VERTEX: "Vertex AI HTTPService",
}  # fmt: skip
"""And in the lines that people's scripts wait for."""


def run(settings: Settings, notices: Sequence[str], spawned: NurseryProcess) -> int:
    """Serve until a signal comes; returns the exit code.  spawned: the nursery of our own interpreter, under way."""
    try:
        live_log = _start_log(settings.log)
    except OSError as error:
        print(f"tisfast: cannot open --log-file={settings.log.file}: {error.strerror}", file=sys.stderr)
        spawned.process.kill()
        return 1
    for notice in notices:
        log.info("%s", notice)
    if refused := machine.refused_call():
        log.error("%s", refused)
        spawned.process.kill()
        return 1
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(DaemonExecutor(min(limits.BLOCKING_THREADS_MAX, machine.cores() + 4)))
    cuda = OneCuda()
    try:
        code = loop.run_until_complete(Server(settings, spawned, loop, live_log, cuda).run())
    except ConfigError as error:  # of what only this machine knows to be missing
        log.error("%s", error)
        spawned.process.kill()
        return 1
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        logging.shutdown()
    if cuda.busy:  # the driver's own end might wait for a GPU that hangs
        os._exit(code)
    return code


def _start_log(settings: LogSettings) -> logs.Log:
    switches = logs.Switches(
        verbose=settings.verbose, info=settings.info, warning=settings.warning, error=settings.error
    )
    return logs.configure(switches, settings.format, settings.file)


class Server:
    """One run of the server."""

    def __init__(
        self,
        settings: Settings,
        spawned: NurseryProcess,
        loop: asyncio.AbstractEventLoop,
        live_log: logs.Log,
        cuda: OneCuda,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._cuda = cuda
        self._clock = MachineClock()
        self._registry = Registry(
            strict_readiness=settings.life.strict_readiness, namespaces=settings.repository.namespacing
        )
        self._cache = _cache(settings.cache, loop)
        copies = DaemonExecutor(limits.COPY_THREADS_MAX, "tisfast-copying")
        self._nvml = nvml = None if settings.workers.cpu_only else open_nvml()
        gpus = placement(settings.workers, nvml, machine.driver_gpus())
        self._sharing = CudaSharing(gpus) if gpus.are_visible else None  # else there is nothing to look at
        self._regions = ClientRegions(
            _no_devices if settings.workers.cpu_only else cuda,
            allowed=settings.allow_client_shm,
            gpu_of=gpus.number_of,
            sharing=self._sharing,
        )
        limiter = RateLimiter(settings.rate_limit.grants) if settings.rate_limit.enabled else None
        self._storage = open_storage(settings.repository.paths, settings.storage)
        folders = tuple(str(self._storage.folder(path)) for path in settings.repository.paths)
        repository = replace(settings.repository, paths=folders)
        self._supervisor = Supervisor(
            repository,
            settings.workers,
            self._registry,
            self._clock,
            loop,
            SharedResources(self._cache, limiter, gpus, copies, cuda, self._sharing or CudaSharing()),
        )
        if self._storage.remote:
            self._supervisor.lifecycle.fetch_with(self._storage.refresh)
        self._supervisor.adopt(spawned)
        self._polling: Polling | None = None
        self._tracer = Tracer(settings.trace, self._registry.knows)
        self._service = Service(
            self._registry,
            server_id=settings.life.server_id,
            server_version=settings.life.server_version or __version__,
            regions=self._regions,
            log_settings=LiveLogSettings(live_log, self._supervisor.set_verbose),
            trace_settings=self._tracer.settings,
            own_readiness=self._supervisor.readiness,
            look_around=self._supervisor.lifecycle.look_around,
            control=self._supervisor.lifecycle,
            extensions=_guests_extension(settings.workers.guest_directory),
        )
        self._access_log = AccessLog(settings.access_log, as_json=settings.log.format == "json")
        self._codecs = _codecs(settings, loop, copies)
        if self._codecs is not None:
            self._regions.table.copied_at_once = tuning.LOOP_COPY_BYTES_MAX
        self._gpus: GpuMeter | None = None
        self._stop = asyncio.Event()
        self._fronts: list[FrontFace] = []
        self._listeners: list[Listener] = []
        self._policy: HeaderPolicy | None = None
        self._tokens: TokenFile | None = None
        self._parent = Parent(settings.parent)
        self._lost = False  # a repository cannot be read, so nothing is served
        self._failed: Collection[str] = ()  # models that could not be loaded at the start
        self._grpc_policy: tuple[GrpcRestriction | None, MetadataForward | None] = (None, None)

    async def run(self) -> int:
        """From start to end; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        try:
            self._parent.watch(self._loop, self._parent_ended)
            self._bind()
            if isinstance(self._cache, RedisStore):
                await self._cache.open()
            self._supervisor.open()
            self._look_at_sharing()
            self._polling = self._supervisor.keep_up(self._storage.refresh, self._registry.know)
            return await self._serve()
        except TisError as error:
            log.error("%s", error)
            if isinstance(error, ConfigError):
                self._parent.tell_refused(error)
            return 1
        finally:
            for listener in self._listeners:
                listener.close()
            await self._look_no_more()
            if self._codecs is not None:
                await self._codecs.close()
            await self._supervisor.close()
            if isinstance(self._cache, RedisStore):
                await self._cache.close()
            self._look_at_gpus_no_more()
            self._tracer.close()
            self._access_log.close()
            self._storage.close()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._loop.remove_signal_handler(number)
            self._parent.close(self._loop)
            if self._parent.ended:
                sweep()  # what it has left

    def _look_at_sharing(self) -> None:
        """Beside the loads."""
        if self._sharing is not None:
            self._loop.run_in_executor(None, self._sharing.look)

    def _look_at_gpus_no_more(self) -> None:
        if self._gpus is not None:
            self._gpus.close()
        if self._nvml is not None:
            self._nvml.close()

    def _bind(self) -> None:
        if self._settings.repository.control_token_file:
            self._tokens = TokenFile(self._settings.repository.control_token_file)
        if self._settings.grpc.enabled:
            certificates = _certificates(self._settings.grpc_options.tls, ("h2",))
            self._grpc_policy = (
                grpc_restriction(self._settings.grpc_options),
                metadata_forward(self._settings.grpc_options),
            )
            self._listeners.append(Listener(self._settings.grpc, certificates))
        self._policy = http_policy(self._settings.http_calls)
        if self._settings.vertex is not None:
            self._listeners.append(Listener(self._settings.vertex.listen))
        if self._settings.http.enabled:
            self._listeners.append(Listener(self._settings.http, _certificates(self._settings.http_calls.tls)))
        if self._settings.metrics.enabled:
            self._listeners.append(Listener(self._settings.metrics))
        set_aside = next((listener.set_aside for listener in self._listeners if listener.set_aside), "")
        if set_aside:
            log.info(
                "clients on this machine have TCP's congestion control reno in place of %s, which would pace them; "
                "--unpaced-local=false leaves it to %s", set_aside, set_aside,
            )  # fmt: skip
        if any(listener.certificates for listener in self._listeners):
            self._loop.add_signal_handler(signal.SIGHUP, self._reload_certificates)

    async def _serve(self) -> int:
        loaded = await first(self._load(), self._stop)
        if loaded and self._failed and self._settings.life.exit_on_error:
            await self._supervisor.stop(self._settings.life.exit_timeout_seconds)
            log.error("creating server: Internal - failed to load all models")
            return 1
        if loaded:
            if not self._lost:
                self._registry.set_live(True)
            self._supervisor.welcome_guests()
            await self._open_fronts()
            if self._polling is not None and not self._lost:
                self._polling.start()
            await self._stop.wait()
            await self._look_no_more()
            await self._delay_drain()
        return await self._end()

    async def _load(self) -> None:
        try:
            absent = await self._fetch()
            if self._polling is not None:
                await self._polling.begin()
            names = self._supervisor.find()
        except ConfigError as error:  # a repository that is no folder
            if self._settings.life.exit_on_error:
                raise
            self._lost = True
            log.error("creating server: Internal - %s", error)
            self._registry.set_unusable("a model repository cannot be read; see the server's log, and start it again")
            return
        if not names and not absent:
            self._warn_of_nothing()
        for name, why in absent.items():
            self._registry.declare(name, "", "UNAVAILABLE", str(why), read=False)
        progress = console.LoadProgress(len(names))
        self._loop.call_later(console.PROGRESS_SECONDS, progress.show)
        try:
            self._failed = {*await self._supervisor.load_all(progress.step), *absent}
        finally:
            progress.close()
        if self._settings.log.format != "json":  # which has a record for each model
            columns = shutil.get_terminal_size((console.TABLE_COLUMNS, 0)).columns
            log.info("%s", console.model_table(self._registry.models(), columns), extra={"table": True})

    def _warn_of_nothing(self) -> None:
        repository = self._settings.repository
        if repository.control_mode == "explicit" and not repository.load_models:
            return  # models come by call
        if self._settings.workers.guest_directory:
            return  # or with guests
        loose = next((found for path in repository.paths if (found := loose_file(Path(path), repository.backends))), "")
        remedy = f"'tisfast serve {shlex.quote(loose)}' serves that file" if loose else CHECK_TELLS
        log.warning(
            "there is no model in %s: a repository is a folder that holds a folder for each model, such as "
            "REPOSITORY/NAME/1/model.py; %s",
            ", ".join(repository.paths),
            remedy,
        )

    async def _fetch(self) -> Mapping[str, TisError]:
        """Bring what is to be loaded from remote repositories; returns what could not be had."""
        repository = self._settings.repository
        if repository.control_mode == "explicit" and "*" not in repository.load_models:
            await self._storage.refresh(())  # what there is, for the index
            return await self._supervisor.lifecycle.fetch(repository.load_models)
        return await self._storage.refresh()

    async def _open_fronts(self) -> None:
        for listener in self._listeners:
            front = self._front(listener.service)
            await listener.open(front.protocol_factory)
            self._fronts.append(front)
            log.info("Started %s at %s", STARTED[listener.service], listener.where)
        gc.freeze()  # what is here now stays: looking through it held all clients up for 13 ms each time
        self._say_ready()
        self._parent.tell_ready({listener.flag: listener.dialled for listener in self._listeners})

    def _front(self, service: str) -> HttpFront | GrpcFront:
        if service == GRPC:
            options = self._settings.grpc_options
            gate = control_gate(self._settings.repository, self._tokens, options.restricted)
            methods = Methods(self._service, self._loop, gate, options.answer_delay_seconds)
            grpc = GrpcFront(
                self._registry,
                methods,
                self._loop,
                options,
                max_input_bytes=limits.GRPC_MESSAGE_BYTES_MAX,
                extras=GrpcExtras(self._regions.table, *self._grpc_policy, self._codecs),
            )
            self._tracer.attach(grpc.trace_with)
            grpc.log_to(self._access_log)
            return grpc
        most = self._settings.http_calls.max_input_bytes
        if service in ("HTTP", VERTEX):
            gate = control_gate(self._settings.repository, self._tokens, self._settings.http_calls.restricted)
            front = HttpFront(
                self._registry,
                Routes(self._service),
                self._loop,
                max_input_bytes=most,
                policy=self._policy_of(service),
                gate=HttpGate(gate, most) if gate is not None else None,
                regions=self._regions.table,
                codecs=self._codecs,
            )
            self._tracer.attach(front.trace_with)
            front.log_to(self._access_log)
            return front
        return HttpFront(None, self._metrics(), self._loop, max_input_bytes=most)

    def _policy_of(self, service: str) -> Policy | None:
        vertex = self._settings.vertex
        if service != VERTEX or vertex is None:
            return self._policy
        return VertexPolicy(vertex, self._registry, self._policy)

    def _metrics(self) -> MetricsRoutes:
        shown = self._settings.shown
        if self._nvml is not None and shown.gpu:
            self._gpus = GpuMeter(self._nvml, shown.interval_ms / 1000)
            self._gpus.start()
        supervisor = self._supervisor
        sources = Sources(
            self._registry,
            supervisor.restarts,
            supervisor.load_seconds,
            self._gpus,
            self._cache,
            supervisor.custom_metrics,
            supervisor.memory,
            supervisor.pinned,
            supervisor.lent,
            self._regions_by_kind,
            self._cuda.conditions,
        )
        return MetricsRoutes(sources, shown)

    def _regions_by_kind(self) -> dict[str, int]:
        regions = self._regions.table.all()
        cuda = sum(region.device >= 0 for region in regions)
        return {"system": len(regions) - cuda, "cuda": cuda}

    def _say_ready(self) -> None:
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - _process_start_seconds()
        facts: dict[str, object] = {"event": "ready", "seconds": round(seconds, 3)}
        facts.update({f"{listener.flag}_port": listener.port for listener in self._listeners})
        failed = self._registry.failed()
        if (why := self._registry.why_not_ready()) != "":
            facts["event"] = "serving"
            log.warning(
                "tisfast %s serves after %.2f s and is not ready: %s", __version__, seconds, why, extra={"facts": facts}
            )
        elif failed:
            told = listed("models that could not be loaded", failed)
            log.info("tisfast %s is ready after %.2f s; %s", __version__, seconds, told, extra={"facts": facts})
        else:
            log.info("tisfast %s is ready after %.2f s", __version__, seconds, extra={"facts": facts})
        http = next((listener for listener in self._listeners if listener.service == "HTTP"), None)
        if http is not None:
            self._say_how_to_ask(f"{'https' if http.certificates else 'http'}://{http.reachable}")

    def _say_how_to_ask(self, origin: str) -> None:
        newest = {runtime.signature.name: runtime.signature for runtime in self._registry.runtimes()}
        if 0 < len(newest) <= console.CURL_MODELS_MAX:
            lines = [console.curl_line(signature, origin) for signature in newest.values()]
            told = "An inference of zeros for each model (texts and images may be refused):\n%s"
            log.info(told, "\n".join(lines), extra={"table": True})

    async def _look_no_more(self) -> None:
        if self._polling is not None:
            await self._polling.close()

    async def _delay_drain(self) -> None:
        """Give load balancers that ask for readiness the time to send requests elsewhere."""
        self._registry.set_stopping()
        seconds = self._settings.life.drain_delay_seconds
        if seconds:
            log.info("Not ready any more; requests are served for another %g seconds (--drain-delay-secs).", seconds)
            await asyncio.sleep(seconds)

    async def _end(self) -> int:
        """The graceful end."""
        countdown = Countdown(self._settings.life.exit_timeout_seconds, time.monotonic)
        self._registry.set_stopping()
        for listener in self._listeners:
            listener.close()
        await self._supervisor.lifecycle.stop()  # who waits for a load is told, before they are waited for
        self._regions.end()
        if await drain(self._fronts, self._supervisor, countdown, self._say_late):
            return 0
        for whose in self._cuda.busy:
            log.error("%s has not ended a call", whose)
        log.error("Exit timeout expired. Exiting immediately.")
        return 1

    def _say_late(self) -> None:
        for text in self._regions.unfinished():
            log.error("%s", text)

    def _reload_certificates(self) -> None:
        log.info("Signal (%d) received: certificates are read again.", signal.SIGHUP)
        reload_all([listener.certificates for listener in self._listeners if listener.certificates])

    def _parent_ended(self) -> None:
        log.info("The program that started this server has ended.")
        self._stop.set()

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            log.error("Signal (%d) received again. Exiting immediately.", number)
            self._supervisor.kill_all()
            logging.shutdown()
            os._exit(1)
        log.info("Signal (%d) received.", number)
        self._stop.set()


def _certificates(settings: TlsSettings, alpn: Sequence[str] = ()) -> Certificates | None:
    return Certificates(settings.cert, settings.key, settings.client_ca, alpn=alpn) if settings.enabled else None


def _codecs(settings: Settings, loop: asyncio.AbstractEventLoop, copies: DaemonExecutor) -> Codecs | None:
    chosen = settings.codecs
    if not chosen.processes_max:
        return None
    return Codecs(
        loop,
        processes_max=chosen.processes_max,
        bytes_min=chosen.bytes_min,
        memory_bytes=limits.CODEC_MEMORY_BYTES_BASE + limits.CODEC_MEMORY_FACTOR * settings.http_calls.max_input_bytes,
        text_bytes=machine.arena_use_bytes(),
        copies=copies,
    )


def _cache(settings: CacheSettings | None, loop: asyncio.AbstractEventLoop) -> LocalStore | RedisStore | None:
    if settings is None:
        return None
    if isinstance(settings, LocalCacheSettings):
        return LocalStore(settings.size_bytes, max(limits.ARENA_CAP_FACTOR * settings.size_bytes, mmap.PAGESIZE))
    return RedisStore(settings, loop)


def _guests_extension(directory: str) -> tuple[str, ...]:
    """Tells clients of the same user and machine where guests are welcome."""
    return (f"guests({os.path.abspath(directory)})",) if directory else ()


def _no_devices() -> Devices:
    raise CudaMissing(f"{CPU_ONLY} is set")


def _process_start_seconds() -> float:
    """When this process began, in seconds of CLOCK_BOOTTIME: what a person waits counts from there, imports and all."""
    with open("/proc/self/stat", encoding="ascii") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")
