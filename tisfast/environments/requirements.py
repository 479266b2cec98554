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

from tisfast import limits
from tisfast.errors import ConfigError

_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_INCLUDE: Final = re.compile(r"(?:-r|--requirement|-c|--constraint)\s*=?\s*(?P<path>\S+)")
_EDITABLE: Final = re.compile(r"(?:-e|--editable)\b")
_LOCAL: Final = re.compile(r"(?:[^@\s]+\s*@\s*)?(?P<path>file:\S+|\.{0,2}/\S+)")
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
    texts: dict[Path, bytes] = {}
    waiting = [(path, path)]
    while waiting:
        file, asked_by = waiting.pop(0)
        if file in texts:
            continue
        if len(texts) == limits.REQUIREMENTS_FILES_MAX:
            raise ConfigError(f"more than {limits.REQUIREMENTS_FILES_MAX} files are included", file=str(path))
        texts[file] = _read(file, asked_by)
        if file.suffix == ".txt":
            waiting += [(other, file) for other in _others(file, texts[file].decode("utf-8", "replace"))]
    digest = hashlib.sha256()
    for file, text in texts.items():
        digest.update(b"%s\0%d\0" % (file.name.encode(), len(text)))
        digest.update(text)
    return Requirements(tuple(texts), digest.hexdigest(), b"--hash=" in texts[path])


def _read(file: Path, asked_by: Path) -> bytes:
    try:
        if file.is_dir():
            raise ConfigError(f"'{file}' is a folder, whose content the cache of environments cannot tell",
                              file=str(asked_by), hint="build a wheel of it and name that")  # fmt: skip
        size = file.stat().st_size
        if size > limits.REQUIREMENTS_BYTES_MAX:
            raise ConfigError(f"'{file}' has {size} bytes, more than {limits.REQUIREMENTS_BYTES_MAX}",
                              file=str(asked_by))  # fmt: skip
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read '{file}': {error.strerror}", file=str(asked_by)) from error


def _others(file: Path, text: str) -> Iterator[Path]:
    """Files that a requirement file names: included ones, and packages that lie in the file system."""
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
            yield _beside(file, include["path"])
        elif local:
            yield _beside(file, re.sub("^file:(//)?", "", local["path"]))


def _beside(file: Path, name: str) -> Path:
    return Path(file.parent, name)
