"""Of the command line: which models are varied, and what is said of one of them alone.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

from tisfast import limits
from tisfast.analyze.aims import plain
from tisfast.analyze.space import Axis, Space, free_axis, numbers, whole_axis
from tisfast.analyze.variants import DELAY, FORMAT, INSTANCES, MAX_BATCH, PREFERRED, named, parted
from tisfast.bench.asked import Asked, Data, ModelShare
from tisfast.bench.mix_file import WEIGHT_MAX, WEIGHT_MIN, read_mix, told_mix
from tisfast.errors import ConfigError

PATHS: Final = {
    INSTANCES: "instance_group",
    PREFERRED: "dynamic_batching.preferred_batch_size",
    DELAY: "dynamic_batching.max_queue_delay_microseconds",
}
"""Where settings with flags of their own stand in the configuration."""
ONE_OF: Final = "give one of -m MODEL, -m A,B, --mix FILE and --formats A,B"


@dataclass(frozen=True)
class Varied:
    """models: each once; weights: of their requests; mix: the file that says more of them, or ""."""

    models: tuple[str, ...]
    weights: tuple[float, ...]
    mix: str = ""
    formats: bool = False

    @property
    def together(self) -> tuple[str, ...]:
        """Those that are served at one time, where they are several."""
        return self.models if len(self.models) > 1 and not self.formats else ()

    def each(self, metric: str) -> list[str]:
        """What a metric without a model stands for: a latency is that of each model."""
        if not self.together or not plain(metric).startswith("latency") or parted(metric, self.models)[0]:
            return [metric]
        return [named(model, metric) for model in self.models]

    def of(self, asked: Asked) -> Asked:
        """What is asked for all of them.  Raises ConfigError for what is of one model alone."""
        if not self.together and not self.mix:
            return asked
        for flag, value in (("-x", asked.version), ("--shared-memory", asked.output_bytes)):
            if value:
                raise ConfigError(f"{flag} says something of one model, and several are served together: leave it out")
        if self.mix:
            mix = read_mix(self.mix, asked.data)
        else:
            shares = zip(self.models, self.weights, strict=True)
            mix = tuple(ModelShare(name, "", weight, asked.data) for name, weight in shares)
        return replace(asked, mix=mix, model=told_mix(mix))


def what_is_varied(given: Any) -> Varied:
    """Raises ConfigError."""
    said = [bool(given.model_name), bool(given.mix), bool(given.formats)]
    if sum(said) != 1:
        raise ConfigError(f"-m: the model must be given: {ONE_OF}" if not any(said) else ONE_OF)
    if given.mix:
        mix = read_mix(given.mix, Data())
        versions = next((each.name for each in mix if each.version), None)
        if versions is not None:
            raise ConfigError(f"--mix {given.mix}: {versions} has a version, and a configuration is of all versions")
        found = Varied(tuple(each.model for each in mix), tuple(each.weight for each in mix), given.mix)
        return _checked(f"--mix {given.mix}", found)
    if given.formats:
        names = tuple(each.strip() for each in given.formats.split(","))
        if len(names) < 2:
            raise ConfigError(f"--formats {given.formats}: name two models or more, of which the first is the default")
        return _checked(f"--formats {given.formats}", Varied(names, (1.0,) * len(names), formats=True))
    text = f"-m {given.model_name}"
    shares = [_weighed(text, each.strip()) for each in given.model_name.split(",")]
    return _checked(text, Varied(tuple(name for name, _ in shares), tuple(weight for _, weight in shares)))


def _weighed(flag: str, text: str) -> tuple[str, float]:
    name, sign, weight = text.partition("=")
    try:
        value = float(weight) if sign else 1.0
    except ValueError:
        value = 0.0
    if not WEIGHT_MIN <= value <= WEIGHT_MAX:
        raise ConfigError(f"{flag}: the weight of '{name}' is {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, as in -m A=3,B=1")
    return name, value


def _checked(flag: str, found: Varied) -> Varied:
    names = found.models
    wrong = next((each for each in names if not each or names.count(each) > 1), None)
    if wrong is not None:
        raise ConfigError(f"{flag}: '{wrong}' stands in it twice, or is empty; name each model once")
    if len(names) > limits.ANALYZE_MODELS_MAX:
        raise ConfigError(f"{flag}: it has {len(names)} models, and at most {limits.ANALYZE_MODELS_MAX} are varied")
    return found


def space_of(given: Any, what: Varied) -> Space | None:
    """Of the settings that are named; None where none is.  Raises ConfigError."""
    found = _Named()
    for model, text in _of_models(given.instances, what):
        found.add(model, whole_axis("--instances", INSTANCES, text))
    for model, text in _of_models(given.max_batch_sizes, what):
        found.add(model, whole_axis("--max-batch-sizes", MAX_BATCH, text))
    for model, text in _of_models(given.preferred_batch_sizes, what):
        sizes = "[" + ", ".join(str(int(size)) for size in numbers("--preferred-batch-sizes", text)) + "]"
        found.add(model, Axis(PREFERRED, (sizes,)), again=True)
    for model, text in _of_models(given.queue_delays, what):
        found.add(model, whole_axis("--queue-delays", DELAY, text, least=0))
    for model, text in _of_models(given.set, what):
        axis = free_axis(text)
        if axis.name == FORMAT:
            raise ConfigError(f"--set {text}: {FORMAT} is no key of a configuration; --formats A,B names the formats")
        found.add(model, axis)
    axes = found.axes(what)
    for outer, inner in permutations(axes, 2):
        path = _path(outer, what)
        if f"{_path(inner, what)}.".startswith(f"{path}."):
            raise ConfigError(f"{inner} is within {path}, which is given, too: give one of them, with whole values")
    return Space(tuple(axes.values())) if axes else None


class _Named:
    """Settings as they are typed, by their names and the models that they are said of; "": of all."""

    def __init__(self) -> None:
        self._settings: dict[str, dict[str, Axis]] = {}

    def add(self, model: str, axis: Axis, *, again: bool = False) -> None:
        """again: the setting may be given more than once, for more values.  Raises ConfigError."""
        known = self._settings.setdefault(axis.name, {})
        if model in known:
            if not again:
                raise ConfigError(f"{named(model, axis.name)} is given twice: give all its values at once")
            axis = replace(axis, values=tuple(dict.fromkeys((*known[model].values, *axis.values))))
        known[model] = axis

    def axes(self, what: Varied) -> dict[str, Axis]:
        """By their names.  What is said of one model alone is instead of what is said of all."""
        found = {}
        for setting, known in self._settings.items():
            shared, of = known.get(""), known
            if shared is not None and (what.together or len(known) > 1):
                of = {each: known.get(each, shared) for each in what.models}
            for model, axis in of.items():
                key = named(model, setting)
                found[key] = replace(axis, name=key)
        return found


def _path(setting: str, what: Varied) -> str:
    """In the configuration, with the model before it."""
    model, name = parted(setting, what.models)
    return named(model, PATHS.get(name, name))


def _of_models(texts: Sequence[str] | None, what: Varied) -> Iterator[tuple[str, str]]:
    """Each text with the model that it names, "" where it names none."""
    known = what.models if len(what.models) > 1 else ()
    for text in texts or ():
        model, rest = parted(text, known)
        strange, sign, _ = rest.partition("=")[0].partition(":")
        if known and sign and not strange[:1].isdecimal() and "." not in strange:
            raise ConfigError(f"{text}: '{strange}' is none of the models; there are {', '.join(known)}")
        yield model, rest
