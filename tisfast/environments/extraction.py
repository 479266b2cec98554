"""Write what an archive holds below one folder, and nothing anywhere else.  Layer 3 (environments).

Nothing is ever written through a link: an entry's folder must be one that was made here, so a link may lead wherever it
likes while files are written.  When all is there, links are followed for real, and one that leaves makes the whole
archive refused (only bin/python* may lead to an interpreter of this machine, as in a packed virtual environment).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from tisfast import limits
from tisfast.environments.build_errors import EnvironmentFailed, no_room, size_text

ItemKind = Literal["file", "folder", "link", "hard link", "other"]
MODE_KEPT: Final = 0o755
"""The permissions that are kept of an entry: no setuid, setgid or sticky bit, and only the owner may write."""
_PYTHON_LINK: Final = re.compile(r"bin/python[0-9.]*")
_COPY_BYTES: Final = 1 << 20


@dataclass
class Item:
    """One entry of an archive.  target: of a link, as written; of a hard link, the other entry's name.

    content: of a file, opens it.
    """

    name: str
    kind: ItemKind
    mode: int = 0o644
    mtime: float = 0.0
    target: str = ""
    content: Callable[[], IO[bytes]] | None = None
    about: str = ""


class Tree:
    """A folder in the making."""

    def __init__(self, root: Path, archive: str, step: Callable[[], None] = lambda: None) -> None:
        """root: an empty folder of ours.  archive: its name, for messages; step: called now and then."""
        self.files = 0
        self.size_bytes = 0
        self._root = os.fspath(root)
        self._archive = archive
        self._step = step
        self._folders = {""}
        self._files: set[str] = set()
        self._links: dict[str, str] = {}

    def add(self, item: Item) -> None:
        """Write one entry.  Raises EnvironmentFailed for what is refused, NoRoom for a full disk."""
        name = self._checked(item.name, "an entry")
        self.files += 1
        if self.files > limits.ENVIRONMENT_FILES_MAX:
            raise self._refused(f"holds more than {limits.ENVIRONMENT_FILES_MAX} entries")
        if not name:
            return
        with no_room(Path(self._root)):
            self._write(name, item)

    def finish(self) -> None:
        """All entries are there: follow the links."""
        root = os.path.realpath(self._root)
        for name, target in self._links.items():
            where = self._leads_to(os.path.join(root, name), name)
            if where != root and not where.startswith(root + os.sep) and not _PYTHON_LINK.fullmatch(name):
                raise self._refused(f"holds the link '{name}', which leads out of it, to '{target}'")

    def _leads_to(self, path: str, name: str) -> str:
        """The target of a link, which must not lead through more than the 40 others that the system follows."""
        try:
            os.stat(path)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refused(f"holds the link '{name}', which leads through too many others") from error
        return os.path.realpath(path)

    def _write(self, name: str, item: Item) -> None:
        if item.kind == "folder":
            self._make_folder(name)
            return
        parent, _, _ = name.rpartition("/")
        self._make_folder(parent)
        self._make_way(name)
        path = os.path.join(self._root, name)
        if item.kind == "file":
            self._write_file(path, item)
            self._files.add(name)
        elif item.kind == "link":
            if not item.target or "\0" in item.target:
                raise self._refused(f"holds the link '{name}' to '{item.target}'")
            os.symlink(item.target, path)
            self._links[name] = item.target
        elif item.kind == "hard link":
            self._join(name, path, item.target)
        else:
            raise self._refused(f"holds '{name}', which is neither file, folder nor link ({item.about})")

    def _make_folder(self, name: str) -> None:
        if name in self._folders:
            return
        parent, _, _ = name.rpartition("/")
        self._make_folder(parent)
        if name in self._links or name in self._files:
            raise self._refused(f"holds '{name}' as a link or file, and files in it")
        os.mkdir(os.path.join(self._root, name), 0o755)
        self._folders.add(name)

    def _make_way(self, name: str) -> None:
        """An entry that comes again replaces the earlier one, as in tar."""
        if name in self._folders:
            raise self._refused(f"holds '{name}' both as a folder and as something else")
        if name in self._files or name in self._links:
            os.unlink(os.path.join(self._root, name))
            self._files.discard(name)
            self._links.pop(name, None)

    def _write_file(self, path: str, item: Item) -> None:
        assert item.content is not None
        mode = (item.mode & MODE_KEPT) | 0o600
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with item.content() as source:
                while chunk := source.read(_COPY_BYTES):
                    self.size_bytes += len(chunk)
                    if self.size_bytes > limits.ENVIRONMENT_BYTES_MAX:
                        raise self._refused(f"holds more than {size_text(limits.ENVIRONMENT_BYTES_MAX)}")
                    _write_all(fd, chunk)
                    self._step()
            self._set_time(fd, item)
        finally:
            os.close(fd)

    def _set_time(self, fd: int, item: Item) -> None:
        """Compiled modules are valid for their source's time only."""
        try:
            os.utime(fd, (item.mtime, item.mtime))
        except (ValueError, OverflowError) as error:
            raise self._refused(f"holds '{item.name}' with a time that is none ({item.mtime})") from error

    def _join(self, name: str, path: str, target: str) -> None:
        other = self._checked(target, f"the hard link '{name}'")
        if other not in self._files:
            raise self._refused(f"holds the hard link '{name}' to '{target}', which is no earlier file of it")
        os.link(os.path.join(self._root, other), path, follow_symlinks=False)
        self._files.add(name)

    def _checked(self, name: str, what: str) -> str:
        """A name without "." and double slashes.  Refuses absolute names and those with ".."."""
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise self._refused(f"holds {what} named '{name}', which leaves the folder it is unpacked in")
        return "/".join(part for part in parts if part not in ("", "."))

    def _refused(self, why: str) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self._archive} {why}; it is refused", "pack the environment with conda-pack")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
