"""A variant of a model's configuration, and the configuration that it makes.  Layer 5 (analyze)."""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tisfast.errors import BadRequest

INSTANCES: Final = "instances"
MAX_BATCH: Final = "max_batch_size"
PREFERRED: Final = "preferred_batch_size"
DELAY: Final = "max_queue_delay_microseconds"
OWN: Final = (INSTANCES, MAX_BATCH, PREFERRED, DELAY)
"""Settings with a meaning of their own; the others are paths into the configuration, with dots."""
GROUPS: Final = "instance_group"
PARAMETERS: Final = "parameters."
FORMAT: Final = "format"
"""Which of several models is served, that are the same in different formats."""

Value = int | str
"""Of a setting: a number, or JSON text."""
Config = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """Settings that differ from the default configuration.  None: the default itself."""

    settings: tuple[tuple[str, Value], ...] = ()

    @property
    def text(self) -> str:
        """For people, and the key of what was measured."""
        return ", ".join(f"{name} {value}" for name, value in self.settings) or "default"

    def value(self, name: str) -> Value | None:
        """Of a setting; None where the default's stays."""
        return dict(self.settings).get(name)


DEFAULT: Final = Variant()


def named(model: str, setting: str) -> str:
    """A setting, or a metric, of one model of several; of all for ""."""
    return f"{model}:{setting}" if model else setting


def parted(name: str, models: Container[str]) -> tuple[str, str]:
    """The model before a setting's, a metric's or a value's text, "" where there is none, and what follows."""
    model, sign, rest = name.partition(":")
    return (model, rest) if sign and model in models else ("", name)


def configured(variant: Variant, config: Mapping[str, Any]) -> Config:
    """The default configuration with the variant's settings.  Raises BadRequest for a path that is none."""
    made = copy.deepcopy(dict(config))
    settings = dict(variant.settings)
    if INSTANCES in settings:
        groups = made.get("instance_group") or [{}]
        made["instance_group"] = [{**group, "count": int(settings[INSTANCES])} for group in groups]
    if MAX_BATCH in settings:
        made["max_batch_size"] = int(settings[MAX_BATCH])
    if not {MAX_BATCH, PREFERRED, DELAY}.isdisjoint(settings):
        _set_batching(made, settings, int(config.get("max_batch_size") or 0))
    for path, value in variant.settings:
        if path not in OWN:
            _set_path(made, path, value)
    return made


def _set_batching(made: Config, settings: Mapping[str, Value], before: int) -> None:
    """Dynamic batching, where more than one sample can be executed together, and no other scheduler is asked for.

    before: the default's max_batch_size.  A server fills that in as preferred_batch_size where a file names none, and
    fills in the new one where it is left out.
    """
    size = int(made.get("max_batch_size") or 0)
    if "sequence_batching" in made:
        return
    if size <= 1:
        made.pop("dynamic_batching", None)
        return
    batching = made["dynamic_batching"] = dict(made.get("dynamic_batching") or {})
    if PREFERRED in settings:
        batching["preferred_batch_size"] = json.loads(str(settings[PREFERRED]))
    preferred = [each for each in batching.get("preferred_batch_size") or () if int(each) <= size]
    batching.pop("preferred_batch_size", None)
    filled_in = PREFERRED not in settings and size != before and preferred == [before]
    if preferred and not filled_in:
        batching["preferred_batch_size"] = preferred
    if DELAY in settings:
        batching["max_queue_delay_microseconds"] = int(settings[DELAY])


def _set_path(made: Config, path: str, value: Value) -> None:
    if path.startswith(PARAMETERS):
        name = path.removeprefix(PARAMETERS)
        made["parameters"] = {**(made.get("parameters") or {}), name: {"string_value": parameter_text(value)}}
        return
    before = made.get(GROUPS)
    *folders, last = path.split(".")
    inner: Any = made
    for at, each in enumerate(folders):
        inner = inner.setdefault(each, {})
        if not isinstance(inner, dict):
            raise BadRequest(
                f"setting '{path}': '{'.'.join(folders[: at + 1])}' is no message of the configuration but "
                f"{json.dumps(inner):.100}; name that key itself, with its whole value as JSON"
            )
    inner[last] = json.loads(value) if isinstance(value, str) else value
    if path == GROUPS:
        made[GROUPS] = _filled(made[GROUPS], before)


def _filled(groups: Any, before: Any) -> Any:
    """Instance groups with what a server fills in where nothing is said, so that equal ones look alike."""
    known = isinstance(groups, list) and isinstance(before, list) and len(groups) == len(before)
    if not known or not all(isinstance(each, dict) for each in (*groups, *before)):
        return groups
    pairs = zip(groups, before, strict=True)
    return [{**{key: old[key] for key in old if key == "name" or not old[key]}, **new} for new, old in pairs]


def parameter_text(value: Value) -> str:
    """A parameter is a string: "4" and 4 are the same."""
    if isinstance(value, str):
        found = json.loads(value)
        return found if isinstance(found, str) else value
    return str(value)


def in_force(name: str, config: Mapping[str, Any]) -> Value | None:
    """What a configuration has for a setting, None where that cannot be compared."""
    batching = config.get("dynamic_batching") or {}
    if name == INSTANCES:
        groups = config.get("instance_group") or [{}]
        counts = {int(group.get("count") or 1) for group in groups}
        return counts.pop() if len(counts) == 1 else None
    if name == MAX_BATCH:
        return int(config.get("max_batch_size") or 0)
    if name == PREFERRED:
        return json.dumps([int(each) for each in batching.get("preferred_batch_size") or ()])
    if name == DELAY:
        return int(batching.get("max_queue_delay_microseconds") or 0)
    if name.startswith(PARAMETERS):
        parameter = (config.get("parameters") or {}).get(name.removeprefix(PARAMETERS)) or {}
        return json.dumps(parameter.get("string_value"))
    found: Any = config
    for each in name.split("."):
        found = found.get(each) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else json.dumps(found)


def canonical(config: Mapping[str, Any]) -> str:
    """Equal configurations have equal texts."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))
