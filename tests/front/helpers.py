"""A front with fake instances on a real socket, and a client that reads HTTP answers one by one."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import NamedTuple

from tests.loops import fresh_loop
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.engine.registry import Registry
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.testing import FakeClock, FakeLink
from tisfast.front.http import HttpFront
from tisfast.native.memory import Arena
from tisfast.operations.http_response import Response
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service
from tisfast.types import Status
from tisfast.wire.signature import ModelSignature

SCHEDULER = SchedulerSettings()
SECONDS_MAX = 60  # of a scenario, on a machine that has much else to do


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """Raw bytes out, parsed answers in."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self.socket = writer.get_extra_info("socket")

    def write(self, data):
        self._writer.write(data)

    @property
    def gone(self):
        return self._writer.is_closing() or self._reader.at_eof()

    def close(self):
        self._writer.close()

    def stop_reading(self):
        self._writer.transport.pause_reading()

    def start_reading(self):
        self._writer.transport.resume_reading()

    async def read(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    async def read_head(self):
        """Status and headers of an answer whose body comes in chunks."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        return int(head[0].split()[1]), headers

    async def read_chunk(self):
        """The next chunk, b"" for the last one."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        chunk = await self._reader.readexactly(size + 2)
        assert chunk.endswith(b"\r\n")
        return chunk[:-2]

    async def read_bytes(self, nbytes):
        """So many of a body."""
        return await self._reader.readexactly(nbytes)

    async def read_rest(self):
        """All bytes until the server closes."""
        return await self._reader.read()

    async def at_end(self):
        try:
            return await self._reader.read() == b""
        except ConnectionResetError:
            return True


class Server:
    """The front under test."""

    big = 3 << 20

    @classmethod
    async def start(
        cls, loop, *, max_input_bytes=64 << 20, decoupled=False, policy=None, tls=None, gate=None, control=None
    ):
        self = cls()
        self.loop, self.errors, self.routed = loop, [], 0
        loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self.registry = Registry()
        signature = ModelSignature("m", "1", 0, decoupled, [("I", 11, (-1,), False, False)], [("O", 11, (-1,))])
        self.clock = FakeClock()
        self.runtime = ModelRuntime(signature, Arena("in", 1 << 30, 1 << 29), SCHEDULER, self.clock, {})
        self.link = FakeLink("m_0_0", self.runtime, self.clock)
        self.runtime.add_link(self.link)
        self.runtime.set_state(True, "")
        self.registry.add(self.runtime)
        self.registry.set_live(True)
        self.control = control
        self._routes = Routes(Service(self.registry, server_id="test", server_version="0", control=control))
        self.front = HttpFront(self.registry, self, loop, max_input_bytes=max_input_bytes, policy=policy, gate=gate)
        self._server = await loop.create_server(self.front.protocol_factory, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self._clients = []
        return self

    def handle(self, head, body):
        self.routed += 1
        if head.path == "/big":
            return Response(200, "application/octet-stream", bytes(self.big), ())
        return self._routes.handle(head, body)

    def keep_send_buffers_at(self, nbytes):
        """Of connections to come: else the kernel lets them grow."""
        self._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, nbytes)

    async def connect(self, receive_buffer=0, tls=None, limit=1 << 24):
        """limit: bytes that a client reads ahead of who asks for them."""
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await self.loop.sock_connect(sock, ("127.0.0.1", self.port))
        named = "localhost" if tls else None
        client = Client(*await asyncio.open_connection(sock=sock, limit=limit, ssl=tls, server_hostname=named))
        self._clients.append(client)
        await self.until(lambda: self.front.connections >= len([c for c in self._clients if not c.gone]))
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

    def execute_all(self):
        while self.link.dispatched:
            self.execute()

    def sweep(self, seconds):
        for _ in range(seconds):
            self.front._shared.sweep()

    async def close(self):
        self.execute_all()
        for client in self._clients:
            client.close()
        await self.gone()
        self._server.close()
        self.front.begin_drain()


def serve(scenario, server_type=Server, **options):
    """Runs a coroutine function with a fresh server on a fresh loop; whatever it did, no block may stay out."""
    with fresh_loop() as loop:
        server = loop.run_until_complete(server_type.start(loop, **options))
        try:
            loop.run_until_complete(asyncio.wait_for(scenario(server), SECONDS_MAX))
        finally:
            loop.run_until_complete(asyncio.wait_for(server.close(), SECONDS_MAX))
        assert server.runtime.arena.used_blocks == 0
        assert server.errors == []


ADD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps({"inputs": [{"name": "I", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()


def infer(body=BODY, headers=b""):
    return ADD + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
