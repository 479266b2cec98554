"""Traces into files, in the form that Triton writes and its trace_summary.py reads.  Layer 4 (telemetry).

A file is one JSON array and whole after each write, so it can be read while the server runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tisfast import limits
from tisfast.telemetry.trace_tensors import tensor_text

if TYPE_CHECKING:
    from tisfast.telemetry.trace import Mark, Trace

log = logging.getLogger("tisfast.trace")
RECEIVED: Final = ("HTTP_RECV_START", "HTTP_RECV_END", "GRPC_WAITREAD_START", "GRPC_WAITREAD_END")


class TraceFiles:
    """Files of one --trace-config triton,file.  Used by one thread; each portion is with the system when `write` ends.

    Traces with a log frequency go to FILE.0, FILE.1 and so on, so many to each; all others to FILE.
    files_max: after as many files the last one takes all that follows, which is told once.
    """

    def __init__(self, path: str, files_max: int = limits.TRACE_FILES_MAX) -> None:
        self._path = path
        self._files_max = files_max
        self._plain: BinaryIO | None = None
        self._numbered: BinaryIO | None = None
        self._number = 0
        self._in_numbered = 0
        self._failing = False
        self._told = False

    def write(self, traces: Sequence[Trace]) -> None:
        """Append.  A file that cannot be written is told once, until it can be again."""
        try:
            for trace in traces:
                self._append(trace)
            for file in (self._plain, self._numbered):
                if file is not None:
                    file.flush()
            self._failing = False
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._failing:
            log.error("traces are lost: cannot write trace file %s: %s", self._path, error.strerror or error)
        self._failing = True

    def close(self) -> None:
        """No more is written.  What a full disk does not take now is lost, and told if it was not yet."""
        for file in (self._plain, self._numbered):
            if file is not None:
                try:
                    file.close()
                except OSError as error:
                    self._tell(error)
        self._plain = self._numbered = None

    def _append(self, trace: Trace) -> None:
        text = ",".join(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in trace_objects(trace))
        if not trace.log_frequency:
            if self._plain is None:
                self._plain = _open(self._path)
            _extend(self._plain, text)
            return
        if self._numbered is None:
            self._numbered = _open(f"{self._path}.{self._number}")
            self._number += 1
            self._in_numbered = 0
        _extend(self._numbered, text)
        self._in_numbered += 1
        if self._in_numbered < trace.log_frequency:
            return
        if self._number < self._files_max:
            self._numbered.close()
            self._numbered = None
        elif not self._told:
            self._told = True
            log.warning(
                "trace file %s.%d is the last: log_frequency %d has made %d files, as many as one server makes; it "
                "takes all traces that follow. Set a higher log_frequency",
                self._path,
                self._number - 1,
                trace.log_frequency,
                self._number,
            )


def trace_objects(trace: Trace) -> Iterator[dict[str, Any]]:
    """The objects of one trace: what was received, who it is, tensors, and all else in the order of time."""
    marks = sorted([*trace.front, *trace.engine, *trace.compute], key=lambda mark: mark.ns) if trace.timestamps else []
    received = [mark for mark in marks if mark.name in RECEIVED]
    yield from (_timestamp(trace, mark) for mark in received)
    yield _header(trace)
    for tensor in trace.tensors:
        shape = ",".join(map(str, tensor.shape))
        shown = {"name": tensor.name, "data": tensor_text(tensor), "shape": shape, "dtype": tensor.datatype}
        yield {"id": trace.number, "activity": tensor.activity, "tensor": shown}
    yield from (_timestamp(trace, mark) for mark in marks if mark.name not in RECEIVED)


def _header(trace: Trace) -> dict[str, Any]:
    header: dict[str, Any] = {"id": trace.number, "model_name": trace.model, "model_version": int(trace.version or -1)}
    if trace.request_id:
        header["request_id"] = trace.request_id
    if trace.parent_number:
        header["parent_id"] = trace.parent_number
    return header


def _timestamp(trace: Trace, mark: Mark) -> dict[str, Any]:
    return {"id": trace.number, "timestamps": [{"name": mark.name, "ns": mark.ns}]}


def _open(path: str) -> BinaryIO:
    file = open(path, "wb")  # noqa: SIM115 - closed by close() or when it is full
    file.write(b"[]")
    return file


def _extend(file: BinaryIO, text: str) -> None:
    """Put `text` before the closing bracket."""
    first = file.tell() == 2
    file.seek(-1, 1)
    file.write(("" if first else ",").encode() + text.encode() + b"]")
