"""Look through model repositories: reads files, starts nothing.  One bad model hides no other.  Layer 3 (repo)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from tisfast import leases, limits
from tisfast.config import versions as policies
from tisfast.config.backends import BUILT_IN, BackendInfo, Backends
from tisfast.config.error_report import ConfigErrors, SourcePosition
from tisfast.config.model_config import ConfigDraft, finish, parse, parse_json_form
from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import PARAMETER
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.completion import check_model_files, fill_from_files, model_files, saved_model_hint
from tisfast.repo.environment_parameter import read_environment
from tisfast.repo.model_file import may_complete
from tisfast.repo.model_names import steps_of
from tisfast.repo.scan_result import ModelFailure, ModelSource, Scan, VersionSource
from tisfast.repo.snapshot import FileEntry, Snapshot, entry_of, snapshot

CONFIG: Final = "config.pbtxt"
CONFIGS: Final = "configs"
NOTES_MAX: Final = 3
"""Folders that are no versions, which an error names."""


class NotUnique(ConfigError):
    """A name that two repositories have."""

    TEXT: Final = "model appears in two or more repositories"
    """Triton's text in the index, which scripts compare."""


class ServedModelFile(NamedTuple):
    """A model that is a file (repo/links.py).  file: its name in the version folder; name: that the user knows."""

    backend: str
    file: str
    name: str


@dataclass(frozen=True)
class ScanOptions:
    """How to look.

    auto_complete: without --disable-auto-complete-config; gpus: device ids instances may use; config_name: of
    --model-config-name; config: a configuration in JSON in place of the file's; namespaces: --model-namespacing;
    backends: that there are; allow_pickled: --allow-pickled-models; files: by folder, models that are files;
    leases: hold folders that are replaced by others beside them (leases.py) for as long as the sources that come of it.
    """

    auto_complete: bool = True
    gpus: tuple[int, ...] = ()
    config_name: str = ""
    config: str | None = None
    namespaces: bool = False
    leases: bool = False
    backends: Backends = BUILT_IN
    allow_pickled: bool = False
    files: Mapping[Path, ServedModelFile] = field(default_factory=dict)


def scan(repositories: Sequence[Path], looking: ScanOptions = ScanOptions()) -> Scan:  # noqa: B008 - frozen
    """Every model of the repositories.  Raises ConfigError when a repository is no folder."""
    found, notes = layout.model_folders(repositories, namespaces=looking.namespaces)
    placed = sorted(found.items())
    results = [_placed(_model(name, folders, looking), repositories, looking) for name, folders in placed]
    return Scan(
        models=tuple(result for result in results if isinstance(result, ModelSource)),
        failures=tuple(result for result in results if isinstance(result, ModelFailure)),
        notes=tuple(notes),
    )


def scan_model(
    repositories: Sequence[Path], name: str, looking: ScanOptions = ScanOptions()
) -> ModelSource | ModelFailure:  # noqa: B008
    """One model by name.  Raises NotFound when no repository has it or the name is none."""
    found = _model(name, layout.folders_of(repositories, name, namespaces=looking.namespaces), looking)
    return _placed(found, repositories, looking)


def _placed(
    found: ModelSource | ModelFailure, repositories: Sequence[Path], looking: ScanOptions
) -> ModelSource | ModelFailure:
    """With namespaces, the models that an ensemble's steps mean depend on what else the repositories have."""
    if not looking.namespaces or isinstance(found, ModelFailure) or found.config.ensemble is None:
        return found
    return replace(found, steps=steps_of(found.config.ensemble, found.repository, repositories))


