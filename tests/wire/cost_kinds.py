"""What clients send, by kinds: the pieces that the searches put together, what takes it, and what it may cost."""

from __future__ import annotations

import contextlib
import socket
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from typing import NamedTuple

import hpack
from hyperframe.frame import HeadersFrame, PingFrame

from tests.front.grpc.helpers import ECHO, PREFACE, GrpcServer
from tests.loops import fresh_loop
from tests.wire.helpers import arena, model
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json
from tisfast.errors import TisError
from tisfast.operations import model_control
from tisfast.operations.grpc.load_message import load_order
from tisfast.operations.grpc.methods import parsed
from tisfast.wire import chunked, compress, generate, head, infer, json_data
from tisfast.wire.grpc import infer as grpc_infer

NBYTES = 48_000  # below JSON_WEIGHED_BYTES_MIN, where nothing but the parsers' own thrift bounds them
EXPANDED_BYTES = 8 * NBYTES  # what the model's inputs can be, of a compressed body
FREE_BYTES = 64_000
FREE_STEPS = 5_000_000

JSON = [
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b'\\"', b"NaN", b"-", b"Inf", b"inity", b"1", b"0.5", b"e9",
    b"9" * 30, b"true", b"null", b'"a"', b'"data"', b'"data":[', b'"inputs":[', b'{"name":"I",', b'"shape":[3],',
    b'"datatype":"FP32"', b'"binary_data_size":', b'{"id":"', b'"parameters":{', b'"outputs":[', b'"x":', b"\\u0000",
    b"\\ud800", b" ", b"\xff", b"\xf0\x9f\x98\x80", b"[]", b"{}", b"[],", b"{},", b'{"a":1},', b'"ab",', b'""',
    b"-NaN,", b"1.", b"e", b"E-", b"\xc3\xa9", b'"datatype":"BYTES"', b"'", b"a:", b"a ", b"\\u00e9",
]  # fmt: skip
HEADS = [
    b"\r\n", b"\n", b"a: b\r\n", b" ", b"\t", b":", b"%2f", b"/", b"?", b"Host: x\r\n", b"Content-Length: 1\r\n",
    b",", b"\r", b"Transfer-Encoding: chunked\r\n", b"Accept-Encoding: gzip;q=0.5,", b"Expect: 100-continue\r\n",
    b"\xff", b"=", b";", b"q", b"Connection: close,", b"Inference-Header-Content-Length: 1\r\n",
    b"triton-request-id: x", b"Content-Encoding: gzip\r\n", b"a:\r\n", b"traceparent: 00-", b"0",
]  # fmt: skip
CHUNKS = [
    b"1\r\nx\r\n", b"0001\r\nx\r\n", b"1;a=b\r\nx\r\n", b"0\r\n", b"\r\n", b"a", b";", b"\n", b" ", b"f", b"1\n",
]  # fmt: skip
MESSAGES = [
    b"\x0a\x00", b"\x0a\x01m", b"\x12\x00", b"\x1a\x01x", b"\x22\x00", b"\x22\x03\x0a\x01a", b"\x2a\x00",
    b"\x2a\x03\x0a\x01I", b"\x32\x00", b"\x3a\x00", b"\x3a\x01x", b"\x80", b"\xff", b"\x00", b"\x0b", b"\x0c",
    b"\x08\x01", b"\x2a\x04\x1a\x02\x01\x01", b"\x22\x07\x0a\x01a\x12\x02\x08\x01", b"\x2a\x02\x2a\x00",
    b"\x32\x03\x0a\x01O", b"\x2a\x07\x0a\x01I\x12\x04FP32"[:9], b"\x2a\x06\x2a\x04\x32\x02\x00\x00",
    b"\x2a\x80\x80\x00", b"\x2a\x05\x22\x03\x0a\x01a", b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
]  # fmt: skip
CONTROLS = [
    b"\x0a\x00", b"\x12\x01m", b"\x1a\x00", b"\x1a\x03\x0a\x01a", b"\x1a\x02\x12\x00", b"\x1a\x04\x12\x02\x08\x01",
    b"\x1a\x09\x0a\x05force\x12\x00"[:11], b"\x1a\x0c\x0a\x06config\x12\x02\x1a\x00", b"\x22\x00\x1a", b"\x80", b"\x00",
    b"\x1a\x0b\x0a\x05file:\x12\x02\x22\x00", b"\x0b", b"\x0c", b"\x1a\x05\x0a\x01b\x12\x00", b"\xff\x01",
    b"\x0a\x01\xff",
]  # fmt: skip
LONG_FIELD = b"\x40\x01a\x7f\x81\x01" + b"v" * 256
# Static fields, some of the dynamic table, literals (plain, indexed, never indexed, in Huffman's code), table sizes.
FIELDS = [
    b"\x82", b"\x84", b"\xbe", b"\xbf", b"\x40\x01a\x01b", b"\x00\x01a\x01b", b"\x10\x01a\x00", b"\x7e\x01b",
    b"\x0f\x2f\x01b", b"\x40\x81\x1f\x81\x8f", b"\x00\x01a\x84\xff\xff\xff\xfe", b"\x20", b"\x3f\xe1\x1f",
    LONG_FIELD, b"\x00\x01A\x00", b"\x00\x00\x00", b"\x7f\x80", b"\xff\x80\x80", b"\x80",
    b"\x00\x0bgrpc-status\x010", b"\x00\x0cgrpc-timeout\x021S", b"\x00\x07x-y-bin\x04AAAA", b"\x41\x01x",
]  # fmt: skip
EMPTY_GZIP = compress.compress("gzip", b"")
ZEROS_GZIP = compress.compress("gzip", bytes(4000))
LONG_GZIP = compress.compress("gzip", bytes(range(256)))
ZEROS = compress.compress("deflate", bytes(70_000))[2:-4]
DEFLATED = [
    EMPTY_GZIP, ZEROS_GZIP, LONG_GZIP, EMPTY_GZIP[:10],
    b"\x1f\x8b\x08\x1c" + b"\0" * 6 + b"\xff\xff", b"\x1f\x8b\x08\x08\0\0\0\0\0\0name", b"\x78\x01", b"\0\0\0\xff\xff",
    b"\x00\x01\x00\xfe\xffx", b"\x01", b"\x02", b"\x63\x00", b"\x03\x00", b"\x00", b"\xff", b"\x4b\x04", b"\xaa",
    b"\x05\xc0\x81\x00\x00\x00\x00\x00\x90\xff\x6b\x02", b"\x04\xc0", ZEROS,
    compress.compress("deflate", bytes(range(256)) * 8),
]  # fmt: skip


