"""The table of RPCs and their handlers, without ModelInfer and ModelStreamInfer.  Layer 4 (operations).

Each is an operation of operations.service.Service: the message's fields in, the operation's values out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tisfast import limits, tuning
from tisfast.descriptors import message_class
from tisfast.errors import BadRequest, Internal, NotFound, Unsupported
from tisfast.operations import model_control
from tisfast.operations.grpc.health import Health
from tisfast.operations.grpc.load_message import load_order
from tisfast.operations.grpc.method_types import StreamCall, StreamMethod, UnaryHandler, UnaryMethod
from tisfast.operations.grpc.reflection import Reflection
from tisfast.operations.service import checked_version
from tisfast.operations.slices import in_slices

if TYPE_CHECKING:
    from tisfast.operations.control_access import ControlGate
    from tisfast.operations.service import Service
    from tisfast.repo.load_override import LoadOrder

__all__ = ["Methods", "StreamCall", "StreamMethod", "UnaryHandler", "UnaryMethod"]

SERVICE: Final = "inference.GRPCInferenceService"
REFLECTIONS: Final = ("grpc.reflection.v1", "grpc.reflection.v1alpha")

Fields = dict[str, Any]
Answer = Fields | bytes


class Rpc(NamedTuple):
    """One row of the table.

    operation: method of Methods, from a request to the fields of the response; guarded: only for those whom the
    gate of model control lets in; read: makes of a message, and its parser, what the operation takes; bytes_max: of a
    message, also expanded: a load may carry files.
    """

    name: str
    operation: str
    category: str
    guarded: bool = False
    read: Callable[[bytes, Callable[[bytes], Any]], Any] | None = None
    bytes_max: int = limits.GRPC_CALL_BYTES_MAX


RPCS: Final = (
    Rpc("ServerLive", "_server_live", "health"),
    Rpc("ServerReady", "_server_ready", "health"),
    Rpc("ModelReady", "_model_ready", "health"),
    Rpc("ServerMetadata", "_server_metadata", "metadata"),
    Rpc("ModelMetadata", "_model_metadata", "metadata"),
    Rpc("ModelConfig", "_model_config", "model-config"),
    Rpc("ModelStatistics", "_model_statistics", "statistics"),
    Rpc("RepositoryIndex", "_repository_index", "model-repository"),
    Rpc("RepositoryModelLoad", "_load", "model-repository", True, load_order, limits.GRPC_COLLECTED_MESSAGE_BYTES_MAX),
    Rpc("RepositoryModelUnload", "_unload", "model-repository", guarded=True),
    Rpc("SystemSharedMemoryStatus", "_system_status", "shared-memory"),
    Rpc("SystemSharedMemoryRegister", "_system_register", "shared-memory"),
    Rpc("SystemSharedMemoryUnregister", "_system_unregister", "shared-memory"),
    Rpc("CudaSharedMemoryStatus", "_cuda_status", "shared-memory"),
    Rpc("CudaSharedMemoryRegister", "_cuda_register", "shared-memory"),
    Rpc("CudaSharedMemoryUnregister", "_cuda_unregister", "shared-memory"),
    Rpc("TraceSetting", "_trace_setting", "trace"),
    Rpc("LogSettings", "_log_settings", "logging"),
)


class Methods:
    """The methods of one server.

    loop: where health watchers are told of changes; gate: asked before models are loaded or unloaded, None for no gate;
    answer_delay_seconds: a test's (config/scheduler_hooks.py), of unary methods.
    """

    def __init__(
        self,
        service: Service,
        loop: asyncio.AbstractEventLoop,
        gate: ControlGate | None = None,
        answer_delay_seconds: int = 0,
    ) -> None:
        self._service = service
        self._gate = gate
        health = Health(service.ready, loop)
        self._unary = {f"/{SERVICE}/{rpc.name}": self._method(rpc) for rpc in RPCS}
        self._unary["/grpc.health.v1.Health/Check"] = UnaryMethod(health.check, "health")
        if answer_delay_seconds:
            self._unary = {path: _delayed(method, answer_delay_seconds) for path, method in self._unary.items()}
        self._streams = {"/grpc.health.v1.Health/Watch": StreamMethod(health.watch, "health", closes=False)}
        for package in REFLECTIONS:
            path = f"/{package}.ServerReflection/ServerReflectionInfo"
            self._streams[path] = StreamMethod(Reflection(package).open, "metadata", closes=True)

    def unary(self, path: str) -> UnaryMethod | None:
        """The method of an HTTP/2 path, None when there is none of that name with one request and one answer."""
        return self._unary.get(path)

    def stream(self, path: str) -> StreamMethod | None:
        """The streaming method of a path."""
        return self._streams.get(path)

    def _method(self, rpc: Rpc) -> UnaryMethod:
        operation: Callable[[Any], Answer | Awaitable[Answer]] = getattr(self, rpc.operation)

        def encoded(answer: Answer) -> bytes:
            return answer if isinstance(answer, bytes) else _message(rpc.name, answer)

        def parse(message: bytes) -> Any:
            return parsed(f"inference.{rpc.name}Request", message)

        def read(message: bytes) -> Any:
            return parse(message) if rpc.read is None else rpc.read(message, parse)

        async def later(answer: Awaitable[Answer]) -> bytes:
            return encoded(await answer)

        async def large(message: bytes) -> bytes:
            answer = operation(await model_control.decoded(len(message), lambda: read(message)))
            return encoded(answer if isinstance(answer, dict | bytes) else await answer)

        def handler(message: bytes, _metadata: Mapping[str, str]) -> bytes | asyncio.Future[bytes]:
            if len(message) > tuning.CONTROL_INLINE_BYTES_MAX:
                return asyncio.ensure_future(large(message))
            answer = operation(read(message))
            return encoded(answer) if isinstance(answer, dict | bytes) else asyncio.ensure_future(later(answer))

        guard = self._gate.check if rpc.guarded and self._gate is not None else None
        return UnaryMethod(handler, rpc.category, guard, rpc.bytes_max)

    # ---- health and metadata

    def _server_live(self, _request: Any) -> Fields:
        return {"live": self._service.live()}

    def _server_ready(self, _request: Any) -> Fields:
        return {"ready": self._service.ready()}

    def _model_ready(self, request: Any) -> Fields | Awaitable[Fields]:
        version = checked_version(request.version)
        try:
            unready = self._service.unready_reason(request.name, version)
        except (BadRequest, NotFound):  # clients wait with this call for a model that nobody has loaded yet
            unready = "it is not there"
        if unready:
            return {"ready": False}
        said = self._service.own_readiness(request.name, request.version)
        return {"ready": True} if said is None else self._checked_ready(said)

    async def _checked_ready(self, said: Awaitable[str]) -> Fields:
        """After the model's own `is_ready`."""
        return {"ready": not await said}

    def _server_metadata(self, _request: Any) -> Fields:
        return self._service.server_metadata()

    def _model_metadata(self, request: Any) -> Fields:
        return self._service.model_metadata(request.name, request.version)

    def _model_config(self, request: Any) -> Fields:
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - 10 ms, only for who needs it

        config = self._service.model_config(request.name, request.version)
        return {"config": ParseDict(config, message_class("inference.ModelConfig")())}

    def _model_statistics(self, request: Any) -> Answer | Awaitable[Answer]:
        found = self._service.each_statistics(request.name, request.version)
        return _in_slices("ModelStatistics", "model_stats", found)

    # ---- the repository

    def _repository_index(self, request: Any) -> Answer | Awaitable[Answer]:
        _check_repository(request)
        look = self._service.look_around()
        return self._index(request.ready) if look is None else self._index_after(look, request.ready)

    async def _index_after(self, look: Awaitable[None], ready: bool) -> Answer:
        await look
        found = self._index(ready)
        return found if isinstance(found, dict | bytes) else await found

    def _index(self, ready: bool) -> Answer | Awaitable[Answer]:
        return _in_slices("RepositoryIndex", "models", self._service.repository_index(ready=ready))

    def _load(self, order: LoadOrder) -> Awaitable[Fields]:
        return _done(self._service.load(order))

    def _unload(self, request: Any) -> Awaitable[Fields]:
        _check_repository(request)
        dependents = model_control.grpc_unload_dependents(request.parameters)
        return _done(self._service.unload(request.model_name, dependents=dependents))

    # ---- shared memory

    def _system_status(self, request: Any) -> Fields:
        return {"regions": {each["name"]: each for each in self._service.regions.system_status(request.name)}}

    def _system_register(self, request: Any) -> Fields:
        self._service.regions.register_system(request.name, request.key, request.offset, request.byte_size)
        return {}

    def _system_unregister(self, request: Any) -> Fields:
        self._service.regions.unregister_system(request.name)
        return {}

    def _cuda_status(self, request: Any) -> Fields:
        return {"regions": {each["name"]: each for each in self._service.regions.cuda_status(request.name)}}

    def _cuda_register(self, request: Any) -> Awaitable[Fields]:
        regions = self._service.regions
        return _done(regions.register_cuda(request.name, request.raw_handle, request.device_id, request.byte_size))

    def _cuda_unregister(self, request: Any) -> Awaitable[Fields]:
        return _done(self._service.regions.unregister_cuda(request.name))

    # ---- settings

    def _trace_setting(self, request: Any) -> Fields:
        changes = {name: _trace_value(name, list(setting.value)) for name, setting in sorted(request.settings.items())}
        if changes:
            values = self._service.update_trace_settings(request.model_name, changes)
        else:
            values = self._service.trace_settings(request.model_name)
        return {"settings": {name: {"value": _texts(value)} for name, value in values.items()}}

    def _log_settings(self, request: Any) -> Fields:
        changes = {name: _log_value(name, setting) for name, setting in sorted(request.settings.items())}
        values = self._service.update_log_settings(changes) if changes else self._service.log_settings()
        return {"settings": {name: {_LOG_KINDS[type(value)]: value} for name, value in values.items()}}


