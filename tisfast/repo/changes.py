"""Looks at the model repositories, and the changes between them.  Layer 3 (repo)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tisfast.config.backends import BUILT_IN, Backends
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.outside_files import OutsideFiles
from tisfast.repo.snapshot import Snapshot, in_words, snapshot

Sighting: TypeAlias = Snapshot | str
"""One folder: its snapshot, or why it cannot be read."""
Seen: TypeAlias = Mapping[Path, Sighting]
"""One model's folders by repository.  Empty: it is nowhere."""


@dataclass(frozen=True)
class Look:
    """The result of one look.  seen: by model; lost: repositories that could not be looked at, with the reason."""

    seen: Mapping[str, Seen]
    lost: Mapping[Path, str]


class Looker:
    """Looks through repositories.  Reads folders for as long as that takes: for a thread, one look at a time."""

    def __init__(
        self,
        repositories: Sequence[Path],
        *,
        namespaces: bool = False,
        config_name: str = "",
        backends: Backends = BUILT_IN,
    ) -> None:
        """config_name: of --model-config-name; backends: that there are."""
        self._outside = OutsideFiles(config_name, backends)
        self._repositories = repositories
        self._namespaces = namespaces
        self._devices: dict[Path, int] = {}  # the file system that each repository was on when it last held something

    def look(self, names: Collection[str] | None = None) -> Look:
        """Look at all models, or at some of them."""
        seen: dict[str, dict[Path, Sighting]] = {}
        lost: dict[Path, str] = {}
        there: list[list[Path]] = []
        self._outside.begin()
        for repository in self._repositories:
            try:
                folders, _ = layout.model_folders([repository], namespaces=self._namespaces)
                self._check_mounted(repository, bool(folders))
            except ConfigError as error:
                lost[repository] = error.message
                continue
            there += folders.values()
            for name, (folder,) in folders.items():
                if names is None or name in names:
                    seen.setdefault(name, {})[repository] = self._sighting(folder)
        if names is None:
            self._outside.keep({folder for folders in there for folder in folders})
        return Look(seen, lost)

    def _sighting(self, folder: Path) -> Sighting:
        try:
            return self._outside.seen(folder, snapshot(folder))
        except (ConfigError, OSError) as error:
            return str(error)

    def _check_mounted(self, repository: Path, holds_something: bool) -> None:
        """A folder on which a file system was, and is no more, is empty; these models were not removed."""
        try:
            device = os.stat(repository).st_dev
        except OSError as error:
            raise ConfigError(f"repository path is not a valid directory: {error.strerror}") from error
        if holds_something:
            self._devices[repository] = device
        elif self._devices.setdefault(repository, device) != device:
            raise ConfigError("it is empty, and no longer on the file system that it was on")


class Changes:
    """Which models have changed since they were last applied, and rest now.  Looks in, names out: no disk, no clock.

    A model rests when two looks, with time between them, saw the same; so one that is being copied is never given out.
    """

    def __init__(self, first: Look) -> None:
        self._applied = dict(first.seen)
        self._moving: dict[str, Seen] = {}

    @property
    def moving(self) -> frozenset[str]:
        """Models that differ from what was applied and have not been seen to rest."""
        return frozenset(self._moving)

    @property
    def names(self) -> frozenset[str]:
        """All models that there are, as far as looks tell."""
        return frozenset({*self._applied, *(name for name, seen in self._moving.items() if seen)})

    def take(self, look: Look, names: Collection[str] | None = None, busy: Collection[str] = ()) -> dict[str, str]:
        """Models to be applied now, each with what has changed, in words.  Each change is given out once.

        names: those that were looked at, None for all.  busy: not to be given out now, but later.
        """
        asked = {*self._applied, *self._moving, *look.seen} if names is None else names
        changed = {name: self._changed(name, look, name in busy) for name in sorted(asked)}
        return {name: words for name, words in changed.items() if words}

    def _changed(self, name: str, look: Look, busy: bool) -> str:
        """The change of a model in words, "" when nothing is to be done now."""
        applied = self._applied.get(name, {})
        kept = {repository: sighting for repository, sighting in applied.items() if repository in look.lost}
        seen: Seen = {**kept, **look.seen.get(name, {})}
        if seen == applied:
            self._moving.pop(name, None)
            return ""
        if busy or not _rests(seen, self._moving.get(name)):
            self._moving[name] = seen
            return ""
        del self._moving[name]
        self._applied[name] = seen
        if not seen:
            del self._applied[name]
        return _words(seen, applied)


def _rests(seen: Seen, earlier: Seen | None) -> bool:
    if earlier is None or seen != earlier:
        return False
    pairs = ((seen[repository], earlier[repository]) for repository in seen)
    return all(isinstance(now, str) or (isinstance(then, Snapshot) and now.rests_since(then)) for now, then in pairs)


def _words(seen: Seen, applied: Seen) -> str:
    if not applied:
        return f"is new in {' and in '.join(map(str, seen))}"
    if not seen:
        return f"is gone from {' and from '.join(map(str, applied))}"
    words = [f"is new in {repository}" for repository in seen if repository not in applied]
    words += [f"is gone from {repository}" for repository in applied if repository not in seen]
    for repository in seen:
        if repository in applied:
            words += _difference(seen[repository], applied[repository])
    return ", ".join(words)


def _difference(now: Sighting, before: Sighting) -> list[str]:
    if now == before:
        return []
    if isinstance(now, str):
        return [f"cannot be looked at: {now}"]
    return ["can be looked at again" if isinstance(before, str) else in_words(now.differences(before))]
