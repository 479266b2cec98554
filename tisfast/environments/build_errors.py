"""Errors of preparing an environment.  Layer 3 (environments)."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tisfast.errors import Internal, Unavailable

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class EnvironmentFailed(Internal):
    """An environment could not be prepared.  `hint` is what to do, "" when the message says it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)


class NoRoom(Unavailable):
    """The cache's disk is full: the same may succeed when there is room again."""


def is_full(printed: str) -> bool:
    """Whether a program ended for want of room, by what it printed."""
    return any(os.strerror(code) in printed for code in FULL)


@contextlib.contextmanager
def no_room(where: Path) -> Iterator[None]:
    """Say of a full disk which one it is, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = f", {size_text(free_bytes)} are free" if (free_bytes := _free_bytes(where)) is not None else ""
        raise NoRoom(
            f"no space is left for environments in {where}{free}; make room (tisfast env prune), or name a folder with "
            f"more: --environment-cache-dir"
        ) from error


def size_text(size: int) -> str:
    """A number of bytes for people: 1.4 GB."""
    figure, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB"):  # noqa: B007 - the last one is the answer
        if figure < 1000 or unit == "GB":
            break
        figure /= 1000
    return f"{figure:.0f} {unit}" if unit in ("B", "kB") or figure >= 100 else f"{figure:.1f} {unit}"


def _free_bytes(where: Path) -> int | None:
    for folder in (where, *where.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return None
