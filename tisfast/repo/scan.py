"""Look through model repositories: reads files, starts nothing.  One bad model hides no other.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config import versions as policies
from tisfast.config.model_config import Draft, finish, parse
from tisfast.config.report import ConfigErrors, Place
from tisfast.errors import ConfigError
from tisfast.repo import environment, layout
from tisfast.repo.complete import check_model_files, fill_from_files, model_files
from tisfast.repo.model_file import may_complete
from tisfast.repo.source import ModelFailure, ModelSource, Scan, VersionSource

CONFIG: Final = "config.pbtxt"


@dataclass(frozen=True)
class Looking:
    """How to look.  auto_complete: without --disable-auto-complete-config; gpus: device ids instances may use."""

    auto_complete: bool = True
    gpus: tuple[int, ...] = ()


def scan(repositories: Sequence[Path], looking: Looking = Looking()) -> Scan:  # noqa: B008 - frozen
    """Every model of the repositories.  Raises ConfigError when a repository is no folder."""
    found, notes = layout.model_folders(repositories)
    results = [_model(name, folders, looking) for name, folders in sorted(found.items())]
    return Scan(
        models=tuple(result for result in results if isinstance(result, ModelSource)),
        failures=tuple(result for result in results if isinstance(result, ModelFailure)),
        notes=tuple(notes),
    )


def scan_model(repositories: Sequence[Path], name: str, looking: Looking = Looking()) -> ModelSource | ModelFailure:  # noqa: B008
    """One model by name.  Raises NotFound when no repository has it or the name is none."""
    return _model(name, layout.folders_of(repositories, name), looking)


def _model(name: str, folders: list[Path], looking: Looking) -> ModelSource | ModelFailure:
    if len(folders) > 1:
        error = ConfigError(f"model '{name}' is not unique across all model repositories",
                            hint=f"rename one of {', '.join(map(str, folders))}")  # fmt: skip
        return ModelFailure(name, folders[0].parent, folders[0], (error,))
    folder = folders[0]
    notes: tuple[str, ...] = ()
    try:
        versions = layout.versions_of(folder)
        notes = versions.notes
        return _source(folder, versions, looking)
    except ConfigErrors as error:
        return ModelFailure(name, folder.parent, folder, error.errors, notes)
    except ConfigError as error:
        return ModelFailure(name, folder.parent, folder, (error,), notes)


def _source(folder: Path, versions: layout.Versions, looking: Looking) -> ModelSource:
    """Raises ConfigErrors with everything that is wrong with the model."""
    draft = read_draft(folder, looking.auto_complete)
    numbers = _chosen(draft, versions, folder)
    chosen = [versions.folders[number] for number in numbers]
    interpreter = interpreter_of(draft, folder)
    _check_labels(draft, folder)
    fill_from_files(draft, folder, chosen[-1] if chosen else None)
    check_model_files(draft, chosen)
    partial = looking.auto_complete and any(map(may_complete, model_files(draft, chosen)))
    files = model_files(draft, chosen)
    config = finish(draft, folder.name, gpus=looking.gpus, partial=partial)
    return ModelSource(
        name=folder.name,
        repository=folder.parent,
        folder=folder,
        config=config,
        versions=tuple(map(VersionSource, numbers, chosen, files if config.ensemble is None else chosen)),
        interpreter=interpreter,
        may_complete=partial,
        notes=versions.notes,
    )


def read_draft(folder: Path, auto_complete: bool) -> Draft:
    """The model's config.pbtxt; an empty draft when there is none and none is needed."""
    path = folder / CONFIG
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        if auto_complete:
            return Draft.empty(str(path))
        raise ConfigError(f"failed to open text file for read {path}: No such file or directory",
                          hint="write it, or leave out --disable-auto-complete-config") from error  # fmt: skip
    except OSError as error:
        raise ConfigError(f"failed to open text file for read {path}: {error.strerror}") from error
    return _decoded(data, str(path))


def _decoded(data: bytes, file: str) -> Draft:
    if len(data) > limits.CONFIG_BYTES_MAX:
        raise ConfigError(f"the file has {len(data)} bytes, more than {limits.CONFIG_BYTES_MAX}", file=file)
    try:
        return parse(data.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise ConfigError(f"the file is not UTF-8: byte 0x{data[error.start]:02x}", file=file, line=place.line,
                          column=place.column, hint="save it as UTF-8") from error  # fmt: skip


def _chosen(draft: Draft, versions: layout.Versions, folder: Path) -> tuple[int, ...]:
    policy = policies.read(draft.message)
    numbers = policy.choose(versions.folders)
    if not numbers and not draft.report.malformed:
        present = ", ".join(map(str, sorted(versions.folders))) or "none"
        draft.report.wrong(
            f"at least one version must be available under the version policy of model '{folder.name}'",
            ("version_policy",), hint=f"policy {policy}, versions present: {present}",
        )  # fmt: skip
    return numbers


def interpreter_of(draft: Draft, folder: Path) -> Path | None:
    """The interpreter that the draft's parameters name; what is wrong with it goes to the report."""
    parameters = draft.message.parameters
    value = parameters[environment.PARAMETER].string_value if environment.PARAMETER in parameters else ""
    try:
        return environment.interpreter(value, folder)
    except ConfigError as error:
        draft.report.wrong(error.message, ("parameters", environment.PARAMETER, "value"), hint=error.hint)
        return None


def _check_labels(draft: Draft, folder: Path) -> None:
    for index, output in enumerate(draft.message.output):
        name, key = output.label_filename, ("output", index, "label_filename")
        hint = "label files lie in the model folder"
        if not layout.stays_inside(name):
            draft.report.wrong(f"label_filename '{name}' leaves the folder of {folder.name}", key, hint=hint)
        elif name and not (folder / name).is_file():
            draft.report.wrong(f"failed to open text file for read {folder / name}: No such file or directory", key,
                               hint=hint)  # fmt: skip
