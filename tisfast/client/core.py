"""A client and its models, over any transport.  Layer 3 (client).

AsyncClient is this class; Client runs its coroutines over transports that do not suspend (transport.run).
"""

from __future__ import annotations

import os
import weakref
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from tisfast.client.address import Address, Tls, parse_url
from tisfast.client.calls import Call, Calls, InferRequest, JsonDict, Scope, T
from tisfast.client.checks import ModelMetadata, metadata_of
from tisfast.client.errors import TimedOut, not_sent
from tisfast.client.grpc_calls import GrpcCalls
from tisfast.client.grpc_sync import GrpcTransport
from tisfast.client.http_calls import HttpCalls
from tisfast.client.http_sync import HttpTransport
from tisfast.client.model_core import ModelCore
from tisfast.client.options import ClientOptions, checked_client, headers_of, retries_of
from tisfast.client.region_arguments import cuda_region, system_region, unregistered
from tisfast.client.regions import SharedMemory, unregister_left
from tisfast.client.retries import NO_RETRIES
from tisfast.client.transport import Cancel, Transport
from tisfast.errors import BadRequest, NotFound, TisError

if TYPE_CHECKING:
    from ssl import SSLContext

METRICS_PORT: Final = 8002
"""Triton's."""
_alive: weakref.WeakSet[ClientCore] = weakref.WeakSet()