def chunks(data):
    chunked.ChunkDecoder().decode(data, BytesIO(), 1 << 30)


def inference(text, head_bytes=-1):
    infer.parse(model(dtype="FP32", inputs=("I", "J")), arena(), text, head_bytes)


def fields(block):
    """A header block that comes to a gRPC front; what calls it begins, and what it costs until that is answered."""
    with fresh_loop() as loop:
        server = loop.run_until_complete(GrpcServer.start(loop))
        client = loop.run_until_complete(greeted(loop, server.port))
        start = hpack.Encoder().encode([(":method", "POST"), (":scheme", "http"), (":path", ECHO)])
        frames = HeadersFrame(1, start + block, flags=["END_HEADERS", "END_STREAM"]), PingFrame(0, opaque_data=b"x" * 8)
        client.sendall(b"".join(frame.serialize() for frame in frames))
        loop.run_until_complete(answered(loop, client))
        client.close()
        loop.run_until_complete(server.close())


async def greeted(loop, port):
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, PREFACE + bytes.fromhex("000000040000000000"))
    return client


async def answered(loop, client):
    """Until the ping is, or the connection has ended."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while b"x" * 8 not in came and (data := await loop.sock_recv(client, 65536)):
            came += data


def load_message(data):
    load_order(data, lambda short: parsed("inference.RepositoryModelLoadRequest", short))


def settings_message(data):
    parsed("inference.LogSettingsRequest", data)


class Kind(NamedTuple):
    """group: as whoever sends it would say; bytes, steps: of memory and of instructions that each byte of it may take.

    searched: with hypothesis, too, beside which a server's start is slow, and protobuf's memory is not counted.
    """

    group: str
    pieces: list[bytes]
    take: Callable[[bytes], object]
    bytes: float
    steps: float
    searched: bool = True


def json(take, steps=500, group="bodies"):
    """Longer texts are weighed before they are parsed; of these few, one with a single character beyond the BMP has
    four bytes for each of its characters, and is spelled anew.
    """
    return Kind(group, JSON, take, 22, steps)


KINDS = {
    "inference": json(inference),
    "inference with a head": json(lambda text: inference(text, min(len(text), 4000)))._replace(bytes=2),
    "strings": json(lambda text: infer.parse(model(dtype="BYTES"), arena(), text)),
    "generate": json(lambda text: generate.parse(model(dtype="BYTES"), arena(), text)),
    "text": json(json_data.load, 1200),
    "chunks": Kind("bodies", CHUNKS, chunks, 1, 500),
    "head": Kind("heads", HEADS, lambda text: head.parse(b"POST /v2 HTTP/1.1\r\n" + text + b"\r\n\r\n"), 8, 1500),
    "fields": Kind("fields", FIELDS, fields, 24, 200, searched=False),
    "message": Kind(
        "messages", MESSAGES, lambda data: grpc_infer.parse(model(inputs=("I", "J")), arena(), data), 1, 1500
    ),
    "unload": json(model_control.http_unload_dependents, 500, "controls"),
    "load": json(lambda text: model_control.http_load_order("m", text), 12_000, "controls"),
    "configuration": json(lambda text: parse_json(text.decode("latin-1"), Report("j")), 8000, "controls")._replace(
        bytes=200
    ),
    "load message": Kind("controls", CONTROLS, load_message, 20, 5000, searched=False),
    "settings message": Kind("controls", CONTROLS, settings_message, 8, 700, searched=False),
    "gzip": Kind("compressed", DEFLATED, lambda data: compress.decompress("gzip", data, EXPANDED_BYTES), 24, 4000),
    "deflate": Kind(
        "compressed", DEFLATED, lambda data: compress.decompress("deflate", data, EXPANDED_BYTES), 24, 4000
    ),
}
GROUPS = list(dict.fromkeys(kind.group for kind in KINDS.values()))


def made(start, unit, end, nbytes=NBYTES):
    """start, the unit so often that it has nbytes, and end."""
    return start + unit * max(1, nbytes // len(unit)) + end


def taken(kind, data):
    """Taken or refused."""
    with contextlib.suppress(TisError):
        KINDS[kind].take(data)


def cost(kind, data):
    """Bytes of memory that it takes at most while it is taken or refused."""
    taken(kind, b"")  # so that what is made once is there
    tracemalloc.start(1)
    try:
        taken(kind, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
