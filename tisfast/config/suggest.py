"""Guess what was meant: near words, words of other frameworks, keys written in the wrong place.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

KEYS_LISTED_MAX: Final = 12
TYPE_SYNONYMS: Final = {
    "FLOAT": "TYPE_FP32", "FLOAT32": "TYPE_FP32", "FLOAT16": "TYPE_FP16", "HALF": "TYPE_FP16", "FLOAT64": "TYPE_FP64",
    "DOUBLE": "TYPE_FP64", "BFLOAT16": "TYPE_BF16", "INT": "TYPE_INT32", "LONG": "TYPE_INT64", "BYTE": "TYPE_UINT8",
    "BYTES": "TYPE_STRING", "STR": "TYPE_STRING", "OBJECT": "TYPE_STRING", "BOOLEAN": "TYPE_BOOL",
}  # fmt: skip
KEY_SYNONYMS: Final = {
    "inputs": "input", "outputs": "output", "shape": "dims", "dtype": "data_type", "datatype": "data_type",
    "type": "data_type", "batch_size": "max_batch_size", "instances": "instance_group", "device": "kind",
    "batching": "dynamic_batching", "delay": "max_queue_delay_microseconds",
    "max_queue_delay": "max_queue_delay_microseconds",
    "preferred_batch_sizes": "preferred_batch_size", "parameter": "parameters", "value_string": "string_value",
    "model_name": "name", "model_file": "default_model_filename",
}  # fmt: skip


def near(word: str, known: Iterable[str]) -> str:
    """The known word that was most likely meant, or "" when none is near."""
    import difflib  # noqa: PLC0415 - only for a wrong file

    words = list(known)
    found = difflib.get_close_matches(word.lower(), [w.lower() for w in words], n=1, cutoff=0.7)
    return next((w for w in words if found and w.lower() == found[0]), "")


def near_enum(word: str, known: Iterable[str]) -> str:
    """Suggest an enum value: people write them without their prefix or by another framework's name."""
    words = list(known)
    bare = word.upper().removeprefix("TYPE_").removeprefix("KIND_").removeprefix("PRIORITY_").removeprefix("FORMAT_")
    synonym = TYPE_SYNONYMS.get(bare, "")
    if synonym in words:
        return synonym
    ending = [w for w in words if w == bare or w.split("_", 1)[-1] == bare]
    return ending[0] if ending else near(word, words)


def near_key(word: str, message: Descriptor) -> str:
    """The key of `message` that was most likely meant by an unknown one, or ""."""
    keys = [field.name for field in message.fields]
    synonym = KEY_SYNONYMS.get(word.lower(), "")
    return synonym if synonym in keys else near(word, keys)


def key_hint(word: str, message: Descriptor, root: Descriptor) -> str:
    """The hint for an unknown key: the near one, where it belongs instead, or what is possible here."""
    guess = near_key(word, message)
    if guess:
        return f"did you mean '{guess}'?"
    homes = sorted(set(_homes(word, root, "", 0)), key=lambda home: (home.count("."), home))
    if homes:
        return f"'{word}' belongs in {homes[0]}"
    keys = [field.name for field in message.fields]
    more = ", ..." if len(keys) > KEYS_LISTED_MAX else ""
    return f"possible here: {', '.join(keys[:KEYS_LISTED_MAX])}{more}"


def _homes(word: str, message: Descriptor, at: str, depth: int) -> Iterator[str]:
    """Key paths of the messages below `message` that have a key `word`."""
    if word in message.fields_by_name:
        yield f"'{at}'" if at else "the model itself, outside of every bracket"
    if depth == 6:  # ModelConfig is 6 deep and does not recurse
        return
    for field in message.fields:
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            yield from _homes(word, field.message_type, f"{at}.{field.name}" if at else field.name, depth + 1)
