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
    axes: dict[str, Axis] = {}
    for model, text in _of_models(given.instances, what):
        axes[named(model, INSTANCES)] = whole_axis("--instances", named(model, INSTANCES), text)
    for model, text in _of_models(given.max_batch_sizes, what):
        axes[named(model, MAX_BATCH)] = whole_axis("--max-batch-sizes", named(model, MAX_BATCH), text)
    for model, text in _of_models(given.preferred_batch_sizes, what):
        sizes = "[" + ", ".join(str(int(size)) for size in numbers("--preferred-batch-sizes", text)) + "]"
        key = named(model, PREFERRED)
        known = axes[key].values if key in axes else ()
        axes[key] = Axis(key, tuple(dict.fromkeys((*known, sizes))))
    for model, text in _of_models(given.queue_delays, what):
        axes[named(model, DELAY)] = whole_axis("--queue-delays", named(model, DELAY), text, least=0)
    for model, text in _of_models(given.set, what):
        axis = free_axis(text)
        if axis.name == FORMAT:
            raise ConfigError(f"--set {text}: {FORMAT} is no key of a configuration; --formats A,B names the formats")
        key = named(model, axis.name)
        if key in axes:
            raise ConfigError(f"{key} is given twice: give all its values at once")
        axes[key] = replace(axis, name=key)
    for outer, inner in permutations(axes, 2):
        path = _path(outer, what)
        if f"{_path(inner, what)}.".startswith(f"{path}."):
            raise ConfigError(f"{inner} is within {path}, which is given, too: give one of them, with whole values")
    return Space(tuple(axes.values())) if axes else None


def _path(setting: str, what: Varied) -> str:
    """In the configuration, with the model before it."""
    model, name = parted(setting, what.models)
    return named(model, PATHS.get(name, name))


def _of_models(texts: Sequence[str] | None, what: Varied) -> Iterator[tuple[str, str]]:
    """Each text for its model: of those that are served together for each one, where it names none."""
    known = what.models if len(what.models) > 1 else ()
    for text in texts or ():
        model, rest = parted(text, known)
        strange, sign, _ = rest.partition("=")[0].partition(":")
        if known and sign and not strange[:1].isdecimal() and "." not in strange:
            raise ConfigError(f"{text}: '{strange}' is none of the models; there are {', '.join(known)}")
        for each in (model,) if model or not what.together else what.together:
            yield each, rest
