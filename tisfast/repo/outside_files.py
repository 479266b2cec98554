"""Files outside a model's folder of which it is made: a packed environment, requirements.  Layer 3 (repo)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tisfast.environments.environment_kind import PARAMETER, REQUIREMENTS
from tisfast.environments.requirements import files_of
from tisfast.errors import ConfigError
from tisfast.repo.environment_parameter import expanded
from tisfast.repo.scan import ScanOptions, config_file, read_draft
from tisfast.repo.snapshot import FileEntry, Snapshot


class _Known(NamedTuple):
    """files: the environment's, and what they include; entries: the configuration, and them, when that was found."""

    files: tuple[Path, ...]
    entries: tuple[FileEntry, ...]


class OutsideFiles:
    """The outside files of all models of some repositories.  Remembers which files those are while what says so stays
    as it is.

    For one thread at a time.
    """

    def __init__(self, config_name: str = "") -> None:
        """config_name: of --model-config-name."""
        self._looking = ScanOptions(config_name=config_name)
        self._known: dict[Path, _Known] = {}

    def seen(self, folder: Path, inside: Snapshot) -> Snapshot:
        """The snapshot of a model's folder with its outside files, by absolute path; there or not."""
        config = config_file(folder, self._looking.config_name)
        known = self._known.get(folder)
        if known is None or known.entries != _entries(config, known.files):
            files = tuple(dict.fromkeys(self._files(folder)))
            known = self._known[folder] = _Known(files, _entries(config, files))
        outside = [entry for entry in known.entries[1:] if not Path(entry.path).is_relative_to(folder)]
        return Snapshot((*outside, *inside.entries), inside.passing) if outside else inside

    def keep(self, folders: Collection[Path]) -> None:
        """There are these models and no others."""
        self._known = {folder: known for folder, known in self._known.items() if folder in folders}

    def _files(self, folder: Path) -> Iterator[Path]:
        """The environment's file, and what it includes; none where something cannot be read, as the load will tell."""
        try:
            parameters = read_draft(folder, self._looking).message.parameters
            value = parameters[PARAMETER].string_value if PARAMETER in parameters else ""
            path = Path(os.path.abspath(expanded(value, folder)))
            if not value or path.is_dir():
                return
            yield path
            if REQUIREMENTS.fullmatch(path.name):
                yield from files_of(path)
        except (ConfigError, OSError):
            return


def _entries(config: Path, files: Iterable[Path]) -> tuple[FileEntry, ...]:
    return tuple(_entry(file) for file in (config, *files))


def _entry(file: Path) -> FileEntry:
    try:
        about = file.stat()
    except OSError:
        return FileEntry(str(file), -1, 0, 0)
    return FileEntry(str(file), about.st_size, about.st_mtime_ns, about.st_ino)
