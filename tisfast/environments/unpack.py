"""Unpack an archive, and have conda-unpack set its paths right.  Layer 3 (environments)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.environments.activation import library_path
from tisfast.environments.archive_reader import opened
from tisfast.environments.build_errors import EnvironmentFailed, size_text
from tisfast.environments.environment import PYTHONS
from tisfast.environments.extraction import Tree
from tisfast.environments.run_program import ProgramFailed, run

_UNPACK: Final = Path("bin", "conda-unpack")


def unpack(archive: Path, home: Path, tell: Callable[[str], None]) -> tuple[int, int]:
    """Bytes and number of what was written to the empty folder `home`.  Raises EnvironmentFailed, NoRoom."""
    whole = max(1, archive.stat().st_size)
    said = time.monotonic()
    with opened(archive) as (items, position):

        def step() -> None:
            nonlocal said
            if time.monotonic() - said < limits.ENVIRONMENT_PROGRESS_SECONDS:
                return
            said = time.monotonic()
            tell(f"unpacking {archive}: {100 * position() // whole} %, {tree.files} files, "
                 f"{size_text(tree.size_bytes)}")  # fmt: skip

        tree = Tree(home, str(archive), step)
        for item in items:
            tree.add(item)
    tree.finish()
    _settle(archive, home, tell)
    return tree.size_bytes, tree.files


def _settle(archive: Path, home: Path, tell: Callable[[str], None]) -> None:
    """Packed environments carry the names of the folders they were made in, until this script has run."""
    python = next((path for name in PYTHONS if (path := home / "bin" / name).is_file()), None)
    if python is None or not (home / _UNPACK).is_file():
        return
    try:
        run([str(python), "-I", str(home / _UNPACK)], home, tell, library_path(home, os.environ))
    except ProgramFailed as error:
        said = f"; it printed:\n{error.said}" if error.said else ""
        raise EnvironmentFailed(f"{_UNPACK} of {archive} failed: it {error.why}{said}") from error