def _model(name: str, folders: list[Path], looking: ScanOptions) -> ModelSource | ModelFailure:
    if len(folders) > 1:
        error = NotUnique(
            f"model '{name}' is not unique across all model repositories",
            hint=f"{NotUnique.TEXT}: rename one of {', '.join(map(str, folders))}",
        )
        return ModelFailure(name, folders[0].parent, folders[0], (error,))
    folder, repository = folders[0], folders[0].parent
    notes: tuple[str, ...] = ()
    try:
        lease = leases.lease(folder) if looking.leases else None
        folder = folder if lease is None else lease.folder
        seen = snapshot(folder)
        versions = layout.versions_of(folder)
        notes = versions.notes
        return replace(_source(folder, versions, looking, seen), name=name, repository=repository, lease=lease)
    except ConfigErrors as error:
        return ModelFailure(name, repository, folder, error.errors, notes, error.versions)
    except ConfigError as error:
        return ModelFailure(name, repository, folder, (error,), notes)
    except OSError as error:  # whichever file it is, it is this model's alone
        unreadable = ConfigError(f"model cannot be read: {error.strerror or error}", file=str(error.filename or folder))
        return ModelFailure(name, repository, folder, (unreadable,), notes)


def _source(folder: Path, versions: layout.Versions, looking: ScanOptions, seen: Snapshot) -> ModelSource:
    """Raises ConfigErrors with everything that is wrong with the model."""
    draft = read_draft(folder, looking)
    is_model = bool(versions.folders) or looking.config is not None or config_file(folder, looking.config_name).exists()
    with draft.report.loading(readable=is_model):
        numbers = _chosen(draft, versions, folder)
        chosen = [versions.folders[number] for number in numbers]
        environment = environment_of(draft, folder, looking.backends)
        _check_labels(draft, folder)
    fill_from_files(draft, folder, chosen[-1] if chosen else None, looking.backends)
    backends = looking.backends.with_library(draft.message.backend, (*chosen[-1:], folder))
    with draft.report.loading():
        check_model_files(draft, chosen, backends)
    files = model_files(draft, chosen)
    backend = backends.named(draft.message.backend)
    partial = looking.auto_complete and backend is not None and may_complete(backend, files, draft.message)
    try:
        config = finish(draft, folder.name, gpus=looking.gpus, partial=partial, backends=backends)
    except ConfigErrors as error:
        raise ConfigErrors(error.errors, numbers) from None
    return ModelSource(
        name=folder.name,
        repository=folder.parent,
        folder=folder,
        config=config,
        versions=tuple(map(VersionSource, numbers, chosen, files or chosen)),
        environment=environment,
        may_complete=partial,
        notes=versions.notes,
        snapshot=_with_backend(seen, backend),
    )


def _with_backend(seen: Snapshot, backend: BackendInfo | None) -> Snapshot:
    """A backend in --backend-directory is a part of its models: when it changes, they do."""
    if backend is None or not backend.module:
        return seen
    return Snapshot((*backend_entries(Path(backend.module)), *seen.entries), seen.passing)


def backend_entries(module: Path) -> tuple[FileEntry, ...]:
    """The files of a backend in --backend-directory, by absolute path.  module: its backend.py or model.py."""
    folder = module.parent
    try:
        entries = snapshot(folder).entries
    except ConfigError:  # it is gone, or has more than can be looked at: its own file tells
        entries = (entry_of(module, module.name),)
    return tuple(each._replace(path=f"{folder}/{each.path}") for each in entries)


def read_draft(folder: Path, looking: ScanOptions) -> ConfigDraft:
    """The model's configuration; an empty draft when it has none and none is needed."""
    draft = _read_draft(folder, looking)
    if folder in looking.files and not draft.report.malformed:
        _name_file(draft, looking.files[folder])
    return draft


def _name_file(draft: ConfigDraft, file: ServedModelFile) -> None:
    """Of a model that is a file, the configuration need not say which file, and may say no other one."""
    message = draft.message
    message.backend = message.backend or file.backend
    if message.runtime:
        return
    if message.default_model_filename not in ("", file.name, file.file):
        draft.report.wrong(
            f"default_model_filename is '{message.default_model_filename}', and the file that is served is "
            f"'{file.name}'",
            ("default_model_filename",), hint="remove it",
        )  # fmt: skip
    message.default_model_filename = file.file


