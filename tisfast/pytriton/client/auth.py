"""The token of a server with restricted calls, as headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tisfast.pytriton.server_config import TRITON_ACCESS_HEADER

__all__ = ["TRITON_ACCESS_HEADER", "create_auth_headers", "extract_access_token_from_headers"]

_GRPC_HEADER: Final = f"triton-grpc-protocol-{TRITON_ACCESS_HEADER}"
_HEADERS: Final = {"http": TRITON_ACCESS_HEADER, "grpc": _GRPC_HEADER}


def create_auth_headers(access_token: str | None, protocol: str) -> dict[str, str]:
    """The header with a token.  protocol: "http" or "grpc".  Raises ValueError for others and for an empty token."""
    if not access_token:
        raise ValueError("Access token cannot be empty.")
    header = _HEADERS.get(protocol.lower())
    if header is None:
        raise ValueError(f"Unsupported protocol: {protocol}; known are {' and '.join(_HEADERS)}.")
    return {header: access_token}


def extract_access_token_from_headers(headers: Mapping[str, str] | None) -> str | None:
    """The token among headers, None where there is none.  Raises ValueError when those of both protocols differ."""
    given = {name.lower(): value for name, value in (headers or {}).items()}
    tokens = {given[name] for name in _HEADERS.values() if name in given}
    if len(tokens) > 1:
        raise ValueError("The access tokens for HTTP and for gRPC differ in these headers.")
    return tokens.pop() if tokens else None
