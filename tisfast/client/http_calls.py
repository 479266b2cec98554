"""Calls over HTTP.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tisfast import limits
from tisfast.client import admin
from tisfast.client.address import Address
from tisfast.client.calls import Body, HttpCall, InferRequest, JsonDict, Piece, T
from tisfast.client.errors import of_http
from tisfast.errors import BadResponse, TisError, Unsupported
from tisfast.types import EXECUTED_FIELD
from tisfast.wire.client_head import RequestHead, ResponseHead
from tisfast.wire.client_request import RequestBody, infer_target
from tisfast.wire.client_response import InferResponse, ResponseReader, error_text
from tisfast.wire.compress import compress, decompress


class HttpCalls:
    """See calls.Calls.  headers: of each request; coding: of the bodies, "gzip", "deflate" or "" for none."""

    def __init__(self, address: Address, headers: Mapping[str, str], coding: str) -> None:
        self._address = address
        self._headers = dict(headers)
        self._coding = coding
        self._heads: dict[tuple[str, str], RequestHead] = {}
        self._reader = ResponseReader()
        self._writers: list[RequestBody] = []

    def infer(self, request: InferRequest) -> HttpCall[InferResponse]:
        """See calls.Calls."""
        head = self._infer_head(request)
        try:
            writer = self._writers.pop()
        except IndexError:
            writer = RequestBody()
        parameters = request.parameters
        if request.server_timeout_ns:
            parameters = {**(parameters or {}), "timeout": max(request.server_timeout_ns // 1000, 1)}
        pieces: list[Piece] = writer.render(
            request.tensors, outputs=request.outputs, parameters=parameters, id=request.id
        )
        nbytes, json_bytes = writer.nbytes, writer.json_bytes
        if len(self._writers) < limits.CLIENT_WRITERS_MAX:
            self._writers.append(writer)
        if self._coding:
            pieces = [compress(self._coding, *pieces)]
            nbytes = len(pieces[0])
        return HttpCall(head, head.with_body(nbytes, json_bytes), pieces, self._read_infer)

    def stream(self, request: InferRequest) -> Any:
        """Raises Unsupported: over HTTP a stream's answers are text."""
        raise Unsupported(
            f"model '{request.model}' cannot stream tensors over {self._address}: HTTP has server-sent events for text "
            "only (generate_stream); make the client with grpc://HOST:PORT"
        )

    def ready(self, model: str = "", version: str = "") -> HttpCall[bool]:
        """See calls.Calls."""
        if not model:
            return self._call("GET", "/v2/health/ready", None, _read_health)
        return self._call("GET", infer_target(model, version, "ready"), None, _read_health)

    def live(self) -> HttpCall[bool]:
        """See calls.Calls."""
        return self._call("GET", "/v2/health/live", None, _read_health)

    def ask(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> HttpCall[Any]:
        """See calls.Calls."""
        method, target, body = admin.OPERATIONS[name].http(fields)
        return self._call(method, target, body, lambda head, got: _json(self._good(head, got)), headers)

    def text(self, target: str) -> HttpCall[str]:
        """A page that is text."""
        return self._call("GET", target, None, lambda head, got: str(self._good(head, got), "utf-8", "replace"))

    # ----

    def _call(
        self, method: str, target: str, body: JsonDict | None, read: Any, headers: Mapping[str, str] | None = None
    ) -> HttpCall[T]:
        data = b"" if body is None else orjson.dumps(body)
        head = self._head(method, target, headers)
        head_bytes = head.without_body() if method == "GET" else head.with_body(len(data))
        return HttpCall(head, head_bytes, [data] if data and method != "GET" else [], read)

    def _infer_head(self, request: InferRequest) -> RequestHead:
        key = (request.model, request.version)
        if request.headers is None:
            found = self._heads.get(key)
            if found is not None:
                return found
        more = {"Content-Encoding": self._coding, "Accept-Encoding": self._coding} if self._coding else {}
        head = self._head("POST", infer_target(*key), {**more, **(request.headers or {})})
        if request.headers is None:
            if len(self._heads) >= limits.CLIENT_HEADS_MAX:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _head(self, method: str, target: str, more: Mapping[str, str] | None = None) -> RequestHead:
        headers = {**self._headers, **(more or {})}
        return RequestHead(method, self._address.path + target, self._address.authority, list(headers.items()))

    def _good(self, head: ResponseHead, body: Body) -> Body:
        if head.content_encoding:
            try:
                body = decompress(head.content_encoding, body, limits.HTTP_CHUNKED_BODY_BYTES_MAX, "")
            except TisError as broken:
                raise BadResponse(f"the server's answer cannot be expanded: {broken.message}") from None
        if not 200 <= head.status < 300:
            error = of_http(head.status, error_text(bytes(body)))
            if head.first(EXECUTED_FIELD) is not None:
                error.facts["executed"] = True
            wanted = head.first("retry-after") or ""
            if wanted.isdigit():
                error.facts["retry_after"] = min(float(wanted), limits.CLIENT_RETRY_AFTER_SECONDS_MAX)
            raise error
        return body

    def _read_infer(self, head: ResponseHead, body: Body) -> InferResponse:
        if head.status != 200 or head.content_encoding:
            body = self._good(head, body)
        return self._reader.infer(body, head.inference_header_length)


def _read_health(head: ResponseHead, body: Body) -> bool:
    if head.status in (401, 403):
        raise of_http(head.status, error_text(bytes(body)))
    return head.status == 200


def _json(body: Body) -> Any:
    if not body:
        return {}
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise BadResponse(f"the server's answer is no JSON: {error}; it begins with {bytes(body[:60])!r}") from None
