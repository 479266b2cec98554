"""Server reflection: which services there are and what their messages look like.  Layer 4 (operations).

Triton has none; tools like grpcurl then need its .proto files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tisfast.descriptors import message_class, pool
from tisfast.errors import Internal

SERVICES: Final = (
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
)
NOT_FOUND: Final = 5
"""gRPC's code."""
INVALID_ARGUMENT: Final = 3


class Reflection:
    """The service in one of its two packages, which differ in nothing but their name."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._questions: dict[str, Callable[[Any], dict[str, Any]]] = {
            "file_by_filename": lambda request: _file(request.file_by_filename, _named),
            "file_containing_symbol": lambda request: _file(request.file_containing_symbol, _holding),
            "file_containing_extension": lambda request: _missing(
                f"extension {request.file_containing_extension.extension_number} of "
                f"{request.file_containing_extension.containing_type}"
            ),
            "all_extension_numbers_of_type": lambda request: _extensions(request.all_extension_numbers_of_type),
            "list_services": lambda _: {"list_services_response": {"service": [{"name": name} for name in SERVICES]}},
        }

    def open(self, _send: Callable[[bytes], None]) -> Reflection:
        """One call: it remembers nothing from question to question."""
        return self

    def on_message(self, message: bytes) -> list[bytes]:
        """One question, one answer.  Raises Internal for what is no question."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - protobuf is imported on first use

        try:
            request = message_class(f"{self._package}.ServerReflectionRequest").FromString(message)
        except DecodeError as error:
            raise Internal(f"Unable to parse request ({len(message)} bytes are no ServerReflectionRequest)") from error
        question = request.WhichOneof("message_request")
        answer = self._questions[question](request) if question else _error(INVALID_ARGUMENT, "no question was asked")
        response = message_class(f"{self._package}.ServerReflectionResponse")(
            valid_host=request.host, original_request=request, **answer
        )
        return [response.SerializeToString()]

    def on_end(self) -> None:
        """Nothing is kept for a call."""


def _file(name: str, find: Callable[[str], Any]) -> dict[str, Any]:
    """The file and all that it imports, itself first."""
    try:
        found = find(name)
    except KeyError:
        return _missing(f"'{name}'")
    files = [found]
    for file in files:
        files += [each for each in file.dependencies if each not in files]
    return {"file_descriptor_response": {"file_descriptor_proto": [file.serialized_pb for file in files]}}


def _named(name: str) -> Any:
    return pool().FindFileByName(name)


def _holding(symbol: str) -> Any:
    """Methods are not in the pool's index of names, so that of their service is asked."""
    try:
        return pool().FindFileContainingSymbol(symbol)
    except KeyError:
        service, _, method = symbol.rpartition(".")
        if service not in SERVICES or method not in pool().FindServiceByName(service).methods_by_name:
            raise
        return pool().FindFileContainingSymbol(service)


def _extensions(name: str) -> dict[str, Any]:
    """Our messages have no extensions."""
    try:
        pool().FindMessageTypeByName(name)
    except KeyError:
        return _missing(f"message '{name}'")
    return {"all_extension_numbers_response": {"base_type_name": name}}


def _missing(what: str) -> dict[str, Any]:
    return _error(NOT_FOUND, f"{what} is not found")


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_response": {"error_code": code, "error_message": message}}
