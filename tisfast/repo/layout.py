"""Names and versions of models, from folders alone.  Layer 3 (repo)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from tisfast import limits
from tisfast.errors import ConfigError, NotFound, writable
from tisfast.types import NAMESPACE_SIGN, identity_of, split_identity

NO_VERSIONS: Final = frozenset({"warmup", "initial_state", "configs"})
BYTECODE: Final = "__pycache__"
"""A folder that Python makes beside code."""
VERSION_MAX: Final = 2**63 - 1  # versions are int64 on the wire
NAME_BYTES_MAX: Final = 255  # what a folder's name may have
GIVEN_NAME: Final = f"it has 1 to {NAME_BYTES_MAX} bytes that can be printed, and no '/'"
NO_FILE: Final = "it is not a regular file"
_NOWHERE: Final = (errno.ELOOP, errno.ENAMETOOLONG)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


@dataclass(frozen=True)
class Versions:
    """The version folders of one model, by number, and notes about folders that look like versions and are none."""

    folders: dict[int, Path]
    notes: tuple[str, ...]


def model_folders(repositories: Iterable[Path], *, namespaces: bool = False) -> tuple[dict[str, list[Path]], list[str]]:
    """Model folders by name, one for each repository that has the name; and notes about what was left aside.

    namespaces: names are told apart by their repositories, which are their namespaces (types.identity_of).
    Raises ConfigError for a repository that is no folder.
    """
    found: dict[str, list[Path]] = {}
    notes: list[str] = []
    for repository in repositories:
        for entry in _entries(repository):
            if entry.name == BYTECODE or not is_folder(entry, notes):
                continue
            if entry.name.startswith("."):
                notes.append(f"{entry.path}: a hidden folder is no model")
            elif writable(entry.name) != entry.name:
                notes.append(writable(f"{entry.path}: a folder whose name is not UTF-8 is no model"))
            elif namespaces and NAMESPACE_SIGN in entry.name:
                text = f"with --model-namespacing no model's name may have '{NAMESPACE_SIGN}' in it"
                notes.append(f"{entry.path}: {text}")
            else:
                name = identity_of(str(repository), entry.name) if namespaces else entry.name
                found.setdefault(name, []).append(repository / entry.name)
    return found, notes


def folders_of(repositories: Iterable[Path], name: str, *, namespaces: bool = False) -> list[Path]:
    """The folders of one model, asked for by name.  Raises NotFound for a name that is none or names no model."""
    if namespaces:
        namespace, plain = split_identity(name)
        repositories, name = [each for each in repositories if str(each) == namespace], plain
    if not is_plain_name(name):
        raise NotFound(f"failed to load '{name}': a model is named by its folder's name, without '/' and '..'")
    found = [repository / name for repository in repositories if is_folder(repository / name)]
    if not found:
        raise NotFound(f"failed to load '{name}', failed to poll from model repository")
    return found


def is_folder(entry: Path | os.DirEntry[str], notes: list[str] | None = None) -> bool:
    """Whether it is a folder, or a link to one.  A link that leads in a circle is none; a note says so.

    What cannot be looked at for another reason (no right, a file system that is away) counts as one: who reads it fails
    for this folder alone, and says why, where a model that serves would otherwise be taken for removed.
    """
    try:
        return stat.S_ISDIR(_mode(entry)) if isinstance(entry, Path) else entry.is_dir()
    except OSError as error:
        if error.errno not in _NOWHERE:
            return True
        if notes is not None:
            notes.append(writable(f"{os.fspath(entry)}: what cannot be followed is no folder: {error.strerror}"))
        return False


def is_file(path: Path) -> bool:
    """Whether it is a regular file, or a link to one.  Raises OSError for what cannot be looked at.

    Path's own functions pass over such errors from CPython 3.14 on, and a file without rights would be no file.
    """
    return stat.S_ISREG(_mode(path))


def exists(path: Path) -> bool:
    """Whether there is anything.  Raises OSError as above."""
    return bool(_mode(path))


def read_file(path: Path, bytes_max: int) -> bytes:
    """All of a regular file, or of what a link to one leads to.

    Raises OSError, also for what is no regular file (a pipe would be waited for, a device read without end) and for one
    of more than bytes_max bytes.
    """
    with open_file(path) as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    return data


def open_file(path: Path) -> BinaryIO:
    """Open a regular file to be read.  Raises OSError."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")  # noqa: SIM115 - the caller's
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        code, why = (errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else (errno.EINVAL, NO_FILE)
        raise OSError(code, why, str(path))
    return file


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise


def is_plain_name(name: str) -> bool:
    """Whether a name stays in the folder it is looked up in."""
    return bool(name) and name not in (".", "..") and not any(sign in name for sign in ("/", "\\", "\0"))


def is_given_name(name: str) -> bool:
    """Whether a model that has no folder yet may have this name: it comes from a caller, and is logged and shown."""
    return is_plain_name(name) and name.isprintable() and len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX


def stays_inside(name: str) -> bool:
    """Whether a relative path, taken from a configuration, stays below the folder it is looked up in."""
    path = PurePosixPath(name)
    return "\0" not in name and not path.is_absolute() and ".." not in path.parts


def versions_of(folder: Path) -> Versions:
    """The version folders of a model.  Triton's rule: decimal, no leading zeros; "0" counts."""
    folders: dict[int, Path] = {}
    notes: list[str] = []
    for entry in _entries(folder):
        if entry.name in NO_VERSIONS or entry.name.startswith(".") or not is_folder(entry, notes):
            continue
        called = f"{folder.name}: ignore version directory '{entry.name}'"
        if not (entry.name.isascii() and entry.name.isdecimal()) or len(entry.name) > len(str(VERSION_MAX)):
            notes.append(f"{called} which fails to convert to integral number")
        elif len(entry.name) > 1 and entry.name[0] == "0":
            notes.append(f"{called} which contains leading zeros in its directory name")
        elif int(entry.name) > VERSION_MAX:
            notes.append(f"{called} which is above {VERSION_MAX}")
        else:
            folders[int(entry.name)] = folder / entry.name
    return Versions(folders, tuple(notes))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder by name.  Raises ConfigError when it cannot be read or holds absurdly many."""
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry for _, entry in zip(range(limits.REPOSITORY_ENTRIES_MAX + 1), entries, strict=False)),
                           key=lambda entry: entry.name)  # fmt: skip
    except OSError as error:
        raise ConfigError(f"repository path is not a valid directory: {error.strerror}", file=str(folder),
                          hint="name a folder that can be read") from error  # fmt: skip
    if len(found) > limits.REPOSITORY_ENTRIES_MAX:
        raise ConfigError(f"more than {limits.REPOSITORY_ENTRIES_MAX} entries", file=str(folder),
                          hint="is this the model repository?")  # fmt: skip
    return found
