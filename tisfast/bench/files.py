"""Files that reports are written to: whole or not at all.  Layer 5 (bench)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from tisfast.errors import Unavailable


def write_text(path: str | os.PathLike[str], text: Iterable[str]) -> None:
    """Write a file beside its name and move it there: what was there before stays until all is written.

    text: in pieces, or a str.  Raises Unavailable, with the file, the reason and what to do.
    """
    target = Path(path)
    # /dev/stdout or a pipe is written to where it is: there is nothing to move.
    is_file = target.is_file() or not target.exists()
    beside = target.with_name(f".{target.name}.{os.getpid()}") if is_file else target
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
        if beside != target:
            beside.replace(target)
    except OSError as error:
        if beside != target:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
        raise Unavailable(
            f"{target} could not be written ({error.strerror or error}): name a file in a folder that exists, may be "
            "written to and has room for it"
        ) from None
