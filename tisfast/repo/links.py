"""A repository of links to files that are served as they lie (config/served_files.py).  Layer 3 (repo).

It is a folder of the server's own, so that all that serves repositories serves them: NAME/1/FILE is a link to the file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config.backends import PYTHON, Backends
from tisfast.config.served_files import ServedFile
from tisfast.errors import ConfigError
from tisfast.repo.scan import CONFIG

VERSION: Final = "1"
SEPARATORS: Final = (".", "_", "-")


def link_files(files: Iterable[ServedFile], repository: Path, backends: Backends) -> None:
    """Make the repository, a folder that is not there yet.  Raises ConfigError for what cannot be read."""
    repository.mkdir(mode=0o700)
    for file in files:
        folder = repository / file.name
        folder.mkdir()
        if file.config:
            (folder / CONFIG).symlink_to(file.config)
        if file.backend == PYTHON:
            _link_folder(file, folder)
        else:
            (folder / VERSION).mkdir()
            for name, path in _links(file, backends):
                (folder / VERSION / name).symlink_to(path)


def _link_folder(file: ServedFile, folder: Path) -> None:
    """Link the folder of a model's code, which may import and open any file in it, today or after the next save."""
    (folder / VERSION).symlink_to(file.path.parent)
    if file.path.name != file.file and not file.config:
        text = f'backend: "{PYTHON}"\ndefault_model_filename: "{file.path.name}"\n'
        (folder / CONFIG).write_text(text, encoding="utf-8")


def _links(file: ServedFile, backends: Backends) -> Iterator[tuple[str, Path]]:
    """The file under its backend's name for it, and what belongs to it: files that begin with its name."""
    yield file.file, file.path
    stem = file.path.name.removesuffix(Path(file.file).suffix)
    taken = {file.file, file.path.name}
    for path in _beside(file.path):
        mine = path.name.startswith(stem) and path.name[len(stem) :].startswith(SEPARATORS)
        if not mine or path.name in taken or path.suffix in _endings(backends) or path.suffix == Path(CONFIG).suffix:
            continue
        rest = path.name[len(stem) :]
        # Some look for it under the file's name (OpenVINO's .bin), of others the file has the name (ONNX's data).
        for name in dict.fromkeys((path.name, Path(file.file).stem + rest)):
            if name not in taken:
                taken.add(name)
                yield name, path


def _beside(path: Path) -> Sequence[Path]:
    """Other files of its folder, in order.  Raises ConfigError for a folder of too many."""
    if path.is_dir():
        return ()
    most = limits.SNAPSHOT_ENTRIES_MAX
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, most + 1) if entry.is_file()]
    except OSError as error:
        why = f"{path.parent}, where files may lie that belong to {path.name}, cannot be read: {error.strerror}"
        raise ConfigError(why) from error
    if len(names) > most:
        raise ConfigError(f"{path.parent} has more than {most} files", hint="give the model a folder of its own")
    return [path.with_name(name) for name in sorted(names) if name != path.name]


def _endings(backends: Backends) -> set[str]:
    """Endings of model files: another file with one of them is another model."""
    return {Path(file).suffix for each in backends.all for file in each.files}
