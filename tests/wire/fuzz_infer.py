"""Throw random and mutated requests at the request parser for a bounded time.

`python -m tests.wire.fuzz_infer` runs for TISFAST_FUZZ_SECONDS (5) from TISFAST_FUZZ_SEED (the time); pytest runs it
too.  Whatever comes must become a request whose record can be read, or a TisError, and leave no block behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import struct
import time

from tests.wire.helpers import arena, binary, body, model, read_record, strings, tensor
from tisfast.errors import BadRequest, TisError
from tisfast.wire import head, infer

F3 = struct.pack("<3f", 1, 2, 3)
MODELS = [
    model(),
    model(dtype="BYTES"),
    model(dtype="INT16", max_batch=4, dims=(3,)),
    model(inputs=("I", "J"), outputs=("O", "P"), optional=("J",)),
]
CORPUS = [
    body(tensor(data=[1, 2, 3])),
    body(tensor(data=[[1], [2.5, -3e300]]), id="7", outputs=[{"name": "O", "parameters": {"binary_data": True}}]),
    body(tensor(datatype="BYTES", data=["a", "é\n", ""])),
    body(tensor(shape=[1, 3], datatype="INT16", data=[1, -2, 3]), parameters={"timeout": 5, "x": 1.5}),
    body(binary(), tail=F3),
    body(binary(), binary("J"), tail=F3 + F3, id="42", parameters={"binary_data_output": True}),
    body(binary(shape=[2], nbytes=11, datatype="BYTES"), tail=strings(b"ab", b"c")),
    (b'{"inputs":[{"name":"I","shape":[2],"datatype":"FP32","data":[NaN,-Infinity]}]}', 78),
    (F3, 0),
]
WORDS = [
    b"NaN",
    b"Inf",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b",",
    b":",
    b'"id"',
    b'"data"',
    b'"shape"',
    b'"binary_data_size"',
    b"\xff",
    b"\0",
    b'"parameters":{}',
    b'"inputs"',
    b"9223372036854775807",
    b"[[[[[[[[",
    b"0.5",
    b"BYTES",
    b"FP16",
]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A few of the changes that break parsers."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randint(0, len(out))
        change = rng.randrange(5)
        if change == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif change == 1:
            out[at:at] = rng.choice(WORDS)
        elif change == 2:
            del out[at : at + rng.randint(1, 20)]
        elif change == 3:
            out[at:at] = out[at : at + rng.randint(1, 40)]
        else:
            at = bytes(out).find(b'"', at) + 1
            out[at : at + rng.randint(0, 8)] = rng.choice(WORDS)
    return bytes(out)


def one(rng: random.Random, place: object) -> bool:
    """One input; True when it was taken as a request."""
    data, head_bytes = rng.choice(CORPUS)
    if rng.random() < 0.05:
        data = rng.randbytes(rng.randint(0, 200))
    elif rng.random() < 0.9:
        data = mutate(rng, data)
    if rng.random() < 0.3:
        head_bytes = rng.choice([-1, 0, 1, len(data), len(data) + 1, rng.randint(0, 300), 2**31 - 1])
    try:
        request = infer.parse(
            rng.choice(MODELS), place, data, head_bytes, max_input_bytes=rng.choice([60, 4096, 1 << 26])
        )
    except TisError:
        return False
    read_record(request)
    return True


def one_head(rng: random.Random) -> None:
    """One request head."""
    text = (
        b"POST /v2/models/m/versions/1/infer?a=b HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 7\r\n"
        b"Content-Length: 12\r\nAccept-Encoding: gzip;q=0.5, deflate\r\nConnection: keep-alive\r\n\r\n"
    )
    with contextlib.suppress(BadRequest):
        head.parse(mutate(rng, text)).headers()


def run(seconds: float, seed: int) -> tuple[int, int]:
    """Inputs tried and requests taken."""
    rng, place = random.Random(seed), arena()
    tried = taken = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            taken += one(rng, place)
            one_head(rng)
            tried += 1
        assert place.used_blocks == 0, "a block was kept"
        assert place.stale == 0, "a block was given back twice"
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
