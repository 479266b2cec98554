"""The process that prepares one environment for a server.  Layer 3 (environments).

Unpacking keeps a core and the interpreter's lock busy for a minute: in the server's process the requests would feel it.
Its orders are the first line of its input, which ends when the result is not wanted any more; then it ends at once,
with all that it started.  What it has to say are lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tisfast.environments.build import BuildContext, build
from tisfast.environments.cache import EnvironmentCache
from tisfast.environments.environment import Environment
from tisfast.errors import TisError
from tisfast.types import Status

NICENESS = 10
"""The requests of models that are served come first."""


def order(context: BuildContext, environment: Environment) -> bytes:
    """The line that makes a process prepare `environment`."""
    text = {
        "folder": str(context.cache.folder), "pyenv_root": context.pyenv_root, "index": context.index,
        "kind": environment.kind, "path": str(environment.path), "python": environment.python,
    }  # fmt: skip
    return json.dumps(text).encode() + b"\n"


def main() -> int:
    """Prepare what the order says; the exit code is 0 when that was told, well or ill."""
    os.setpgid(0, 0)  # what it starts is ended with it, and nobody else is
    os.nice(NICENESS)
    wanted = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_when_unwanted, daemon=True).start()
    context = BuildContext(
        EnvironmentCache(Path(wanted["folder"])), wanted["pyenv_root"], tuple(map(tuple, wanted["index"]))
    )
    environment = Environment(wanted["kind"], Path(wanted["path"]), python=wanted["python"])
    try:
        entry = build(context, environment, lambda text: _say(t="told", text=text))
        _say(t="ready", key=entry.key, size_bytes=entry.size_bytes, files=entry.files, seconds=entry.seconds)
    except TisError as error:
        _say(t="failed", status=int(error.status), text=str(error))
    except OSError as error:
        _say(t="failed", status=int(Status.INTERNAL), text=f"{environment} cannot be prepared: {error}")
    return 0


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _end_when_unwanted() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os.killpg(os.getpid(), signal.SIGKILL)
