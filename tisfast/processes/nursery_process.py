"""Start the nursery process of one Python environment.  Layer 4 (processes).

Imports nothing heavy: `tisfast serve` spawns the server's own nursery before it imports anything else, so that the
nursery's import of numpy runs beside the server's start.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tisfast.end_signals import blocked_signals
from tisfast.environments.run_program import foreign_environ
from tisfast.errors import NotFound

PACKAGE = Path(__file__).resolve().parent.parent


class NurseryProcess(NamedTuple):
    """A spawned nursery.  Its owner closes `socket` (which ends it) and `stderr` (read end), and reaps `process`."""

    interpreter: str
    process: subprocess.Popen[bytes]
    socket: socket.socket
    stderr: int


def worker_main() -> Path:
    """Where the worker runtime lies: inside the installed package, or beside it in a source tree."""
    for folder in (PACKAGE / "_workers", PACKAGE.parent / "workers"):
        if (folder / "__main__.py").is_file():
            return folder / "__main__.py"
    raise NotFound(f"the worker runtime is missing: no _workers/__main__.py in {PACKAGE}; reinstall tisfast")


def spawn_nursery(interpreter: str, variables: Mapping[str, str] | None = None, imports: str = "") -> NurseryProcess:
    """Start `interpreter` as a nursery: isolated, in its own process group, with no descriptor of ours but its socket.

    variables: what activating the interpreter's environment sets; None for the server's own interpreter, which inherits
    what the server has; imports: a module that it imports for its workers.  Raises OSError when the interpreter cannot
    be executed.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stderr_read, stderr_write = os.pipe()
    ours.setblocking(False)
    os.set_blocking(stderr_read, False)
    command = [interpreter, "-I", str(worker_main()), "nursery", str(theirs.fileno()), str(os.getpid())]
    if imports:
        command.append(imports)
    # From its first instant, so that no Ctrl-C finds it in ours; older Pythons leave it to the nursery itself.
    own_group: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {}
    try:
        with blocked_signals():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr_write,
                stderr=stderr_write,
                close_fds=True,
                pass_fds=(theirs.fileno(),),
                env=None if variables is None else foreign_environ(os.environ, variables),
                **own_group,
            )
    except OSError:
        ours.close()
        os.close(stderr_read)
        raise
    finally:
        theirs.close()
        os.close(stderr_write)
    return NurseryProcess(interpreter, process, ours, stderr_read)
