"""Which models a name means, with and without namespaces.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from tisfast.config.ensemble_config import EnsembleConfig
from tisfast.repo.layout import is_folder, is_plain_name
from tisfast.repo.scan_result import ModelSource
from tisfast.types import identity_of, split_identity


class Names:
    """Without namespaces: a name means one model."""

    namespaced = False

    def lying(self, name: str) -> Collection[str]:
        """Models of the repositories that a name means.  Reads folders."""
        return (name,)

    def plain(self, name: str) -> str:
        """The name of a model's folder."""
        return name

    def held(self, name: str, held: Iterable[str]) -> Collection[str]:
        """Those of the held models."""
        del held
        return (name,)

    def affected(self, names: Collection[str], sources: Mapping[str, ModelSource | None]) -> Collection[str]:
        """The models that came, changed or went, and the ensembles that may now be made of others."""
        del sources
        return names


class NamespacedNames(Names):
    """With --model-namespacing: a name means one model of each repository."""

    namespaced = True

    def __init__(self, repositories: Sequence[Path]) -> None:
        self._repositories = repositories

    def lying(self, name: str) -> Collection[str]:
        """The identities of this name, one for each repository that has it; the name itself where none has."""
        return having(self._repositories, name) or (name,)

    def plain(self, name: str) -> str:
        """Without the namespace."""
        return split_identity(name)[1]

    def held(self, name: str, held: Iterable[str]) -> Collection[str]:
        """By their names or, one alone, by what tells it from its namesakes."""
        return [each for each in held if name in (each, split_identity(each)[1])]

    def affected(self, names: Collection[str], sources: Mapping[str, ModelSource | None]) -> Collection[str]:
        """A step's name may mean another model as soon as one of that name came or went."""
        plain = {split_identity(name)[1] for name in names}
        ensembles = [(name, source.config.ensemble) for name, source in sources.items() if source is not None]
        return {
            *names,
            *(name for name, ensemble in ensembles if ensemble and any(step.model in plain for step in ensemble.steps)),
        }


def having(repositories: Sequence[Path], name: str) -> tuple[str, ...]:
    """The models of that name, one for each repository that has it."""
    if not is_plain_name(name):
        return ()
    return tuple(identity_of(str(each), name) for each in repositories if is_folder(each / name))


def steps_of(ensemble: EnsembleConfig, repository: Path, repositories: Sequence[Path]) -> dict[str, str]:
    """The model that each step's name means: that of the ensemble's own repository, else the only one elsewhere.

    Where there is none, or several elsewhere, it is the one that should be in the ensemble's own repository.
    """
    found = {}
    for name in {step.model for step in ensemble.steps}:
        own, there = identity_of(str(repository), name), having(repositories, name)
        found[name] = there[0] if own not in there and len(there) == 1 else own
    return found
