"""Run a program for an environment, and keep the end of what it prints.  Layer 3 (environments)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tisfast import limits
from tisfast.environments.build_errors import is_full

FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONEXECUTABLE", "PYTHONUSERBASE", "PYTHONPLATLIBDIR",
           "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")  # fmt: skip
"""Variables of the server's own Python, which mislead another one: it would import the server's packages."""


def foreign_environ(environ: Mapping[str, str], variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The part of `environ` that a process of another Python inherits, with `variables` added."""
    kept = {name: value for name, value in environ.items() if name not in FOREIGN}
    return {**kept, "PYTHONNOUSERSITE": "1", **(variables or {})}


class ProgramFailed(Exception):
    """A program ended badly.  said: the last lines that it printed."""

    def __init__(self, command: Sequence[str], why: str, said: str) -> None:
        super().__init__(f"{Path(command[0]).name} {why}")
        self.why, self.said = why, said


def run(command: Sequence[str], cwd: Path, heard: Callable[[str], None], variables: Mapping[str, str]) -> str:
    """Run it to its end; the last lines that it printed.  heard: called with one of them now and then.

    Raises ProgramFailed, and OSError when it had no room.

    The caller's own process is what limits its time: it is killed with its whole group when its result is not wanted
    any more.
    """
    tail: deque[str] = deque(maxlen=limits.ENVIRONMENT_OUTPUT_LINES)
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=foreign_environ(os.environ, variables), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="backslashreplace",
        )  # fmt: skip
    except OSError as error:
        raise ProgramFailed(command, f"cannot be started: {error.strerror}", "") from error
    assert process.stdout is not None
    said_at = time.monotonic()
    with process:
        for line in process.stdout:
            text = line.rstrip()[: limits.ENVIRONMENT_OUTPUT_CHARS_MAX]
            tail.append(text)
            if time.monotonic() - said_at > limits.ENVIRONMENT_PROGRESS_SECONDS:
                said_at = time.monotonic()
                heard(text)
    said = "\n".join(tail)
    if process.returncode and is_full(said):
        raise OSError(errno.ENOSPC, f"{Path(command[0]).name}: {os.strerror(errno.ENOSPC)}")
    if process.returncode:
        raise ProgramFailed(command, _ending(process.returncode), said)
    return said


def _ending(code: int) -> str:
    if code > 0:
        return f"ended with code {code}"
    return f"was killed by signal {-code} ({signal.Signals(-code).name})"
