"""The operations of a server besides inferences, for every protocol.  Layer 4 (operations).

Values in, JSON-able values out, TisError for all that goes wrong; HTTP routes and gRPC methods translate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from tisfast.errors import BadRequest, Unsupported
from tisfast.operations import statistics
from tisfast.operations.model_control import ControlCalls
from tisfast.wire.head import canonical_version

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime
    from tisfast.engine.registry import ModelEntry, Registry
    from tisfast.operations.model_control import ModelControl
    from tisfast.repo.load_override import LoadOrder
    from tisfast.wire.signature import TensorSpec

EXTENSIONS: Final = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""Triton's order: those of its list that are served.  A client that asks must not be told of others."""


class RegionOperations(Protocol):
    """Shared memory that clients registered.  name "": all regions."""

    def check_may_register(self, name: str, family: str) -> None:
        """family: "system" or "cuda".  Raises Unsupported when clients may not register, BadRequest without a name."""

    def system_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, key, offset, byte_size."""

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map a POSIX shared-memory object of the client's."""

    def unregister_system(self, name: str) -> None:
        """Forget it; requests that use it keep it until they are done."""

    def cuda_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, device_id, byte_size."""

    def register_cuda(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> Awaitable[None]:
        """Open a CUDA IPC handle of the client's.  raw_handle: as cudaIpcGetMemHandle filled it.

        Calls count in their order, whoever waits for what they return.
        """

    def unregister_cuda(self, name: str) -> Awaitable[None]:
        """Forget it; the memory may be freed when what this returns is done."""


class LogOperations(Protocol):
    """Log settings."""

    def values(self) -> dict[str, Any]:
        """All of them."""

    def update(self, changes: dict[str, Any]) -> None:
        """Change some; nothing is changed when one of them is wrong."""


class TraceOperations(Protocol):
    """Trace settings.  model "": the global ones."""

    def values(self, model: str) -> dict[str, Any]:
        """Those in force: text, or a list of texts."""

    def update(self, model: str, changes: dict[str, Any]) -> None:
        """Change some; None takes a setting back to the global one."""


def _has_none(_name: str, _version: str) -> None:
    """No model has an `is_ready` of its own."""


class Service:
    """The operations of one server.

    registry: what is served; server_id and server_version: of its metadata; regions, log_settings, trace_settings: None
    for a server without them, which says so when asked; own_readiness: what a model's own `is_ready` says;
    control: loads and unloads models, None on a server whose models stay.  extensions: beside Triton's.
    """

    def __init__(  # noqa: PLR0913 - its parts, each of them optional
        self,
        registry: Registry,
        *,
        server_id: str,
        server_version: str,
        regions: RegionOperations | None = None,
        log_settings: LogOperations | None = None,
        trace_settings: TraceOperations | None = None,
        own_readiness: Callable[[str, str], Awaitable[str] | None] = _has_none,
        look_around: Callable[[], Awaitable[None]] | None = None,
        control: ModelControl | None = None,
        extensions: Sequence[str] = (),
    ) -> None:
        self._registry = registry
        self._server = {"name": server_id, "version": server_version, "extensions": [*EXTENSIONS, *extensions]}
        self._regions = regions
        self._log_settings = log_settings
        self._trace_settings = trace_settings
        self._own_readiness = own_readiness
        self._look_around = look_around
        self._calls = ControlCalls(control)

    # ---- health

    def live(self) -> bool:
        """Whether the server is up."""
        return self._registry.live()

    def ready(self) -> bool:
        """Whether it takes requests."""
        return self._registry.ready()

    def why_not_ready(self) -> str:
        """In words, "" of a server that is ready."""
        return self._registry.why_not_ready()

    def model_ready(self, name: str, version: str = "") -> None:
        """Raises unless the model version can be asked for inferences."""
        reason = self.unready_reason(name, version)
        if reason:
            raise self.not_ready(name, version, reason)

    def not_ready(self, name: str, version: str, reason: str) -> BadRequest:
        """The error of a known model version that cannot be asked."""
        version = checked_version(version) or self._registry.newest(name)
        which = f"'{name}' version {version}" if version else f"'{name}'"
        return BadRequest(f"Model version not ready: {which}: {reason}")

    def own_readiness(self, name: str, version: str = "") -> Awaitable[str] | None:
        """Ask the model's `is_ready`: why it is not ready, or ""; None when it has none."""
        signature = self._registry.resolve(name, checked_version(version)).signature
        return self._own_readiness(signature.identity, signature.version)

    def unready_reason(self, name: str, version: str = "") -> str:
        """Why a known model version cannot be asked at this moment, "" when it can.  Raises for an unknown one."""
        version = checked_version(version)
        self._registry.check_usable()
        if not self._registry.knows(name):  # here alone an unknown model is 400
            raise BadRequest(f"Request for unknown model: '{name}' is not found")
        away = self._registry.away(name, version)
        if away is not None:
            return f"it is at {away.state} state{f': {away.reason}' if away.reason else ''}"
        runtime = self._registry.resolve(name, version)
        return "" if runtime.ready else runtime.reason or "it is not ready"

    # ---- what is served

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions."""
        return self._server

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Versions, platform and tensors."""
        version = checked_version(version)
        runtime = self._registry.resolve(name, version)
        batched = runtime.signature.max_batch_size > 0
        return {
            "name": name,
            "versions": [version] if version else self._registry.versions(name),
            "platform": runtime.platform,
            "inputs": [_tensor(spec, batched) for spec in runtime.signature.inputs],
            "outputs": [_tensor(spec, batched) for spec in runtime.signature.outputs],
        }

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """The normalised configuration."""
        return self._registry.resolve(name, checked_version(version)).config

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Statistics; name "": of all models."""
        self._registry.check_usable()
        return statistics.model_statistics(self._counted(name, checked_version(version)))

    def each_statistics(self, name: str = "", version: str = "") -> Iterator[dict[str, Any]]:
        """The statistics, a model version at a time: many of them are not made in one go (operations/slices.py)."""
        self._registry.check_usable()
        return statistics.each(self._counted(name, checked_version(version)))

    def _counted(self, name: str, version: str) -> list[Runtime]:
        runtimes = self._registry.runtimes()
        if not name:
            return runtimes
        runtimes = [runtime for runtime in runtimes if name in (runtime.signature.name, runtime.signature.identity)]
        if not runtimes:
            raise BadRequest(f"requested model '{name}' is not available")
        if len({runtime.signature.identity for runtime in runtimes}) > 1:  # Triton leaves it at these words
            raise BadRequest(f"requested model '{name}' is not available: several namespaces have it; ask for all")
        chosen = [runtime for runtime in runtimes if version in ("", runtime.signature.version)]
        if not chosen:
            raise BadRequest(f"requested model version is not available for model '{name}' (got {version})")
        return chosen

    # ---- the repository

    def look_around(self) -> Awaitable[None] | None:
        """A look at the repositories that the index must wait for; None when nothing looks at them."""
        self._registry.check_usable()
        return self._look_around() if self._look_around is not None else None

    def repository_index(self, *, ready: bool = False) -> Iterator[dict[str, str]]:
        """The index, a model version at a time; ready: only what can be asked."""
        self._registry.check_usable()
        entries = self._registry.models()
        return (_index_line(entry) for entry in entries if not ready or entry.state == "READY")

    async def load(self, order: LoadOrder) -> None:
        """Until the model is ready."""
        self._registry.check_usable()
        await self._calls.load(order)

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Until no new request finds it."""
        self._registry.check_usable()
        await self._calls.unload(name, dependents=dependents)

    # ---- extensions

    @property
    def regions(self) -> RegionOperations:
        """Raises Unsupported on a server without shared memory."""
        if self._regions is None:
            raise Unsupported("shared memory is not supported by this server; send the tensors in the request")
        return self._regions

    def log_settings(self) -> dict[str, Any]:
        """The settings of the log."""
        return self._log().values()

    def update_log_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change some; returns all settings."""
        self._log().update(changes)
        return self._log().values()

    def _log(self) -> LogOperations:
        if self._log_settings is None:
            raise Unsupported("log settings cannot be asked for or changed on this server; restart it with other flags")
        return self._log_settings

    def trace_settings(self, model: str = "") -> dict[str, Any]:
        """The trace settings of a model; "": the server's."""
        return self._trace().values(model)

    def update_trace_settings(self, model: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Change some; returns all settings."""
        self._trace().update(model, changes)
        return self._trace().values(model)

    def _trace(self) -> TraceOperations:
        if self._trace_settings is None:
            raise Unsupported("tracing is not supported by this server")
        return self._trace_settings


def checked_version(version: str) -> str:
    """The canonical text of a model version as a client wrote it, "" for any.  Raises BadRequest."""
    return canonical_version(version) if version else ""


def _tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.dims] if batched else list(spec.dims)}


def _index_line(entry: ModelEntry) -> dict[str, str]:
    """The index entry as JSON; fields that a model lacks are left out, so one that was never loaded has a name only."""
    fields = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
    return {key: value for key, value in fields.items() if value}
