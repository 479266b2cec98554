"""What may be the cause when a server cannot be talked to: another port, or encryption.  Layer 5 (bench)."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from tisfast.bench.encryption import Encryption
from tisfast.client import ConnectFailed, ConnectionLost
from tisfast.client.address import Address
from tisfast.errors import TisError

HANDSHAKE_SECONDS_MAX: Final = 2.0


def hint(error: TisError, tls: Encryption | None, address: Address) -> str:
    """What to do, for the end of the error's text; or ""."""
    said = error.message
    if isinstance(error, ConnectionLost):
        return speaks_tls(address) if tls is None else _no_certificate(tls, address)
    if tls is not None and isinstance(error, ConnectFailed) and "WRONG_VERSION_NUMBER" in said:
        return f"; that port does not speak TLS: write -u {address._replace(tls=False)}, without flags of encryption"
    if not address.grpc and "b'\\x00\\x00" in said:  # it begins with a frame of HTTP/2
        return "; if that is the server's port of gRPC, add -i grpc"
    if address.grpc and "does not speak gRPC" in said:
        return "; if that is the server's port of HTTP, use -i http"
    return ""


def speaks_tls(address: Address) -> str:
    """As `hint`, when a server closes a connection that is not encrypted: it is asked in TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with socket.create_connection((address.host, address.port), HANDSHAKE_SECONDS_MAX) as plain:
            context.wrap_socket(plain, server_hostname=address.host).close()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return ""
    except OSError:
        return ""
    return f"; that port speaks TLS: write -u {address._replace(tls=True)}"


def _no_certificate(tls: Encryption, address: Address) -> str:
    if tls.cert is not None:
        return ""
    flag = "--ssl-grpc-certificate-chain-file" if address.grpc else "--ssl-https-client-certificate-file"
    return f"; if it asks clients for a certificate, name one with {flag}"
