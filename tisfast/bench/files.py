"""Files that reports are written to: whole or not at all.  Layer 5 (bench)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tisfast.errors import Unavailable

STDOUT: Final = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
REMEDY: Final = "name a file in a folder that exists, may be written to and has room for it"
ODD: Final = "backslashreplace"
"""Names of files may be no UTF-8."""
OPEN: Final = ("/dev/std", "/dev/fd/", "/proc/")
"""Where names of what is open already are: whatever it is, also a file, it is written to where it is."""


def is_stdout(path: str) -> bool:
    """It names this process's standard output."""
    return path in STDOUT


def is_stream(path: str) -> bool:
    """It is written to where it is, one text behind the other: there is nothing to move there."""
    target = Path(path)
    return path.startswith(OPEN) or (target.exists() and not target.is_file())


def write_text(path: str | os.PathLike[str], text: Iterable[str], remedy: str = REMEDY) -> None:
    """Write a file beside its name and move it there: what was there before stays until all is written.

    text: in pieces, or a str; remedy: what to do where it cannot be written.  Raises Unavailable, with the file, the
    reason and that.
    """
    pieces = [text] if isinstance(text, str) else text
    try:
        if is_stdout(str(path)) and sys.stdout is not None:
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        elif is_stream(str(path)):
            with Path(path).open("a", encoding="utf-8", errors=ODD) as stream:
                stream.writelines(pieces)
        else:
            _write_file(Path(os.path.realpath(path)), pieces)  # a link goes on to be one
    except OSError as error:
        raise Unavailable(f"{path} could not be written ({error.strerror or error}): {remedy}") from None


def _write_file(target: Path, pieces: Iterable[str]) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", errors=ODD) as file:
            file.writelines(pieces)
        beside.replace(target)
    except BaseException:  # also Ctrl-C
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
