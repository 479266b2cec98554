"""Merge what auto_complete_config returned into its configuration.  Layer 2 (config)."""

from __future__ import annotations

from typing import Final

from tisfast.config import schema
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json
from tisfast.config.model_config import ConfigDraft, LoadedConfig, finish
from tisfast.config.schema import Message
from tisfast.types import BY_CODE

SETTABLE: Final = frozenset({"max_batch_size", "input", "output", "dynamic_batching", "model_transaction_policy"})
FUNCTION: Final = "auto_complete_config"


def merge_completed(config: LoadedConfig, json_text: str) -> LoadedConfig:
    """The configuration with what the model filled in.  Raises ConfigErrors where it contradicts the file.

    json_text: the whole configuration as the worker returned it, after config.as_dict went in.
    """
    source = f"{FUNCTION} of model '{config.name}'"
    report = Report(source)
    returned = parse_json(json_text, report)
    report.raise_if_any()
    _check_untouched(config, returned, report)
    _check_batching(config, returned, report)
    for role in ("input", "output"):
        _check_tensors(config, returned, role, report)
    report.raise_if_any()
    return finish(_merged(config, returned), config.name, gpus=config.gpus, backends=config.backends)


def _merged(config: LoadedConfig, returned: Message) -> ConfigDraft:
    """The file's message with the settable keys replaced; errors in it are shown at the file's lines, where known."""
    message = schema.model_config()
    message.CopyFrom(config.message)
    for key in sorted(SETTABLE):
        message.ClearField(key)
    kept = schema.model_config()
    kept.CopyFrom(returned)
    for field in kept.DESCRIPTOR.fields:
        if field.name not in SETTABLE:
            kept.ClearField(field.name)
    message.MergeFrom(kept)
    report = Report(config.file)
    report.places.update(config.places)
    return ConfigDraft(message, report)


def _check_untouched(config: LoadedConfig, returned: Message, report: Report) -> None:
    """Everything else was the file's to say; Triton drops such changes silently."""
    set_here = {field.name for field, _ in returned.ListFields()} - SETTABLE
    for key in sorted(set_here):
        if getattr(returned, key) != getattr(config.message, key):
            report.add(f"'{key}' was changed in auto-complete-config function for model '{config.name}'", (key,),
                       hint=f"only these can be set there: {', '.join(sorted(SETTABLE))}")  # fmt: skip


def _check_batching(config: LoadedConfig, returned: Message, report: Report) -> None:
    name, written, given = config.name, config.max_batch_size, returned.max_batch_size
    if given < written:
        report.add(
            f"configuration specified max_batch_size {written}, but in auto-complete-config function for model "
            f"'{name}' specified max_batch_size {given}", ("max_batch_size",), hint="make the two agree",
        )  # fmt: skip
    policy = "model_transaction_policy"
    before, after = config.message.model_transaction_policy.decoupled, returned.model_transaction_policy.decoupled
    if config.message.HasField(policy) and before != after:
        report.add(f"trying to change decoupled property in auto-complete-config for model '{name}', which is already "
                   f"set to '{before}'.", (policy, "decoupled"), hint="remove it from one of the two")  # fmt: skip


def _check_tensors(config: LoadedConfig, returned: Message, role: str, report: Report) -> None:
    given = {tensor.name: (index, tensor) for index, tensor in enumerate(getattr(returned, role))}
    for written in getattr(config.message, role):
        if written.name not in given:
            report.add(f"{role} '{written.name}' was removed in auto-complete-config function for model "
                       f"'{config.name}'", (role,), hint="tensors of the file can only be completed")  # fmt: skip
            continue
        index, tensor = given[written.name]
        if written.data_type and tensor.data_type != written.data_type:
            report.add(
                f"unable to load model '{config.name}', configuration expects datatype {_type(written)} for {role} "
                f"'{written.name}', model provides {_type(tensor)}", (role, index, "data_type"),
            )  # fmt: skip
        if written.dims and list(tensor.dims) != list(written.dims):
            report.add(
                f"model '{config.name}', tensor '{written.name}': the model expects dims {list(tensor.dims)} but the "
                f"model configuration specifies dims {list(written.dims)}", (role, index, "dims"),
            )  # fmt: skip


def _type(tensor: Message) -> str:
    return BY_CODE[tensor.data_type].config if tensor.data_type in BY_CODE else "TYPE_INVALID"