class ClientCore:
    """What both clients share.  make: of address, TLS context, its server name and the number of connections."""

    def __init__(self, url: str, make: Any, options: ClientOptions) -> None:
        self.address: Address = parse_url(url)
        self._options = checked_client(options)
        self._retries = retries_of(self._options)
        self.timeout = self._options["timeout"]
        self.concurrency = self._options["concurrency"]
        tls = self._options.get("tls") or Tls()
        if options.get("tls") is not None and not self.address.tls:
            raise BadRequest(f"tls= was given for {self.address}, which is not encrypted; say https:// or grpcs://")
        context: SSLContext | None = tls.context(self.address.grpc) if self.address.tls else None
        self._make = make
        self.transport: Transport = make(self.address, context, tls.server_name, self._options["connections"])
        headers, coding = headers_of(self._options), self._options["compression"]
        grpc = self.address.grpc
        self.calls: Calls = GrpcCalls(headers, coding) if grpc else HttpCalls(self.address, headers, coding)
        shared = self._options["shared_memory"]
        local = self.address.local or shared is True
        self.shared = SharedMemory(self, shared is True) if shared and local else None
        if self.shared is not None:
            make_blocking = partial(blocking_transport, self.address, context, tls.server_name)
            weakref.finalize(self, unregister_left, self.shared.registered, self.calls, make_blocking, os.getpid())
        _alive.add(self)

    def __reduce__(self) -> Any:
        """Of a client, and of whatever has it: models, sequences.  Raises TypeError."""
        raise TypeError(
            f"a client of {self.address} has connections, which cannot be copied or pickled: make one where it is "
            f"needed, Client({str(self.address)!r}), and its models from it"
        )

    # ---- calls

    async def ask(
        self, call: Call[T], timeout: float | None = None, retry: bool = True, cancel: Cancel | None = None
    ) -> T:
        """Make a call, again where that does no harm.  Raises TisError."""
        began = now = monotonic()
        deadline = began + (self.timeout if timeout is None else timeout)
        made = 0
        while True:
            if deadline <= now:  # what it had to wait for before, as for metadata, took all its time
                raise not_sent()
            made += 1
            try:
                return await self.transport.ask(call, deadline, cancel)
            except TisError as error:
                retries = self._retries if retry else NO_RETRIES
                pause = retries.pause(error, made, monotonic() - began)
                if pause is None or monotonic() + pause >= deadline:
                    raise
            await self.transport.pause(pause, cancel)
            now = monotonic()

    async def fetch(self, name: str, scope: Scope | None = None, /, **fields: Any) -> Any:
        """A call of admin.OPERATIONS; scope: of the call that needs it."""
        try:
            if scope is None:
                return await self.ask(self.calls.ask(name, **fields))
            call = self.calls.ask(name, scope.headers, **fields)
            return await self.ask(call, scope.deadline - monotonic(), cancel=scope.cancel)
        except TimedOut as error:
            seconds = scope.seconds if scope is not None else 0.0
            raise self.late(error, fields.get("model", ""), seconds or self.timeout) from None
        except (BadRequest, NotFound) as error:
            version = str(fields.get("version", ""))
            if not version or version.isdecimal():
                raise
            raise BadRequest(  # HTTP's routing and gRPC say different things of it, and some servers have such versions
                f"version={version!r:.60} of model '{fields['model']}' is none that {self.address} knows "
                f"(it says: {error.message}); Triton's and tisfast's are whole numbers from 1 on"
            ) from None

    def late(self, error: TimedOut, model: str, seconds: float) -> TimedOut:
        """The error with what was asked, where, and how much time it had in all."""
        what = f"model '{model}' at {self.address}" if model else str(self.address)
        hint = "" if error.facts else "; a longer timeout=, of the call or of the client, gives it more time"
        error.reword(lambda text: f"{text} ({what}, timeout={seconds:g} seconds{hint})")
        return error

    def model(self, name: str, version: str | int = "") -> ModelCore:
        """A model of the server; nothing is asked before it is used.  version: "" for what its policy serves."""
        return ModelCore(self, name, version)

    # ---- the server

    async def live(self) -> bool:
        """The server answers."""
        return await self._health(self.calls.live())

    async def ready(self) -> bool:
        """The server takes inferences."""
        return await self._health(self.calls.ready())

    async def _health(self, call: Call[bool]) -> bool:
        try:
            return await self.ask(call)
        except TimedOut as error:
            raise self.late(error, "", self.timeout) from None

    async def metadata(self) -> JsonDict:
        """Name, version and extensions of the server."""
        return cast(JsonDict, await self.fetch("server_metadata"))

    async def statistics(self, model: str = "", version: str = "") -> list[JsonDict]:
        """Counts and times of a model, or of all."""
        answer = await self.fetch("statistics", model=model, version=version)
        return cast(list[JsonDict], answer.get("model_stats", []))

    async def models(self, ready: bool = False) -> list[JsonDict]:
        """What is in the repository: name, version, state and reason; ready: only what is served."""
        return cast(list[JsonDict], await self.fetch("index", ready=ready))

    async def load(self, model: str, config: str | None = None, files: dict[str, bytes] | None = None) -> None:
        """Load a model, or load it anew.  config: JSON instead of its file; files: by VERSION/NAME."""
        await self.fetch("load", model=model, config=config, files=files)

    async def unload(self, model: str, dependents: bool = False) -> None:
        """Unload a model; dependents: and the models that only an ensemble brought."""
        await self.fetch("unload", model=model, dependents=dependents)

    async def trace_settings(self, model: str = "") -> JsonDict:
        """The trace settings in force, of a model or of all."""
        return cast(JsonDict, await self.fetch("trace", model=model))

    async def update_trace_settings(self, settings: JsonDict, model: str = "") -> JsonDict:
        """Change trace settings (None: back to the default); gives those in force."""
        return cast(JsonDict, await self.fetch("trace", model=model, settings=settings))

    async def log_settings(self) -> JsonDict:
        """The log settings in force."""
        return cast(JsonDict, await self.fetch("log"))

    async def update_log_settings(self, settings: JsonDict) -> JsonDict:
        """Change log settings; gives those in force."""
        return cast(JsonDict, await self.fetch("log", settings=settings))

    async def regions(self) -> list[JsonDict]:
        """The registered regions of system shared memory."""
        return cast(list[JsonDict], await self.fetch("system_regions"))

    async def register_region(self, name: str, key: str, nbytes: int, offset: int = 0) -> None:
        """Register shared memory of one's own: nbytes at offset of /dev/shm/KEY."""
        await self.fetch("system_register", **system_region(name, key, nbytes, offset))

    async def unregister_region(self, name: str = "") -> None:
        """Unregister one region of system shared memory; "": all."""
        await self.fetch("system_unregister", **unregistered(name))

    async def cuda_regions(self) -> list[JsonDict]:
        """The registered regions of GPU memory."""
        return cast(list[JsonDict], await self.fetch("cuda_regions"))

    async def register_cuda_region(
        self, name: str, handle: bytes | bytearray | memoryview, nbytes: int, device: int = 0
    ) -> None:
        """Register GPU memory of one's own: its cudaIpcMemHandle_t, 64 bytes, and the GPU's number for the server."""
        await self.fetch("cuda_register", **cuda_region(name, handle, nbytes, device))

    async def unregister_cuda_region(self, name: str = "") -> None:
        """Unregister one region of GPU memory; "": all."""
        await self.fetch("cuda_unregister", **unregistered(name))

    async def metrics(self, url: str = "") -> str:
        """The server's metrics in Prometheus' form.  url: of its metrics, else its host; port 8002."""
        at = parse_url(url, METRICS_PORT) if url else Address(self.address.host, METRICS_PORT, grpc=False, tls=False)
        if at.grpc:
            raise BadRequest(
                f"{url!r:.200} is no address of metrics, which are HTTP: give HOST[:PORT] or https://HOST[:PORT]"
            )
        tls = self._options.get("tls") or Tls()
        transport: Transport = self._make(at, tls.context(grpc=False) if at.tls else None, tls.server_name, 1)
        try:
            return await transport.ask(HttpCalls(at, {}, "").text("/metrics"), monotonic() + self.timeout)
        except TimedOut as error:
            raise self.late(error, "", self.timeout) from None
        finally:
            await transport.close()

    async def model_metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs of a model, as the server says now."""
        return metadata_of(await self.fetch("metadata", model=model, version=version))

    async def infer_request(
        self, request: InferRequest, timeout: float | None, retry: bool, cancel: Cancel | None
    ) -> Any:
        """The response to a request, or the result."""
        if self.shared is not None and self.shared.wanted(request):
            return await self.shared.infer(request, timeout, retry, cancel)
        return await self.ask(self.calls.infer(request), timeout, retry, cancel)

    async def close(self) -> None:
        """End what is open."""
        try:
            if self.shared is not None:
                await self.shared.close()
        finally:  # Ctrl-C may come while the server is told
            await self.transport.close()


def blocking_transport(address: Address, context: SSLContext | None, server_name: str) -> Transport:
    """Of one connection, for what is to be done when no loop runs any more."""
    if address.grpc:
        return GrpcTransport(address, context, server_name, 1)
    return HttpTransport(address, context, server_name, 1)


def _forget() -> None:
    for core in list(_alive):
        core.transport.forget()
        if core.shared is not None:
            core.shared.forget()


os.register_at_fork(after_in_child=_forget)
