"""Guesses at what was meant by a wrong word."""

from __future__ import annotations

import pytest

from tisfast.config import schema, suggest

ROOT = schema.message_class("ModelConfig").DESCRIPTOR
DATA_TYPE = schema.message_class("ModelInput").DESCRIPTOR.fields_by_name["data_type"].enum_type
TYPES = [value.name for value in DATA_TYPE.values]
KINDS = ["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"]


@pytest.mark.parametrize(
    ("word", "guess"),
    [
        ("FLOAT", "TYPE_FP32"), ("float32", "TYPE_FP32"), ("TYPE_FLOAT16", "TYPE_FP16"), ("half", "TYPE_FP16"),
        ("double", "TYPE_FP64"), ("FLOAT64", "TYPE_FP64"), ("bfloat16", "TYPE_BF16"), ("int", "TYPE_INT32"),
        ("long", "TYPE_INT64"), ("byte", "TYPE_UINT8"), ("BYTES", "TYPE_STRING"), ("str", "TYPE_STRING"),
        ("object", "TYPE_STRING"), ("boolean", "TYPE_BOOL"), ("fp32", "TYPE_FP32"), ("TYPE_FP_32", "TYPE_FP32"),
        ("UINT8", "TYPE_UINT8"), ("TYPE_INT8S", "TYPE_INT8"), ("complex64", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_data_type_may_have_the_name_of_another_framework(word, guess):
    assert suggest.near_enum(word, TYPES) == guess


@pytest.mark.parametrize(
    ("word", "guess"),
    [("GPU", "KIND_GPU"), ("cpu", "KIND_CPU"), ("KIND_CPUS", "KIND_CPU"), ("kind_model", "KIND_MODEL"), ("float", "")],
)
def test_a_kind_may_lack_its_prefix(word, guess):
    assert suggest.near_enum(word, KINDS) == guess


def test_a_word_of_another_framework_is_no_guess_where_its_value_is_not_possible():
    assert suggest.near_enum("double", ["TYPE_FP32", "TYPE_INT32"]) == ""


@pytest.mark.parametrize(
    ("message", "word", "guess"),
    [
        ("ModelConfig", "inputs", "input"),
        ("ModelConfig", "Outputs", "output"),
        ("ModelConfig", "instances", "instance_group"),
        ("ModelConfig", "batch_size", "max_batch_size"),
        ("ModelConfig", "batching", "dynamic_batching"),
        ("ModelConfig", "parameter", "parameters"),
        ("ModelConfig", "model_file", "default_model_filename"),
        ("ModelConfig", "maxBatchSize", "max_batch_size"),
        ("ModelConfig", "zebra", ""),
        ("ModelInput", "shape", "dims"),
        ("ModelInput", "dtype", "data_type"),
        ("ModelInput", "type", "data_type"),
        ("ModelInput", "inputs", ""),
        ("ModelInstanceGroup", "device", "kind"),
        ("ModelDynamicBatching", "delay", "max_queue_delay_microseconds"),
        ("ModelDynamicBatching", "preferred_batch_sizes", "preferred_batch_size"),
        ("ModelParameter", "value_string", "string_value"),
        ("ModelParameter", "value", ""),
    ],
)
def test_a_key_may_be_misspelled_or_of_another_framework(message, word, guess):
    assert suggest.near_key(word, schema.message_class(message).DESCRIPTOR) == guess


@pytest.mark.parametrize(
    ("message", "word", "hint"),
    [
        ("ModelConfig", "max_batch_sise", "did you mean 'max_batch_size'?"),
        ("ModelConfig", "dims", "'dims' belongs in 'input'"),
        ("ModelConfig", "num_versions", "'num_versions' belongs in 'version_policy.latest'"),
        ("ModelConfig", "max_candidate_sequences", "'max_candidate_sequences' belongs in 'sequence_batching.oldest'"),
        ("ModelInput", "backend", "'backend' belongs in the model itself, outside of every bracket"),
        ("ModelParameter", "zebra", "possible here: string_value"),
        (
            "ModelConfig",
            "zebra",
            "possible here: name, platform, backend, runtime, version_policy, max_batch_size, input, output, "
            "batch_input, batch_output, optimization, dynamic_batching, ...",
        ),
    ],
)
def test_an_unknown_key_has_a_hint(message, word, hint):
    assert suggest.key_hint(word, schema.message_class(message).DESCRIPTOR, ROOT) == hint


def test_every_word_of_another_framework_leads_to_a_word_of_this_one():
    messages = ("ModelConfig", "ModelInput", "ModelInstanceGroup", "ModelDynamicBatching", "ModelParameter")
    keys = {field.name for name in messages for field in schema.message_class(name).DESCRIPTOR.fields}
    assert set(suggest.KEY_SYNONYMS.values()) <= keys
    assert set(suggest.TYPE_SYNONYMS.values()) <= set(TYPES)
    assert not set(suggest.KEY_SYNONYMS) & {field.name for field in ROOT.fields}
