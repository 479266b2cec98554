"""A look at some models of the repositories, by name.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tisfast.errors import Internal, NotFound
from tisfast.repo import layout
from tisfast.repo.load_plan import Found
from tisfast.repo.scan import ScanOptions, scan, scan_model


class NoModel(Internal):
    """No repository has a model of that name (Triton has it as an internal error)."""


@dataclass(frozen=True)
class LookupResult:
    """found: what was asked for; names: of all models there are; notes: entries of repositories that are no models."""

    found: dict[str, Found]
    names: tuple[str, ...]
    notes: tuple[str, ...]


def find_around(repositories: Sequence[Path], names: Collection[str] | None, looking: ScanOptions) -> LookupResult:
    """A look at the whole of the repositories, and at these models, all for None.

    Raises ConfigError when a repository is no folder.
    """
    if names is None:
        seen = scan(repositories, looking)
        found: dict[str, Found] = {model.name: model for model in seen.models}
        found.update((failure.name, failure) for failure in seen.failures)
        return LookupResult(found, tuple(found), seen.notes)
    folders, notes = layout.model_folders(repositories, namespaces=looking.namespaces)
    return LookupResult(find(repositories, names, looking), tuple(folders), tuple(notes))


def names_of(repositories: Sequence[Path], looking: ScanOptions) -> tuple[str, ...]:
    """The names of all model folders, whatever they hold.  Raises ConfigError when a repository is no folder."""
    return tuple(layout.model_folders(repositories, namespaces=looking.namespaces)[0])


def find(repositories: Sequence[Path], names: Collection[str], looking: ScanOptions) -> dict[str, Found]:
    """Look up these names on the disk.  Reads files; starts nothing, and raises nothing for one model's sake."""
    found: dict[str, Found] = {}
    for name in names:
        try:
            found[name] = scan_model(repositories, name, looking)
        except NotFound:
            found[name] = no_model(name)
    return found


def no_model(name: str) -> NoModel:
    """With Triton's words."""
    return NoModel(f"failed to load '{name}', failed to poll from model repository")
