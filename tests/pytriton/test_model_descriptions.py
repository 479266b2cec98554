"""Tensors and configurations: what users write, what the server gets, what clients read."""

import dataclasses
import json

import numpy as np
import pytest

from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonModelConfigError
from tisfast.pytriton.model_config import DeviceKind, DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from tisfast.pytriton.model_config.generator import ModelConfigGenerator
from tisfast.pytriton.model_config.parser import ModelConfigParser
from tisfast.pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig

A = TensorSpec("A", (1, -1), np.float32)
B = TensorSpec("B", (2,), bytes, optional=True)
O = TensorSpec("O", (1,), np.int64)  # noqa: E741
FULL = DynamicBatcher(
    max_queue_delay_microseconds=10,
    preferred_batch_size=[2, 4],
    preserve_ordering=True,
    priority_levels=3,
    default_priority_level=2,
    default_queue_policy=QueuePolicy(TimeoutAction.DELAY, 5, True, 7),
    priority_queue_policy={1: QueuePolicy(max_queue_size=3)},
)


def config(**fields):
    return TritonModelConfig(**({"model_name": "m", "inputs": [A, B], "outputs": [O]} | fields))


def written(**fields):
    return ModelConfigGenerator(config(**fields)).get_config()


def parsed(**fields):
    return ModelConfigParser.from_dict({"name": "m"} | fields)


def test_a_tensor_cannot_be_changed():
    tensor = Tensor(shape=(1,), dtype=np.float32)
    with pytest.raises(dataclasses.FrozenInstanceError):
        tensor.name = "x"


def test_a_tensor_takes_a_dtype_as_its_scalar_type():
    assert Tensor(shape=(1,), dtype=np.dtype("float32")).dtype is np.float32


def test_the_defaults_of_a_model():
    assert ModelConfig() == ModelConfig(
        batching=True,
        max_batch_size=4,
        batcher=DynamicBatcher(),
        response_cache=False,
        decoupled=False,
        model_warmup=None,
    )


def test_only_what_differs_from_the_default_is_written():
    assert written() == {
        "name": "m",
        "backend": "python",
        "max_batch_size": 4,
        "input": [
            {"name": "A", "dims": [1, -1], "data_type": "TYPE_FP32"},
            {"name": "B", "dims": [2], "data_type": "TYPE_STRING", "optional": True},
        ],
        "output": [{"name": "O", "dims": [1], "data_type": "TYPE_INT64"}],
    }
    assert written(batcher=DynamicBatcher())["dynamic_batching"] == {}
    assert written(batcher=DynamicBatcher(priority_levels=2))["dynamic_batching"] == {"priorityLevels": 2}


def test_a_model_without_batching_has_batches_of_none():
    assert written(batching=False, max_batch_size=16)["max_batch_size"] == 0


