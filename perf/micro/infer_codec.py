"""A small binary add_sub request and its answer: parse and record, read and render.  The calls from Python included."""

from __future__ import annotations

import itertools
import json
import struct
from timeit import timeit

from tisfast.native.memory import Arena
from tisfast.wire import infer, record, respond
from tisfast.wire.signature import ModelSignature

N = 50_000
FP32 = 11
VALUES = struct.pack("<8f", *range(8))


def add_sub() -> ModelSignature:
    return ModelSignature(
        "add_sub",
        "1",
        0,
        False,
        [(f"INPUT{i}", FP32, (4,), False, False) for i in (0, 1)],
        [(f"OUTPUT{i}", FP32, (4,)) for i in (0, 1)],
    )


def request_head(id_text: str = "", binary: bool = True) -> bytes:
    inputs = [
        {"name": f"INPUT{i}", "shape": [4], "datatype": "FP32", "parameters": {"binary_data_size": 16}} for i in (0, 1)
    ]
    outputs = [{"name": f"OUTPUT{i}", "parameters": {"binary_data": binary}} for i in (0, 1)]
    fields = {"id": id_text, "inputs": inputs, "outputs": outputs}
    return json.dumps(fields if id_text else {k: v for k, v in fields.items() if k != "id"}).encode()


def answer_block(arena: Arena) -> tuple[object, int]:
    signature = b"".join(struct.pack("<HBBIq", i, FP32, 1, 0, 4) for i in (0, 1))
    block = arena.take_block(256)
    places = struct.pack("<6Q", 1, 128, 16, 1, 192, 16)
    data = struct.pack("<IHHII", len(signature), 2, 0, 0, 0) + signature + places
    memoryview(block)[: len(data)] = data
    return block, len(data)


def report(name: str, call: object) -> None:
    print(f"infer_codec_{name} {timeit(call, number=N) / N * 1e9:.1f}")


def main() -> None:
    arena, out, model = Arena("in", 1 << 26, 1 << 25), Arena("out", 1 << 26, 1 << 25), add_sub()
    head = request_head()
    report("head_repeated", lambda: infer.parse(model, arena, head + VALUES, len(head)))
    numbered = itertools.cycle([(h + VALUES, len(h)) for h in (request_head(str(i)) for i in range(1000))])
    report("head_numbered", lambda: infer.parse(model, arena, *next(numbered)))
    changing = itertools.cycle(
        [(b" " * i + head + VALUES, len(head) + i) for i in range(600)]
    )  # more than are remembered
    report("head_new", lambda: infer.parse(model, arena, *next(changing)))

    block, n = answer_block(out)
    binary = infer.parse(model, arena, head + VALUES, len(head))
    text = request_head(binary=False)
    plain = infer.parse(model, arena, text + VALUES, len(text))
    report("read_answer", lambda: record.read(binary, block, n))
    answers = record.read(binary, block, n), record.read(plain, block, n)
    report("respond_binary", lambda: respond.render(answers[0]))
    report("respond_json", lambda: respond.render(answers[1]))


if __name__ == "__main__":
    main()
