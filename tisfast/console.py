"""Start-up messages for people: the model table, progress, and a curl line for each model.  Layer 5 (app)."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from tisfast.terminal_line import TerminalLine, bar, clock
from tisfast.types import BY_WIRE, identity_of

if TYPE_CHECKING:
    from tisfast.engine.registry import ModelEntry

CURL_ELEMENTS_MAX = 64
"""Elements of one input up to which a curl line spells its zeros out; beyond, they come from /dev/zero."""


PROGRESS_SECONDS = 1.0
"""Loading that takes longer is shown as a bar; a quicker one needs none."""
TABLE_COLUMNS = 160
"""Columns of the model table where the terminal's width is not known."""
STATUS_COLUMNS_MIN = 24
BORDERS = len("|  |  |  |")
CURL_MODELS_MAX = 10
"""Models up to which each one's curl line is printed: more would hide the rest of the log."""


class InputFace(Protocol):
    """The facts of an input that a curl line uses."""

    @property
    def name(self) -> str:
        """The name of the input."""

    @property
    def datatype(self) -> str:
        """KServe's name of its type."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Without the batch dimension, -1 where it varies."""

    @property
    def optional(self) -> bool:
        """Whether a request may leave it out."""


class SignatureFace(Protocol):
    """The facts of a model that a curl line uses."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def max_batch_size(self) -> int:
        """0 when it does not batch."""

    @property
    def decoupled(self) -> bool:
        """Whether it answers as often as it likes, so as events."""

    @property
    def inputs(self) -> Sequence[InputFace]:
        """The inputs of the model."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Triton's form; cells may have several lines."""
    cells = [[cell.splitlines() or [""] for cell in row] for row in rows]
    widths = [max(len(head), *(len(line) for row in cells for line in row[i]), 0) for i, head in enumerate(heads)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def printed(row: Sequence[Sequence[str]]) -> list[str]:
        height = max(len(cell) for cell in row)
        return [
            "| "
            + " | ".join(
                (cell[i] if i < len(cell) else "").ljust(width) for cell, width in zip(row, widths, strict=True)
            )
            + " |"
            for i in range(height)
        ]

    body = [line for row in cells for line in printed(row)]
    return "\n".join([rule, *printed([[head] for head in heads]), rule, *body, rule])


def model_table(entries: Iterable[ModelEntry], columns: int = TABLE_COLUMNS) -> str:
    """Name, version and status of every model: READY, or the state with its reason.

    columns: of the terminal; reasons are shortened to fit, as the log has each of them whole.
    """
    rows = [
        (
            identity_of(entry.namespace, entry.name),
            entry.version or "-",
            f"{entry.state}: {_printable(entry.reason)}" if entry.reason else entry.state,
        )
        for entry in entries
    ]
    names = max([len("Model"), *(len(row[0]) for row in rows)])
    versions = max([len("Version"), *(len(row[1]) for row in rows)])
    room = max(columns - names - versions - BORDERS, STATUS_COLUMNS_MIN)
    return table(("Model", "Version", "Status"), [(*row[:2], _shortened(row[2], room)) for row in rows])


def _shortened(text: str, room: int) -> str:
    """The first line, as far as there is room."""
    first, _, more = text.partition("\n")
    if len(first) <= room and not more:
        return first
    return first[: room - 1].rstrip() + "\u2026"


def _printable(text: str) -> str:
    """Control characters escaped, line ends kept: reasons quote what models raise."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text.strip())


def curl_line(signature: SignatureFace, origin: str) -> str:
    """A shell line that asks this model for an inference of zeros.  origin: http://HOST:PORT."""
    url = f"{origin}/v2/models/{quote(signature.name, safe='')}/infer"
    if signature.decoupled:
        url += " -H 'Accept: text/event-stream'"
    heads, binary_bytes = [], 0
    for tensor in signature.inputs:
        if tensor.optional:
            continue
        head, nbytes = _zeros(tensor, signature.max_batch_size)
        heads.append(head)
        binary_bytes += nbytes
    body = json.dumps({"inputs": heads}, separators=(",", ":")).replace("'", "'\\''")
    if not binary_bytes:
        return f"curl -s {url} -d '{body}'"
    length = len(body.replace("'\\''", "'").encode())
    return (
        f"(printf %s '{body}'; head -c {binary_bytes} /dev/zero) | curl -s {url} --data-binary @- "
        f"-H 'Inference-Header-Content-Length: {length}' | head -c 500"
    )


def _zeros(tensor: InputFace, max_batch_size: int) -> tuple[dict[str, Any], int]:
    """One input of zeros as JSON, and the bytes of it that follow the JSON (0 when spelled out)."""
    shape = [1] * (max_batch_size > 0) + [1 if dim < 0 else dim for dim in tensor.dims]
    count = math.prod(shape)
    head: dict[str, Any] = {"name": tensor.name, "shape": shape, "datatype": tensor.datatype}
    size = BY_WIRE[tensor.datatype].size
    if tensor.datatype not in ("FP16", "BF16") and count <= CURL_ELEMENTS_MAX:  # JSON has no numbers for these two
        zero: object = {"BYTES": "0", "BOOL": False}.get(tensor.datatype, 0)
        return {**head, "data": [zero] * count}, 0
    # Four zero bytes are an empty BYTES element.
    nbytes = count * (size or 4)
    return {**head, "parameters": {"binary_data_size": nbytes}}, nbytes


class LoadProgress:
    """How many models are loaded: a bar on a terminal, nothing elsewhere (the log says each model there)."""

    def __init__(self, total: int, *, terminal: bool | None = None) -> None:
        """terminal: None asks stdout."""
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty() if terminal is None else terminal
        self._line: TerminalLine | None = None

    def show(self) -> None:
        """Show the bar, where there is a terminal and something is left to do."""
        if self._line is None and self._terminal and self._done < self._total:
            self._line = TerminalLine(sys.stdout)
            self._draw("")

    def step(self, name: str) -> None:
        """One more model is loaded, or has failed."""
        self._done += 1
        self._draw(name)

    def close(self) -> None:
        """Take the bar off the terminal, for good."""
        self._terminal = False
        if self._line is not None:
            self._line.erase()
            self._line = None

    def _draw(self, name: str) -> None:
        if self._line is None:
            return
        took = clock(time.monotonic() - self._began)
        pieces = [(f"loading models {bar(self._done, self._total)} {self._done}/{self._total} {took}", "")]
        if name:
            pieces.append((f" ({name})", ""))
        self._line.show(pieces)