def test_all_else_that_is_written():
    made = written(
        batcher=FULL,
        instance_group={DeviceKind.KIND_CPU: 2},
        decoupled=True,
        response_cache=ResponseCache(enable=True),
        backend_parameters={"key": "value"},
    )
    assert made["dynamic_batching"]["priorityQueuePolicy"] == {
        1: {
            "timeoutAction": "REJECT",
            "defaultTimeoutMicroseconds": 0,
            "allowTimeoutOverride": False,
            "maxQueueSize": 3,
        }
    }
    assert made["instance_group"] == [{"count": 2, "kind": "KIND_CPU"}]
    assert made["model_transaction_policy"] == {"decoupled": True}
    assert made["response_cache"] == {"enable": True}
    assert made["parameters"] == {"key": {"string_value": "value"}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_batch_size": 0}, "The `max_batch_size` must be greater or equal to 1."),
        (
            {"batcher": DynamicBatcher(priority_levels=3, default_priority_level=4)},
            "The `default_priority_level` must be between 1 and 3.",
        ),
        (
            {"batcher": DynamicBatcher(priority_queue_policy={1: QueuePolicy()})},
            "Provide the `priority_levels` if you want to define `priority_queue_policy` for Dynamic Batching.",
        ),
        *(
            (
                {"batcher": DynamicBatcher(priority_levels=3, priority_queue_policy={wrong: QueuePolicy()})},
                f"Invalid `priority`={wrong} provided. The value must be between 1 and 3.",
            )
            for wrong in (-1, 5)
        ),
        (
            {"outputs": [TensorSpec("O", (1,), np.int64, optional=True)]},
            "Optional flag for outputs is not supported. Outputs marked as optional: O.",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(fields, message):
    with pytest.raises(PyTritonBadParameterError) as caught:
        written(**fields)
    assert caught.value.message == message


@pytest.mark.parametrize("dtype", [str, np.complex64, "nonsense"])
def test_a_type_that_no_tensor_has_is_refused_by_name(dtype):
    with pytest.raises(PyTritonBadParameterError, match="Tensor `A` has dtype"):
        written(inputs=[TensorSpec("A", (1,), dtype)])


@pytest.mark.parametrize("dtype", [bytes, object, np.bytes_, np.object_])
def test_all_types_of_strings_are_one(dtype):
    assert written(outputs=[TensorSpec("O", (1,), dtype)])["output"][0]["data_type"] == "TYPE_STRING"


@pytest.mark.parametrize("name", ["UINT8", "INT16", "INT32", "UINT64", "FP16", "FP32", "FP64", "BOOL", "STRING"])
def test_types_are_read_as_they_are_written(name):
    item = {"name": "x", "dims": [1], "data_type": f"TYPE_{name}"}
    assert written(inputs=parsed(input=[item]).inputs)["input"] == [item]


def test_a_written_configuration_is_read_as_it_was(tmp_path):
    given = config(
        batcher=FULL,
        instance_group={DeviceKind.KIND_CPU: 2},
        decoupled=True,
        response_cache=ResponseCache(enable=True),
        backend_parameters={"key": "value"},
        inputs=[A, TensorSpec("B", (2,), np.bytes_, optional=True)],
    )
    ModelConfigGenerator(given).to_file(tmp_path / "config.pbtxt")
    assert ModelConfigParser.from_file(config_path=tmp_path / "config.pbtxt") == given
    assert ModelConfigParser.from_dict(json.loads(json.dumps(ModelConfigGenerator(given).get_config()))) == given


def test_the_file_is_the_text_of_a_model_configuration(tmp_path):
    text = ModelConfigGenerator(TritonModelConfig("m", outputs=[O])).to_file(tmp_path / "config.pbtxt")
    assert text == (tmp_path / "config.pbtxt").read_text()
    assert text == (
        'name: "m"\nmax_batch_size: 4\noutput {\n  name: "O"\n  data_type: TYPE_INT64\n  dims: 1\n}\n'
        'backend: "python"\n'
    )


def test_a_file_that_is_no_configuration_names_its_place(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m"\nnonsense: 1\n')
    with pytest.raises(PyTritonModelConfigError, match="2"):
        ModelConfigParser.from_file(config_path=path)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"dims": [1], "data_type": "TYPE_FP32"}, "Name for input at index 0 not provided."),
        ({"name": "x", "dims": [1]}, "Data type for input with name `x` not defined."),
        (
            {"name": "x", "dims": [1], "data_type": "TYPE_FP99"},
            "Unsupported data type `TYPE_FP99` for input with name `x`",
        ),
        (
            {"name": "x", "dims": [1], "data_type": "FP32"},
            "Invalid data type `FP32` for input with name `x` not defined. The expected name is TYPE_{type}.",
        ),
        ({"name": "x", "data_type": "TYPE_FP32"}, "Dimension for input with name `x` not defined."),
        ({"name": "x", "data_type": "TYPE_FP32", "dims": []}, "Dimension for input with name `x` not defined."),
    ],
)
def test_a_tensor_that_lacks_something_is_refused(item, message):
    with pytest.raises(PyTritonModelConfigError) as caught:
        parsed(input=[item])
    assert caught.value.message == message


def test_parameters_are_a_dictionary_or_a_list_of_entries():
    entry = {"key": "a", "value": {"string_value": "b"}}
    assert parsed(parameters={"a": {"string_value": "b"}}).backend_parameters == {"a": "b"}
    assert parsed(parameters=[entry]).backend_parameters == {"a": "b"}
    with pytest.raises(TypeError, match="Invalid type for backend_parameters_config"):
        parsed(parameters="a")


def test_numbers_that_are_text_are_read():
    batcher = parsed(max_batch_size=2, dynamic_batching={"max_queue_delay_microseconds": "10"}).batcher
    assert batcher.max_queue_delay_microseconds == 10
