"""Steps that frameworks take, each in a process of its own: one that crashes or hangs ends that step alone.

This is the parent's side; `step_process` is the other one.  Layer 5 (convert).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.errors import BadRequest, Internal
from tisfast.local_server import ROOT

PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.convert.step_process import main; sys.exit(main(sys.argv[1:]))"
)
REQUEST: Final = "request.json"
RESULT: Final = "result.json"
LOG: Final = "log.txt"
REFUSED: Final = 3
"""The exit status where the user's input is wrong."""
QUIET: Final = {"ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""For frameworks, where the user's environment says nothing else."""


class StepFailed(Internal):
    """A framework could not do it.  The message is its reason, one sentence."""


def run_step(name: str, request: Mapping[str, Any], folder: Path, seconds_max: float) -> dict[str, Any]:
    """One step.  folder: empty, for its files.

    Raises StepFailed with the framework's reason, BadRequest for what is wrong with the user's input.
    """
    folder.mkdir(parents=True)
    (folder / REQUEST).write_text(json.dumps(request))
    command = [sys.executable, "-c", PROGRAM, str(ROOT), name, str(folder), str(os.getpid())]
    # Without the terminal's Ctrl-C, which is for this program.
    with (folder / LOG).open("wb") as log, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        env={**QUIET, **os.environ},
    ) as process:  # fmt: skip
        try:
            status = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise StepFailed(f"it took longer than {seconds_max:g} s; --step-seconds gives it more") from None
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if status == 0:
        found: dict[str, Any] = json.loads((folder / RESULT).read_text())
        return found
    if status == REFUSED:
        raise BadRequest(json.loads((folder / RESULT).read_text())["error"])
    raise StepFailed(_reason(status, folder))


def _reason(status: int, folder: Path) -> str:
    with suppress(OSError, ValueError, KeyError):
        return shortened(str(json.loads((folder / RESULT).read_text())["error"]))
    said = shortened(log_end(folder / LOG).strip()[-limits.CONVERT_REASON_CHARACTERS_MAX :])
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        return f"the framework crashed ({name})" + (f": {said}" if said else "")
    return said or f"the framework ended its process with exit status {status}"


def log_end(path: Path) -> str:
    """The last of a log."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(path.stat().st_size - limits.CONVERT_LOG_BYTES_READ, 0))
        return file.read().decode("utf-8", "replace")
    return ""


def shortened(text: str) -> str:
    """On one line; of a long text its beginning."""
    line = " ".join(text.split())
    most = limits.CONVERT_REASON_CHARACTERS_MAX
    return line if len(line) <= most else f"{line[:most]}..."
