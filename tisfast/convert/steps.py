"""Steps that frameworks take, each in a process of its own: one that crashes or hangs ends that step alone.

Layer 5 (convert).
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tisfast import limits
from tisfast.convert.held_signals import held_signals
from tisfast.convert.step_nursery import Order, StepNursery, no_process
from tisfast.convert.step_output import StepOutput
from tisfast.errors import BadRequest, Internal, Unavailable

REQUEST: Final = "request.json"
RESULT: Final = "result.json"
TEMPORARY: Final = "tmp"
"""The step's own TMPDIR."""
FOUND: Final = "found"
ERROR: Final = "error"
"""Keys of the result: one of them is there."""
REFUSED: Final = 3
"""The exit status where the user's input is wrong."""


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


def run_step(
    nursery: StepNursery, name: str, request: Mapping[str, Any], folder: Path, seconds_max: float
) -> dict[str, Any]:
    """One step.  folder: empty, for its files.

    Raises StepFailed with the framework's reason, BadRequest for what is wrong with the user's input, Unavailable where
    it cannot be begun.
    """
    temporary = folder / TEMPORARY
    with written_to_scratch():
        temporary.mkdir(parents=True)
        (folder / REQUEST).write_text(json.dumps(request))
    order = Order(name, str(folder), str(temporary))
    try:
        output = StepOutput()
    except OSError as error:
        raise no_process(error.strerror or str(error)) from error
    in_time = False
    try:
        in_time = nursery.run(order, output, time.monotonic() + seconds_max)
    finally:
        with held_signals():
            try:
                status = nursery.end(output, has_ended=in_time)
            finally:
                said = output.close()
                full = _full(folder)  # before room is made
                shutil.rmtree(temporary, ignore_errors=True)
    if not in_time and status not in (0, REFUSED):
        raise StepFailed(f"it took longer than {seconds_max:g} s; --step-seconds gives it more")
    if status is None:
        raise StepFailed("its exit status is not known: the process that forks the steps did not tell it and was ended")
    told = _result(folder / RESULT)
    found = told.get(FOUND)
    if status == 0 and isinstance(found, dict):
        return found
    if status == REFUSED and isinstance(told.get(ERROR), str):
        raise BadRequest(told[ERROR])
    raise StepFailed(full or _reason(status, told, said))


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
