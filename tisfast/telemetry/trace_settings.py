"""Which requests are traced: the trace extension's settings, global and of models.  Layer 4 (telemetry).

A model's settings take precedence; what they leave open follows the global ones.  Counters belong to whoever has
settings: models without any share the global ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tisfast import limits
from tisfast.config.tracing import LEVELS, UINT32_MAX, TriggerSettings
from tisfast.errors import BadRequest, Internal, Unavailable, Unsupported

if TYPE_CHECKING:
    from tisfast.config.tracing import TraceSettings as TraceFlags

Fields = dict[str, Any]
_FIELDS: Final = {
    "trace_level": "levels",
    "trace_rate": "rate",
    "trace_count": "count",
    "log_frequency": "log_frequency",
}
COUNT_MAX: Final = 2**31 - 1


class Trigger:
    """Decides for one request after the other.  remaining: traces still to be made, -1 for no end."""

    def __init__(self, settings: TriggerSettings) -> None:
        self.settings = settings
        self.remaining = settings.count
        self._seen = 0

    @property
    def on(self) -> bool:
        """Whether any request may be traced."""
        return bool(self.settings.levels) and self.remaining != 0

    def fires(self, *, asked: bool) -> bool:
        """Whether this request is to be traced.  asked: its caller traces it already, so the rate does not matter."""
        if not self.on:
            return False
        if not asked:
            self._seen += 1
            if not self.settings.rate or self._seen % self.settings.rate:
                return False
        self.remaining -= self.remaining > 0
        return True


class LiveTraceSettings:
    """The settings of one server.

    flags: of the command line; knows: whether a model of that name exists; changed: called after each change.
    """

    def __init__(self, flags: TraceFlags, knows: Callable[[str], bool], changed: Callable[[], None]) -> None:
        self._flags = flags
        self._knows = knows
        self._changed = changed
        self._global: Fields = {}
        self._models: dict[str, Fields] = {}
        self._trigger = Trigger(flags.trigger)
        self._triggers: dict[str, Trigger] = {}

    @property
    def on(self) -> bool:
        """Whether any request of any model may be traced."""
        return self._trigger.on or any(trigger.on for trigger in self._triggers.values())

    def trigger(self, model: str) -> Trigger:
        """The trigger that decides about this model's requests."""
        return self._triggers.get(model, self._trigger)

    def values(self, model: str = "") -> dict[str, Any]:
        """Those in force, as text.  Raises BadRequest for an unknown model."""
        self._require(model)
        trigger = self.trigger(model)
        settings = trigger.settings
        shown: dict[str, Any] = {
            "trace_level": list(settings.levels) or ["OFF"],
            "trace_rate": str(settings.rate),
            "trace_count": str(trigger.remaining),
        }
        if self._flags.mode == "triton":
            return {
                **shown,
                "log_frequency": str(settings.log_frequency),
                "trace_file": self._flags.file,
                "trace_mode": "triton",
            }
        otel = self._flags.opentelemetry
        resource = ",".join(f"{key}={value}" for key, value in otel.resource)
        return {
            **shown,
            "trace_mode": "opentelemetry",
            "url": otel.url,
            **({"resource": resource} if resource else {}),
            "bsp_max_export_batch_size": str(otel.bsp_max_export_batch_size),
            "bsp_schedule_delay": str(otel.bsp_schedule_delay),
            "bsp_max_queue_size": str(otel.bsp_max_queue_size),
        }

    def update(self, model: str, changes: Mapping[str, Any]) -> None:
        """Change some; None takes a setting back to the global one, a global one to the command line's.

        Nothing is changed when one of them is wrong.  Raises TisError with Triton's texts.
        """
        self._require(model)
        mine = dict(self._models.get(model, {}) if model else self._global)
        for name, value in changes.items():
            if name in _FIELDS and value is None:
                mine.pop(_FIELDS[name], None)
            elif name in _FIELDS:
                mine[_FIELDS[name]] = _READERS[name](value)
            else:
                self._refuse(name, value)
        if model and model not in self._models:
            self._make_room()
        self._apply(model, mine)
        self._changed()

    def _make_room(self) -> None:
        """For one more model.  Only now are those forgotten that are gone: one that comes back finds its settings."""
        if len(self._models) >= limits.TRACE_MODELS_MAX:
            for name in [name for name in self._models if not self._knows(name)]:
                del self._models[name], self._triggers[name]
        if len(self._models) >= limits.TRACE_MODELS_MAX:
            raise Unavailable(f"{len(self._models)} models have trace settings of their own already, as many as may")

    def _apply(self, model: str, mine: Fields) -> None:
        """Raises BadRequest, before anything has changed, for settings that do not go together."""
        everywhere = replace(self._flags.trigger, **(self._global if model else mine))
        self._check(replace(everywhere, **(mine if model else {})))
        if not model:
            self._global = mine
            self._trigger = Trigger(everywhere)
        elif mine:
            self._models[model] = mine
        else:
            self._models.pop(model, None)
        self._triggers = {
            name: self._renewed(name, replace(everywhere, **fields), renew=not model or name == model)
            for name, fields in self._models.items()
        }

    def _renewed(self, model: str, settings: TriggerSettings, *, renew: bool) -> Trigger:
        """The model's trigger; a change of what does not concern it leaves its counters alone."""
        present = self._triggers.get(model)
        if present is not None and (not renew or present.settings == settings):
            return present
        return Trigger(settings)

    def _check(self, settings: TriggerSettings) -> None:
        problem = ""
        if settings.levels and self._flags.mode == "opentelemetry" and "TENSORS" in settings.levels:
            problem = "trace level 'TENSORS' is not supported in mode opentelemetry"
        elif settings.levels and self._flags.mode == "triton":
            if not settings.rate:
                problem = "sample rate must be non-zero"
            elif not self._flags.file:
                problem = "trace file name is not given"
        if problem:
            raise BadRequest(f"Attempting to set invalid trace setting :{problem}")

    def _refuse(self, name: str, value: object) -> None:
        if name == "trace_file":
            raise Unsupported("trace file location can not be updated through network protocol")
        known = self.values()
        if name in known:
            if value in (None, known[name]):
                return  # sent back as it was read
            raise Unsupported(f"{name} can not be updated through network protocol; use --trace-config")
        raise BadRequest(f"unknown trace setting {name!r:.60}; the settings are {', '.join(_FIELDS)}")

    def _require(self, model: str) -> None:
        if model and not self._knows(model):
            raise BadRequest(f"Request for unknown model : {model}")


