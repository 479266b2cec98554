"""The content of a folder as a value that stays equal while nothing in it changes.  Layer 3 (repo).

Looks at names, sizes and times; opens no file.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo.layout import BYTECODE

PASSING: Final = frozenset({"4913", ".DS_Store"})
"""Names of files that come and go while others are written; 4913 is how vim tries whether it may write."""
PASSING_ENDS: Final = (
    "~", "___jb_tmp___", "___jb_old___",  # Emacs, vi and many others; JetBrains
    ".tmp", ".part", ".partial", ".filepart", ".crdownload",  # copying and downloading programs
)  # fmt: skip
PASSING_HIDDEN: Final = re.compile(r"\.#|\._|\.goutputstream-|\.nfs|\.fuse_hidden|\..*\.(sw.|\w{6})$")
"""Locks of Emacs, macOS's second halves, GNOME, files removed while they are open, vim's swap files, rsync's copies."""
ENVIRONMENT_MARKS: Final = frozenset({"pyvenv.cfg", "conda-meta"})
PACKAGES: Final = ("conda-meta/*.json", "lib/python*/site-packages/*.dist-info")


class FileEntry(NamedTuple):
    """A file, or a folder where the path ends in "/".

    size: in bytes, -1 of a link to nothing.  Of a folder all figures are 0, as what it holds has entries of its own; of
    an environment's folder they are the number of its packages and when the last one was installed.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Snapshot:
    """The files below a folder at one moment; equal to another when nothing that counts differs.

    entries: by path, relative to the folder.  passing: temporary files of programs that write there, which are no part
    of the model, but tell that somebody is at work.
    """

    entries: tuple[FileEntry, ...]
    passing: tuple[FileEntry, ...] = field(default=(), compare=False)

    def rests_since(self, earlier: Snapshot) -> bool:
        """Whether nothing at all has moved since."""
        return self == earlier and self.passing == earlier.passing

    def newest(self, suffix: str) -> float:
        """When the file of such a name that was changed last was, in seconds since 1970; 0 when there is none."""
        return max((each.mtime_ns for each in self.entries if each.path.endswith(suffix)), default=0) / 1e9

    def differences(self, earlier: Snapshot) -> tuple[str, ...]:
        """The difference from an earlier one, in words: "config.pbtxt changed", "2/model.py is new"."""
        before = {entry.path: entry for entry in earlier.entries}
        after = {entry.path: entry for entry in self.entries}
        words = {path: "is new" for path in after.keys() - before.keys()}
        words.update((path, "is gone") for path in before.keys() - after.keys())
        words.update((path, "changed") for path in before.keys() & after.keys() if before[path] != after[path])
        return tuple(f"{path} {words[path]}" for path in sorted(words) if not _told_by_its_folder(path, words))


def _told_by_its_folder(path: str, words: dict[str, str]) -> bool:
    """Whether a folder above is as new, or as gone."""
    parts = path.rstrip("/").split("/")
    return any(words.get("/".join(parts[:end]) + "/") == words[path] for end in range(1, len(parts)))


def in_words(differences: tuple[str, ...]) -> str:
    """For one line of the log: the first of them, and how many more there are."""
    most = limits.SNAPSHOT_DIFFERENCES_SAID
    more = f", and {len(differences) - most} more" if len(differences) > most else ""
    return ", ".join(differences[:most]) + more


def snapshot(folder: Path, entries_max: int = limits.SNAPSHOT_ENTRIES_MAX) -> Snapshot:
    """The files below `folder` now.  Links are followed, each folder that links lead to once.

    Left out are bytecode and hidden folders, which change by themselves.  Raises ConfigError when the folder cannot be
    read, or holds more than can be looked at again and again.
    """
    walk = _Walk(str(folder), entries_max)
    walk.all()
    return Snapshot(tuple(sorted(walk.entries)), tuple(sorted(walk.passing)))


def entry_of(file: Path, path: str = "") -> FileEntry:
    """One file, there or not.  path: that the entry has, "" for the file's own."""
    try:
        about = file.stat()
    except OSError:
        return FileEntry(path or str(file), -1, 0, 0)
    return FileEntry(path or str(file), about.st_size, about.st_mtime_ns, about.st_ino)