def _delayed(method: UnaryMethod, seconds: int) -> UnaryMethod:
    """The same, with an answer that waits, be it an error."""

    async def answer(message: bytes, metadata: Mapping[str, str]) -> bytes:
        try:
            said = method.handler(message, metadata)
            return said if isinstance(said, bytes) else await said
        finally:
            await asyncio.sleep(seconds)

    return method._replace(handler=lambda message, metadata: asyncio.ensure_future(answer(message, metadata)))


def _message(rpc: str, fields: Fields) -> bytes:
    """The answer of this RPC."""
    message: bytes = message_class(f"inference.{rpc}Response")(**fields).SerializeToString()
    return message


def _in_slices(rpc: str, field: str, entries: Iterable[Fields]) -> bytes | asyncio.Future[bytes]:
    """An answer that is a list: messages of one entry each, which behind each other are the message of all."""
    return in_slices((_message(rpc, {field: [entry]}) for entry in entries), b"".join)


def parsed(name: str, message: bytes) -> Any:
    """A message of this type.  Raises Internal for what is none (Triton's text)."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - protobuf is imported on first use

    try:
        return message_class(name).FromString(message)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Internal(f"Unable to parse request ({len(message)} bytes are no {name})") from error


async def _done(work: Awaitable[None]) -> Fields:
    """Wait for a call that has no result, and give the empty message."""
    await work
    return {}


def _check_repository(request: Any) -> None:
    if request.repository_name:
        raise Unsupported(model_control.SINGLE_REPOSITORY)


def _trace_value(name: str, value: list[str]) -> list[str] | str | None:
    """A setting as trace settings take it: a list of levels, else one text; None for "as above it"."""
    if not value:
        return None
    if name == "trace_level":
        return value
    if len(value) > 1:
        raise BadRequest(f"expect only 1 value for '{name}'")
    return value[0]


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


_LOG_KINDS: Final = {bool: "bool_param", int: "uint32_param", str: "string_param"}
_LOG_FORMATS: Final = ("default", "ISO8601")
_LOG_SETTINGS: Final = {
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}


def _log_value(name: str, setting: Any) -> bool | int | str | None:
    """A value of the kind that this setting has.  Raises BadRequest."""
    kind = setting.WhichOneof("parameter_choice")
    expected, words = _LOG_SETTINGS.get(name, (kind, ""))
    if kind != expected:
        raise BadRequest(f"expect {words} for '{name}'")
    value: bool | int | str | None = getattr(setting, kind) if kind else None
    if name == "log_format" and value not in _LOG_FORMATS:
        raise BadRequest(f"invalid argument for log_format, got: {value:.60}")  # HTTP has another text and status
    return value
