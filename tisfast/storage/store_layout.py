"""Which files of a store make which models: paths to models.  No I/O.  Layer 3 (storage)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tisfast.errors import ConfigError

T = TypeVar("T")
CONFIG = "config.pbtxt"


def models_of(files: Mapping[str, T], *, model: str, last: str, wrapped: bool, shown: str) -> dict[str, dict[str, T]]:
    """Models by name, each with its files by path within the model.

    files: by path below the URL.  model: the name when the URL is said to be one model.  last: its name when it looks
    like one.  wrapped: whether all may lie in one folder more, as in archives.  Raises ConfigError when there is none.
    """
    if not files:
        raise ConfigError(f"repository path is not a valid directory: {shown} has no files", key="model-repository")
    if model or looks_like_model(files):
        return {model or last: dict(files)}
    grouped = _by_folder(files)
    if wrapped and len(grouped) == 1 and not any(looks_like_model(inner) for inner in grouped.values()):
        folder, inner = next(iter(grouped.items()))
        if looks_like_repository(inner):
            return models_of(inner, model="", last=folder, wrapped=False, shown=shown)
    if grouped:
        return grouped
    names = ", ".join(sorted(files)[:5])
    raise ConfigError(
        f"{shown} holds no model repository and no model: it has {names}{', ...' if len(files) > 5 else ''}",
        key="model-repository",
        hint="a repository has a folder for each model, a model has config.pbtxt and folders for its versions (1/, 2/)",
    )


def looks_like_model(files: Iterable[str]) -> bool:
    """Whether this is the folder of one model: it has a configuration, or a numbered folder with another file."""
    for path in files:
        folder, _, name = path.rpartition("/")
        if path == CONFIG or (folder.isdecimal() and name != CONFIG):
            return True
    return False


def looks_like_repository(files: Mapping[str, T]) -> bool:
    """Whether at least one folder of it looks like a model."""
    return any(looks_like_model(inner) for inner in _by_folder(files).values())


def _by_folder(files: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Grouped by first folder; hidden ones and files beside the folders are no models, as in a local repository."""
    found: dict[str, dict[str, T]] = {}
    for path, file in files.items():
        folder, slash, rest = path.partition("/")
        if slash and not folder.startswith("."):
            found.setdefault(folder, {})[rest] = file
    return found


def check_paths(paths: Iterable[str], shown: str) -> None:
    """Raises ConfigError for paths that cannot be files of one folder: they leave it, or one is a folder of another."""
    known = set(paths)
    for path in known:
        parts = path.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in path or "\\" in path:
            raise ConfigError(f"{shown}: '{path}' cannot be a file's path", hint="rename it in the store")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in known:
                raise ConfigError(
                    f"{shown}: '{'/'.join(parts[:end])}' is a file, and a folder of '{path}'",
                    hint="rename one of them in the store",
                )
