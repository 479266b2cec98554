"""Which models an ensemble is made of, and ensembles that cannot be for that reason (row 18.04).  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tisfast.errors import ConfigError
from tisfast.repo.source import ModelFailure, ModelSource


def dependencies(model: ModelSource) -> tuple[str, ...]:
    """Names of the models of an ensemble's steps, each once; none of any other model."""
    ensemble = model.config.ensemble
    if ensemble is None:
        return ()
    return tuple(dict.fromkeys(model.steps.get(step.model, step.model) for step in ensemble.steps))


def impossible(models: Iterable[ModelSource], failures: Iterable[ModelFailure]) -> dict[str, ConfigError]:
    """Ensembles that name models which are not there, or themselves; with what is wrong with each."""
    wants = {model.name: dependencies(model) for model in models}
    files = {model.name: model.config.file for model in models}
    reasons = {failure.name: failure.reason for failure in failures}
    found: dict[str, ConfigError] = {}
    for name, names in wants.items():
        missing = [each for each in names if each not in wants]
        if missing:
            text = f"ensemble {name} contains models that are not available or ambiguous: {', '.join(missing)}"
            known = [f"'{each}' failed with: {reasons[each]}" for each in missing if each in reasons]
            found[name] = ConfigError(text, file=files[name], hint="; ".join(known))
        elif cycle := _cycle(name, wants):
            text = f"circular dependency between ensembles: {name} -> ... -> {cycle[-1]} -> {name}"
            hint = f"the whole way: {' -> '.join([*cycle, name])}"
            found[name] = ConfigError(text, file=files[name], hint=hint)
    return found


def _cycle(start: str, wants: Mapping[str, Sequence[str]]) -> list[str]:
    """A way from an ensemble to one that needs it, the ensemble first; [] when there is none."""
    ways = {start: [start]}
    left = [start]
    while left:
        name = left.pop()
        for each in wants.get(name, ()):
            if each == start:
                return ways[name]
            if each not in ways:
                ways[each] = [*ways[name], each]
                left.append(each)
    return []