class _Walk:
    """One walk through a folder.  `_left`: folders to look into, with their paths below the root and their depths."""

    def __init__(self, root: str, entries_max: int) -> None:
        self._root = root
        self._entries_max = entries_max
        self._left = [(root, "", 0)]
        self._linked: set[tuple[int, int]] = set()
        self.entries: list[FileEntry] = []
        self.passing: list[FileEntry] = []

    def all(self) -> None:
        """Fill `entries` and `passing`."""
        self._linked.add(self._identity())
        while self._left:
            place, prefix, depth = self._left.pop()
            items = self._items(place, prefix)
            if prefix and any(item.name in ENVIRONMENT_MARKS for item in items):
                self.entries.append(_environment(place, prefix))
                continue
            if prefix:
                self.entries.append(FileEntry(prefix, 0, 0, 0))
            for item in items:
                self._take(item, prefix + item.name, depth)

    def _identity(self) -> tuple[int, int]:
        try:
            stat = os.stat(self._root)
        except OSError as error:
            raise self._unreadable(error) from error
        return stat.st_dev, stat.st_ino

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"model folder cannot be read: {error.strerror}", file=self._root)

    def _items(self, place: str, prefix: str) -> list[os.DirEntry[str]]:
        """Sorted, so that of two links to one folder it is always the same that is followed."""
        room = self._entries_max - len(self.entries) - len(self.passing)
        try:
            with os.scandir(place) as found:
                items = [item for _, item in zip(range(room + 1), found, strict=False)]
        except OSError as error:
            if prefix:  # gone again, or not to be read: the next look, or loading, tells
                return []
            raise self._unreadable(error) from error
        if len(items) > room:
            raise ConfigError(
                f"model folder has more than {self._entries_max} files and folders (counted up to "
                f"'{prefix or '.'}'), which all are looked at to know whether the model has changed",
                file=self._root, hint="move what is no part of the model elsewhere",
            )  # fmt: skip
        return sorted(items, key=lambda item: item.name)

    def _take(self, item: os.DirEntry[str], path: str, depth: int) -> None:
        try:
            if item.is_dir():
                self._folder(item, path + "/", depth + 1)
                return
            stat = item.stat()
            entry = FileEntry(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        except OSError:  # a link to nothing, or gone since its folder was read
            entry = FileEntry(path, -1, 0, 0)
        (self.passing if _passes(item.name) else self.entries).append(entry)

    def _folder(self, item: os.DirEntry[str], path: str, depth: int) -> None:
        if item.name == BYTECODE or item.name.startswith("."):
            return
        if depth > limits.SNAPSHOT_DEPTH_MAX:
            raise ConfigError(f"'{path}' lies deeper in the model folder than {limits.SNAPSHOT_DEPTH_MAX} folders",
                              file=self._root, hint="does a link lead back?")  # fmt: skip
        if item.is_symlink() and not self._first_time(item):
            self.entries.append(FileEntry(path, 0, 0, 0))
            return
        self._left.append((item.path, path, depth))

    def _first_time(self, item: os.DirEntry[str]) -> bool:
        stat = item.stat()
        identity = (stat.st_dev, stat.st_ino)
        if identity in self._linked:
            return False
        self._linked.add(identity)
        return True


def _passes(name: str) -> bool:
    if name[0] == ".":
        return PASSING_HIDDEN.match(name) is not None or name in PASSING
    return name.endswith(PASSING_ENDS) or name in PASSING or (name[0] == "#" and name[-1] == "#")


def _environment(place: str, prefix: str) -> FileEntry:
    """A Python environment, of tens of thousands of files, by what tells that packages came or went."""
    times = []
    for pattern in PACKAGES:
        for path in glob.iglob(f"{glob.escape(place)}/{pattern}"):
            with contextlib.suppress(OSError):  # gone since
                times.append(os.stat(path).st_mtime_ns)
    return FileEntry(prefix, len(times), max(times, default=0), 0)
