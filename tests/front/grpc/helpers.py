"""The gRPC front with a fake instance on a real socket, and a client that speaks HTTP/2 frame by frame."""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

import hpack
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tisfast import limits
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.config.settings import GrpcSettings
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink
from tisfast.errors import NotFound
from tisfast.front.grpc.front import NO_EXTRAS, GrpcFront
from tisfast.native.memory import Arena
from tisfast.operations.grpc.methods import StreamMethod, UnaryMethod
from tisfast.types import Status
from tisfast.wire.signature import ModelSignature

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ECHO = "/test.Test/Echo"
FAIL = "/test.Test/Fail"
CRASH = "/test.Test/Crash"
CHAT = "/test.Test/Chat"
WATCH = "/test.Test/Watch"
CRASHING_CHAT = "/test.Test/CrashingChat"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
SCHEDULER = SchedulerSettings()


def message(data: bytes, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


class Result(NamedTuple):
    """One call as the client saw it.  status: of gRPC, as text; None when it was reset."""

    headers: dict[str, str]
    messages: list[bytes]
    status: str | None
    text: str
    reset: int | None


class Chat:
    """A streaming method: every message comes back twice."""

    def __init__(self, send, server):
        self._send, self._server = send, server
        server.chats.append(self)
        self.ended = False

    def on_message(self, message):
        if message == b"bad":
            raise NotFound("no such word")
        if message == b"bug":
            return 1 / 0
        return [message, message]

    def push(self, message):
        self._send(message)

    def on_end(self):
        self.ended = True


class Methods:
    """What stands where the service's methods stand."""

    def __init__(self, server):
        self._server = server
        self._unary = {
            ECHO: UnaryMethod(self._echo, "health", bytes_max=limits.GRPC_COLLECTED_MESSAGE_BYTES_MAX),
            FAIL: UnaryMethod(self._fail, "health", bytes_max=1 << 20),
            CRASH: UnaryMethod(lambda *_: 1 / 0, "health"),
        }

    def unary(self, path):
        return self._unary.get(path)

    def stream(self, path):
        if path in (CHAT, WATCH):
            return StreamMethod(lambda send: Chat(send, self._server), "health", path == CHAT)
        return StreamMethod(lambda send: 1 / 0, "health", True) if path == CRASHING_CHAT else None

    def _echo(self, message, metadata):
        self._server.metadata = metadata
        return message * self._server.times

    def _fail(self, message, metadata):
        raise NotFound(message.decode())


class GrpcServer:
    """The front under test."""

    @classmethod
    async def start(
        cls, loop, *, decoupled=False, times=1, extras=NO_EXTRAS, tls=None, methods=None, room=1 << 29, **settings
    ):
        self = cls()
        self.loop, self.errors, self.chats, self.times, self.metadata = loop, [], [], times, {}
        loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self.registry = Registry()
        signature = ModelSignature("m", "1", 0, decoupled, [("I", 11, (-1,), False, False)], [("O", 11, (-1,))])
        self.clock = FakeClock()
        self.runtime = ModelRuntime(signature, Arena("in", 2 * room, room), SCHEDULER, self.clock, {})
        self.link = FakeLink("m_0_0", self.runtime, self.clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")
        self.registry.add(self.runtime)
        self.registry.set_live(True)
        self.front = GrpcFront(
            self.registry,
            methods(loop) if methods else Methods(self),
            loop,
            GrpcSettings(**settings),
            max_input_bytes=64 << 20,
            extras=extras,
        )
        self._server = await loop.create_server(self.front.protocol_factory, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.clients = []
        return self

    async def connect(self, greet=True, tls=None, limit=1 << 26, **settings):
        named = "localhost" if tls else None
        client = Peer(
            *await asyncio.open_connection("127.0.0.1", self.port, limit=limit, ssl=tls, server_hostname=named)
        )
        self.clients.append(client)
        if greet:
            await client.greet(**settings)
        return client

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0)

    async def settle(self):
        """Let everything that is in flight on this loop and in the loopback arrive."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def dispatched(self, requests):
        await self.until(lambda: sum(map(len, self.link.dispatched)) >= requests)

    async def swept_away(self):
        """Until time has ended all connections."""
        while self.front.connections:
            self.sweep(1)
            await asyncio.sleep(0)

    async def gone(self):
        await self.until(lambda: self.front.connections == 0)

    def execute(self):
        self.link.execute(status=Status.INTERNAL)

    def sweep(self, seconds):
        for _ in range(seconds):
            self.front._shared.sweep()

    async def close(self):
        while self.link.dispatched:
            self.execute()
        for client in self.clients:
            client.close()
        await self.gone()
        self._server.close()
        self.front.begin_drain()


class Peer:
    """A client that may do what no library does.  Frames that arrive are kept until somebody asks for them."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.frames = []
        self.next_id = 1
        self.socket = writer.get_extra_info("socket")
        self.acks = True

    async def greet(self, window=1 << 24, **settings):
        """window: bytes of each answer that the server may send ahead."""
        self.write(PREFACE)
        self.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: window, **settings}))
        self.send(WindowUpdateFrame(0, window_increment=1 << 24))
        await self.frame(SettingsFrame)

    def write(self, data):
        self._writer.write(data)

    def send(self, *frames):
        self._writer.write(b"".join(frame.serialize() for frame in frames))

    def close(self):
        self._writer.close()

    @property
    def transport(self):
        return self._writer.transport

    # ---- calls

    def head(self, path, *fields, end=False, method="POST", content_type="application/grpc"):
        """A HEADERS frame of a new call."""
        stream, self.next_id = self.next_id, self.next_id + 2
        pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "x")]
        block = self.encoder.encode([*pseudo, ("te", "trailers"), ("content-type", content_type), *fields])
        return HeadersFrame(stream, block, flags=["END_HEADERS", *(["END_STREAM"] if end else [])])

    def call(self, path, *fields, body=b"", end=True, **options):
        """Start a call; returns its number."""
        head = self.head(path, *fields, **options)
        self.send(head)
        self.body(head.stream_id, body, end)
        return head.stream_id

    def body(self, stream, data, end=False, size=16384):
        pieces = [data[i : i + size] for i in range(0, len(data), size)] or [b""]
        for left, piece in zip(range(len(pieces) - 1, -1, -1), pieces, strict=True):
            self.send(DataFrame(stream, piece, flags=["END_STREAM"] if end and not left else []))

    async def read(self):
        """The next frame; acknowledgements are given as they are owed."""
        head = await self._reader.readexactly(9)
        frame, length = Frame.parse_frame_header(memoryview(head))
        frame.parse_body(memoryview(await self._reader.readexactly(length)))
        if isinstance(frame, HeadersFrame):
            frame.fields = self.decoder.decode(frame.data)
        if self.acks and isinstance(frame, SettingsFrame | PingFrame) and "ACK" not in frame.flags:
            self.send(type(frame)(0, flags=["ACK"], **({"opaque_data": frame.opaque_data} if frame.type == 6 else {})))
        return frame

    async def frame(self, kind, stream=None):
        """The next frame of that kind, also among those that came before."""
        while True:
            for frame in self.frames:
                if isinstance(frame, kind) and stream in (None, frame.stream_id):
                    self.frames.remove(frame)
                    return frame
            self.frames.append(await self.read())

    async def result(self, stream):
        """The call to its end."""
        headers, data, trailers = None, b"", None
        while True:
            frame = await self.frame(HeadersFrame | DataFrame | RstStreamFrame, stream)
            if isinstance(frame, RstStreamFrame):
                return self._result(headers, data, trailers, frame.error_code)
            if isinstance(frame, DataFrame):
                data += frame.data
                self.refill(stream, len(frame.data))
            elif headers is None:
                headers = dict(frame.fields)
                trailers = headers
            else:
                trailers = dict(frame.fields)
            if "END_STREAM" in frame.flags:
                return self._result(headers, data, trailers, None)

    def refill(self, stream, n):
        if n:
            self.send(WindowUpdateFrame(0, window_increment=n), WindowUpdateFrame(stream, window_increment=n))

    @staticmethod
    def _result(headers, data, trailers, reset):
        messages, at = [], 0
        while at < len(data):
            n = struct.unpack_from(">I", data, at + 1)[0]
            messages.append(data[at + 5 : at + 5 + n])
            at += 5 + n
        trailers = trailers or {}
        return Result(headers or {}, messages, trailers.get("grpc-status"), trailers.get("grpc-message", ""), reset)

    async def ask(self, path, data=b"", *fields, **options):
        return await self.result(self.call(path, *fields, body=message(data), **options))

    async def goaway(self):
        """The last GOAWAY before the connection ends, and its end."""
        last = None
        try:
            while True:
                frame = await self.frame(GoAwayFrame)
                last = frame
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return last
