"""What can be asked of a server besides inferences, whatever the protocol.  Layer 4 (front).

Values in, JSON-able values out, TisError for all that goes wrong; HTTP routes and gRPC methods translate.  Rows 1.05 to
1.11, 5.*, 6.*, 10.*, 11.*, 12.*.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from tisfast.errors import BadRequest, Unsupported
from tisfast.front import statistics
from tisfast.front.control import ControlCalls
from tisfast.wire.head import canonical_version

if TYPE_CHECKING:
    from tisfast.engine.registry import ModelEntry, Registry
    from tisfast.engine.served import Runtime
    from tisfast.front.control import ModelControl
    from tisfast.repo.override import LoadOrder
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
"""Row 1.09, Triton's order: those of its list that are served.  A client that asks must not be told of others."""


class RegionOperations(Protocol):
    """Shared memory that clients registered (rows 10.*).  name "": all regions."""

    def check_allowed(self) -> None:
        """Raises Unsupported when clients may not register regions."""

    def system_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, key, offset, byte_size."""

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map a POSIX shared-memory object of the client's."""

    def unregister_system(self, name: str) -> None:
        """Forget it; whoever is using it keeps it until done."""

    def cuda_status(self, name: str) -> list[dict[str, Any]]:
        """Per region: name, device_id, byte_size."""

    def register_cuda(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """Open a CUDA IPC handle of the client's.  raw_handle: as cudaIpcGetMemHandle filled it."""

    def unregister_cuda(self, name: str) -> None:
        """Forget it."""


class LogOperations(Protocol):
    """Log settings (rows 5.*)."""

    def values(self) -> dict[str, Any]:
        """All of them."""

    def update(self, changes: dict[str, Any]) -> None:
        """Change some; nothing is changed when one of them is wrong."""


class TraceOperations(Protocol):
    """Trace settings (rows 12.*).  model "": the global ones."""

    def values(self, model: str) -> dict[str, Any]:
        """Those in force: text, or a list of texts."""

    def update(self, model: str, changes: dict[str, Any]) -> None:
        """Change some; None takes a setting back to the global one."""


def _has_none(_name: str, _version: str) -> None:
    """No model has an `is_ready` of its own."""


class Service:
    """The operations of one server.

    registry: what is served; server_id and server_version: of row 1.09; regions, log_settings, trace_settings: None for
    a server without them, which says so when asked; own_readiness: what a model's own `is_ready` says (row 16.06);
    control: who loads and unloads models, None on a server whose models stay.
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
    ) -> None:
        self._registry = registry
        self._server = {"name": server_id, "version": server_version, "extensions": list(EXTENSIONS)}
        self._regions = regions
        self._log_settings = log_settings
        self._trace_settings = trace_settings
        self._own_readiness = own_readiness
        self._look_around = look_around
        self._calls = ControlCalls(control)

    # ---- health

    def live(self) -> bool:
        """Row 26.01."""
        return self._registry.live()

    def ready(self) -> bool:
        """Row 26.02."""
        return self._registry.ready()

    def model_ready(self, name: str, version: str = "") -> None:
        """Row 1.07.  Raises unless the model version can be asked for inferences."""
        reason = self.unready_reason(name, version)
        if reason:
            raise self.not_ready(name, version, reason)

    def not_ready(self, name: str, version: str, reason: str) -> BadRequest:
        """The error of a known model version that cannot be asked."""
        version = checked_version(version) or self._registry.newest(name)
        which = f"'{name}' version {version}" if version else f"'{name}'"
        return BadRequest(f"Model version not ready: {which}: {reason}")

    def own_readiness(self, name: str, version: str = "") -> Awaitable[str] | None:
        """What the model's `is_ready` says (row 16.06): why it is not ready, or ""; None when it has none."""
        signature = self._registry.resolve(name, checked_version(version)).signature
        return self._own_readiness(signature.identity, signature.version)

    def unready_reason(self, name: str, version: str = "") -> str:
        """Why a known model version cannot be asked at this moment, "" when it can.  Raises for an unknown one."""
        version = checked_version(version)
        if not self._registry.knows(name):  # here alone an unknown model is 400
            raise BadRequest(f"Request for unknown model: '{name}' is not found")
        away = self._registry.away(name, version)
        if away is not None:
            return f"it is at {away.state} state{f': {away.reason}' if away.reason else ''}"
        runtime = self._registry.resolve(name, version)
        return "" if runtime.ready else runtime.reason or "it is not ready"

    # ---- what is served

    def server_metadata(self) -> dict[str, Any]:
        """Row 1.09."""
        return self._server

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Row 1.10."""
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
        """Row 1.11."""
        return self._registry.resolve(name, checked_version(version)).config

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Rows 11.*; name "": of all models."""
        return statistics.model_statistics(self._counted(name, checked_version(version)))

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
        """What the index must wait for: a look at which models the repositories have by now; None when nobody looks."""
        return self._look_around() if self._look_around is not None else None

    def repository_index(self, *, ready: bool = False) -> list[dict[str, str]]:
        """Row 6.01; ready: only what can be asked."""
        entries = self._registry.models()
        return [_index_line(entry) for entry in entries if not ready or entry.state == "READY"]

    async def load(self, order: LoadOrder) -> None:
        """Rows 6.03 to 6.08: until the model is ready."""
        await self._calls.load(order)

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Row 6.09: until no new request finds it."""
        await self._calls.unload(name, dependents=dependents)

    # ---- extensions

    @property
    def regions(self) -> RegionOperations:
        """Raises Unsupported on a server without shared memory."""
        if self._regions is None:
            raise Unsupported("shared memory is not supported by this server; send the tensors in the request")
        return self._regions

    def log_settings(self) -> dict[str, Any]:
        """Row 5.01."""
        return self._log().values()

    def update_log_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Row 5.02; returns all settings."""
        self._log().update(changes)
        return self._log().values()

    def _log(self) -> LogOperations:
        if self._log_settings is None:
            raise Unsupported("log settings cannot be asked for or changed on this server; restart it with other flags")
        return self._log_settings

    def trace_settings(self, model: str = "") -> dict[str, Any]:
        """Row 12.01."""
        return self._trace().values(model)

    def update_trace_settings(self, model: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Row 12.02; returns all settings."""
        self._trace().update(model, changes)
        return self._trace().values(model)

    def _trace(self) -> TraceOperations:
        if self._trace_settings is None:
            raise Unsupported("tracing is not supported by this server")
        return self._trace_settings


def checked_version(version: str) -> str:
    """The canonical text of a model version as a client wrote it, "" for any.  Raises BadRequest (row 1.12)."""
    return canonical_version(version) if version else ""


def _tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.dims] if batched else list(spec.dims)}


def _index_line(entry: ModelEntry) -> dict[str, str]:
    """Row 6.01: what a model does not have is left out, so one that was never loaded has a name only."""
    fields = {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
    return {key: value for key, value in fields.items() if value}
