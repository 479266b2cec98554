"""What is searched: values of settings, and levels of load.  Layer 5 (analyze)."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from tisfast import limits
from tisfast.analyze.variants import (
    FORMAT,
    INSTANCES,
    MAX_BATCH,
    OWN,
    PREFERRED,
    Value,
    Variant,
    configured,
    in_force,
    parameter_text,
    parted,
)
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json
from tisfast.errors import BadRequest, ConfigError

POWERS_MAX: Final = 1 << 16
WHOLE_MAX: Final = (1 << 31) - 1
"""What a count of a configuration may be."""
DEFAULT_LEVELS: Final = tuple(float(2**each) for each in range(11))
"""Requests in flight: 1, 2, 4 ... 1024."""
DEFAULT_INSTANCES: Final = (1, 2, 3, 4, 5)
DEFAULT_BATCHES: Final = tuple(2**each for each in range(8))

Point = tuple[int, ...]
"""A place in the grid: the number of the value of each axis."""


@dataclass(frozen=True)
class Axis:
    """One setting and the values that it may have, in their order."""

    name: str
    values: tuple[Value, ...]

    def beside(self, at: int) -> list[int]:
        """The places of the values that are one step away."""
        if all(_number(value) for value in self.values):
            return [other for other in (at + 1, at - 1) if 0 <= other < len(self.values)]
        return [other for other in range(len(self.values)) if other != at]


@dataclass(frozen=True)
class Load:
    """How much is asked.  mode: "concurrency" or "request_rate"; chosen: the user said the levels."""

    mode: str = "concurrency"
    levels: tuple[float, ...] = DEFAULT_LEVELS
    chosen: bool = False

    def has(self, mode: str, level: float) -> bool:
        """Whether a level is one of them, or between those that the user has not chosen."""
        if mode != self.mode:
            return False
        return level in self.levels or (not self.chosen and min(self.levels) < level < max(self.levels))


@dataclass(frozen=True)
class Space:
    """All variants: each value of each axis with each of the others."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot be searched."""
        if self.count > limits.ANALYZE_VARIANTS_MAX:
            raise ConfigError(
                f"the search space has {self.count} variants, and at most {limits.ANALYZE_VARIANTS_MAX} are searched: "
                "give fewer values"
            )

    @property
    def count(self) -> int:
        """Of points."""
        return math.prod(len(axis.values) for axis in self.axes)

    def variant(self, point: Point) -> Variant:
        """At a place, without the settings of formats that it does not serve."""
        made = Variant(tuple((axis.name, axis.values[at]) for axis, at in zip(self.axes, point, strict=True)))
        names = self._names(made.value(FORMAT))
        return Variant(tuple((name, value) for name, value in made.settings if name in names))

    def _names(self, served: Value | None) -> list[str]:
        """Of the settings of a variant that serves this format."""
        formats = [str(each) for axis in self.axes if axis.name == FORMAT for each in axis.values]
        of = {axis.name: parted(axis.name, formats)[0] for axis in self.axes}
        return [name for name, model in of.items() if model in ("", served)]

    def has(self, variant: Variant) -> bool:
        """Whether a variant is one of them; the default configuration always is."""
        names = [name for name, _ in variant.settings]
        if not names:
            return True
        values = {axis.name: axis.values for axis in self.axes}
        wanted = self._names(variant.value(FORMAT))
        return names == wanted and all(variant.value(name) in values[name] for name in names)

    def points(self) -> Iterator[Point]:
        """All, in order."""
        return itertools.product(*(range(len(axis.values)) for axis in self.axes))

    def start(self, known: Callable[[str], Value | None]) -> Point:
        """The place that is the default configuration, or the nearest of numbers; else each first value.

        known: of a setting, what the default has.
        """
        return tuple(_nearest(axis, known(axis.name)) for axis in self.axes)

    def beside(self, point: Point) -> list[Point]:
        """One step away, along one axis: each other value where they are not numbers, as those have no order."""
        places = enumerate(zip(point, self.axes, strict=True))
        return [(*point[:at], other, *point[at + 1 :]) for at, (now, axis) in places for other in axis.beside(now)]

    def behind(self, here: Point, point: Point) -> Point | None:
        """One step further from here than a point along one axis of numbers; None where there is no such place."""
        moved = [at for at, (old, new) in enumerate(zip(here, point, strict=True)) if old != new]
        if len(moved) != 1:
            return None
        at = moved[0]
        values, there = self.axes[at].values, point[at] + (1 if point[at] > here[at] else -1)
        if not (0 <= there < len(values) and all(_number(value) for value in values)):
            return None
        return (*point[:at], there, *point[at + 1 :])

    def around(self, point: Point) -> list[Point]:
        """One step away along several axes at once: along two first, and no more than are measured in one step."""
        found: list[Point] = []
        moves = [axis.beside(now) for now, axis in zip(point, self.axes, strict=True)]
        free = [at for at, move in enumerate(moves) if move]
        for several in range(2, len(free) + 1):
            for axes in itertools.combinations(free, several):
                for steps in itertools.product(*(moves[at] for at in axes)):
                    if len(found) == limits.ANALYZE_AROUND_MAX:
                        return found
                    there = dict(zip(axes, steps, strict=True))
                    found.append(tuple(there.get(at, now) for at, now in enumerate(point)))
        return found

    @property
    def variants(self) -> int:
        """How many are different: points may differ in settings of formats that are not served there."""
        if all(axis.name != FORMAT for axis in self.axes):
            return self.count
        return len({self.variant(point) for point in self.points()})


