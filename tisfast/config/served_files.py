"""Files that are served as they lie, without a repository: `tisfast serve model.onnx`.  Layer 2 (config).

Which backend a file is for is told by its name and its ending, as the table of backends has them.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tisfast.config.backends import PYTHON, BackendInfo, Backends
from tisfast.errors import ConfigError, writable

SAVED_MODEL: Final = ("saved_model.pb", "saved_model.pbtxt")
SAVED_MODEL_ENDING: Final = ".savedmodel"
CONFIG: Final = "config.pbtxt"
CONFIG_ENDING: Final = ".pbtxt"
UNCERTAIN: Final = frozenset({".json", ".txt", ".xml"})
"""Endings of model files that other files have more often."""
LOOKED_AT_MAX: Final = 1000
"""Entries of a folder that are looked at for a hint."""
NAME_BYTES_MAX: Final = 255
"""Of a file name, on all of Linux's file systems."""
NAME_SHOWN_MAX: Final = 80
"""Characters of a name that is too long which an error shows."""


class ServedFile(NamedTuple):
    """One model.  path: absolute; file: what its backend calls such a file in a version folder; config: of a
    configuration beside it, "" for none; model_folder: of a file that lies in a repository, else None."""

    name: str
    path: Path
    backend: str
    file: str
    config: str = ""
    model_folder: Path | None = None


class Arguments(NamedTuple):
    """The arguments of `tisfast serve` beside its flags."""

    files: tuple[ServedFile, ...] = ()
    repositories: tuple[str, ...] = ()


def read_files(texts: Sequence[str], backends: Backends) -> Arguments:
    """FILE or NAME=FILE for each model; a folder that is no model's is a repository.  Raises ConfigError."""
    files, repositories = [], []
    for text in texts:
        name, path = _split(text)
        if name and text == f"{name}=":
            raise ConfigError(f"{text!r} names no file", hint="write NAME=FILE")
        if not _exists(path):
            raise ConfigError(
                f"unexpected argument {text!r}: there is no such file or folder",
                hint="every setting is a flag, --model-repository FOLDER for instance",
            )  # fmt: skip
        ending = _folder_ending(path, backends) if path.is_dir() else path.suffix
        if path.is_dir() and not ending and not name:
            repositories.append(text)
        else:
            files.append(_served(name, path, ending, backends))
    twice = [name for name, count in Counter(each.name for each in files).items() if count > 1]
    if twice:
        paths = [str(each.path) for each in files if each.name == twice[0]]
        raise ConfigError(f"{' and '.join(paths)} would be one model, '{twice[0]}'", hint="name them: NAME=FILE")
    return Arguments(tuple(files), tuple(repositories))


def is_there(text: str) -> bool:
    """Whether the argument FILE or NAME=FILE names a file or a folder that is there.  Raises ConfigError."""
    return _exists(_split(text)[1])


def loose_file(folder: Path, backends: Backends) -> str:
    """The first model file that lies in a folder itself, for a hint where that is no repository; "" where none does."""
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in itertools.islice(entries, LOOKED_AT_MAX) if each.is_file()]
    except OSError:
        return ""
    endings = {Path(file).suffix for each in backends.all if each.served for file in each.files} - UNCERTAIN
    return next((str(folder / name) for name in sorted(names) if Path(name).suffix in endings), "")


def is_saved_model(folder: Path) -> bool:
    """Whether a folder is what TensorFlow writes for a model."""
    return any((folder / name).exists() for name in SAVED_MODEL)


def _exists(path: Path) -> bool:
    """Raises ConfigError for what cannot be looked at: too long a name, a folder without rights."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        shown = f"{str(path)[:NAME_SHOWN_MAX]}..." if len(str(path)) > NAME_SHOWN_MAX else str(path)
        raise ConfigError(f"{shown} cannot be looked at: {error.strerror}", hint="name a file or a folder") from error
    return True


def _split(text: str) -> tuple[str, Path]:
    """Name, "" where none is given, and absolute path."""
    name, equals, rest = text.partition("=")
    if not equals or os.sep in name or os.path.exists(text):
        name, rest = "", text
    return name, Path(os.path.abspath(rest))


def _folder_ending(folder: Path, backends: Backends) -> str:
    """The ending of a model file that is this folder, "" of any other folder."""
    if is_saved_model(folder):
        return SAVED_MODEL_ENDING
    inside = [file for each in backends.all if each.folders for file in each.files if (folder / file).is_file()]
    if inside:
        return Path(inside[0]).suffix
    return folder.suffix if any(each.folders for each, _ in _of_ending(folder.suffix, backends)) else ""


def _of_ending(ending: str, backends: Backends) -> list[tuple[BackendInfo, str]]:
    """Backends of such files, and what they call them; those that are served come first."""
    found = [(each, file) for each in backends.all for file in each.files if ending and Path(file).suffix == ending]
    return sorted(found, key=lambda pair: not pair[0].served)


def _served(name: str, path: Path, ending: str, backends: Backends) -> ServedFile:
    """Raises ConfigError for a file that no backend here takes."""
    known = backends.of_file(path.name)
    found = [(known, path.name)] if known is not None and path.is_file() else _of_ending(ending, backends)
    if not found:
        raise ConfigError(f"{path} is no model that can be served: its name ends in none of {_endings(backends)}")
    backend, file = found[0]
    if not backend.served:
        raise ConfigError(f"{path} is a model of backend '{backend.name}', which is not served yet",
                          hint=f"names of models that are end in {_endings(backends)}")  # fmt: skip
    lies_in = _model_folder(path)
    name = name or (lies_in.name if lies_in is not None else path.name.removesuffix(ending))
    _check_name(name, path)
    return ServedFile(name, path, backend.name, file, next(_configs(path, lies_in, ending, backend.name), ""), lies_in)


def _check_name(name: str, path: Path) -> None:
    """A model's name is that of a folder.  Raises ConfigError."""
    hint = f"name it: NAME={path}"
    if not name or name.startswith(".") or "\\" in name:
        raise ConfigError(f"{path}: '{name}' is no name of a model", hint=hint)
    if writable(name) != name:
        raise ConfigError(f"{path}: '{name}' is no name of a model, as it is not UTF-8", hint=hint)
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise ConfigError(
            f"the model's name '{name[:NAME_SHOWN_MAX]}...' has {len(os.fsencode(name))} bytes, more than "
            f"{NAME_BYTES_MAX}",
            hint="give it a shorter one",
        )


def _endings(backends: Backends) -> str:
    return ", ".join(dict.fromkeys(Path(file).suffix for each in backends.all if each.served for file in each.files))


def _model_folder(path: Path) -> Path | None:
    """The model's, of a file in a repository: MODEL/VERSION/FILE."""
    folder = path.parent.parent
    is_version = path.parent.name.isdecimal() and path.parent.name != "0"
    return folder if is_version and folder.name and (folder / CONFIG).is_file() else None


def _configs(path: Path, lies_in: Path | None, ending: str, backend: str) -> Iterator[str]:
    """Configurations that are meant for it, the nearest first."""
    candidates = [path.with_name(path.name.removesuffix(ending) + CONFIG_ENDING)]
    if lies_in is not None:
        candidates.append(lies_in / CONFIG)
    if backend == PYTHON:
        candidates.append(path.with_name(CONFIG))
    yield from _present(candidates)


def _present(paths: Iterable[Path]) -> Iterator[str]:
    return (str(path) for path in paths if path.is_file())
