"""What the tests of the client share."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import trustme

from tests.system.helpers import Server


class Place(NamedTuple):
    """The URLs of a server."""

    http: str
    grpc: str
    metrics: str
    server: Server


def place_of(server: Server) -> Place:
    said = server.said(lambda r: r.get("event") == "ready", "ready")
    http, grpc, metrics = (f"127.0.0.1:{said[name]}" for name in ("http_port", "grpc_port", "metrics_port"))
    return Place(f"http://{http}", f"grpc://{grpc}", f"http://{metrics}", server)


@contextmanager
def answering(*behaviours: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of a test at HOST:PORT: the n-th connection is given to the n-th behaviour, and closed behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for behave in behaviours:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return  # the test needed no further connection
                with connection, suppress(ConnectionError):  # a client may go in the middle
                    behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()


def read_request(connection: socket.socket) -> bytes:
    """A whole HTTP request."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += (got := connection.recv(65536))
        if not got:
            return b""  # the client wants no more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    nbytes = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)
    while len(body) < nbytes and (got := connection.recv(65536)):
        body += got
    return head + b"\r\n\r\n" + body


def respond(body: bytes = b"{}", status: str = "200 OK", more: str = "") -> Callable[[socket.socket], None]:
    """Answer one request."""

    def behave(connection: socket.socket) -> None:
        if not read_request(connection):
            return
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        connection.sendall(head.encode() + body)

    return behave


def speak_http_1(connection: socket.socket) -> None:
    """What HTTP/1.1 says to an HTTP/2 client.  It reads until that goes: a reset would overtake the answer."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    while connection.recv(65536):
        pass


def server_context(folder):
    """Of a TLS server at 127.0.0.1; the authority's certificate is in ca.pem of the folder."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return context


@contextmanager
def recorded(url: str) -> Iterator[tuple[str, bytearray]]:
    """A proxy before a server: its URL, and what clients send, which is whole when it has ended."""
    scheme, _, to = url.partition("://")
    host, _, port = to.rpartition(":")
    sent = bytearray()
    threads: list[threading.Thread] = []

    def begin(target: Callable[..., None], *args: socket.socket) -> None:
        threads.append(threading.Thread(target=target, args=args))
        threads[-1].start()

    def carry(source: socket.socket, target: socket.socket, note: bool) -> None:
        with suppress(OSError):  # a client that aborts resets its connection
            while data := source.recv(65536):
                if note:
                    sent.extend(data)
                with suppress(OSError):  # the rest is still to be noted
                    target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((host, int(port)))
            opened.extend((client, server))
            begin(carry, client, server, True)
            begin(carry, server, client, False)

    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begin(accept)
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", sent
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(60)
    for each in opened:
        each.close()


@contextmanager
def answering_anew(body: bytes) -> Iterator[tuple[str, threading.Event]]:
    """A server that closes its first connection behind METADATA, and answers the second; an event says it is closed."""
    closed = threading.Event()

    def first(connection: socket.socket) -> None:
        respond(METADATA)(connection)
        connection.close()  # on this machine the client's end knows it at once
        closed.set()

    with answering(first, respond(body)) as address:
        yield address, closed


METADATA = (
    b'{"name":"m","versions":["1"],"platform":"python","inputs":[{"name":"A","datatype":"FP32","shape":[-1]}],'
    b'"outputs":[{"name":"B","datatype":"FP32","shape":[-1]}]}'
)
"""Of a model that adds one."""
ANSWER = b'{"model_name":"m","model_version":"1","outputs":[{"name":"B","datatype":"FP32","shape":[1],"data":[2.0]}]}'


def in_turn(*behaviours: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    """Several requests of one connection."""

    def behave(connection: socket.socket) -> None:
        for each in behaviours:
            each(connection)

    return behave
