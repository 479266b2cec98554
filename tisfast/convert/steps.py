"""Steps that frameworks take, each in a process of its own: one that crashes or hangs ends that step alone.

This is the parent's side; `step_process` is the other one.  Layer 5 (convert).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.convert.sessions import end_session, has_ended
from tisfast.errors import BadRequest, Internal
from tisfast.local_server import ROOT

PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.convert.step_process import main; sys.exit(main(sys.argv[1:]))"
)
REQUEST: Final = "request.json"
RESULT: Final = "result.json"
LOG: Final = "log.txt"
TEMPORARY: Final = "tmp"
"""The step's own TMPDIR."""
FOUND: Final = "found"
ERROR: Final = "error"
"""Keys of the result: one of them is there."""
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
    temporary = folder / TEMPORARY
    temporary.mkdir(parents=True)
    (folder / REQUEST).write_text(json.dumps(request))
    command = [sys.executable, "-c", PROGRAM, str(ROOT), name, str(folder), str(os.getpid())]
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER"), str(temporary))
    with (folder / LOG).open("wb") as log:
        # In a session of its own: the terminal's Ctrl-C is for this program, and what the step starts is found by it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**QUIET, **os.environ, **places},
        )  # fmt: skip
    try:
        in_time = has_ended(process.pid, seconds_max)
    finally:
        end_session(process.pid)
        process.wait()
        full = _full(folder)  # before room is made
        shutil.rmtree(temporary, ignore_errors=True)
    if not in_time:
        raise StepFailed(f"it took longer than {seconds_max:g} s; --step-seconds gives it more")
    told = _result(folder / RESULT)
    found = told.get(FOUND)
    if process.returncode == 0 and isinstance(found, dict):
        return found
    if process.returncode == REFUSED and isinstance(told.get(ERROR), str):
        raise BadRequest(told[ERROR])
    raise StepFailed(full or _reason(process.returncode, told, folder))


def _full(folder: Path) -> str:
    """That there is no room for what a step writes, one sentence; "" where there is.  Frameworks say nothing of it."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= limits.CONVERT_ROOM_BYTES_MIN:
        return ""
    return (
        f"the temporary folder {tempfile.gettempdir()} is full ({free} bytes are free): formats are made there, and "
        "one needs room for some copies of the model; set TMPDIR to a folder that has it"
    )


def _result(path: Path) -> dict[str, Any]:
    """Empty where there is none, or something else: frameworks may end their process at any time."""
    with suppress(OSError, ValueError):
        told = json.loads(path.read_text())
        return told if isinstance(told, dict) else {}
    return {}


def _reason(status: int, told: Mapping[str, Any], folder: Path) -> str:
    if told.get(ERROR):
        return shortened(str(told[ERROR]))
    said = shortened(log_end(folder / LOG).strip()[-limits.CONVERT_REASON_CHARACTERS_MAX :])
    if status < 0:
        name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
        return f"the framework crashed ({name})" + (f": {said}" if said else "")
    if status in (0, REFUSED):
        ended = f"the framework ended its process (exit status {status}) before there was a result"
        return f"{ended}; the last that it said: {said}" if said else ended
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
