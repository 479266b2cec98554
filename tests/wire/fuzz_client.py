"""Throw mutated responses at everything that a client reads with, for a bounded time.

`python -m tests.wire.fuzz_client` runs for TISFAST_FUZZ_SECONDS (5) from TISFAST_FUZZ_SEED (the time); pytest runs it
too.  Whatever comes must become events and tensors whose bytes can be read, or BadResponse; a call ends at most once.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time

from tests.wire.grpc.helpers import message
from tisfast.errors import BadResponse
from tisfast.wire.client_head import RequestHead
from tisfast.wire.client_response import ResponseReader
from tisfast.wire.grpc.client_codec import read_infer_response, read_stream_response
from tisfast.wire.grpc.client_session import GrpcClientSession
from tisfast.wire.http1 import Http1Client

GET = RequestHead("GET", "/", "h")
F2 = struct.pack("<2f", 1, 2)
BINARY = json.dumps(
    {
        "id": "7",
        "model_name": "m",
        "outputs": [{"name": "O", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
    }
).encode()
SPELLED = (
    b'{"model_name":"m","outputs":[{"name":"O","datatype":"FP32","shape":[2],"data":[1,NaN]},'
    b'{"name":"P","datatype":"BYTES","shape":[1],"data":["a"]}]}'
)
HTTP = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nabc",
]
OUTPUT = {"name": "O", "datatype": "FP32", "shape": [2]}
MESSAGES = [
    message("ModelInferResponse")(
        model_name="m", id="7", outputs=[OUTPUT], raw_output_contents=[F2]
    ).SerializeToString(),
    message("ModelInferResponse")(outputs=[{**OUTPUT, "contents": {"fp32_contents": [1, 2]}}]).SerializeToString(),
    message("ModelStreamInferResponse")(error_message="x", infer_response={"id": "7"}).SerializeToString(),
]


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data


# :status 200 and content-type of the static table; a message; trailers with grpc-status 0, in literals.
STATUS = b"\x00\x0bgrpc-status\x010"
ANSWER = [
    frame(4, 0, 0, b""),
    frame(4, 1, 0, b""),
    frame(1, 4, 1, b"\x88"),
    frame(0, 0, 1, b"\0\0\0\0\3abc"),
    frame(1, 5, 1, STATUS),
    frame(3, 0, 3, struct.pack(">I", 8)),
    frame(6, 0, 0, bytes(8)),
    frame(7, 0, 0, bytes(8)),
    frame(8, 0, 0, struct.pack(">I", 100)),
]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A few of the changes that break parsers."""
    out = bytearray(data)
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(out))
        change = rng.randrange(4)
        if change == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif change == 1:
            out[at:at] = rng.randbytes(rng.randint(1, 4))
        elif change == 2:
            del out[at : at + rng.randint(1, 9)]
        else:
            out[at:at] = out[at : at + rng.randint(1, 20)]
    return bytes(out)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    at = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 3)))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def http(rng: random.Random) -> None:
    """A connection of HTTP/1.1."""
    client = Http1Client(body_max=1 << 20)
    client.sent(GET)
    client.sent(GET)
    for piece in pieces(rng, mutate(rng, b"".join(rng.choices(HTTP, k=2)))):
        client.receive(piece)
    client.closed()


def body(rng: random.Random, reader: ResponseReader) -> None:
    """A body of an inference's response; the reader remembers."""
    if rng.random() < 0.5:
        response = reader.infer(mutate(rng, SPELLED))
    else:
        text = mutate(rng, BINARY)
        response = reader.infer(text + mutate(rng, F2), len(text) + rng.choice([0, 0, 0, 1]))
    for output in response.outputs:
        assert output.region is not None or len(output.buffer()) == output.nbytes


def grpc_message(rng: random.Random) -> None:
    """A message of gRPC."""
    data = mutate(rng, rng.choice(MESSAGES))
    response = read_infer_response(data) if rng.random() < 0.5 else read_stream_response(data)[1]
    for output in response.outputs:
        assert output.region is not None or len(output.buffer()) == output.nbytes


def grpc_session(rng: random.Random) -> None:
    """A connection of HTTP/2 with two calls."""
    session, ends = GrpcClientSession("h", message_max=1 << 20), []
    for _ in range(2):
        session.send(session.start("/a/b"), b"x" * rng.choice([0, 100_000]), last=rng.random() < 0.5)
    session.outgoing()
    order = ANSWER if rng.random() < 0.5 else [ANSWER[0], *rng.choices(ANSWER[1:], k=8)]
    try:
        for piece in pieces(rng, mutate(rng, b"".join(order))):
            ends += [call.id for kind, call, _ in session.take(piece) if kind == "end"]
            session.outgoing()
    finally:
        ends += [call.id for kind, call, _ in session.lost() if kind == "end"]
        assert sorted(ends) == [1, 3], ends


def run(seconds: float, seed: int) -> tuple[int, int]:
    """Inputs tried and inputs taken."""
    rng, reader = random.Random(seed), ResponseReader()
    tried = taken = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for target in (http, lambda rng: body(rng, reader), grpc_message, grpc_session):
            tried += 1
            try:
                target(rng)
            except BadResponse:
                continue
            taken += 1
    return tried, taken


def main() -> str:
    """Run as the environment says; returns what was done."""
    seed = int(os.environ.get("TISFAST_FUZZ_SEED", time.time_ns()))
    seconds = float(os.environ.get("TISFAST_FUZZ_SECONDS", "5"))
    try:
        tried, taken = run(seconds, seed)
    except Exception as error:
        raise AssertionError(f"TISFAST_FUZZ_SEED={seed} repeats this") from error
    return json.dumps({"seed": seed, "seconds": seconds, "tried": tried, "taken": taken})


if __name__ == "__main__":
    print(main())
