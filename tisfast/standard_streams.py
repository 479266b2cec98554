"""What commands say to whoever reads their standard output and standard error.  Layer 0."""

from __future__ import annotations

import errno
import os
import select
import sys
from typing import Final, TextIO

NOBODY: Final = (errno.EPIPE, errno.EIO, errno.EBADF)
"""What writing says where nobody reads any more."""


def say(text: str, *, end: str = "\n", error: bool = False) -> None:
    """Print a text.  error: to standard error.

    What cannot be written changes nothing of what a command does, and not its exit code: where nobody reads any more,
    a terminal that has gone or a pipe, this text and all later ones go nowhere.  So they do where a file takes no more,
    as of a full disk, which standard error says once.  Characters that the terminal's encoding lacks are shown as
    escapes.
    """
    stream = sys.stderr if error else sys.stdout
    if stream is None:  # it was closed before the start, as by >&-
        return
    try:
        _write(text + end, stream)
    except OSError as failed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # what Python still holds of it is written at the end
        os.close(nowhere)
        if failed.errno not in NOBODY and not error:
            say(f"error: standard output takes no more ({failed.strerror}): what is told there is lost", error=True)


def _write(text: str, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    content = memoryview(text.encode(encoding, "backslashreplace"))
    stream.flush()
    try:
        descriptor = stream.fileno()
    except OSError:  # a program of the user's has put something else in its place
        stream.write(str(content, encoding))
        stream.flush()
        return
    while content:
        try:
            content = content[os.write(descriptor, content) :]
        except BlockingIOError:  # a slow reader of a pipe that does not wait by itself; Python's own streams lose some
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
