"""Throw random and mutated messages at the reader of ModelInferRequest for a bounded time.

`python -m tests.wire.grpc.fuzz_grpc` runs for TISFAST_FUZZ_SECONDS (5) from TISFAST_FUZZ_SEED (the time); pytest runs
it too.  Whatever comes must become a request whose record can be read, or a TisError, and leave no block behind; and what
protobuf's runtime takes for broken, or for a message, so must we.
"""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import json
import os
import random
import time

from google.protobuf.message import DecodeError

from tests.wire.grpc.helpers import F3, message, request, simple, tensor
from tests.wire.helpers import arena, model, read_record, strings
from tisfast.errors import Internal, TisError
from tisfast.wire.grpc import infer

MODELS = [
    model(),
    model(dtype="BYTES"),
    model(dtype="INT16", max_batch=4, dims=(3,)),
    model(inputs=("I", "J"), outputs=("O", "P"), optional=("J",)),
]
PLACE = {"shared_memory_region": {"string_param": "r"}, "shared_memory_byte_size": {"int64_param": 12}}
CORPUS = [
    told.SerializeToString()
    for told in (
        simple(id="7", model_version="1"),
        simple(
            parameters={"x": {"double_param": 1.5}, "timeout": {"int64_param": 3}, "sequence_id": {"string_param": "a"}}
        ),
        request(inputs=[tensor("I"), tensor("J")], raw_input_contents=[F3, F3], outputs=[{"name": "P"}]),
        request(inputs=[tensor(contents={"fp32_contents": [1, 2, 3]})]),
        request(inputs=[tensor(datatype="BYTES", contents={"bytes_contents": [b"a", b"", b"bcd"]})]),
        request(inputs=[tensor(shape=(2,), datatype="BYTES")], raw_input_contents=[strings(b"ab", b"c")]),
        request(inputs=[tensor(shape=(1, 3), datatype="INT16", contents={"int_contents": [1, -2, 3]})]),
        request(inputs=[tensor(parameters=PLACE)], outputs=[{"name": "O", "parameters": PLACE}]),
        simple(outputs=[{"name": "O", "parameters": {"classification": {"int64_param": 2}}}]),
    )
]
PIECES = [b"\xff", b"\0", b"\x80", b"\x3a\x00", b"\x3a\x0c" + F3, b"\x2a\x00", b"\x0a\x01m", b"\x1a\x01x", b"\x0b\x0c",
          b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 10, b"\x18\x01", b"\x2a\x02\x2a\x00", b"\x32\x03\x0a\x01O"]  # fmt: skip


def mutate(rng: random.Random, data: bytes) -> bytes:
    """A few of the changes that break readers."""
    out = bytearray(data)
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(out))
        change = rng.randrange(4)
        if change == 0 and out:
            out[at % len(out)] = rng.randrange(256)
        elif change == 1:
            out[at:at] = rng.choice(PIECES)
        elif change == 2:
            del out[at : at + rng.randint(1, 8)]
        else:
            out[at:at] = out[at : at + rng.randint(1, 30)]
    return bytes(out)


def is_message(data: bytes) -> bool:
    """What protobuf's own runtime says."""
    try:
        message("ModelInferRequest").FromString(data)
    except DecodeError:
        return False
    return True


def one(rng: random.Random, place: object) -> bool:
    """One input; True when it was taken as a request."""
    data = rng.randbytes(rng.randint(0, 100)) if rng.random() < 0.05 else mutate(rng, rng.choice(CORPUS))
    infer_peek(data)
    try:
        taken = infer.parse(rng.choice(MODELS), place, data, max_input_bytes=rng.choice([10, 4096, 1 << 26]))
    except TisError as error:
        unreadable = isinstance(error, Internal) and error.message.startswith("Unable to parse request")
        # Within groups, which proto3 has not, runtimes differ in what they skip.
        grouped = any(byte & 7 == 3 for byte in data)
        assert not unreadable or grouped or not is_message(data), f"a message is taken for broken: {data!r}"
        return False
    assert is_message(data), f"what is broken is taken for a message: {data!r}"
    read_record(taken)
    return True


def infer_peek(data: bytes) -> None:
    """Every beginning of it."""
    for n in range(0, len(data), 7):
        try:
            infer.peek(data[:n], len(data))
        except TisError:
            return


def run(seconds: float, seed: int) -> tuple[int, int]:
    """Inputs tried and requests taken."""
    rng, place = random.Random(seed), arena()
    tried = taken = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            taken += one(rng, place)
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
