"""The server writes and reads the records of tests/golden as they stand there."""

from __future__ import annotations

import json
import struct

import pytest

from tests.golden import MODEL, Golden, load
from tests.wire.helpers import arena, binary, body
from tisfast.native.memory import Arena
from tisfast.types import BY_WIRE
from tisfast.wire import infer, record
from tisfast.wire.signature import ModelSignature


def signature() -> ModelSignature:
    inputs = [(n, BY_WIRE[t].code, tuple(dims), n != "A", False) for n, t, dims in MODEL["inputs"]]
    outputs = [(n, BY_WIRE[t].code, tuple(dims)) for n, t, dims in MODEL["outputs"]]
    return ModelSignature("m", "1", MODEL["max_batch_size"], False, inputs, outputs)


def asked(meaning):
    """A request over HTTP that means this."""
    parameters = dict(meaning["parameters"])
    if meaning["correlation"]:
        parameters |= {"sequence_id": meaning["correlation"]}
        parameters |= {"sequence_start": meaning["start"], "sequence_end": meaning["end"]}
    if meaning["timeout"]:
        parameters["timeout"] = meaning["timeout"]
    fields = {"id": meaning["id"], "outputs": [{"name": name} for name in meaning["outputs"]]}
    data = [bytes.fromhex(raw) for *_, raw in meaning["inputs"]]
    inputs = [binary(n, shape, len(raw), t) for (n, t, shape, _), raw in zip(meaning["inputs"], data, strict=True)]
    text, head_bytes = body(*inputs, tail=b"".join(data), parameters=parameters, **fields)
    return infer.parse(signature(), arena(), text, head_bytes)


@pytest.mark.parametrize("golden", load("requests"), ids=repr)
def test_a_request_is_written_as_it_stands_there(golden: Golden):
    """But for its places, which are those of this arena's blocks."""
    request = asked(golden.meaning)
    at = len(golden.parts["head"] + golden.parts["signature"])
    end = at + len(golden.parts["places"])
    assert request.record[:at] == golden.record[:at] and request.record[end:] == golden.record[end:]
    places = struct.unpack(f"<{(end - at) // 8}Q", request.record[at:end])
    data = [request.read(offset, nbytes).hex() for offset, nbytes in zip(places[::2], places[1::2], strict=True)]
    assert data == [raw for *_, raw in golden.meaning["inputs"]]


@pytest.mark.parametrize("golden", load("answers"), ids=repr)
def test_an_answer_means_what_stands_there(golden: Golden):
    request = asked(load("requests")[0].meaning)
    block = Arena("out", 1 << 20, 1 << 19).take_block(len(golden.block))
    memoryview(block)[: len(golden.block)] = golden.block
    found = record.read(request, block, len(golden.record))
    outputs = [[name, datatype, shape, raw.hex()] for name, datatype, shape, raw in
               map(found.output, range(len(golden.meaning["outputs"])))]  # fmt: skip
    assert outputs == golden.meaning["outputs"]
    assert json.loads(found.parameters or "{}") == golden.meaning["parameters"]
