"""A model's file as a model folder, without trying anything: as Model Navigator's add_model.  Layer 5 (convert)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tisfast.bench.files import write_text
from tisfast.config.backends import BUILT_IN
from tisfast.config.served_files import ServedFile, read_files
from tisfast.convert.onnx_weights import files_beside
from tisfast.convert.options import check_name
from tisfast.convert.output import why
from tisfast.errors import BadRequest, ConfigError, Unavailable
from tisfast.repo.layout import stays_inside
from tisfast.repo.links import companions
from tisfast.repo.written_folder import config_text, written_folder

CONFIG: Final = "config.pbtxt"
GRAPH_WEIGHTS: Final = ".bin"
"""Beside an .xml of OpenVINO, by the same name."""


def write_model(
    repository: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    name: str = "",
    version: int = 1,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model's file or folder into a repository, as NAME/VERSION/ and NAME/config.pbtxt; gives NAME's folder.

    What the file needs goes along: weights that a graph of ONNX names, the .bin of OpenVINO's .xml, modules beside an
    estimator of scikit-learn, the sample.npz of TorchScript, and labels that the configuration names.

    name: else the file's; config: fields of the configuration, as JSON has them; its backend is told by the file, and
    the server completes what it lacks.  Other versions of the model stay, its configuration and this version are
    replaced.  Raises BadRequest for what cannot be, Unavailable where it cannot be written.
    """
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise BadRequest(f"version is {version!r}, and versions are whole numbers from 1")
    if name:
        check_name(name, "name", "repository")
    file = _model_file(Path(path), name)
    try:
        text = config_text(file.name, {"backend": file.backend, **(config or {})})
    except ConfigError as error:
        raise BadRequest(f"config of '{file.name}': {error}") from None
    model = Path(repository) / file.name
    try:
        model.mkdir(parents=True, exist_ok=True)
        with written_folder(model / str(version)) as made:
            for inside, source in (("", file.path), *_needed(file)):
                _copy(source, made / (inside or file.file))
        for label in _labels(config or {}):
            if (source := file.path.parent / label).is_file():
                _copy(source, model / label)
        write_text(model / CONFIG, text)
    except OSError as error:
        raise Unavailable(
            f"version {version} of model '{file.name}' could not be written from {path} into {repository} "
            f"({why(error)}{f': {error.filename}' if error.filename else ''})"
        ) from None
    return model


def _model_file(path: Path, name: str) -> ServedFile:
    """Raises BadRequest for what no backend serves."""
    if not path.exists():
        raise BadRequest(f"{path}: there is no such file or folder")
    try:
        found = read_files([f"{name}={path}" if name else str(path)], BUILT_IN).files
    except ConfigError as error:
        raise BadRequest(error.message) from None
    if not found:
        raise BadRequest(f"{path} is a folder without a model of its own: name a file")
    return found[0]


def _needed(file: ServedFile) -> Iterator[tuple[str, Path]]:
    """What its backend reads beside it: path in the version's folder, and file or package."""
    if file.path.is_dir():
        return
    for each in companions(file, BUILT_IN):
        yield each.name, each
    if file.backend == "onnxruntime":
        for inside in files_beside(file.path):
            yield inside, file.path.parent / inside
    weights = file.path.with_suffix(GRAPH_WEIGHTS)
    if file.backend == "openvino" and weights.is_file():
        yield Path(file.file).with_suffix(GRAPH_WEIGHTS).name, weights


def _labels(config: Mapping[str, Any]) -> Iterator[str]:
    """Files that its outputs name, which lie in the model's folder."""
    for each in config.get("output", ()):
        label = each.get("label_filename", "")
        if label and stays_inside(label):
            yield label


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
