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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.convert.sessions import end_session
from tisfast.convert.step_output import StepOutput
from tisfast.errors import BadRequest, Internal, Unavailable
from tisfast.local_server import ROOT

PROGRAM: Final = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [root, *filter(None, sys.path)]; "
    "from tisfast.keeper import keep; keep(int(sys.argv.pop(1)), float(sys.argv.pop(1))); "
    "from tisfast.convert.step_process import main; sys.exit(main(sys.argv[1:]))"
)
REQUEST: Final = "request.json"
RESULT: Final = "result.json"
TEMPORARY: Final = "tmp"
"""The step's own TMPDIR."""
FOUND: Final = "found"
ERROR: Final = "error"
"""Keys of the result: one of them is there."""
REFUSED: Final = 3
"""The exit status where the user's input is wrong."""
KEEPER_SECONDS: Final = 1.0
"""That a keeper may take for itself, beside the time for what it ends."""
QUIET: Final = {"ORT_DISABLE_TELEMETRY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""For frameworks, where the user's environment says nothing else."""


class StepFailed(Internal):
    """A framework could not do it.  The message is its reason, one sentence."""


@contextmanager
def written_to_scratch() -> Iterator[None]:
    """Files go to the temporary folder.  Raises Unavailable where they cannot be written."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the temporary folder {tempfile.gettempdir()} could not be written to ({error.strerror or error}): the "
            "formats need room there; set TMPDIR to a folder that has it"
        ) from None


def run_step(name: str, request: Mapping[str, Any], folder: Path, seconds_max: float) -> dict[str, Any]:
    """One step.  folder: empty, for its files.

    Raises StepFailed with the framework's reason, BadRequest for what is wrong with the user's input, Unavailable where
    it cannot be begun.
    """
    temporary = folder / TEMPORARY
    with written_to_scratch():
        temporary.mkdir(parents=True)
        (folder / REQUEST).write_text(json.dumps(request))
    process = _started(name, folder, temporary)
    output = StepOutput(process)
    in_time = False
    try:
        in_time = output.read_until_ended(seconds_max)
    finally:
        _end(process, output, in_time)
        said = output.close()
        full = _full(folder)  # before room is made
        shutil.rmtree(temporary, ignore_errors=True)
    if not in_time and process.returncode not in (0, REFUSED):
        raise StepFailed(f"it took longer than {seconds_max:g} s; --step-seconds gives it more")
    told = _result(folder / RESULT)
    found = told.get(FOUND)
    if process.returncode == 0 and isinstance(found, dict):
        return found
    if process.returncode == REFUSED and isinstance(told.get(ERROR), str):
        raise BadRequest(told[ERROR])
    raise StepFailed(full or _reason(process.returncode, told, said))


def _started(name: str, folder: Path, temporary: Path) -> subprocess.Popen[bytes]:
    """Its keeper, in a session of its own: the terminal's Ctrl-C is for this program.  Raises Unavailable."""
    keeping = [str(os.getpid()), str(limits.CONVERT_END_SECONDS_MAX)]
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP", "JOBLIB_TEMP_FOLDER"), str(temporary))
    try:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(ROOT), *keeping, name, str(folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**QUIET, **os.environ, **places},
        )  # fmt: skip
    except OSError as error:
        raise Unavailable(
            f"no process could be started for it ({error.strerror or error}): the system's limits of processes, memory "
            "or open files are reached; raise them (ulimit -u, ulimit -n, the container's), or end other programs"
        ) from error


def _end(process: subprocess.Popen[bytes], output: StepOutput, ended: bool) -> None:
    """Of a step and of all that it has started."""
    try:
        if not ended:
            os.kill(process.pid, signal.SIGTERM)  # has the keeper end all; nobody has waited for it
            output.read_until_ended(2 * limits.CONVERT_END_SECONDS_MAX + KEEPER_SECONDS)
    finally:
        end_session(process.pid)  # where somebody has killed the keeper
        process.wait()


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


def _reason(status: int, told: Mapping[str, Any], said: str) -> str:
    """said: the end of what it has printed."""
    if told.get(ERROR):
        return shortened(str(told[ERROR]))
    said = shortened(said.strip()[-limits.CONVERT_REASON_CHARACTERS_MAX :])
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
