"""Requests as they are sent, made once from the input data.  Layer 5 (bench)."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tisfast.bench.grpc_load import CallFields, GrpcTemplate
from tisfast.bench.http_load import HttpTemplate
from tisfast.bench.loop import Marks
from tisfast.client.address import Address
from tisfast.errors import BadRequest, TisError
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.client_head import RequestHead
from tisfast.wire.client_request import RequestBody, WantedOutput, WantedOutputs, infer_target
from tisfast.wire.client_response import InferResponse, ResponseReader
from tisfast.wire.grpc.client_codec import RequestMessage, read_infer_response

ID: Final = "#" * 20
"""Stands for the id of a stream's message, until one is sent."""
SEQUENCE_ID: Final = 1 << 62
"""Stands for the id of a sequence, and has room for any: 19 digits, 9 bytes as a varint."""
VARINT_BYTES: Final = 9
PREFIX_BYTES: Final = 5
"""In front of a gRPC message."""
PATH: Final = b"/inference.GRPCInferenceService/"
PACKED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": lambda message: gzip.compress(message, 6, mtime=0),
    "deflate": zlib.compress,
}
Check = Callable[[InferResponse], str]


@dataclass(frozen=True)
class Step:
    """One request of the input data.  check: of its answer, gives what is wrong with it, or ""."""

    tensors: Sequence[BufferTensor]
    parameters: Mapping[str, bool | int | str | float] = field(default_factory=dict)
    check: Check | None = None


@dataclass(frozen=True)
class Form:
    """How the requests of a model are written.

    outputs: names of those that are asked for, None for all; places: instead, where each is written in shared memory;
    compression: gzip or deflate, of gRPC.
    """

    address: Address
    model: str
    version: str = ""
    headers: Sequence[tuple[str, str]] = ()
    binary_inputs: bool = True
    binary_outputs: bool = True
    outputs: Sequence[str] | None = None
    stream: bool = False
    decoupled: bool = False
    sequences: bool = False
    places: Sequence[WantedOutput] = ()
    compression: str = ""


def http_templates(form: Form, steps: Sequence[Step]) -> list[HttpTemplate]:
    """Raises BadRequest."""
    target = form.address.path + infer_target(form.model, form.version)
    head = RequestHead("POST", target, form.address.authority, list(form.headers))
    outputs = None
    if form.places:
        outputs = WantedOutputs(form.places)
    elif form.outputs is not None and form.binary_outputs != form.binary_inputs:
        outputs = WantedOutputs([WantedOutput(name, binary=form.binary_outputs) for name in form.outputs])
    reader = ResponseReader()
    made = []
    for step in steps:
        body = RequestBody()
        parameters = {**step.parameters, **(_sequence(False) if form.sequences else {})}
        pieces = body.render(
            list(step.tensors), outputs=outputs, parameters=parameters or None, binary=form.binary_inputs
        )
        text = head.with_body(body.nbytes, body.json_bytes) + b"".join(pieces)
        marks = _json_marks(text) if form.sequences else None
        made.append(HttpTemplate(head, text, _http_check(reader, step.check), marks))
    return made


def _sequence(flags: bool) -> dict[str, bool | int]:
    return {"sequence_id": SEQUENCE_ID, "sequence_start": flags, "sequence_end": flags}


def _json_marks(text: bytes) -> Marks:
    """Where the parameters of a sequence stand, rendered with `false`, which is longer."""
    digits = len(str(SEQUENCE_ID))
    at = text.index(b'"sequence_id":%d,"sequence_start":false,"sequence_end":false' % SEQUENCE_ID) + 14
    begins_at = at + digits + 18
    return Marks((at, begins_at, begins_at + 5 + 16), digits, text=True)


def _message_marks(message: bytes) -> Marks:
    """Each is an entry of a map: a key, and a value that holds a varint.  Flags are rendered as true: false is none."""
    id_at, begins_at, ends_at = (
        message.index(entry) + len(entry) + PREFIX_BYTES
        for entry in (
            b"sequence_id\x12\x0a\x10",
            b"sequence_start\x12\x02\x08",
            b"sequence_end\x12\x02\x08",
        )
    )
    return Marks((id_at, begins_at, ends_at), VARINT_BYTES, text=False)


def _http_check(reader: ResponseReader, check: Check | None) -> Callable[[bytes, int], str] | None:
    if check is None:
        return None
    return lambda body, json_bytes: _wrong(check, lambda: reader.infer(body, json_bytes))


def _wrong(check: Check, read: Callable[[], InferResponse]) -> str:
    """What is wrong with an answer, or "".  One that cannot be read is a wrong one: its connection goes on."""
    try:
        return check(read())
    except TisError as error:
        return f"the answer cannot be read: {error.message}"


def grpc_templates(form: Form, steps: Sequence[Step]) -> list[GrpcTemplate]:
    """Raises BadRequest."""
    writer = RequestMessage()
    outputs = WantedOutputs(form.places) if form.places else None
    pack = PACKED[form.compression] if form.compression else None
    made = []
    for step in steps:
        parameters = {**step.parameters, **(_sequence(True) if form.sequences else {})}
        if form.decoupled:
            parameters["triton_enable_empty_final_response"] = True
        pieces: list[Any] = writer.render(
            form.model,
            list(step.tensors),
            version=form.version,
            parameters=parameters,
            id=ID if form.stream else "",
            outputs=outputs,
        )
        message = b"".join(bytes(piece.memory()) if isinstance(piece, BufferTensor) else piece for piece in pieces)
        at = message.index(ID.encode(), len(form.model)) if form.stream else -1
        marks = _message_marks(message) if form.sequences else None
        made.append(GrpcTemplate(message, at, _grpc_check(step.check), marks, pack))
    return made


def _grpc_check(check: Check | None) -> Callable[[bytes], str] | None:
    """Of a stream, too: the message within is given."""
    if check is None:
        return None
    return lambda message: _wrong(check, lambda: read_infer_response(message))


def call_fields(form: Form) -> CallFields:
    """Of each gRPC call.  Raises BadRequest for headers that are no metadata."""
    method = b"ModelStreamInfer" if form.stream else b"ModelInfer"
    pairs = [
        (b":method", b"POST"),
        (b":scheme", b"https" if form.address.tls else b"http"),
        (b":path", PATH + method),
        (b":authority", form.address.authority.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"tisfast-bench"),
    ]
    if form.compression:
        pairs.append((b"grpc-encoding", form.compression.encode()))
    return CallFields(pairs + [_metadata(name, value) for name, value in form.headers])


def _metadata(name: str, value: str) -> tuple[bytes, bytes]:
    lower = name.lower()
    if not lower.isascii() or not lower.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise BadRequest(f"{name!r:.60} is no name of metadata")
    if lower.startswith("grpc-") or lower in ("te", "content-type", "user-agent"):
        raise BadRequest(f"the header {name} is written with each call, and cannot be set")
    if not value.isascii() or not value.isprintable():
        raise BadRequest(f"the header {name} has a value that is not printable ASCII")
    plain = base64.b64encode(value.encode()).rstrip(b"=") if lower.endswith("-bin") else value.encode()
    return lower.encode(), plain
