"""Files outside a model's folder of which it is made: an environment, requirements, an own backend.  Layer 3 (repo)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tisfast.config.backends import BUILT_IN, Backends
from tisfast.config.model_config import ConfigDraft
from tisfast.environments.environment_kind import PARAMETER, REQUIREMENTS
from tisfast.environments.requirements import files_of
from tisfast.errors import ConfigError
from tisfast.repo.environment_parameter import expanded
from tisfast.repo.scan import ScanOptions, backend_entries, config_file, read_draft
from tisfast.repo.snapshot import FileEntry, Snapshot, entry_of


class _Known(NamedTuple):
    """files: the environment's, and what they include; entries: the configuration, and them, when that was found;
    backend: the file of the model's backend in --backend-directory, None for one of ours.
    """

    files: tuple[Path, ...]
    entries: tuple[FileEntry, ...]
    backend: Path | None


class OutsideFiles:
    """The outside files of all models of some repositories.  Remembers which files those are while what says so stays
    as it is.

    For one thread at a time.
    """

    def __init__(self, config_name: str = "", backends: Backends = BUILT_IN) -> None:
        """config_name: of --model-config-name; backends: that there are."""
        self._looking = ScanOptions(config_name=config_name, backends=backends)
        self._known: dict[Path, _Known] = {}
        self._backends: dict[Path, tuple[FileEntry, ...]] = {}  # the files of each, as this look has seen them

    def begin(self) -> None:
        """A look begins: what the last one saw of backends is old."""
        self._backends.clear()

    def seen(self, folder: Path, inside: Snapshot) -> Snapshot:
        """The snapshot of a model's folder with its outside files, by absolute path; there or not."""
        config = config_file(folder, self._looking.config_name)
        known = self._known.get(folder)
        if known is None or known.entries != _entries(config, known.files):
            draft = self._draft(folder)
            files = tuple(dict.fromkeys(_environment_files(draft, folder)))
            known = self._known[folder] = _Known(files, _entries(config, files), self._backend_of(draft))
        outside = [entry for entry in known.entries[1:] if not Path(entry.path).is_relative_to(folder)]
        outside += self._backend_entries(known.backend)
        return Snapshot((*outside, *inside.entries), inside.passing) if outside else inside

    def keep(self, folders: Collection[Path]) -> None:
        """There are these models and no others."""
        self._known = {folder: known for folder, known in self._known.items() if folder in folders}

    def _draft(self, folder: Path) -> ConfigDraft | None:
        """The model's configuration; None where it cannot be read, as the load will tell."""
        try:
            return read_draft(folder, self._looking)
        except (ConfigError, OSError):
            return None

    def _backend_of(self, draft: ConfigDraft | None) -> Path | None:
        backend = None if draft is None else self._looking.backends.named(draft.message.backend)
        return Path(backend.module) if backend is not None and backend.module else None

    def _backend_entries(self, module: Path | None) -> tuple[FileEntry, ...]:
        if module is None:
            return ()
        if module not in self._backends:
            self._backends[module] = backend_entries(module)
        return self._backends[module]


def _environment_files(draft: ConfigDraft | None, folder: Path) -> Iterator[Path]:
    """The environment's file, and what it includes; none where something cannot be read, as the load will tell."""
    parameters = {} if draft is None else draft.message.parameters
    try:
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
    return tuple(entry_of(file) for file in (config, *files))
