"""An OpenAPI 3.1 document of what a server serves, made from the table that serves it.  Layer 4 (operations)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tisfast import limits
from tisfast.operations.openapi_parts import ERRORS, EVENTS, PARAMETERS, SCHEMAS, reference
from tisfast.operations.route import Operation, Route

OPENAPI: Final = "3.1.0"
JSON: Final = "application/json"
ALWAYS: Final = ("403", "405")
"""Responses that every path can give."""
NO_JSON_FORM: Final = ("FP16", "BF16")


NO_EXAMPLE: Final = {"name": "", "datatype": NO_JSON_FORM[0], "shape": []}
"""In place of inputs: what a model makes of an empty text cannot be told, and an image is none."""


class PathOperation(NamedTuple):
    """One thing that can be asked: the piece that documents are made of."""

    path: str
    method: str
    described: dict[str, Any]


def operations(routes: Iterable[Route]) -> Iterator[PathOperation]:
    """All that these routes answer.  Each is some 10 us of work, all of them a millisecond."""
    for route in routes:
        for path in templates(route.pattern.pattern):
            for method in route.methods:
                yield PathOperation(path, method.lower(), _operation(route, method, path))


def document(found: Iterable[PathOperation], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The document of the whole server.  metadata: name and version of it."""
    paths: dict[str, Any] = {}
    for path, method, described in found:
        paths.setdefault(path, {})[method] = described
    return {
        "openapi": OPENAPI,
        "info": {"title": metadata["name"], "version": metadata["version"], "description": "KServe v2 and extensions"},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def model_document(
    found: Iterable[PathOperation], server: Mapping[str, Any], model: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any]:
    """The document of one model: its paths, with an example that it answers.  found: its alone from now on; model: its
    metadata.
    """
    whole = document(found, server)
    decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
    optional = {tensor["name"] for tensor in config.get("input", ()) if tensor.get("optional")}
    inputs = [tensor for tensor in model["inputs"] if _may_be_shown(tensor) or tensor["name"] not in optional]
    if any(tensor["datatype"] == "BYTES" for tensor in inputs) and not _takes_zeros(config):
        inputs = [NO_EXAMPLE]
    start = "/v2/models/{model}"
    paths = {
        path.replace("{model}", model["name"]): _without_model(methods)
        for path, methods in whole["paths"].items()
        if path == start or path.startswith(f"{start}/")
    }
    for path, methods in paths.items():
        verb = path.rpartition("/")[2]
        if verb == "infer":
            _give_example(methods["post"], infer_example(inputs))
            if decoupled:  # with Accept: text/event-stream, and not without
                methods["post"]["responses"]["200"]["content"].pop(JSON)
        elif verb == "generate_stream" or (verb == "generate" and not decoupled):
            _give_example(methods["post"], generate_example(inputs))
        elif verb == "generate":
            methods["post"]["description"] = "answers requests to which the model gives exactly one response"
    info = {"title": f"model {model['name']}", "version": model["versions"][-1], "description": _tensors(model)}
    return {**whole, "info": info, "paths": paths}


def infer_example(inputs: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """An inference of zeros; None when one of the inputs, as metadata has them, is large or has no JSON form."""
    found = []
    for tensor in inputs:
        if not _may_be_shown(tensor):
            return None
        shape = [max(dim, 1) for dim in tensor["shape"]]
        data = [_zero(tensor["datatype"])] * _count(shape)
        found.append({"name": tensor["name"], "shape": shape, "datatype": tensor["datatype"], "data": data})
    return {"inputs": found}


def generate_example(inputs: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The example as a generate body."""
    found: dict[str, Any] = {}
    for tensor in inputs:
        if not _may_be_shown(tensor):
            return None
        n = _count(max(dim, 1) for dim in tensor["shape"])
        found[tensor["name"]] = _zero(tensor["datatype"]) if n == 1 else [_zero(tensor["datatype"])] * n
    return found


def _takes_zeros(config: Mapping[str, Any]) -> bool:
    """Whether a warm-up sample of zeros shows that the model answers such a request."""
    return any(
        sample.get("inputs") and all(given.get("zero_data") for given in sample["inputs"].values())
        for sample in config.get("model_warmup", ())
    )


def _may_be_shown(tensor: Mapping[str, Any]) -> bool:
    elements = _count(max(dim, 1) for dim in tensor["shape"])
    return tensor["datatype"] not in NO_JSON_FORM and elements <= limits.EXAMPLE_ELEMENTS_MAX


def templates(pattern: str) -> list[str]:
    """The paths that a route's pattern stands for: optional parts and alternatives written out, the rest in braces."""
    # A segment without a name takes that of what stands before it: /models/[^/]+ is a model.
    named = (re.sub(r"(\w+?)(s?)/\[\^/\]\+", r"\1\2/{\1}", path) for path in _expanded(pattern))
    return list(named)


def _expanded(pattern: str) -> Iterator[str]:
    start = pattern.find("(")
    if start < 0:
        yield pattern
        return
    end = _closing(pattern, start)
    optional = pattern[end + 1 : end + 2] == "?"
    head, rest = pattern[:start], pattern[end + 1 + optional :]
    choices = list(_choices(pattern[start + 1 : end])) + ([""] if optional else [])
    for choice, tail in itertools.product(reversed(choices), list(_expanded(rest))):
        yield head + choice + tail


def _choices(group: str) -> Iterator[str]:
    """The texts of a path that a group of its pattern stands for."""
    named = re.match(r"\?P<(\w+)>", group)
    inside = group[named.end() :] if named else group.removeprefix("?:")
    if named and not re.fullmatch(r"\w+(\|\w+)+", inside):
        yield "{" + named.group(1) + "}"
        return
    for part in inside.split("|") if "(" not in inside else [inside]:
        yield from _expanded(part)


def _closing(pattern: str, start: int) -> int:
    depth = 0
    for at in range(start, len(pattern)):
        depth += (pattern[at] == "(") - (pattern[at] == ")")
        if depth == 0:
            return at
    raise ValueError(f"no closing parenthesis in {pattern!r}")


def _operation(route: Route, method: str, path: str) -> dict[str, Any]:
    known = route.operation
    names = re.findall(r"\{(\w+)\}", path)
    found: dict[str, Any] = {
        "summary": known.summary,
        "operationId": f"{method.lower()}{re.sub('[^A-Za-z0-9]+', '_', path)}",
        "tags": [route.category],
        "responses": {"200": _answer(known), **{status: ERRORS[status] for status in sorted({*ALWAYS, *known.errors})}},
    }
    if names:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": PARAMETERS.get(name, {"type": "string"})}
            for name in names
        ]
    if known.request and method == "POST":
        content = {JSON: {"schema": reference(known.request)}}
        found["requestBody"] = {"required": known.request_required, "content": content}
    return found


def _answer(known: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if known.response:
        content[JSON] = {"schema": reference(known.response)}
    if known.events:
        content[EVENTS] = {"schema": {"type": "string"}}
    return {"description": known.result, **({"content": content} if content else {})}


def _without_model(methods: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for method, operation in methods.items():
        left = [each for each in operation.get("parameters", []) if each["name"] != "model"]
        found[method] = {**operation, "parameters": left}
    return found


def _give_example(operation: dict[str, Any], example: dict[str, Any] | None) -> None:
    if example is None:
        operation["description"] = (
            "no example: an input is large, or has no JSON form (send it in binary form), or is a text or file of "
            "which only the model's author can give one"
        )
        return
    schema = operation["requestBody"]["content"][JSON]
    operation["requestBody"] = {"required": True, "content": {JSON: {**schema, "example": example}}}


def _tensors(model: Mapping[str, Any]) -> str:
    """Inputs and outputs in words."""
    sides = []
    for side in ("inputs", "outputs"):
        sides.append(f"{side}: " + ", ".join(f"{t['name']} {t['datatype']} {t['shape']}" for t in model[side]))
    return "; ".join(sides)


def _count(shape: Iterable[int]) -> int:
    n = 1
    for dim in shape:
        n *= dim
    return n


def _zero(datatype: str) -> object:
    return {"BYTES": "", "BOOL": False}.get(datatype, 0)
