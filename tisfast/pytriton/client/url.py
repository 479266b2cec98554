"""Addresses of servers as PyTriton writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tisfast.pytriton.client.exceptions import PyTritonClientInvalidUrlError
from tisfast.pytriton.constants import DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT

_PORTS: Final = {"http": DEFAULT_HTTP_PORT, "grpc": DEFAULT_GRPC_PORT}


@dataclass(frozen=True)
class TritonUrl:
    """[http|grpc://]HOST[:PORT]."""

    scheme: str
    hostname: str
    port: int

    @classmethod
    def from_url(cls, url: Any) -> TritonUrl:
        """Without a scheme it is HTTP, without a port Triton's of the scheme.  Raises PyTritonClientInvalidUrlError."""
        if not isinstance(url, str):
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. Url must be a string.")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            scheme, hostname, port = parts.scheme.lower(), parts.hostname, parts.port
        except ValueError as error:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. {error}") from error
        if scheme not in _PORTS:
            raise PyTritonClientInvalidUrlError(
                f"Invalid url {url}. The scheme is {scheme!r}; known are {' and '.join(_PORTS)}."
            )
        if not hostname or port == 0:
            raise PyTritonClientInvalidUrlError(f"Invalid url {url}. It is [http|grpc://]HOST[:PORT].")
        return cls(scheme, hostname, port or _PORTS[scheme])

    @property
    def with_scheme(self) -> str:
        """SCHEME://HOST:PORT."""
        return f"{self.scheme}://{self.without_scheme}"

    @property
    def without_scheme(self) -> str:
        """HOST:PORT."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"
