"""`--mix FILE`: several models in one load, with their weights and data.  Layer 5 (bench)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tisfast.bench.asked import Data, ModelShare
from tisfast.bench.json_file import read_json
from tisfast.errors import BadRequest, ConfigError

FILE_BYTES_MAX: Final = 1 << 20
MODELS_MAX: Final = 256
WEIGHT_MIN, WEIGHT_MAX = 1e-12, 1e12
FORM: Final = '{"models": [{"model": "a", "weight": 3, "input_data": "a.json"}, {"model": "b"}]}'
KEYS: Final = ("model", "version", "weight", "input_data", "shape", "parameters")
NOT_MIXED: Final = (
    "model_name",
    "model_version",
    "input_data",
    "data_directory",
    "shape",
    "bls_composing_models",
    "fixed_schedule",
    "vs",
    "num_of_sequences",
    "sequence_length",
    "sequence_length_variation",
    "sequence_id_range",
    "serial_sequences",
)
"""Flags that say something of one model; by their names in the parsed command line."""


def check_mix(given: Any) -> None:
    """Raises ConfigError."""
    if not given.mix:
        return
    name = next((each for each in NOT_MIXED if getattr(given, each)), None)
    if name is not None:
        typed = {"model_name": "-m", "model_version": "-x"}.get(name, "--" + name.replace("_", "-"))
        raise ConfigError(f"{typed} says something of one model, and --mix has several: leave it out")
    if given.service_kind != "triton":
        raise ConfigError("--mix is not for --service-kind openai: its bodies name their models (--input-data)")
    if given.shared_memory != "none":
        raise ConfigError(f"--shared-memory {given.shared_memory} is for one model: leave it out, or --mix")


def told_mix(mix: Sequence[ModelShare]) -> str:
    """All of them in one line."""
    return ", ".join(f"{each.name} ({each.weight:g})" for each in mix)


def read_mix(path: str, data: Data) -> tuple[ModelShare, ...]:
    """Files in it are beside it.  data: of the command line, for all models.  Raises ConfigError."""
    document = _json(path)
    if not isinstance(document, dict) or set(document) != {"models"} or not isinstance(document["models"], list):
        raise ConfigError(f'--mix {path}: it has no list "models", or more than that; its form is {FORM}')
    entries = document["models"]
    if not 1 <= len(entries) <= MODELS_MAX:
        raise ConfigError(f"--mix {path}: it has {len(entries)} models, and 1 to {MODELS_MAX} can be")
    found = tuple(_share(path, f"models[{at}]", entry, data) for at, entry in enumerate(entries))
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"--mix {path}: {twice} stands in it twice; write it once, with the sum of the weights")
    return found


def _share(path: str, place: str, entry: Any, data: Data) -> ModelShare:
    if not isinstance(entry, dict) or not isinstance(entry.get("model"), str) or not entry["model"]:
        raise ConfigError(f'--mix {path}: {place} has no "model"; its form is {FORM}')
    strange = sorted(set(entry) - set(KEYS))
    if strange:
        raise ConfigError(f'--mix {path}: {place}: key "{strange[0]}" is not known; there are {", ".join(KEYS)}')
    weight = entry.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ConfigError(
            f"--mix {path}: {place}.weight is {json.dumps(weight)[:40]}; write {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
        )
    version = entry.get("version", "")
    if isinstance(version, bool) or not isinstance(version, int | str):
        raise ConfigError(
            f"--mix {path}: {place}.version is {json.dumps(version)[:40]}; write a number, or leave it out"
        )
    names = entry.get("input_data", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ConfigError(f"--mix {path}: {place}.input_data is {json.dumps(names)[:40]}; write a file, or a list")
    if len(names) > 1 and {"zero", "random"}.intersection(names):
        raise ConfigError(f"--mix {path}: {place}.input_data has data made, and files with their own: leave one out")
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict) or not all(isinstance(each, bool | int | str) for each in parameters.values()):
        raise ConfigError(f"--mix {path}: {place}.parameters are names with texts, whole numbers, true or false")
    return ModelShare(
        entry["model"],
        str(version),
        float(weight),
        Data(
            files=tuple(str(Path(path).parent / each) for each in names if each not in ("random", "zero")),
            zero=data.zero or "zero" in names,
            shapes=tuple(_shapes(path, place, entry.get("shape", {}))),
            string_length=data.string_length,
            string_data=data.string_data,
            parameters={**data.parameters, **parameters},
        ),
    )


def _shapes(path: str, place: str, shapes: Any) -> list[tuple[str, tuple[int, ...]]]:
    if not isinstance(shapes, Mapping) or not all(_is_shape(each) for each in shapes.values()):
        raise ConfigError(f'--mix {path}: {place}.shape is none; write {{"INPUT": [3, 224, 224]}}')
    return [(name, tuple(dims)) for name, dims in shapes.items()]


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and all(type(each) is int and each > 0 for each in dims) and bool(dims)


def _json(path: str) -> Any:
    remedies = (f"its form is {FORM}", "data belong into files of their own", f"its form is {FORM}")
    try:
        return read_json(path, f"--mix {path}: it", FILE_BYTES_MAX, remedies)
    except BadRequest as error:
        raise ConfigError(error.message) from None
