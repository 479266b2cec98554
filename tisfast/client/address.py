"""Where a server is: what a URL says.  Layer 3 (client)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from tisfast.errors import BadRequest

if TYPE_CHECKING:
    from ssl import SSLContext

PORTS: Final = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}
"""Of a URL without a port: Triton's."""


class Address(NamedTuple):
    """A server's address.  grpc: else HTTP; path: in front of HTTP's paths, "" for none."""

    host: str
    port: int
    grpc: bool
    tls: bool
    path: str = ""

    @property
    def authority(self) -> str:
        """HOST:PORT, as headers have it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """It is this machine's, as far as the name says."""
        return self.host == "localhost" or (self.numeric and ip_address(self.host).is_loopback)

    @property
    def numeric(self) -> bool:
        """The host is a number, which nobody has to look up."""
        try:
            ip_address(self.host)
        except ValueError:
            return False
        return True

    def __str__(self) -> str:
        """As a URL."""
        scheme = ("grpcs" if self.tls else "grpc") if self.grpc else ("https" if self.tls else "http")
        return f"{scheme}://{self.authority}{self.path}"


def parse_url(url: str, port: int = 0) -> Address:
    """HOST[:PORT], or a URL of http, https, grpc or grpcs.  port: if none is said; 0: Triton's.  Raises BadRequest."""
    if not isinstance(url, str):
        raise BadRequest(f"{url!r:.200} is no address of a server: it must be a text, HOST:PORT or SCHEME://HOST:PORT")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        said = parts.port
    except ValueError as error:
        raise BadRequest(f"{url!r:.200} is no address of a server: {error}") from None
    if said == 0:
        raise BadRequest(f"{url!r:.200} has the port 0, at which nobody listens; leave it out for Triton's")
    if parts.scheme not in PORTS:
        known = ", ".join(f"{scheme}://" for scheme in PORTS)
        raise BadRequest(f"{url!r:.200} begins with '{parts.scheme}://'; known are {known}")
    if not parts.hostname or parts.username or parts.query or parts.fragment:
        raise BadRequest(f"{url!r:.200} is no address of a server: it must be HOST:PORT or SCHEME://HOST:PORT")
    try:
        parts.hostname.encode("idna")  # as the system's resolver wants it
    except UnicodeError as error:
        raise BadRequest(f"{url!r:.200} has no name of a host: {error}") from None
    path = parts.path.rstrip("/")
    grpc = parts.scheme.startswith("grpc")
    if path and grpc:
        raise BadRequest(f"{url!r:.200} has the path '{path}', which gRPC has no place for")
    return Address(parts.hostname, said or port or PORTS[parts.scheme], grpc, parts.scheme in ("https", "grpcs"), path)


@dataclass(frozen=True)
class Tls:
    """How an encrypted connection is checked.

    ca: a file of certificates to trust, None for the system's; cert, key: the client's own files; verify: False trusts
    whoever answers, which is for tests; server_name: the name in the server's certificate, "" for the URL's host.
    Raises BadRequest.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    server_name: str = ""

    def __post_init__(self) -> None:
        """Values of other types would end in OpenSSL, or be taken for something else."""
        for name in ("ca", "cert", "key"):
            file = getattr(self, name)
            if file is not None and not isinstance(file, str | os.PathLike):
                raise BadRequest(f"Tls({name}={file!r:.100}) must be the path of a file, or None")
        if self.key is not None and self.cert is None:
            raise BadRequest(f"Tls(key={self.key!r:.100}) has no cert=, the certificate that this is the key of")
        if not isinstance(self.verify, bool):
            raise BadRequest(f"Tls(verify={self.verify!r:.100}) must be True or False")
        if not isinstance(self.server_name, str):
            raise BadRequest(f"Tls(server_name={self.server_name!r:.100}) must be a text, the name in the certificate")

    def context(self, grpc: bool) -> SSLContext:
        """For one client.  Raises BadRequest for files and names that cannot be used."""
        import ssl  # noqa: PLC0415 - 10 ms, only for who needs it

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = f"ca={self.ca!r}, cert={self.cert!r}, key={self.key!r}"
            raise BadRequest(f"TLS cannot be set up with {files}: {error}") from None
        if self.server_name:
            try:
                context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=self.server_name)
            except (OSError, ValueError) as error:
                raise BadRequest(f"Tls(server_name={self.server_name!r:.100}) is no name of a host: {error}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"] if grpc else ["http/1.1"])
        return context
