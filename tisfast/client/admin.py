"""The calls that are no inferences, as both protocols have them.  Layer 3 (client).

An answer is what HTTP's JSON has, whatever the protocol.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tisfast.errors import BadRequest
from tisfast.wire.client_request import infer_target, target_part

Fields = Mapping[str, Any]
Json = dict[str, Any]
HttpForm = tuple[str, str, Json | None]
GrpcForm = tuple[str, Json, Callable[[Json], Any]]


class Operation(NamedTuple):
    """Both forms of one call.

    http: method, target and body of these fields; grpc: method, fields of its message, and what its answer becomes.
    """

    http: Callable[[Fields], HttpForm]
    grpc: Callable[[Fields], GrpcForm]


def _same(answer: Json) -> Json:
    return answer


def _nothing(_: Json) -> Json:
    return {}


def _model(call: str) -> Callable[[Fields], HttpForm]:
    def form(fields: Fields) -> HttpForm:
        target = infer_target(fields["model"], fields.get("version", ""), call)
        return "GET", target.rstrip("/"), None

    return form


def _of_model(method: str, shape: Callable[[Json], Any] = _same) -> Callable[[Fields], GrpcForm]:
    return lambda fields: (method, {"name": fields.get("model", ""), "version": fields.get("version", "")}, shape)


def _statistics_http(fields: Fields) -> HttpForm:
    return _model("stats")(fields) if fields.get("model") else ("GET", "/v2/models/stats", None)


def _index_http(fields: Fields) -> HttpForm:
    return "POST", "/v2/repository/index", {"ready": fields["ready"]}


def _index_grpc(fields: Fields) -> GrpcForm:
    return "RepositoryIndex", {"ready": fields["ready"]}, _index


def _index(answer: Json) -> list[Json]:
    return [{key: value for key, value in entry.items() if value or key == "name"} for entry in answer["models"]]


def _load_parameters(fields: Fields) -> dict[str, str | bytes]:
    """config and files as a load takes them: files of bytes by `VERSION/NAME`."""
    found: dict[str, str | bytes] = {}
    if fields.get("config") is not None:
        found["config"] = fields["config"]
    for name, data in (fields.get("files") or {}).items():
        if not isinstance(data, bytes):
            raise BadRequest(f"file '{name:.100}' of the model to load is {type(data).__name__}; it must be bytes")
        found[f"file:{name.removeprefix('file:')}"] = data
    return found


def _load_http(fields: Fields) -> HttpForm:
    values = _load_parameters(fields)
    spelled = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in values.items()
    }
    target = f"/v2/repository/models/{target_part(fields['model'])}/load"
    return "POST", target, {"parameters": spelled} if spelled else {}


def _load_grpc(fields: Fields) -> GrpcForm:
    values = {
        name: {"bytes_param": base64.b64encode(value).decode()} if isinstance(value, bytes) else {"string_param": value}
        for name, value in _load_parameters(fields).items()
    }
    return "RepositoryModelLoad", {"model_name": fields["model"], "parameters": values}, _nothing


def _unload_http(fields: Fields) -> HttpForm:
    target = f"/v2/repository/models/{target_part(fields['model'])}/unload"
    return "POST", target, {"parameters": {"unload_dependents": fields["dependents"]}}


def _unload_grpc(fields: Fields) -> GrpcForm:
    parameters = {"unload_dependents": {"bool_param": fields["dependents"]}}
    return "RepositoryModelUnload", {"model_name": fields["model"], "parameters": parameters}, _nothing


def _trace_http(fields: Fields) -> HttpForm:
    model = f"/models/{target_part(fields['model'])}" if fields.get("model") else ""
    settings = fields.get("settings")
    return ("GET" if settings is None else "POST"), f"/v2{model}/trace/setting", settings


def _trace_grpc(fields: Fields) -> GrpcForm:
    settings = {}
    for name, value in (fields.get("settings") or {}).items():
        texts = [] if value is None else value if isinstance(value, list | tuple) else [value]
        settings[name] = {"value": [str(each) for each in texts]}
    return "TraceSetting", {"model_name": fields.get("model", ""), "settings": settings}, _trace


def _trace(answer: Json) -> Json:
    found = {name: setting["value"] for name, setting in answer["settings"].items()}
    return {name: value if name == "trace_level" or len(value) != 1 else value[0] for name, value in found.items()}


def _log_http(fields: Fields) -> HttpForm:
    settings = fields.get("settings")
    return ("GET" if settings is None else "POST"), "/v2/logging", settings


def _log_grpc(fields: Fields) -> GrpcForm:
    def kind(value: object) -> str:
        return "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else "string_param"

    settings = {name: {kind(value): value} for name, value in (fields.get("settings") or {}).items()}
    return "LogSettings", {"settings": settings}, _log


def _log(answer: Json) -> Json:
    return {name: next(iter(setting.values()), None) for name, setting in answer["settings"].items()}


def _region(family: str, call: str) -> Callable[[Fields], HttpForm]:
    def form(fields: Fields) -> HttpForm:
        name = f"/region/{target_part(fields['name'])}" if fields.get("name") else ""
        target = f"/v2/{family.lower()}sharedmemory{name}/{call}"
        if call == "status":
            return "GET", target, None
        body = {key: value for key, value in fields.items() if key != "name"}
        if "raw_handle" in body:
            body["raw_handle"] = {"b64": base64.b64encode(body["raw_handle"]).decode()}
        return "POST", target, body if call == "register" else {}

    return form


def _region_grpc(family: str, call: str) -> Callable[[Fields], GrpcForm]:
    def form(fields: Fields) -> GrpcForm:
        body = dict(fields)
        if "raw_handle" in body:
            body["raw_handle"] = base64.b64encode(body["raw_handle"]).decode()
        shape = (lambda answer: list(answer["regions"].values())) if call == "Status" else _nothing
        return f"{family}SharedMemory{call}", body, shape

    return form


def _regions(family: str) -> dict[str, Operation]:
    calls = {"regions": "Status", "register": "Register", "unregister": "Unregister"}
    return {
        f"{family.lower()}_{name}": Operation(_region(family, call.lower()), _region_grpc(family, call))
        for name, call in calls.items()
    }


OPERATIONS: Final[dict[str, Operation]] = {
    "server_metadata": Operation(lambda _: ("GET", "/v2", None), lambda _: ("ServerMetadata", {}, _same)),
    "metadata": Operation(_model(""), _of_model("ModelMetadata")),
    "config": Operation(_model("config"), _of_model("ModelConfig", lambda answer: answer.get("config", {}))),
    "statistics": Operation(_statistics_http, _of_model("ModelStatistics")),
    "index": Operation(_index_http, _index_grpc),
    "load": Operation(_load_http, _load_grpc),
    "unload": Operation(_unload_http, _unload_grpc),
    "trace": Operation(_trace_http, _trace_grpc),
    "log": Operation(_log_http, _log_grpc),
    **_regions("System"),
    **_regions("Cuda"),
}
