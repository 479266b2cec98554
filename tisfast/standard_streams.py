"""What commands say to whoever reads their standard output and standard error.  Layer 0."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(text: str, *, end: str = "\n", error: bool = False) -> None:
    """Print a text.  error: to standard error.

    What cannot be written changes nothing of what a command does, and not its exit code: where nobody reads any more,
    a terminal that has gone or a pipe, this text and all later ones go nowhere.  Characters that the terminal's
    encoding lacks are shown as escapes.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:  # it was closed before the start, as by >&-
        return
    try:
        print(_encodable(text, stream), end=end, file=stream, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # what Python still holds of it is written at the end
        os.close(nowhere)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
