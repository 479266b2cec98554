"""The files of an output directory: whose they are, and how they are written.  Layer 5 (analyze)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from tisfast.analyze.checkpoint import NAME, REMEDY, SCHEMA
from tisfast.analyze.page import TITLE
from tisfast.analyze.table import CSV_HEADS
from tisfast.bench.documents import FILE_BYTES_MAX
from tisfast.bench.files import write_text
from tisfast.errors import BadRequest, TisError, Unavailable

REPORT: Final = "report.html"
TABLE: Final = "results.csv"
RANK: Final = "# rank "
"""How the configurations begin that are written."""
HEAD_CHARACTERS: Final = 1 << 16
"""Of a file, that tell whose it is: a page has its style before its title's end."""
CONFIGS: Final = ("best/*/config.pbtxt", "best/*/*/config.pbtxt")
"""Of one model, and of several."""


def make(folder: Path) -> None:
    """Raises Unavailable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"the output directory {folder} cannot be made ({error.strerror}): {REMEDY}") from None


def check_ours(folder: Path) -> None:
    """Raises BadRequest where a file that would be replaced is none that this command has written."""
    schema = SCHEMA.rpartition(" ")[0]
    tests: list[tuple[Path, Callable[[Path], bool]]] = [
        (folder / REPORT, lambda file: f"<title>{TITLE}" in _head(file)),
        (folder / TABLE, lambda file: _head(file).startswith(",".join(CSV_HEADS[:3]))),
        (folder / NAME, lambda file: _schema(file).startswith(schema)),
    ]
    found = (file for pattern in CONFIGS for file in sorted(folder.glob(pattern)))
    tests += [(file, _is_rank) for file in found if file.relative_to(folder).parts[1].isdecimal()]
    for file, is_ours in tests:
        if os.path.lexists(file) and not (file.is_file() and is_ours(file)):
            raise BadRequest(
                f"{file} is there already, and tisfast analyze has not written it, or it was changed: it is not "
                "replaced; move or remove it, or name another output directory with -o"
            )


def _head(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            return text.read(HEAD_CHARACTERS)
    except OSError:
        return ""


def _is_rank(file: Path) -> bool:
    return _head(file).startswith(RANK)


def _schema(file: Path) -> str:
    """Of a checkpoint; one that is cut is ours by its beginning, and is refused when it is read."""
    head = _head(file)
    if head.startswith(f'{{\n "schema": "{SCHEMA.rpartition(" ")[0]}'):
        return SCHEMA
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            return ""
        return str(json.loads(file.read_text(encoding="utf-8"))["schema"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def write(file: Path, text: str) -> None:
    """Raises Unavailable, with the file, the reason and what to do."""
    make(file.parent)
    write_text(file, text, REMEDY)


def same_reason(one: TisError, other: TisError) -> bool:
    """Of files that could not be written: it was the same disk's, so it is said once."""
    return one.message.rpartition("(")[2] == other.message.rpartition("(")[2]


def forget(folder: Path, written: Container[Path]) -> None:
    """Configurations of a run before that this one has not: they would stand beside it as if they were of it."""
    for file in [file for pattern in CONFIGS for file in folder.glob(pattern)]:
        place = file.relative_to(folder).parts[1]
        if not place.isdecimal() or file in written:
            continue
        try:
            if not _is_rank(file):
                continue  # somebody else's
            file.unlink()
            for parent in (file.parent, folder / "best" / place):
                if parent.exists() and not any(parent.iterdir()):
                    parent.rmdir()
        except OSError as error:
            raise Unavailable(
                f"{file} is of a run before, and could not be removed ({error.strerror}); remove it"
            ) from None
