"""Models, bodies and worker answers for the codec tests; records are built and read from workers/WIRE.md alone."""

from __future__ import annotations

import json
import struct

from tisfast.native.memory import Arena
from tisfast.types import BY_WIRE
from tisfast.wire import infer, record
from tisfast.wire.signature import ModelSignature

FP32, BYTES = 11, 13
PLAIN_TYPES = [name for name in BY_WIRE if name not in ("BYTES", "FP16", "BF16")]


def arena(nbytes=1 << 26):
    return Arena("test", nbytes, nbytes // 2)


def model(inputs=("I",), outputs=("O",), *, dtype="FP32", dims=(-1,), max_batch=0, optional=(), name="m"):
    code = BY_WIRE[dtype].code
    return ModelSignature(
        name,
        "1",
        max_batch,
        False,
        [(i, code, dims, i in optional, False) for i in inputs],
        [(o, code, dims) for o in outputs],
    )


def tensor(name="I", shape=(3,), datatype="FP32", **fields):
    return {"name": name, "shape": list(shape), "datatype": datatype, **fields}


def binary(name="I", shape=(3,), nbytes=12, datatype="FP32", **parameters):
    return tensor(name, shape, datatype, parameters={"binary_data_size": nbytes, **parameters})


def body(*inputs, tail=b"", **fields):
    """(body, length of its JSON)."""
    head = json.dumps({**fields, "inputs": list(inputs)}, separators=(",", ":")).encode()
    return head + tail, len(head)


def strings(*texts):
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def read_record(request):
    """A request record as a worker reads it: head fields, tensors as (index, dtype, shape, bytes), the three texts."""
    data = request.record
    sig, n, flags, requested, timeout, correlation, id_n, par_n, cor_n, batch = struct.unpack_from("<IHHQQQIIII", data)
    at, tensors = 48, []
    for _ in range(n):
        index, dtype, rank, zero = struct.unpack_from("<HBBI", data, at)
        assert zero == 0
        tensors.append((index, dtype, list(struct.unpack_from(f"<{rank}q", data, at + 8))))
        at += 8 + 8 * rank
    assert at == 48 + sig
    at = (at + 7) & ~7
    places = struct.unpack_from(f"<{2 * n}Q", data, at)
    at += 16 * n
    texts = [data[at : at + id_n], data[at + id_n : at + id_n + par_n], data[at + id_n + par_n :]]
    assert len(texts[2]) == cor_n
    full = [(*t, request.read(places[2 * i], places[2 * i + 1])) for i, t in enumerate(tensors)]
    head = {"flags": flags, "requested": requested, "timeout": timeout, "correlation": correlation, "batch": batch}
    return head, full, texts


def answer_bytes(outputs, *, parameters=b""):
    """An answer record and its tensors: outputs as (index, dtype, shape, bytes) or (..., arena, offset, nbytes)."""
    signature = b"".join(struct.pack(f"<HBBI{len(o[2])}q", o[0], o[1], len(o[2]), 0, *o[2]) for o in outputs)
    head = struct.pack("<IHHII", len(signature), len(outputs), 0, len(parameters), 0) + signature
    head += bytes(-len(head) % 8)
    record_bytes = len(head) + 24 * len(outputs) + len(parameters)
    at, places, data = (record_bytes + 63) & ~63, b"", b""
    for out in outputs:
        if len(out) > 4:
            places += struct.pack("<3Q", *out[3:])
            continue
        data += bytes(at - ((record_bytes + 63) & ~63) - len(data)) + out[3]
        places += struct.pack("<3Q", 1, at, len(out[3]))
        at = (at + len(out[3]) + 63) & ~63
    whole = head + places + parameters
    return whole + bytes(((record_bytes + 63) & ~63) - len(whole)) + data, record_bytes


def answer(request, outputs, *, parameters=b"", of=None):
    """What a worker that keeps the contract would send, read as the server reads it."""
    output_arena = of or Arena("out", 1 << 26, 1 << 25)
    size = len(answer_bytes(outputs, parameters=parameters)[0])
    block = output_arena.take_block(size)
    data, record_bytes = answer_bytes(outputs, parameters=parameters)
    memoryview(block)[: len(data)] = data
    return record.read(request, block, record_bytes)


def request_for(signature, *inputs, tail=b"", **fields):
    """A parsed request; its JSON is separate when there is a tail."""
    text, head_bytes = body(*inputs, tail=tail, **fields)
    return infer.parse(signature, arena(), text, head_bytes if tail else -1)
