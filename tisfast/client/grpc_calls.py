"""Calls over gRPC.  Layer 3 (client).

Inferences use the codecs of tisfast.wire; all other messages are protobuf's, which is imported with the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from tisfast import limits
from tisfast.client import admin
from tisfast.client.calls import GrpcCall, InferRequest, JsonDict
from tisfast.descriptors import message_class
from tisfast.errors import BadRequest, BadResponse
from tisfast.wire.client_response import InferResponse
from tisfast.wire.grpc.client_codec import RequestMessage, read_infer_response, read_stream_response

SERVICE: Final = "/inference.GRPCInferenceService/"


class GrpcCalls:
    """See calls.Calls.  metadata: of each call; coding: of the messages, "" for none."""

    def __init__(self, metadata: Mapping[str, str], coding: str) -> None:
        self._metadata = tuple(metadata.items())
        self._coding = coding
        self._writers: list[RequestMessage] = []

    def infer(self, request: InferRequest) -> GrpcCall[InferResponse]:
        """See calls.Calls."""
        return self._inference("ModelInfer", request, read_infer_response)

    def stream(self, request: InferRequest) -> GrpcCall[tuple[str, InferResponse]]:
        """See calls.Calls."""
        return self._inference("ModelStreamInfer", request, read_stream_response)

    def _inference(self, method: str, request: InferRequest, read: Any) -> GrpcCall[Any]:
        try:
            writer = self._writers.pop()
        except IndexError:
            writer = RequestMessage()
        parameters = request.parameters
        if request.server_timeout_ns:
            parameters = {**(parameters or {}), "timeout": max(request.server_timeout_ns // 1000, 1)}
        message = writer.render(
            request.model,
            request.tensors,
            version=request.version,
            outputs=request.outputs,
            parameters=parameters,
            id=request.id,
        )
        if len(self._writers) < limits.CLIENT_WRITERS_MAX:
            self._writers.append(writer)
        metadata = self._metadata
        if request.headers:
            metadata = (*metadata, *request.headers.items())
        call = GrpcCall(SERVICE + method, message, metadata, read)
        call.encoding = self._coding
        call.server_timeout_ns = request.server_timeout_ns
        return call

    def ready(self, model: str = "", version: str = "") -> GrpcCall[bool]:
        """See calls.Calls."""
        if not model:
            return self._call("ServerReady", {}, lambda fields: bool(fields.get("ready", False)))
        fields = {"name": model, "version": version}
        return self._call("ModelReady", fields, lambda answer: bool(answer.get("ready", False)))

    def live(self) -> GrpcCall[bool]:
        """See calls.Calls."""
        return self._call("ServerLive", {}, lambda fields: bool(fields.get("live", False)))

    def ask(self, name: str, headers: Mapping[str, str] | None = None, /, **fields: Any) -> GrpcCall[Any]:
        """See calls.Calls."""
        method, wanted, shape = admin.OPERATIONS[name].grpc(fields)
        return self._call(method, wanted, shape, headers)

    def _call(
        self, method: str, fields: JsonDict, shape: Any, headers: Mapping[str, str] | None = None
    ) -> GrpcCall[Any]:
        message = encoded(f"inference.{method}Request", fields)

        def read(answer: bytes) -> Any:
            return shape(decoded(f"inference.{method}Response", answer))

        metadata = (*self._metadata, *headers.items()) if headers else self._metadata
        return GrpcCall(SERVICE + method, message, metadata, read)


def encoded(name: str, fields: JsonDict) -> bytes:
    """A message of these fields, as `ParseDict` takes them.  Raises BadRequest."""
    from google.protobuf.json_format import ParseDict, ParseError  # noqa: PLC0415 - 25 ms, only for these calls

    try:
        return cast(bytes, ParseDict(fields, message_class(name)()).SerializeToString())
    except (ParseError, TypeError, ValueError) as error:
        raise BadRequest(f"{fields!r:.300} cannot be sent as {name}: {error}") from None


def decoded(name: str, message: bytes) -> JsonDict:
    """The fields of a message, named as in the .proto file.  Raises BadResponse."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return _fields(message_class(name).FromString(message))
    except DecodeError as error:
        raise BadResponse(f"the server's message is no {name}: {error}") from None


def _fields(message: Any) -> JsonDict:
    """As MessageToDict does, but whole numbers stay numbers and all fields without presence are there."""
    found: JsonDict = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            kind = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(kind, value[key]) for key in value}
        elif isinstance(value, list | tuple) or hasattr(value, "append") or hasattr(value, "add"):
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
