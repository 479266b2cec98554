"""The result of a look at the disk: models that can be loaded, and models that cannot, and why.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tisfast.config.model_config import LoadedConfig
from tisfast.environments.environment import Environment
from tisfast.errors import ConfigError
from tisfast.leases import FolderLease
from tisfast.repo.snapshot import Snapshot
from tisfast.types import split_identity


@dataclass(frozen=True)
class VersionSource:
    """One version to serve.  file: the model file, which exists; of an ensemble, which has none, the folder."""

    number: int
    folder: Path
    file: Path


@dataclass(frozen=True)
class ModelSource:
    """A model that can be loaded.

    versions: those that the version policy picks, ascending, at least one.  environment: the one that
    EXECUTION_ENV_PATH names, None for the server's own.  may_complete: the model has, or may inherit, an
    auto_complete_config, so a worker must be asked for it and its answer merged (config.auto_complete.merge_completed).
    notes: what was left aside, to be logged once.  snapshot: of its folder, taken before anything else was read.
    overridden: a load call gave the configuration, or all of it (repo.override); private: the folder of its files,
    which goes with the copy that is loaded from them, None for a model of a repository.  lease: of its folder, which is
    then a tree of storage's, and in use for as long as anybody has this source.

    With --model-namespacing, `name` is what tells it from its namesakes, and not its configuration's name; steps: which
    models the names of an ensemble's steps mean.
    """

    name: str
    repository: Path
    folder: Path
    config: LoadedConfig
    versions: tuple[VersionSource, ...]
    environment: Environment | None
    may_complete: bool
    notes: tuple[str, ...]
    snapshot: Snapshot
    overridden: bool = False
    private: Path | None = None
    lease: FolderLease | None = field(default=None, compare=False, repr=False)
    steps: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Its repository, "" without --model-namespacing."""
        return split_identity(self.name)[0] if self.name != self.config.name else ""


@dataclass(frozen=True)
class ModelFailure:
    """A model that cannot be loaded.  errors: all of them, at least one; versions: see ConfigErrors."""

    name: str
    repository: Path
    folder: Path
    errors: tuple[ConfigError, ...]
    notes: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        """One line for each error."""
        return "\n".join(str(error) for error in self.errors)


@dataclass(frozen=True)
class Scan:
    """Everything found, sorted by name.  notes: entries of the repositories that are no models."""

    models: tuple[ModelSource, ...]
    failures: tuple[ModelFailure, ...]
    notes: tuple[str, ...] = ()
