"""The words and schemas of the OpenAPI document.  Layer 4 (front)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

EVENTS: Final = "text/event-stream"


class Operation(NamedTuple):
    """What one handler does.  request, response: names in SCHEMAS, "" for no body; events: may answer with a stream."""

    summary: str
    response: str = "Anything"
    request: str = ""
    result: str = "done"
    request_required: bool = True
    events: bool = False


OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("live", ""): Operation("The server is up", "", result="it is"),
    ("ready", ""): Operation("The server takes inferences", "", result="it does"),
    ("model_ready", ""): Operation("The model takes inferences", "", result="it does"),
    ("server_metadata", ""): Operation("Name, version and extensions", "ServerMetadata", result="they are"),
    ("model_metadata", ""): Operation("Versions, inputs and outputs of a model", "ModelMetadata", result="they are"),
    ("model_config", ""): Operation("The configuration in use", "Anything", result="it is"),
    ("model_statistics", ""): Operation("Counts and durations of a model", "Statistics", result="they are"),
    ("all_statistics", ""): Operation("Counts and durations of all models", "Statistics", result="they are"),
    ("repository_index", ""): Operation(
        "Every model and version with its state", "RepositoryIndex", "RepositoryIndexRequest", "they are", False
    ),
    ("load", ""): Operation(
        "Load a model, or load it again: answered when it is ready", "", "LoadRequest", "it is ready", False
    ),
    ("unload", ""): Operation(
        "Unload a model: answered when it gets no new requests", "", "UnloadRequest", "it is not served any more", False
    ),
    ("infer", "infer"): Operation("An inference", "InferResponse", "InferRequest", "the outputs", events=True),
    ("infer", "generate"): Operation(
        "An inference by a flat object: inputs and parameters by name", "Generated", "GenerateRequest", "the outputs"
    ),
    ("infer", "generate_stream"): Operation(
        "The same, each response an event", "", "GenerateRequest", "the responses", events=True
    ),
    ("docs", ""): Operation("This document", "Anything", result="it is"),
    ("model_docs", ""): Operation("This document for one model, with an example", "Anything", result="it is"),
}
"""By handler and last word of the path ("" for any)."""

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
        "description": "the request is wrong, or what was asked is not so",
        "content": {"application/json": {"schema": reference("Error")}, "text/plain": {"schema": {"type": "string"}}},
    },
    "401": _error("models are loaded and unloaded with a bearer token only (--model-control-token-file)"),
    "403": _error("the API is restricted, and the request lacks its header, or is not of the server's own machine"),
    "404": _error("no such model, version or path"),
    "405": _error("not for this method"),
    "500": _error("the model failed, or the body is no JSON of that form"),
    "501": _error("not in this form, or not served"),
    "503": _error("not now; the same request may succeed later"),
}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_SHAPE: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_PARAMETERS: Final = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number", "boolean"]}}
_TENSORS: Final = {
    "type": "array",
    "items": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_TEXT,
        shape={"type": "array", "items": {"type": "integer", "minimum": -1}},
    ),
}

SCHEMAS: Final[dict[str, Any]] = {
    "Anything": {},
    "Error": {**_object(("error",), error=_TEXT), "additionalProperties": False},
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
                datatype=_TEXT,
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
            "items": _object(("name", "datatype", "shape"), name=_TEXT, datatype=_TEXT, shape=_SHAPE),
        },
    ),
    "GenerateRequest": {"type": "object", "properties": {"id": _TEXT, "parameters": {"type": "object"}}},
    "Generated": _object(("model_name", "model_version"), model_name=_TEXT, model_version=_TEXT),
}
