"""Compares a serving model with a new look at its folder: what can stay, and what is loaded.  Pure.  Layer 3 (repo)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tisfast.config.schema import Message
from tisfast.environments.environment import Environment
from tisfast.repo.scan_result import ModelSource, VersionSource
from tisfast.repo.snapshot import FileEntry

CONFIG: Final = "config.pbtxt"
CONFIGS: Final = "configs"
IN_PLACE: Final = ("instance_group", "version_policy")
"""Fields of a configuration that may change without a new copy: the number of instances, and the versions."""


@dataclass(frozen=True)
class Change:
    """fresh: versions to load; kept: those that go on; gone: numbers of those that do not; resized: the kept ones get
    other instances; restated: their configuration, as /config shows it, is another one.
    """

    fresh: tuple[VersionSource, ...] = ()
    kept: tuple[VersionSource, ...] = ()
    gone: tuple[int, ...] = ()
    resized: bool = False
    restated: bool = False

    @property
    def nothing(self) -> bool:
        """All stays as it is."""
        return not (self.fresh or self.gone or self.resized or self.restated)


def difference(old: ModelSource, new: ModelSource, *, forced: bool = False) -> Change:
    """From what serves to what shall.  forced: nothing is kept."""
    alike = not forced and _same_model(old, new)
    before = {version.number: version for version in old.versions}
    kept = tuple(version for version in new.versions if alike and _same_version(old, before, new, version))
    fresh = tuple(version for version in new.versions if version not in kept)
    numbers = {version.number for version in new.versions}
    return Change(
        fresh=fresh,
        kept=kept,
        gone=tuple(number for number in before if number not in numbers),
        resized=bool(kept) and old.config.instances != new.config.instances,
        restated=bool(kept) and old.config.message != new.config.message,
    )


def _same_model(old: ModelSource, new: ModelSource) -> bool:
    return (
        (old.repository, old.private) == (new.repository, new.private)
        and old.steps == new.steps
        and _environment(old) == _environment(new)
        and old.may_complete == new.may_complete
        and _without(old.config.message) == _without(new.config.message)
        and not _limited(old)
        and not _limited(new)
        and _shared_files(old) == _shared_files(new)
    )


def _environment(source: ModelSource) -> Environment | None:
    """The environment to compare: each state of a fetched model has its own folder, which may hold the same one."""
    found = source.environment
    if found is None or not found.path.is_relative_to(source.folder):
        return found
    return replace(found, path=found.path.relative_to(source.folder), interpreter=None)


def _without(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    for key in IN_PLACE:
        copy.ClearField(key)
    return copy


def _limited(source: ModelSource) -> bool:
    """Whether instances share resources with others: these are claimed when a model is loaded."""
    return any(group.rate_limit.demands for group in source.config.instance_groups)


def _same_version(old: ModelSource, before: dict[int, VersionSource], new: ModelSource, version: VersionSource) -> bool:
    was = before.get(version.number)
    alike = was is not None and (was.folder.name, was.file.name) == (version.folder.name, version.file.name)
    return alike and _files(old, version.number) == _files(new, version.number)


def _files(source: ModelSource, version: int) -> list[FileEntry]:
    return [entry for entry in source.snapshot.entries if entry.path.startswith(f"{version}/")]


def _shared_files(source: ModelSource) -> list[FileEntry]:
    """Labels, warm-up data and the like: all but the versions, and the configuration, which is compared itself."""
    return [entry for entry in source.snapshot.entries if not _is_apart(entry.path)]


def _is_apart(path: str) -> bool:
    first, _, _ = path.partition("/")
    return path == CONFIG or first == CONFIGS or (first.isdecimal() and "/" in path)