def _nearest(axis: Axis, value: Value | None) -> int:
    if value is None:
        return 0
    if value in axis.values:
        return axis.values.index(value)
    text = parameter_text(value)  # of a parameter "4" and 4 are the same
    texts = [parameter_text(each) for each in axis.values]
    if text in texts:
        return texts.index(text)
    value = int(text) if text.isdecimal() else value
    numbered = [(abs(each - value), at) for at, each in enumerate(axis.values) if _number(each) and _number(value)]
    return min(numbered)[1] if numbered else 0


def _number(value: Value | None) -> TypeGuard[int]:
    return isinstance(value, int)


@dataclass(frozen=True)
class Automatic:
    """What is searched where the user names no setting."""

    instances: tuple[int, ...] = DEFAULT_INSTANCES
    batches: tuple[int, ...] = DEFAULT_BATCHES

    def space(self, config: Mapping[str, Any]) -> Space:
        """Instances, and batches where the model has them."""
        axes = [Axis(INSTANCES, self.instances)]
        if int(config.get("max_batch_size") or 0) and "sequence_batching" not in config:
            axes.append(Axis(MAX_BATCH, self.batches))
        return Space(tuple(axes))


def powers(name: str, least: int, most: int) -> tuple[int, ...]:
    """Powers of two between two bounds, and the bounds.  Raises ConfigError."""
    if not 1 <= least <= most <= POWERS_MAX:
        raise ConfigError(
            f"{name} from {least} to {most}: write a least of 1 or more, and a most of {POWERS_MAX} or less"
        )
    return tuple(sorted({least, most, *(2**at for at in range(POWERS_MAX.bit_length()) if least <= 2**at <= most)}))


def check(space: Space, config: Mapping[str, Any], model: str) -> None:
    """Raises BadRequest for settings that this model has no place for, before anything is measured."""
    if "ensemble_scheduling" in config:
        raise BadRequest(
            f"model '{model}' is an ensemble: it has no instances and no batches of its own; analyze the models that "
            "it is made of, together: -m A,B"
        )
    batches = int(config.get("max_batch_size") or 0)
    named = [
        axis.name for axis in space.axes if axis.name in (MAX_BATCH, "preferred_batch_size") or "queue" in axis.name
    ]
    if named and not batches:
        raise BadRequest(
            f"{named[0]} cannot be searched: model '{model}' has max_batch_size 0, so its inputs have no dimension of "
            "a batch; leave it out, or have the model batch"
        )
    if named and "sequence_batching" in config:
        raise BadRequest(
            f"{named[0]} cannot be searched: model '{model}' is served in sequences (sequence_batching), without "
            "dynamic batches; leave it out"
        )
    strange = _errors(config)
    for axis in space.axes:
        if axis.name == "name":
            raise BadRequest(f"--set name: it is the name of the model's folder, '{model}', and no other one can be")
        for value in axis.values:
            made = configured(Variant(((axis.name, value),)), config)
            try:
                in_force(INSTANCES, made), in_force(MAX_BATCH, made), in_force(PREFERRED, made)
            except (TypeError, ValueError, AttributeError):
                raise BadRequest(
                    f"{axis.name} {value!s:.200} is no value that it can have in a configuration"
                ) from None
            wrong = next((error for error in _errors(made) if str(error) not in map(str, strange)), None)
            if wrong is not None:
                hint = f": {wrong.hint}" if wrong.hint else ""
                raise BadRequest(f"{axis.name} {value!s:.200} cannot be in a configuration, as {wrong.message}{hint}")


