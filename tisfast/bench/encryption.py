"""TLS of a load: who is trusted, who the client is, and the bytes of a connection.  Layer 5 (bench).

A load that is not encrypted has nothing of it.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tisfast.client.address import Tls
from tisfast.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    from ssl import SSLContext, SSLError, SSLObject

KEYS: Final = {0x30: "PRIVATE KEY", 0x02: "RSA PRIVATE KEY", 0x04: "EC PRIVATE KEY"}
"""Forms of a private key in DER, by the tag behind its version (PKCS #8, PKCS #1, SEC 1)."""
FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Encryption(Tls):
    """As the client's, with what perf_analyzer's flags say more.

    verify_host: the certificate must name the host; without `verify` nothing is checked, so its name is not, either.
    cert_type, key_type: PEM or DER.
    """

    verify_host: bool = True
    cert_type: str = "PEM"
    key_type: str = "PEM"

    def context(self, grpc: bool) -> SSLContext:
        """Raises BadRequest for a file that cannot be used."""
        import ssl  # noqa: PLC0415 - 10 ms, only for who needs it

        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise BadRequest(
                f"TLS: {self.ca} holds no certificates in PEM that could be trusted: {reason(error)}"
            ) from None
        if self.cert is not None:
            self._load(context)
        if not (self.verify and self.verify_host):
            context.check_hostname = False
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"] if grpc else ["http/1.1"])
        return context

    def _load(self, context: SSLContext) -> None:
        """The client's own certificate and key."""
        cert, key = str(self.cert), str(self.key or self.cert)

        def no_password() -> str:  # without it OpenSSL would ask on the terminal
            raise BadRequest(f"TLS: the private key {key} is encrypted; give one that is not")

        try:
            with as_pem(cert, self.cert_type) as cert_file, as_pem(key, self.key_type) as key_file:
                context.load_cert_chain(cert_file, key_file, no_password)
        except OSError as error:
            raise BadRequest(
                f"TLS: {cert} ({self.cert_type}) and {key} ({self.key_type}) are no certificate and its private key: "
                f"{reason(error)}"
            ) from None


@contextmanager
def as_pem(path: str, kind: str) -> Iterator[str]:
    """A name under which OpenSSL finds the file in PEM; what was DER is in no file system.  Raises OSError."""
    if kind == "PEM":
        yield path
        return
    with Path(path).open("rb") as file:
        data = file.read(FILE_BYTES_MAX)
    text = base64.encodebytes(data).decode()
    label = _label(data)
    made = os.memfd_create("tisfast-bench-der", os.MFD_CLOEXEC)
    try:
        os.write(made, f"-----BEGIN {label}-----\n{text}-----END {label}-----\n".encode())
        yield f"/proc/self/fd/{made}"
    finally:
        os.close(made)


def _label(data: bytes) -> str:
    """What PEM calls this DER: a key begins with its version, a certificate with what was signed."""
    header = 2 + (data[1] & 0x7F if len(data) > 1 and data[1] & 0x80 else 0)
    if data[header : header + 2] == b"\x02\x01" and len(data) > header + 3:
        return KEYS.get(data[header + 3], "PRIVATE KEY")
    return "CERTIFICATE"


def reason(error: Exception) -> str:
    """OpenSSL's, in words."""
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"its certificate was not accepted: {verify}"
    why: str | None = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return why.replace("_", " ").lower() if why and why.isupper() else (why or str(error))


class Channel:
    """One connection's encryption, over a socket that does not block.  grpc: it must speak HTTP/2."""

    __slots__ = ("_at", "_closed", "_grpc", "_incoming", "_object", "_outgoing", "_rest", "_wants")

    def __init__(self, context: SSLContext, server_name: str, grpc: bool) -> None:
        import ssl  # noqa: PLC0415

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object: SSLObject = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._wants: type[SSLError] = ssl.SSLWantReadError
        self._closed: type[SSLError] = ssl.SSLZeroReturnError
        self._grpc = grpc
        self._rest, self._at = b"", 0  # what the socket has not taken

    def shake(self, fd: int, room: bytearray) -> bool:
        """Go on with the handshake; what it has to say is for `send`.  True: it is done.  Raises Unavailable."""
        if not self.receive(fd, room):
            raise Unavailable("the server closed the connection in the TLS handshake")
        try:
            self._object.do_handshake()
        except self._wants:
            return False
        except OSError as error:
            self.send(fd)  # so that the server knows why, too
            raise Unavailable(f"TLS: {reason(error)}") from None
        if self._grpc and self._object.selected_alpn_protocol() != "h2":
            raise Unavailable("TLS: the server did not choose HTTP/2 (ALPN h2), which gRPC needs")
        return True

    def receive(self, fd: int, room: bytearray) -> bool:
        """Take what came, through `room`.  False: the server has closed.  Raises Unavailable."""
        try:
            n = os.readv(fd, (room,))
        except BlockingIOError:
            return True
        except OSError as error:
            raise _lost(error) from None
        self._incoming.write(memoryview(room)[:n])
        return n > 0

    def read_into(self, room: bytearray) -> int:
        """Bytes of what came, deciphered; 0: nothing more is there; -1: the server has closed.  Raises Unavailable."""
        if not self._incoming.pending and not self._object.pending():
            return 0
        try:
            return self._object.read(len(room), room) or -1  # type: ignore[return-value]
        except self._wants:
            return 0
        except self._closed:
            return -1
        except OSError as error:
            raise Unavailable(f"the connection was lost: TLS: {reason(error)}") from None

    def seal(self, data: bytes) -> None:
        """Keep it for `send`.  Raises Unavailable."""
        try:
            self._object.write(data)
        except OSError as error:
            raise Unavailable(f"the connection was lost: TLS: {reason(error)}") from None

    def send(self, fd: int) -> bool:
        """Send what is kept.  False: the socket takes no more now.  Raises Unavailable."""
        if self._outgoing.pending:
            self._rest, self._at = self._rest[self._at :] + self._outgoing.read(), 0
        try:
            while self._at < len(self._rest):
                self._at += os.write(fd, memoryview(self._rest)[self._at :] if self._at else self._rest)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _lost(error) from None
        self._rest, self._at = b"", 0
        return True

    @property
    def waiting(self) -> bool:
        """Something is kept that was not sent."""
        return bool(self._rest or self._outgoing.pending)


def _lost(error: OSError) -> Unavailable:
    return Unavailable(f"the connection was lost: {error.strerror or error}")
