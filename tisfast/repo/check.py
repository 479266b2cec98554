"""`tisfast check`: every error of every model, without serving.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tisfast.config import batch_io
from tisfast.config.backends import PYTHON
from tisfast.config.model_config import LoadedConfig
from tisfast.environments.environment import Environment
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.completion import fill_from_files, model_files
from tisfast.repo.dependencies import impossible, unfit
from tisfast.repo.scan import ScanOptions, environment_of, read_draft, scan
from tisfast.repo.scan_result import ModelFailure, ModelSource
from tisfast.repo.syntax import check_file


@dataclass(frozen=True)
class Finding:
    """One error.  model: "" when it is about a repository itself."""

    model: str
    error: ConfigError

    def __str__(self) -> str:
        """The error's line, with the model's name in front where the error has no file to say it."""
        return str(self.error) if self.error.file or not self.model else f"{self.model}: {self.error}"


def count(repositories: Sequence[Path | str]) -> int:
    """How many models there are to look at, good and bad."""
    return len(layout.model_folders([path for path in map(Path, repositories) if path.is_dir()])[0])


def _whole(_model: ModelSource, _config: LoadedConfig) -> None:
    """Nothing more is asked of a configuration."""


def check(
    repositories: Sequence[Path | str],
    looking: ScanOptions = ScanOptions(),  # noqa: B008 - frozen
    complete: Callable[[ModelSource, LoadedConfig], None] = _whole,
) -> list[Finding]:
    """Every error in the repositories, by repository and model; an empty list when all would load.

    complete: raises ConfigError for a configuration that nothing completes and that cannot be served as it is.
    What only running a model can tell (imports, initialize, auto_complete_config) is not looked at.
    """
    findings, readable = [], []
    for repository in map(Path, repositories):
        if repository.is_dir():
            readable.append(repository)
        else:
            error = ConfigError(f"repository path is not a valid directory: {repository}", hint="name a folder")
            findings.append(Finding("", error))
    found = scan(readable, looking)
    for failure in found.failures:
        findings += [Finding(failure.name, error) for error in (*failure.errors, *_files_beside(failure, looking))]
    for model in found.models:
        files = [version.file for version in model.versions] if model.config.backend == PYTHON else []
        errors = _file_errors(files, model.environment, batch_io.asked(model.config.message))
        findings += [Finding(model.name, error) for error in (*errors, *_incomplete(model, complete))]
    ensembles = {**unfit(found.models), **impossible(found.models, found.failures)}
    return findings + [Finding(name, ensembles[name]) for name in sorted(ensembles)]


def _incomplete(model: ModelSource, complete: Callable[[ModelSource, LoadedConfig], None]) -> list[ConfigError]:
    if model.may_complete:
        return []
    try:
        complete(model, model.config)
    except ConfigError as error:
        return [error]
    return []


def _file_errors(files: Iterable[Path], environment: Environment | None, arrays_for: str) -> list[ConfigError]:
    return [error for file in files for error in check_file(file, environment, arrays_for)]


def _files_beside(failure: ModelFailure, looking: ScanOptions) -> list[ConfigError]:
    """Errors in the files of a model whose configuration has errors too, as far as it can be read."""
    try:
        draft = read_draft(failure.folder, looking)
        versions = [folder for _, folder in sorted(layout.versions_of(failure.folder).folders.items())]
    except ConfigError:  # among the failure's own errors
        return []
    already = len(draft.report.errors)
    environment = environment_of(draft, failure.folder, looking.backends)
    if len(draft.report.errors) > already:  # an environment that is not there: who knows its Python's syntax
        return []
    fill_from_files(draft, failure.folder, versions[-1] if versions else None, looking.backends)
    if draft.message.backend != PYTHON:
        return []
    files = [file for file in model_files(draft, versions) if file.is_file()]
    return _file_errors(files, environment, batch_io.asked(draft.message))
