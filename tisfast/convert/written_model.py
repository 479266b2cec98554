"""A model's file as a model folder, without trying anything: as Model Navigator's add_model.  Layer 5 (convert)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tisfast.bench.files import write_text
from tisfast.config.backends import BUILT_IN
from tisfast.config.served_files import read_files
from tisfast.errors import BadRequest, ConfigError, Unavailable
from tisfast.repo.links import version_files
from tisfast.repo.written_folder import config_text, written_folder

CONFIG = "config.pbtxt"


def write_model(
    repository: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    name: str = "",
    version: int = 1,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a model's file or folder into a repository, as NAME/VERSION/ and NAME/config.pbtxt; gives NAME's folder.

    What lies beside the file and begins with its name goes along, as with `tisfast serve FILE`: weights, labels.

    name: else the file's; config: fields of the configuration, as JSON has them; its backend is told by the file, and
    the server completes what it lacks.  Other versions of the model stay, its configuration and this version are
    replaced.  Raises BadRequest for what cannot be, Unavailable where it cannot be written.
    """
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise BadRequest(f"version is {version!r}, and versions are whole numbers from 1")
    given = f"{name}={os.fspath(path)}" if name else os.fspath(path)
    try:
        found = read_files([given], BUILT_IN).files
        if not found:
            raise BadRequest(f"{os.fspath(path)} is a folder without a model of its own: name a file")
        text = config_text(found[0].name, {"backend": found[0].backend, **(config or {})})
    except ConfigError as error:
        raise BadRequest(str(error)) from None
    model = Path(repository) / found[0].name
    try:
        model.mkdir(parents=True, exist_ok=True)
        with written_folder(model / str(version)) as made:
            for file, source in version_files(found[0], BUILT_IN):
                if source.is_dir():
                    shutil.copytree(source, made / file)
                else:
                    shutil.copyfile(source, made / file)
        write_text(model / CONFIG, text)
    except OSError as error:
        raise Unavailable(f"{model} could not be written ({error.strerror or error})") from None
    return model