def _levels(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Internal(f"attempt to access JSON non-array as array: trace_level is {value!r:.60}")
    if any(not isinstance(level, str) for level in value):
        raise Internal(f"attempt to access JSON non-string as string: trace_level is {value!r:.60}")
    if "OFF" in value and len(value) > 1:
        raise BadRequest("Expect only one trace level 'OFF' is specified")
    for level in value:
        if level not in (*LEVELS, "OFF"):
            raise BadRequest(f"unknown trace level {level!r:.60}; the levels are OFF, TIMESTAMPS and TENSORS")
    return tuple(level for level in LEVELS if level in value)


def _number(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, str):
        raise Internal(f"attempt to access JSON non-string as string: {name} is {value!r:.60}")
    if not re.fullmatch("[+-]?[0-9]{1,1000}", value):
        raise BadRequest(f"Unable to parse '{name}', got: {value:.60}")
    number = int(value)
    if least == -1 and number < -1:
        raise BadRequest(f"Unable to parse '{name}'. Expecting value >= -1, got:{value:.60}")
    if not least <= number <= most:
        raise BadRequest(f"Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {value:.60}")
    return number


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "trace_level": _levels,
    "trace_rate": lambda value: _number("trace_rate", value, 0, UINT32_MAX),
    "trace_count": lambda value: _number("trace_count", value, -1, COUNT_MAX),
    "log_frequency": lambda value: _number("log_frequency", value, 0, UINT32_MAX),
}
