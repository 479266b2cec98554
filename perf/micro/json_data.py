"""JSON tensor data both ways: 4 and 1024 floats, 1024 integers, 100 strings."""

from __future__ import annotations

import struct
from timeit import timeit

import orjson

from tisfast.native.memory import Arena
from tisfast.types import BY_WIRE
from tisfast.wire import infer, record, respond
from tisfast.wire.signature import ModelSignature

CASES = {
    "4_floats": ("FP32", [0.1 * i for i in range(4)], 20_000),
    "1024_floats": ("FP32", [0.1 * i for i in range(1024)], 2_000),
    "1024_ints": ("INT64", list(range(1000, 2024)), 2_000),
    "100_strings": ("BYTES", [f"text number {i}" for i in range(100)], 5_000),
}


def identity(dtype: str) -> ModelSignature:
    code = BY_WIRE[dtype].code
    return ModelSignature("identity", "1", 0, False, [("I", code, (-1,), False, False)], [("O", code, (-1,))])


def answer(request: infer.InferInput, out: Arena, dtype: str, values: list[object]) -> record.Answer:
    form = {"FP32": "f", "INT64": "q"}.get(dtype)
    data = (
        struct.pack(f"<{len(values)}{form}", *values)
        if form
        else b"".join(struct.pack("<I", len(str(v))) + str(v).encode() for v in values)
    )
    block = out.take_block(128 + len(data))
    head = struct.pack("<IHHIIHBBIq", 16, 1, 0, 0, 0, 0, BY_WIRE[dtype].code, 1, 0, len(values))
    head += struct.pack("<3Q", 1, 128, len(data))
    memoryview(block)[: len(head)] = head
    memoryview(block)[128 : 128 + len(data)] = data
    return record.read(request, block, len(head))


def main() -> None:
    arena, out = Arena("in", 1 << 26, 1 << 25), Arena("out", 1 << 26, 1 << 25)
    for name, (dtype, values, n) in CASES.items():
        model = identity(dtype)
        item = {"name": "I", "shape": [len(values)], "datatype": dtype, "data": values}
        body = orjson.dumps({"inputs": [item]})
        parse_ns = timeit(lambda m=model, b=body: infer.parse(m, arena, b), number=n) / n * 1e9
        print(f"json_data_parse_{name} {parse_ns:.1f}")
        got = answer(infer.parse(model, arena, body), out, dtype, values)
        render_ns = timeit(lambda a=got: respond.render(a), number=n) / n * 1e9
        print(f"json_data_render_{name} {render_ns:.1f}")


if __name__ == "__main__":
    main()
