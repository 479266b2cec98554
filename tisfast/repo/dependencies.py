"""Which models an ensemble is made of, and ensembles that cannot be for that reason.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tisfast.config.ensemble_join import join
from tisfast.config.model_config import LoadedConfig
from tisfast.errors import ConfigError
from tisfast.repo.scan_result import ModelFailure, ModelSource


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


def unfit(models: Sequence[ModelSource]) -> dict[str, ConfigError]:
    """Ensembles that do not fit the models of their steps; with what is wrong with each.

    As far as configurations tell: what hangs on a model that may complete its own, or on an ensemble that cannot be, is
    left to the load.
    """
    known = {model.name: model for model in models}
    told = {model.name: model.config for model in models if model.config.ensemble is None and not model.may_complete}
    left = {model.name: model for model in models if model.config.ensemble is not None}
    found: dict[str, ConfigError] = {}
    while ready := [each for each in left.values() if all(step in told for step in dependencies(each))]:
        for each in ready:
            del left[each.name]
            try:
                told[each.name] = _joined(each, known, told)
            except ConfigError as error:
                found[each.name] = error
    return found


def no_version(ensemble: str, model: str, version: int, file: str) -> ConfigError:
    """The error of an ensemble, configured by `file`, that wants a version which the model does not have."""
    return ConfigError(
        f"ensemble '{ensemble}' depends on '{model}' whose required version {version} is not loaded.", file=file
    )


def _joined(ensemble: ModelSource, known: Mapping[str, ModelSource], told: Mapping[str, LoadedConfig]) -> LoadedConfig:
    """The ensemble's configuration beside those of its steps.  Raises ConfigError."""
    assert ensemble.config.ensemble is not None
    models = []
    for step in ensemble.config.ensemble.steps:
        model = ensemble.steps.get(step.model, step.model)
        if step.version >= 0 and step.version not in {version.number for version in known[model].versions}:
            raise no_version(ensemble.name, model, step.version, ensemble.config.file)
        models.append(told[model])
    return join(ensemble.config, models).config


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