def _errors(config: Mapping[str, Any]) -> list[ConfigError]:
    """What the schema of configurations does not have: keys by other names, values of other kinds."""
    report = Report("")
    parse_json(json.dumps(config), report)
    return report.errors


def numbers(
    name: str, text: str, *, least: float = 1, most: float = WHOLE_MAX, whole: bool = True
) -> tuple[float, ...]:
    """`1,2,4`, `1:8` or `1:8:2` as sorted numbers, each once.  Raises ConfigError."""
    found: list[float] = []
    for part in text.split(","):
        found += _range(name, text, part)
        if len(found) > limits.ANALYZE_VALUES_MAX:
            raise ConfigError(f"{name} {text} has more than {limits.ANALYZE_VALUES_MAX} values; give fewer")
    wrong = [each for each in found if not least <= each <= most or (whole and each != int(each))]
    if wrong:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{name} {text}: {wrong[0]:g} cannot be; give {kind} from {least:g} to {most:.10g}")
    return tuple(sorted(set(found)))


def _range(name: str, text: str, part: str) -> list[float]:
    try:
        values = [float(each) for each in part.split(":")]
    except ValueError:
        values = []
    if not 1 <= len(values) <= 3:
        raise ConfigError(
            f"{name} {text}: '{part}' is no number and no range; write 1,2,4 or START:END or START:END:STEP"
        )
    if len(values) == 1:
        return values
    start, end, step = (*values, 1.0)[:3]
    if not (step > 0 and end >= start and (end - start) / step <= limits.ANALYZE_VALUES_MAX):
        raise ConfigError(
            f"{name} {text}: the range {part} needs an end that is not below its start, a step above 0, and at most "
            f"{limits.ANALYZE_VALUES_MAX} values"
        )
    return [start + step * at for at in range(int((end - start) / step + 1e-9) + 1)]


def whole_axis(name: str, setting: str, text: str, least: int = 1) -> Axis:
    """An axis of whole numbers."""
    return Axis(setting, tuple(int(each) for each in numbers(name, text, least=least)))


def free_axis(text: str) -> Axis:
    """`PATH=VALUE,VALUE`: values are JSON, or else texts; `PATH=[...]` is a JSON list of them."""
    path, sign, values = text.partition("=")
    if not sign or not path or not values or not all(path.split(".")):
        raise ConfigError(
            f"--set {text}: write PATH=VALUE,VALUE with a key of the configuration, as "
            "parameters.intra_op_thread_count=1,2,4"
        )
    if path in OWN:
        raise ConfigError(f"--set {text}: {path} has a flag of its own; `tisfast analyze --help` names it")
    given: Sequence[Any]
    if values.startswith("["):
        try:
            given = json.loads(values)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"--set {text:.200}: the list is no JSON ({_why(error)})") from None
    else:
        given = _values(text, values)
    if not given:
        raise ConfigError(f"--set {text}: the list has no value")
    return Axis(path, tuple(dict.fromkeys(value_of(each) for each in given)))


def _values(text: str, values: str) -> Sequence[Any]:
    """Values of JSON, in which commas may be, or texts without any."""
    try:
        return list(json.loads(f"[{values}]"))
    except (ValueError, RecursionError) as error:
        if values.startswith("{"):
            raise ConfigError(f"--set {text:.200}: the value is no JSON ({_why(error)})") from None
    return [_read(each) for each in values.split(",")]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _why(error: Exception) -> str:
    """What is wrong with a text that is no JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "lists or objects lie too deep within each other" if isinstance(error, RecursionError) else str(error)


def value_of(value: Any) -> Value:
    """A value of JSON as a setting keeps it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return json.dumps(value, sort_keys=True)
