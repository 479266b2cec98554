"""What is varied: one model, several that are served together, or one in several formats.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tisfast import limits
from tisfast.analyze.space import Automatic, Axis, Space, check
from tisfast.analyze.variants import FORMAT, INSTANCES, Config, Value, Variant, configured, in_force, named, parted
from tisfast.errors import BadRequest

KEPT: Final = 2
"""Of so many values of an automatic axis one is kept, where there are too many variants."""


@dataclass(frozen=True)
class Subject:
    """Models with their default configurations, by name.

    formats: each is the same model in another format, and a variant serves one of them; else all are served together.
    Settings of one model of several have its name before them; others hold for each that is served.
    """

    configs: Mapping[str, Config]
    formats: bool = False

    @property
    def several(self) -> bool:
        """Models are served together."""
        return len(self.configs) > 1 and not self.formats

    def served(self, variant: Variant) -> list[str]:
        """The names of the models that a variant has."""
        names = list(self.configs)
        if not self.formats:
            return names
        chosen = variant.value(FORMAT)
        return names[:1] if chosen is None else [str(chosen)]

    def settings(self, variant: Variant, model: str) -> Variant:
        """Those of one model, as if it were alone."""
        found = {}
        for name, value in variant.settings:
            of, own = parted(name, self.configs)
            if own != FORMAT and of in ("", model):
                found[own] = value
        return Variant(tuple(found.items()))

    def configured(self, variant: Variant) -> dict[str, Config]:
        """The configurations that a variant serves.  Raises BadRequest for a path that is none."""
        return {name: configured(self.settings(variant, name), self.configs[name]) for name in self.served(variant)}

    def in_force(self, name: str) -> Value | None:
        """What the default has for a setting, None where that cannot be compared."""
        of, own = parted(name, self.configs)
        if own == FORMAT:
            return next(iter(self.configs))
        return in_force(own, self.configs[of or next(iter(self.configs))])

    def instances(self, variant: Variant) -> int:
        """Of all that is served, in each group."""
        return sum(int(in_force(INSTANCES, config) or 1) for config in self.configured(variant).values())

    def space(self, chosen: Space | None, automatic: Automatic) -> Space:
        """What is searched: what the user has named, or all that is searched by itself.  Raises TisError."""
        axes = self._automatic(automatic) if chosen is None else list(chosen.axes)
        if self.formats:
            axes.insert(0, Axis(FORMAT, tuple(self.configs)))
        if chosen is None:
            axes = _fewer(axes)
        made = Space(tuple(axes))
        for model, config in self.configs.items():
            own = [parted(axis.name, self.configs) for axis in axes]
            mine = [
                Axis(name, axis.values)
                for axis, (of, name) in zip(axes, own, strict=True)
                if of in ("", model) and name != FORMAT
            ]
            check(Space(tuple(mine)), config, model)
        return made

    def _automatic(self, automatic: Automatic) -> list[Axis]:
        axes = {model: automatic.space(config).axes for model, config in self.configs.items()}
        (_, first), *others = axes.items()
        if not others or (self.formats and all(each == first for _, each in others)):
            return list(first)
        return [replace(axis, name=named(model, axis.name)) for model, own in axes.items() for axis in own]


def _fewer(axes: Sequence[Axis]) -> list[Axis]:
    """Every second value of the longest axes, until a search space may have so many variants."""
    found = list(axes)
    while found:
        count = 1
        for axis in found:
            count *= len(axis.values)
        longest = max(range(len(found)), key=lambda at: len(found[at].values) if found[at].name != FORMAT else 0)
        if count <= limits.ANALYZE_VARIANTS_MAX or len(found[longest].values) == 1:
            break
        found[longest] = replace(found[longest], values=found[longest].values[::KEPT])
    return found


def same_tensors(models: Mapping[str, Any]) -> None:
    """Formats take and give the same.  models: by name, as the server describes them.  Raises BadRequest."""
    (first, known), *others = models.items()
    for name, metadata in others:
        for kind in ("inputs", "outputs"):
            here = {each.name: each for each in getattr(known, kind)}
            there = {each.name: each for each in getattr(metadata, kind)}
            if here.keys() != there.keys():
                raise BadRequest(
                    f"--formats: model '{name}' has the {kind} {', '.join(sorted(there))}, and '{first}' has "
                    f"{', '.join(sorted(here))}: they are not the same model"
                )
            for tensor, spec in here.items():
                other = there[tensor]
                if spec.datatype != other.datatype or not _alike(spec.shape, other.shape):
                    raise BadRequest(
                        f"--formats: '{tensor}' of the {kind} is {other.datatype} {list(other.shape)} in model "
                        f"'{name}' and {spec.datatype} {list(spec.shape)} in '{first}': they are not the same model"
                    )


def _alike(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))
