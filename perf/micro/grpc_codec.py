"""The gRPC codec: a request of add_sub read, its answer rendered; the same by protobuf's runtime beside it."""

from __future__ import annotations

import itertools
import struct
from timeit import timeit

from tisfast.descriptors import message_class
from tisfast.native.memory import Arena
from tisfast.wire import record
from tisfast.wire.grpc import infer, respond
from tisfast.wire.signature import ModelSignature

N = 50_000
FP32 = 11
VALUES = struct.pack("<4f", 1, 2, 3, 4)


def add_sub() -> ModelSignature:
    inputs = [(f"INPUT{i}", FP32, (4,), False, False) for i in range(2)]
    return ModelSignature("add_sub", "1", 0, False, inputs, [(f"OUTPUT{i}", FP32, (4,)) for i in range(2)])


def request(id_text: str = "", *, raw: bool = True, parameter: int = 0) -> bytes:
    contents = {} if raw else {"contents": {"fp32_contents": [1, 2, 3, 4]}}
    inputs = [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [4], **contents} for i in range(2)]
    fields = {"raw_input_contents": [VALUES, VALUES]} if raw else {}
    if parameter:
        fields["parameters"] = {"n": {"int64_param": parameter}}
    message = message_class("inference.ModelInferRequest")(model_name="add_sub", id=id_text, inputs=inputs, **fields)
    return bytes(message.SerializeToString())


def answer_of(out: Arena, taken: object) -> object:
    signature = b"".join(struct.pack("<HBBIq", i, FP32, 1, 0, 4) for i in range(2))
    block = out.take_block(256)
    places = struct.pack("<6Q", 1, block.offset + 128, 16, 1, block.offset + 192, 16)
    data = struct.pack("<IHHII", len(signature), 2, 0, 0, 0) + signature + places
    memoryview(block)[: len(data)] = data
    return record.read(taken, block, len(data))


def report(name: str, call: object) -> None:
    print(f"grpc_codec_{name} {timeit(call, number=N) / N * 1e9:.1f}")


def main() -> None:
    arena, out, model = Arena("in", 1 << 26, 1 << 25), Arena("out", 1 << 26, 1 << 25), add_sub()
    plain, typed = request(), request(raw=False)
    report("read_repeated", lambda: infer.parse(model, arena, plain))
    numbered = itertools.cycle([request(str(i)) for i in range(1000)])
    report("read_numbered", lambda: infer.parse(model, arena, next(numbered)))
    changing = itertools.cycle([request(parameter=i + 1) for i in range(600)])  # more than are remembered
    report("read_new", lambda: infer.parse(model, arena, next(changing)))
    report("read_typed", lambda: infer.parse(model, arena, typed))
    report("read_by_protobuf", lambda: message_class("inference.ModelInferRequest").FromString(plain))
    answer, body = answer_of(out, infer.parse(model, arena, plain)), respond.GrpcBody()
    report("render", lambda: respond.render(answer, body=body))
    report("render_streamed", lambda: respond.render(answer, 1, body=body))
    fields = {"name": "OUTPUT0", "datatype": "FP32", "shape": [4]}
    response = message_class("inference.ModelInferResponse")
    report(
        "render_by_protobuf",
        lambda: response(
            model_name="add_sub", model_version="1", outputs=[fields, fields], raw_output_contents=[VALUES, VALUES]
        ).SerializeToString(),
    )


if __name__ == "__main__":
    main()
