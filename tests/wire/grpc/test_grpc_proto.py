"""Our .proto files beside the descriptors that Triton's clients and gRPC's own packages were generated from."""

from __future__ import annotations

import importlib

import pytest

from tisfast import descriptors


def fields_of(message):
    return {
        field.name: (
            field.number,
            field.type,
            field.message_type.full_name if field.message_type is not None else None,
            field.enum_type.full_name if field.enum_type is not None else None,
            field.containing_oneof.name if field.containing_oneof is not None else None,
        )
        for field in message.fields
    }


def described(file):
    """Every message and method of a file, as comparable values."""
    found = {}

    def visit(message):
        found[message.full_name] = fields_of(message)
        for nested in message.nested_types:
            visit(nested)

    for message in file.message_types_by_name.values():
        visit(message)
    for service in file.services_by_name.values():
        for method in service.methods:
            ends = method.input_type.full_name, method.output_type.full_name
            found[method.full_name] = (*ends, method.client_streaming, method.server_streaming)
    return found


def test_the_service_is_tritons():
    theirs = importlib.import_module("tritonclient.grpc.service_pb2")
    ours = descriptors.pool().FindFileByName("grpc_service.proto")
    assert described(ours) == described(theirs.DESCRIPTOR)


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("health.proto", "grpc_health.v1.health_pb2"),
        ("reflection_v1alpha.proto", "grpc_reflection.v1alpha.reflection_pb2"),
    ],
)
def test_health_and_reflection_are_grpcs(file, module):
    theirs = importlib.import_module(module)
    ours = described(descriptors.pool().FindFileByName(file))
    assert ours.items() <= described(theirs.DESCRIPTOR).items()  # newer versions have more