def _read_draft(folder: Path, looking: ScanOptions) -> ConfigDraft:
    if looking.config is not None:
        return parse_json_form(looking.config, "")
    path = config_file(folder, looking.config_name)
    try:
        data = layout.read_file(path, limits.MODEL_CONFIG_BYTES_MAX)
    except FileNotFoundError as error:
        if looking.auto_complete:
            return ConfigDraft.empty(str(path))
        raise ConfigError(f"failed to open text file for read {path}: No such file or directory",
                          hint=_folder_above(folder) or "write it, or leave out --disable-auto-complete-config",
                          ) from error  # fmt: skip
    except OSError as error:
        raise ConfigError(f"failed to open text file for read {path}: {error.strerror}") from error
    return _decoded(data, str(path))


def config_file(folder: Path, config_name: str = "") -> Path:
    """Where a model's configuration is: configs/NAME.pbtxt, if a name is given and there is such a file."""
    chosen = folder / CONFIGS / f"{config_name}.pbtxt"
    return chosen if config_name and layout.exists(chosen) else folder / CONFIG


def _decoded(data: bytes, file: str) -> ConfigDraft:
    if len(data) > limits.CONFIG_BYTES_MAX:
        raise ConfigError(f"the file has {len(data)} bytes, more than {limits.CONFIG_BYTES_MAX}", file=file)
    try:
        return parse(data.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = SourcePosition(before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        raise ConfigError(f"the file is not UTF-8: byte 0x{data[error.start]:02x}", file=file, line=place.line,
                          column=place.column, hint="save it as UTF-8") from error  # fmt: skip


def _chosen(draft: ConfigDraft, versions: layout.Versions, folder: Path) -> tuple[int, ...]:
    policy = policies.read(draft.message)
    numbers = policy.choose(versions.folders)
    if not numbers and not draft.report.malformed:
        present = ", ".join(map(str, sorted(versions.folders))) or "none"
        draft.report.wrong(
            f"at least one version must be available under the version policy of model '{folder.name}'",
            ("version_policy",),
            hint=saved_model_hint(folder)
            or _folder_above(folder)
            or "; ".join((f"policy {policy}, versions present: {present}", *versions.notes[:NOTES_MAX])),
        )  # fmt: skip
    return numbers


def _folder_above(folder: Path) -> str:
    """The hint where a model was given as a repository, and `folder`, a version, taken for a model; else ""."""
    if layout.versions_of(folder).folders:
        return ""
    repository = folder.parent
    beside = layout.versions_of(repository)
    if layout.is_file(repository / CONFIG):
        sign = f"a {CONFIG}"
    elif beside.folders and not beside.notes:
        sign = "only folders that are numbers"
    else:
        return ""
    return f"{repository} has {sign}: it looks like a model; name the folder above it"


def environment_of(draft: ConfigDraft, folder: Path, backends: Backends = BUILT_IN) -> Environment | None:
    """The environment that the draft's parameters name; what is wrong with it goes to the report.

    One that lies beside a Python-based backend is written into the draft of a model that names none.
    """
    packed = backends.environment_of(draft.message.backend)
    if packed and PARAMETER not in draft.message.parameters:
        draft.message.parameters[PARAMETER].string_value = packed
    parameters = {name: value.string_value for name, value in draft.message.parameters.items()}
    try:
        return read_environment(parameters, folder)
    except ConfigError as error:
        draft.report.wrong(error.message, ("parameters", error.key or PARAMETER, "string_value"), hint=error.hint)
        return None


def _check_labels(draft: ConfigDraft, folder: Path) -> None:
    for index, output in enumerate(draft.message.output):
        name, key = output.label_filename, ("output", index, "label_filename")
        hint = "label files lie in the model folder"
        if not layout.stays_inside(name):
            draft.report.wrong(f"label_filename '{name}' leaves the folder of {folder.name}", key, hint=hint)
        elif name and not layout.is_file(folder / name):
            draft.report.wrong(f"failed to open text file for read {folder / name}: No such file or directory", key,
                               hint=hint)  # fmt: skip
