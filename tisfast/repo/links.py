"""A repository of links to files that are served as they lie (config/served_files.py).  Layer 3 (repo).

It is a folder of the server's own, so that all that serves repositories serves them: NAME/1/FILE is a link to the file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config.backends import PYTHON, Backends
from tisfast.config.model_config import LoadedConfig
from tisfast.config.served_files import CONFIG_ENDING, ServedFile
from tisfast.errors import ConfigError
from tisfast.repo import layout
from tisfast.repo.scan import CONFIG, ServedModelFile
from tisfast.repo.scan_result import ModelSource

VERSION: Final = "1"
SEPARATORS: Final = (".", "_", "-")
MODULES: Final = "*.py"
PACKAGE: Final = "__init__.py"


class LinkedFiles:
    """The repository and what its links lead to, for messages: they name the files that a user knows."""

    def __init__(self, repository: Path, served: Sequence[ServedFile], backends: Backends) -> None:
        """Makes nothing; see link_files."""
        self.repository = repository
        self._served = served
        self._backends = backends
        self._names: list[tuple[str, str]] = []

    def make(self) -> None:
        """Make the repository.  Raises ConfigError for what cannot be read, OSError."""
        self.repository.mkdir(mode=0o700)
        for file in self._served:
            self._link(file)
        # The longest first: the name of a folder begins those of what it holds.
        self._names.sort(key=lambda pair: len(pair[0]), reverse=True)

    @property
    def models(self) -> Mapping[Path, ServedModelFile]:
        """What the folder of each model stands for."""
        return {
            self.repository / file.name: ServedModelFile(
                file.backend, file.path.name if file.backend == PYTHON else file.file, file.path.name
            )
            for file in self._served
        }

    def named(self, text: str) -> str:
        """The text, with files in place of the links to them."""
        if str(self.repository) not in text:
            return text
        for link, file in self._names:
            text = text.replace(link, file)
        return text

    def check_tensors(self, model: ModelSource, config: LoadedConfig) -> None:
        """Raise ConfigError for a file's model without any tensors, which nobody could ask.

        Of a repository they are loaded, as Triton loads them.
        """
        if model.repository != self.repository or config.inputs or config.outputs:
            return
        raise ConfigError(
            f"{self.named(str(model.versions[-1].file))} does not say which inputs and outputs model '{config.name}' "
            "has, so nobody could ask it",
            hint=f"add auto_complete_config to its class ('tisfast docs models' has one), or write {CONFIG} beside it",
        )

    def _link(self, file: ServedFile) -> None:
        folder = self.repository / file.name
        version = folder / VERSION
        folder.mkdir()
        self._names.append((str(folder), str(file.path)))
        if file.config:
            self._to(folder / CONFIG, Path(file.config))
        else:  # which an error may miss
            self._names.append((str(folder / CONFIG), str(file.path.with_name(_stem(file) + CONFIG_ENDING))))
        if file.backend == PYTHON:
            # The folder: code may import and open any file in it, today or after the next save.
            self._to(version, file.path.parent)
        else:
            version.mkdir()
            self._names.append((str(version), str(file.path.parent)))
            for name, path in _version_files(file, self._backends):
                self._to(version / name, path)
        for name, path in _beside_versions(file, self._backends):
            if not os.path.lexists(folder / name):
                self._to(folder / name, path)

    def _to(self, link: Path, path: Path) -> None:
        link.symlink_to(path)
        self._names.append((str(link), str(path)))


def link_files(files: Iterable[ServedFile], repository: Path, backends: Backends) -> LinkedFiles:
    """Make the repository, a folder that is not there yet.  Raises ConfigError for what cannot be read."""
    linked = LinkedFiles(repository.resolve(), tuple(files), backends)
    try:
        linked.make()
    except OSError as error:
        why = f"a link to a file that is to be served cannot be made in {repository}: {error.strerror}"
        raise ConfigError(why, hint="is there room, and is the name short enough?") from error
    return linked


def _version_files(file: ServedFile, backends: Backends) -> Iterator[tuple[str, Path]]:
    """What lies in the version's folder: the file under its backend's name for it, and what belongs to it."""
    yield file.file, file.path
    taken = {file.file, file.path.name}
    beside = (((each.name,), each) for each in companions(file, backends))
    for names, path in (*_of_its_name(file, backends), *beside):
        for name in names:
            if name not in taken:
                taken.add(name)
                yield name, path


def _of_its_name(file: ServedFile, backends: Backends) -> Iterator[tuple[Sequence[str], Path]]:
    """Files that begin with its name: resnet.bin, resnet_labels.txt; each under all names that are looked for."""
    stem = _stem(file)
    models = _endings(backends)
    for path in _beside(file.path):
        rest = path.name[len(stem) :]
        mine = path.name.startswith(stem) and rest.startswith(SEPARATORS)
        if not mine or path.suffix in models or path.suffix == Path(CONFIG).suffix:
            continue
        # Some look for it under the file's name (OpenVINO's .bin), of others the file has the name (ONNX's data), and
        # a configuration may say labels.txt of resnet_labels.txt.
        names = [path.name, Path(file.file).stem + rest]
        yield [*names, rest[1:]] if rest[1:] and not rest[1:].startswith(".") else names, path


def _stem(file: ServedFile) -> str:
    """The file's name without its ending."""
    return file.path.name.removesuffix(Path(file.file).suffix)


def companions(file: ServedFile, backends: Backends) -> Iterator[Path]:
    """What the backend may look for beside a file, whatever the file is called: a sample, modules and packages."""
    backend = backends.named(file.backend)
    patterns = () if backend is None else backend.companions
    if not patterns or file.path.is_dir():
        return
    for path in _beside(file.path, folders=MODULES in patterns):
        wanted = path.name + (Path(MODULES).suffix if path.is_dir() else "")
        if any(fnmatch(wanted, pattern) for pattern in patterns):
            yield path


def _beside_versions(file: ServedFile, backends: Backends) -> Iterator[tuple[str, Path]]:
    """What lies beside the version folders: labels, warm-up data.  Of a file in a repository all that does there."""
    if file.model_folder is not None:
        versions = layout.versions_of(file.model_folder).folders.values()
        for path in _entries(file.model_folder, folders=True):
            if path not in versions and path.name != CONFIG and not path.name.startswith("."):
                yield path.name, path
        return
    for names, path in _of_its_name(file, backends):
        for name in names:
            yield name, path


def _beside(path: Path, *, folders: bool = False) -> Sequence[Path]:
    """Other files of its folder, and packages where folders are wanted, in order.  None of a model that is a folder.

    Raises ConfigError for a folder of too many.
    """
    if path.is_dir():
        return ()
    others = (each for each in _entries(path.parent, folders=folders) if each.name != path.name)
    return [each for each in others if not each.is_dir() or (each / PACKAGE).is_file()]


def _entries(folder: Path, *, folders: bool) -> Sequence[Path]:
    most = limits.SNAPSHOT_ENTRIES_MAX
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in itertools.islice(entries, most + 1) if folders or _is_file(each)]
    except OSError as error:
        why = f"{folder}, where files may lie that belong to the model, cannot be read: {error.strerror}"
        raise ConfigError(why) from error
    if len(names) > most:
        raise ConfigError(f"{folder} has more than {most} files", hint="give the model a folder of its own")
    return [folder / name for name in sorted(names)]


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is one; a link that leads nowhere, and what cannot be looked at, belongs to no model."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _endings(backends: Backends) -> set[str]:
    """Endings of model files: another file with one of them is another model."""
    return {Path(file).suffix for each in backends.all for file in each.files}
