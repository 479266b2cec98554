"""The least gRPC client (client_floor.c): what a request costs any client that sleeps until its answer comes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf.oracle.launch import ROOT

SOURCE: Final = ROOT / "perf/client_floor.c"
DATA, HEADERS = 0, 1
END_STREAM, END_HEADERS = 1, 4


def command(folder: Path, port: int, model: str, in_flight: int) -> list[str]:
    """The C program, compiled in this folder, for a model of two FP32 inputs of four; its last argument is to be added.

    That is how many milliseconds it asks for.
    """
    program, request = folder / "client_floor", folder / "request"
    if not program.exists():
        subprocess.run(["cc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    request.write_bytes(frames(model, ("INPUT0", "INPUT1"), 4))
    return [str(program), str(port), str(in_flight), str(request)]


def frames(model: str, inputs: Sequence[str], elements: int) -> bytes:
    """One request as HTTP/2 frames of stream 0: FP32 inputs shaped [elements]."""
    message = _field(1, model.encode())
    for name in inputs:
        shape = _field(3, bytes([elements]))
        message += _field(5, _field(1, name.encode()) + _field(2, b"FP32") + shape)
    message += b"".join(_field(7, bytes(4 * elements)) for _ in inputs)
    head = bytes([0x83, 0x86])  # of the static table: POST, http
    head += _literal(b"\x04", b"/inference.GRPCInferenceService/ModelInfer") + _literal(b"\x01", b"localhost")
    head += _literal(b"\x0f\x10", b"application/grpc") + b"\x00" + _text(b"te") + _text(b"trailers")
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return _frame(HEADERS, END_HEADERS, head) + _frame(DATA, END_STREAM, body)


def _field(number: int, content: bytes) -> bytes:
    """Of a protobuf message: bytes, under 128 of them."""
    return bytes([number << 3 | 2]) + _text(content)


def _literal(index: bytes, value: bytes) -> bytes:
    """A header of HPACK that goes into no table, its name from the static one."""
    return index + _text(value)


def _text(content: bytes) -> bytes:
    if len(content) > 126:
        raise ValueError(f"{content[:20]!r}... has {len(content)} bytes; 126 are the most here")
    return bytes([len(content)]) + content


def _frame(kind: int, flags: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + bytes(4) + content
