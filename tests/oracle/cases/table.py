"""What a case is, and the short forms in which the tables are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tests.oracle.exchange import Request

Headers = Sequence[tuple[str, str]]
Place = Literal["models", "broken", "metrics"]


class Case(NamedTuple):
    """One conversation.  rows: the rows of Triton's behaviour it covers; place: which server and port it goes to."""

    name: str
    rows: str
    requests: tuple[Request, ...]
    place: Place = "models"
    pipelined: bool = False


def get(name: str, rows: str, target: str, headers: Headers = (), place: Place = "models") -> Case:
    """A GET."""
    return Case(name, rows, (Request("GET", target, tuple(headers)),), place)


def call(name: str, rows: str, method: str, target: str, body: bytes = b"", headers: Headers = ()) -> Case:
    """Any verb."""
    return Case(name, rows, (Request(method, target, tuple(headers), body),))


def raw(name: str, rows: str, data: bytes, half_close: bool = False, method: str = "GET") -> Case:
    """Bytes as they are; `method` says how the answer is to be read."""
    return Case(name, rows, (Request(method, raw=data, half_close=half_close),))


def tensor(
    name: str, datatype: str, shape: Sequence[object], data: object = None, **parameters: object
) -> dict[str, Any]:
    """An entry of `inputs`; without data it has none of the fields that say where data are."""
    entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    if data is not None:
        entry["data"] = data
    if parameters:
        entry["parameters"] = parameters
    return entry


def post(model: str, payload: object, headers: Headers = (), version: str = "") -> Request:
    """An inference request; `payload` is JSON text as bytes, or a value to be dumped."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    place = f"/versions/{version}" if version else ""
    return Request("POST", f"/v2/models/{model}{place}/infer", tuple(headers), body)


def infer(name: str, rows: str, model: str, payload: object, headers: Headers = (), version: str = "") -> Case:
    """One inference request."""
    return Case(name, rows, (post(model, payload, headers, version),))


def post_binary(model: str, head: object, tail: bytes, headers: Headers = (), length: object = None) -> Request:
    """An inference request of JSON head and binary tail; `length` overrides what the header claims of the head."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    claim = ("Inference-Header-Content-Length", str(len(text) if length is None else length))
    return post(model, text + tail, (claim, *headers))


def binary(
    name: str, rows: str, model: str, head: object, tail: bytes, *, headers: Headers = (), length: object = None
) -> Case:
    """One inference request in binary form."""
    return Case(name, rows, (post_binary(model, head, tail, headers, length),))
