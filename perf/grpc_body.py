"""A prepared ModelInfer call of add_sub for h2load, and the command line that sends it.

    python -m perf.grpc_body /tmp/add_sub.bin             writes the body, prints the command for port 8001
    python -m perf.grpc_body /tmp/add_sub.bin 18001 10    ... another port, seconds

h2load costs a fraction of a gRPC library, so it shows what the server does.  It knows no trailers: look at what a
client gets before believing its figures (perf/h2load.py does).
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

CALL = "/inference.GRPCInferenceService/ModelInfer"


def field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field; data below 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def message(values: int = 4) -> bytes:
    """ModelInferRequest of add_sub, length-prefixed as gRPC wants it."""
    tensor = struct.pack(f"<{values}f", *range(values))
    inputs = b"".join(
        field(5, field(1, name) + field(2, b"FP32") + field(3, bytes([values]))) for name in (b"INPUT0", b"INPUT1")
    )
    raw = field(7, tensor) * 2
    body = field(1, b"add_sub") + inputs + raw
    return struct.pack(">BI", 0, len(body)) + body


def flags(file: str, seconds: float, streams: int, connections: int) -> list[str]:
    """What h2load is told: so many streams on each connection."""
    load = ["-d", file, "-D", f"{round(seconds * 1000)}ms", f"-m{streams}", f"-c{connections}", "-t1"]
    return [*load, "-H", "content-type: application/grpc", "-H", "te: trailers"]


def command(file: str, port: int = 8001, seconds: float = 5, streams: int = 8, connections: int = 4) -> list[str]:
    """The whole command line."""
    return ["h2load", *flags(file, seconds, streams, connections), f"http://127.0.0.1:{port}{CALL}"]


def main() -> None:
    file, *rest = sys.argv[1:]
    Path(file).write_bytes(message())
    print(" ".join(f"'{word}'" if " " in word else word for word in command(file, *map(int, rest))))


if __name__ == "__main__":
    main()
