"""What files of the command line held, so that `compare` need not go by their names.  Layer 5 (bench)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tisfast.bench.asked import ModelShare

FILE_FLAGS: Final = ("mix", "replay", "request_intervals", "input_data", "data_directory")
"""By their names in the parsed command line."""
WORDS: Final = ("random", "zero")
"""Of --input-data, which are no files."""
PIECE_BYTES: Final = 1 << 20


def held(given: Any, mix: Sequence[ModelShare]) -> Mapping[str, str]:
    """By flag; of --mix with the data files that it names.  Of what cannot be read twice, as a pipe, only the name."""
    found = {}
    for flag in FILE_FLAGS:
        value = getattr(given, flag)
        if value:
            paths = [value] if isinstance(value, str) else value
            data = [path for share in mix for path in share.data.files] if flag == "mix" else []
            found[flag] = ", ".join(path if path in WORDS else _digest(Path(path)) for path in [*paths, *data])
    return found


def _digest(path: Path) -> str:
    """Of a file, or of the files of a folder with their names."""
    if not path.is_dir():
        return _digest_of_file(path)
    total = hashlib.sha256()
    for each in sorted(path.iterdir()):
        if each.is_file():
            total.update(f"{each.name}\0{_digest_of_file(each)}\0".encode("utf-8", "surrogateescape"))
    return _told(total)


def _digest_of_file(path: Path) -> str:
    total = hashlib.sha256()
    try:
        if not path.is_file():
            return str(path)
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                total.update(piece)
    except (OSError, ValueError):
        return str(path)  # who reads it for its requests says what is wrong
    return _told(total)


def _told(total: Any) -> str:
    return f"SHA-256 {total.hexdigest()[:16]}"
