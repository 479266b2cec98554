"""Fill in what a model's files tell: name, backend, model file.  Layer 3 (repo)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tisfast.config import error_texts, schema
from tisfast.config.backends import BUILT_IN, PYTHON_BASED_FILE, BackendInfo, Backends
from tisfast.config.model_config import ConfigDraft
from tisfast.config.served_files import is_saved_model
from tisfast.repo.layout import exists, is_file, stays_inside

SAVED_MODEL: Final = "model.savedmodel"


def fill_from_files(draft: ConfigDraft, folder: Path, version: Path | None, backends: Backends = BUILT_IN) -> None:
    """Fill in what the draft leaves open, in place; report a backend that cannot be told."""
    message, report = draft.message, draft.report
    if report.malformed:
        return
    message.name = message.name or folder.name
    if schema.is_ensemble(message):
        return
    if not message.backend:
        backend = _backend(draft, version, backends)
        message.backend = "" if backend is None else backend.name
    backend = backends.named(message.backend)
    if backend is not None and backend.python_based:
        message.runtime = message.runtime or PYTHON_BASED_FILE  # as Triton writes it
    if backend is None or not backend.served or not backend.files or message.runtime in backend.runtimes:
        return
    file = message.default_model_filename or _file_of(backend, message, version)
    if backend.writes_platform and not message.platform:
        message.platform = _platform_of(backend, file)
    message.default_model_filename = file


def _file_of(backend: BackendInfo, message: schema.Message, version: Path | None) -> str:
    """The file that a parameter or the platform stands for, else the one that is there, else the usual one."""
    files, platform, key = backend.files, message.platform, backend.file_parameter
    if key and key in message.parameters and message.parameters[key].string_value in backend.file_of:
        return backend.file_of[message.parameters[key].string_value]
    if platform in backend.platforms and len(backend.platforms) == len(files):
        return files[backend.platforms.index(platform)]
    return next((name for name in files if version and exists(version / name)), files[0])


def _platform_of(backend: BackendInfo, file: str) -> str:
    """The one that belongs to the kind of file."""
    suffixes = [Path(name).suffix for name in backend.files]
    suffix = Path(file).suffix
    at = suffixes.index(suffix) if suffix in suffixes and len(backend.platforms) == len(suffixes) else 0
    return backend.platforms[at]


def _backend(draft: ConfigDraft, version: Path | None, backends: Backends) -> BackendInfo | None:
    message, report = draft.message, draft.report
    if message.platform:
        return backends.of_platform(message.platform)  # an unknown platform is reported by config.unsupported
    named = backends.of_file(message.default_model_filename)
    present = next((backends.of_file(name) for name in backends.files if version and exists(version / name)), None)
    if named is None and present is None and version is not None:
        hint = f'write backend: "python", or put model.py into {version}'
        report.wrong(error_texts.no_backend(message.name), ("backend",), hint=saved_model_hint(version) or hint)
    return named or present


def saved_model_hint(folder: Path) -> str:
    """The hint where a folder is a SavedModel and not one that holds it, as TensorFlow Serving wants it; else ""."""
    if not is_saved_model(folder):
        return ""
    return (
        f"{folder} is a SavedModel, as TensorFlow Serving has them: serve it as it lies by "
        f"`tisfast serve {folder.parent.name}={folder}`, or move what it holds into "
        f"{folder.parent.name}/1/{SAVED_MODEL} of a repository"
    )


def model_files(draft: ConfigDraft, versions: Sequence[Path]) -> list[Path]:
    """The model file of each version folder, whether it exists or not; none for a name that leaves the folder.

    An ensemble has none, and a model whose configuration names none: its backend knows what to look for.
    """
    name = draft.message.default_model_filename
    if schema.is_ensemble(draft.message):
        return []
    return [version / name for version in versions] if name and stays_inside(name) else []


def check_model_files(draft: ConfigDraft, versions: Sequence[Path], backends: Backends = BUILT_IN) -> None:
    """Report a model file name that leaves its folder, and every version that lacks its model file."""
    backend = backends.named(draft.message.backend)
    is_there = exists if backend is not None and backend.folders else is_file
    message, report = draft.message, draft.report
    name, key = message.default_model_filename, ("default_model_filename",)
    if not stays_inside(name):
        report.wrong(f"default_model_filename '{name}' leaves the version folder of {message.name}", key,
                     hint="name a file in the version folder")  # fmt: skip
    for file in model_files(draft, versions):
        if not is_there(file):
            what, hint = _missing(file)
            report.wrong(f"model file '{name}' of {message.name} {what}", key, hint=hint)


def _missing(file: Path) -> tuple[str, str]:
    """What is wrong with a model file that is not there, and what to do."""
    if file.is_symlink() and not exists(file):
        return f"is a link to {os.readlink(file)}, which is not there", "put it back, or remove the model"
    if exists(file):
        return f"in {file.parent} is no regular file", "put the model's file in its place"
    others = sorted(path.name for path in file.parent.glob(f"*{file.suffix}") if path.is_file())
    hint = f'default_model_filename: "{others[0]}" would take that one' if others else f"put {file.name} there"
    return f"not found in {file.parent}", saved_model_hint(file.parent) or hint
