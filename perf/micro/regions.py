"""Tensors of 600 KB through regions of a client, read into the arena and written from it; and classification."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from timeit import repeat

from tisfast.native.memory import Arena
from tisfast.native.region import Regions, SystemRegion
from tisfast.wire import infer, record, respond
from tisfast.wire.signature import ModelSignature

N = 2_000
ROUNDS = 5
FP32 = 11
ELEMENTS = 150_528
NBYTES = 4 * ELEMENTS


def identity() -> ModelSignature:
    return ModelSignature("identity", "1", 0, False, [("I", FP32, (-1,), False, False)], [("O", FP32, (-1,))])


def request_body(output: dict[str, object]) -> bytes:
    given = {"shared_memory_region": "in", "shared_memory_byte_size": NBYTES}
    inputs = [{"name": "I", "shape": [ELEMENTS], "datatype": "FP32", "parameters": given}]
    return json.dumps({"inputs": inputs, "outputs": [{"name": "O", "parameters": output}]}).encode()


def answer_block(arena: Arena) -> tuple[object, int]:
    signature = struct.pack("<HBBIq", 0, FP32, 1, 0, ELEMENTS)
    block = arena.take_block(NBYTES + 128)
    data = struct.pack("<IHHII", len(signature), 1, 0, 0, 0) + signature
    data += struct.pack("<3Q", 1, 128, NBYTES)
    memoryview(block)[: len(data)] = data
    return block, len(data)


def region(table: Regions, name: str) -> Path:
    path = Path(f"/dev/shm/tisfast_micro_{os.getpid()}_{name}")
    path.write_bytes(bytes(NBYTES))
    table.add(SystemRegion(name, f"/{path.name}", os.open(path, os.O_RDWR), 0, NBYTES))
    return path


def report(name: str, call: object) -> None:
    print(f"regions_{name} {min(repeat(call, number=N, repeat=ROUNDS)) / N * 1e9:.1f}")


def main() -> None:
    table, arena, out, model = Regions(), Arena("in", 1 << 26, 1 << 25), Arena("out", 1 << 26, 1 << 25), identity()
    paths = [region(table, name) for name in ("in", "out")]
    try:
        body = request_body({"shared_memory_region": "out", "shared_memory_byte_size": NBYTES})
        report("input_600KB", lambda: infer.parse(model, arena, body, regions=table))
        block, n = answer_block(out)
        into = record.read(infer.parse(model, arena, body, regions=table), block, n)
        report("output_600KB", lambda: respond.render(into))
        best = record.read(infer.parse(model, arena, request_body({"classification": 5}), regions=table), block, n)
        report("best_5_of_150528", lambda: respond.render(best))
    finally:
        for path in paths:
            path.unlink()


if __name__ == "__main__":
    main()
