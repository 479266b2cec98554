"""The schemas of the OpenAPI document.  Layer 4 (operations)."""

from __future__ import annotations

from typing import Any, Final

from tisfast.types import DATA_TYPES

EVENTS: Final = "text/event-stream"


PARAMETERS: Final[dict[str, Any]] = {
    "repository": {"type": "string", "description": "a load or unload names none: 501"},
    "version": {"type": "string", "pattern": "^[0-9]+$"},
    "model": {"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"},
}


def reference(name: str) -> dict[str, str]:
    """A schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _error(description: str, *, kinds: tuple[str, ...] = ("application/json",)) -> dict[str, Any]:
    return {"description": description, "content": {kind: {"schema": reference("Error")} for kind in kinds}}


ERRORS: Final[dict[str, Any]] = {
    "400": {
        "description": "the request is wrong, or the server or model is not ready",
        "content": {"application/json": {"schema": reference("Error")}, "text/plain": {"schema": {"type": "string"}}},
    },
    "401": _error("models are loaded and unloaded with a bearer token only (--model-control-token-file)"),
    "403": _error("the API is restricted, and the request lacks its header, or is not of the server's own machine"),
    "404": _error("no such model, version or path"),
    "405": _error("the path does not take this method"),
    "408": _error("the body did not come in time"),
    "500": _error("the model failed, or the body is no JSON of that form"),
    "501": _error("the server does not serve this"),
    "503": _error("the server cannot answer now; the same request may succeed later"),
}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_TEXT: Final = {"type": "string"}
_DATATYPE: Final = {"type": "string", "enum": [each.wire for each in DATA_TYPES]}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_SHAPE: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_PARAMETERS: Final = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}}
_TENSORS: Final = {
    "type": "array",
    "items": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape={"type": "array", "items": {"type": "integer", "minimum": -1}},
    ),
}

SCHEMAS: Final[dict[str, Any]] = {
    "Anything": {},
    "Error": {**_object(("error",), error=_TEXT), "additionalProperties": False},
    "Live": _object(("live",), live={"type": "boolean"}),
    "Ready": _object(("ready",), ready={"type": "boolean"}),
    "ServerMetadata": _object(("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_TEXTS),
    "ModelMetadata": _object(
        ("name", "versions", "platform", "inputs", "outputs"),
        name=_TEXT,
        versions=_TEXTS,
        platform=_TEXT,
        inputs=_TENSORS,
        outputs=_TENSORS,
    ),
    "Statistics": _object(("model_stats",), model_stats={"type": "array", "items": {"type": "object"}}),
    "RegionRequest": _object(
        ("byte_size",),
        key={**_TEXT, "description": "of system shared memory: its name"},
        offset={"type": "integer", "minimum": 0},
        byte_size={"type": "integer", "minimum": 0},
        device_id={"type": "integer", "minimum": 0},
        raw_handle=_object(("b64",), b64={**_TEXT, "description": "of CUDA shared memory: cudaIpcMemHandle_t"}),
    ),
    "RepositoryIndexRequest": _object((), ready={"type": "boolean"}),
    "LoadRequest": _object(
        (),
        parameters={
            "type": "object",
            "properties": {
                "config": {"type": "string", "description": "a configuration in JSON in place of the model's"},
                "force": {"type": "boolean", "description": "load again although nothing has changed"},
            },
            "patternProperties": {
                "^file:": {"type": "string", "contentEncoding": "base64", "description": "file:VERSION/NAME"}
            },
            "additionalProperties": False,
        },
    ),
    "UnloadRequest": _object(
        (),
        parameters={
            "type": "object",
            "properties": {"unload_dependents": {"type": "boolean"}},
            "additionalProperties": False,
        },
    ),
    "RepositoryIndex": {
        "type": "array",
        "items": _object(("name",), name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT),
    },
    "InferRequest": _object(
        ("inputs",),
        id=_TEXT,
        parameters=_PARAMETERS,
        inputs={
            "type": "array",
            "items": _object(
                ("name", "shape", "datatype"),
                name=_TEXT,
                shape=_SHAPE,
                datatype=_DATATYPE,
                parameters=_PARAMETERS,
                data={"type": "array"},
            ),
        },
        outputs={"type": "array", "items": _object(("name",), name=_TEXT, parameters=_PARAMETERS)},
    ),
    "InferResponse": _object(
        ("model_name", "model_version", "outputs"),
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        parameters={"type": "object"},
        outputs={
            "type": "array",
            "items": _object(("name", "datatype", "shape"), name=_TEXT, datatype=_DATATYPE, shape=_SHAPE),
        },
    ),
    "GenerateRequest": {"type": "object", "properties": {"id": _TEXT, "parameters": {"type": "object"}}},
    "Generated": _object(("model_name", "model_version"), model_name=_TEXT, model_version=_TEXT),
}
