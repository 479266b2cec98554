"""Requirement files, with the files that they include: what is installed, and what changes it.  Layer 3 (environments).

Only as much is parsed as tells which files matter; what a requirement means is uv's and pip's affair.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tisfast import limits
from tisfast.errors import ConfigError

_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_INCLUDE: Final = re.compile(r"(?:-r|--requirement|-c|--constraint)\s*=?\s*(?P<path>\S+)")
_EDITABLE: Final = re.compile(r"(?:-e|--editable)\b")
_LOCAL: Final = re.compile(
    r"(?:[^@\s]+\s*@\s*)?(?P<path>file:[^\s;]+|\.{0,2}/[^\s;#[]+|[^\s@:;#[]+\.(?:whl|zip|tgz|tar\.\w+)(?=[\s;#[]|$))"
)
_PART_BYTES: Final = 1 << 20
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


@dataclass(frozen=True)
class Requirements:
    """A requirement file.  files: all that say what is installed, the first one first; hashed: each one has a hash."""

    files: tuple[Path, ...]
    digest: str
    hashed: bool

    @property
    def locked(self) -> bool:
        """A pylock.toml (PEP 751)."""
        return self.files[0].suffix == ".toml"


def read_requirements(path: Path) -> Requirements:
    """The file at `path` and what it includes.  Raises ConfigError for what cannot be read, or cannot be cached."""
    texts = _texts_and_packages(path)
    digest = hashlib.sha256()
    for file, text in texts.items():
        size = file.stat().st_size if text is None else len(text)
        digest.update(b"%s\0%d\0" % (file.name.encode(), size))
        for part in _parts(file) if text is None else (text,):
            digest.update(part)
    return Requirements(tuple(texts), digest.hexdigest(), b"--hash=" in (texts[path] or b""))


def files_of(path: Path) -> tuple[Path, ...]:
    """The requirement file at `path`, and all that it includes; packages are not read.  Raises ConfigError."""
    return tuple(_texts_and_packages(path))


def _texts_and_packages(path: Path) -> dict[Path, bytes | None]:
    """The texts of requirement files, and None for packages."""
    found: dict[Path, bytes | None] = {}
    waiting = [(path, path, True)]
    while waiting:
        file, asked_by, is_text = waiting.pop(0)
        if file in found:
            continue
        if len(found) == limits.REQUIREMENTS_FILES_MAX:
            raise ConfigError(f"more than {limits.REQUIREMENTS_FILES_MAX} files are included", file=str(path))
        text = found[file] = _read(file, asked_by, is_text)
        if text is not None and file.suffix != ".toml":
            waiting += [(other, file, included) for other, included in _others(file, text.decode("utf-8", "replace"))]
    return found


def _read(file: Path, asked_by: Path, is_text: bool) -> bytes | None:
    """None for a package, which may be large, and can be read."""
    try:
        if file.is_dir():
            raise ConfigError(f"'{file}' is a folder, whose content the cache of environments cannot tell",
                              file=str(asked_by), hint="build a wheel of it and name that")  # fmt: skip
        size = file.stat().st_size
        most = limits.REQUIREMENTS_TEXT_BYTES_MAX if is_text else limits.REQUIREMENTS_PACKAGE_BYTES_MAX
        if size > most:
            raise ConfigError(f"'{file}' has {size} bytes, more than {most}", file=str(asked_by))
        if is_text:
            return file.read_bytes()
        with open(file, "rb"):
            return None
    except OSError as error:
        raise ConfigError(f"cannot read '{file}': {error.strerror}", file=str(asked_by)) from error


def _parts(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as opened:
        while part := opened.read(_PART_BYTES):
            yield part


def _others(file: Path, text: str) -> Iterator[tuple[Path, bool]]:
    """Files that a requirement file names: included ones (True), and packages that lie in the file system."""
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), 1):
        line = _COMMENT.sub("", line).strip()  # noqa: PLW2901
        if _EDITABLE.match(line):
            raise ConfigError(f"'{line}' is editable, and so may change, which the cache of environments cannot tell",
                              file=str(file), line=number, hint="build a wheel of it and name that")  # fmt: skip
        include, local = _INCLUDE.match(line), _LOCAL.match(line)
        if include:
            if _URL.match(include["path"]):
                raise ConfigError(f"'{line}' includes what lies elsewhere and may change", file=str(file), line=number,
                                  hint="download it and name the file")  # fmt: skip
            yield Path(file.parent, include["path"]), True
        elif local:
            yield Path(file.parent, _path(local["path"])), False


def _path(text: str) -> str:
    """The path of a package, which may be written as a URL."""
    return unquote(urlsplit(text).path) if text.startswith("file:") else text
