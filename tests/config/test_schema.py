"""The ModelConfig interface: every name, number, type and default beside tritonclient's own descriptor."""

import importlib
import subprocess
import sys

import pytest

from tisfast.config import schema


def fields_of(descriptor):
    return {
        field.name: (
            field.number,
            field.type,
            schema.is_repeated(field),
            field.message_type.full_name if field.message_type is not None else None,
            field.enum_type.full_name if field.enum_type is not None else None,
            field.containing_oneof.name if field.containing_oneof is not None else None,
            field.index,
        )
        for field in descriptor.fields
    }


def described(file):
    """Every message and enum of a file, flat, as comparable values."""
    found = {}

    def visit(message):
        found[message.full_name] = fields_of(message)
        for enum in message.enum_types:
            found[enum.full_name] = [(value.name, value.number) for value in enum.values]
        for nested in message.nested_types:
            visit(nested)

    for message in file.message_types_by_name.values():
        visit(message)
    for enum in file.enum_types_by_name.values():
        found[enum.full_name] = [(value.name, value.number) for value in enum.values]
    return found


def test_the_interface_is_tritons():
    theirs = importlib.import_module("tritonclient.grpc.model_config_pb2")
    assert described(schema.message_class("ModelConfig").DESCRIPTOR.file) == described(theirs.DESCRIPTOR)


def test_bytes_are_read_by_tritons_clients():
    theirs = importlib.import_module("tritonclient.grpc.model_config_pb2")
    ours = schema.model_config()
    ours.name = "m"
    ours.input.add(name="A", data_type=11, dims=[-1, 4], optional=True)
    ours.parameters["k"].string_value = "v"
    ours.dynamic_batching.priority_queue_policy[3].max_queue_size = 7
    read = theirs.ModelConfig.FromString(ours.SerializeToString())
    assert str(read) == str(ours)


def test_the_default_pool_stays_free():
    """A process that also uses tritonclient registers the same names in protobuf's default pool."""
    from google.protobuf import descriptor_pool

    schema.model_config()
    with pytest.raises(KeyError):
        if "tritonclient.grpc" in sys.modules:
            raise KeyError
        descriptor_pool.Default().FindMessageTypeByName("inference.ModelConfig")


def test_importing_the_configuration_does_not_import_protobuf():
    code = "import tisfast.config.model_config, tisfast.repo.scan, sys; sys.exit('google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
