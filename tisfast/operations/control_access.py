"""Access to loads and unloads: the control API runs the code that it gets, so it is restricted.  Layer 4 (operations).

With a token file: callers with a token, from wherever.  Else, where restricted APIs name the category model-repository,
callers with their header.  Else programs on this machine; a proxy on this machine speaks for others, and a browser for
the pages that it shows, so what comes through one of them is not taken for that.
"""

from __future__ import annotations

import ipaddress
import socket
from asyncio import BaseTransport
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tisfast import limits
from tisfast.errors import BadRequest, Forbidden, TisError, Unauthenticated
from tisfast.operations.http_response import Response, error_response
from tisfast.operations.tokens import TokenFile

if TYPE_CHECKING:
    from tisfast.config.settings import RepositorySettings
    from tisfast.wire.head import Head

CATEGORY: Final = "model-repository"
SIDECARS: Final = frozenset({"127.0.0.6"})
"""Loopback addresses from which a proxy in the same pod passes on the connections of others (Istio's)."""
FORWARDED: Final = (
    "forwarded", "x-real-ip", "via", "x-client-ip", "true-client-ip", "x-cluster-client-ip", "x-original-forwarded-for",
    "x-envoy-external-address", "cf-connecting-ip", "fastly-client-ip",
)  # fmt: skip
FORWARDED_PREFIX: Final = "x-forwarded-"
"""Senders of one of these, or of anything with this prefix, are proxies.  What they say is not believed."""
BROWSED: Final = ("origin", "sec-fetch-site", "sec-fetch-mode")
"""Headers that browsers send and pages cannot remove: any page may post to this machine, also through a name of its
own."""
ASK: Final = "start the server with --model-control-token-file to let in whoever has a token"


class ControlGate:
    """The gate of one port.

    tokens: of --model-control-token-file, None without; decided: the port's flag for restricted APIs names the
    category, and has let the call through.
    """

    def __init__(self, tokens: TokenFile | None, *, decided: bool) -> None:
        self._tokens = tokens
        self._decided = decided

    def check(self, headers: Mapping[str, str], transport: BaseTransport) -> None:
        """headers: names in lower case.  Raises Unauthenticated or Forbidden for a caller who may not."""
        if self._tokens is not None:
            _check_token(self._tokens, headers.get("authorization"))
        elif not self._decided:
            _check_local(headers, transport)


class Admission(NamedTuple):
    """refusal: the answer to a request that is not taken; bytes_max: of a body that is."""

    refusal: Response | None
    bytes_max: int


class HttpGate:
    """The gate of an HTTP port, before bodies are received; those of loads may be larger than those of other calls."""

    def __init__(self, gate: ControlGate, max_input_bytes: int) -> None:
        self._gate = gate
        self._others = Admission(None, min(max_input_bytes, limits.HTTP_CALL_BYTES_MAX))
        self._admitted = Admission(None, max(max_input_bytes, limits.CONTROL_BODY_BYTES_MAX))

    def admit(self, head: Head, transport: BaseTransport) -> Admission:
        """Admit or refuse a request that is no inference."""
        if head.method != "POST" or not is_control(head.path):
            return self._others
        loads = head.path.endswith("/load")
        try:
            self._gate.check(_headers(head), transport)
            if loads:
                _check_size(head, self._admitted.bytes_max)
        except TisError as error:
            return Admission(refused(error), 0)
        return self._admitted if loads else self._others


def control_gate(
    settings: RepositorySettings, tokens: TokenFile | None, restricted: Iterable[str]
) -> ControlGate | None:
    """The gate of a port; None where no call loads or unloads anything.  restricted: entries of the port's flag."""
    if settings.control_mode != "explicit":
        return None
    return ControlGate(tokens, decided=names_category(restricted))


def is_control(path: str) -> bool:
    """Whether a POST there loads or unloads a model."""
    return path.startswith("/v2/repository/") and path.endswith(("/load", "/unload"))


def refused(error: TisError) -> Response:
    """The refusal over HTTP: 401 names the scheme (RFC 6750, 3)."""
    response = error_response(error.status, error.message)
    if isinstance(error, Unauthenticated):
        return response._replace(headers=(("WWW-Authenticate", 'Bearer realm="model control"'),))
    return response


def names_category(entries: Iterable[str]) -> bool:
    """Whether entries of --http-restricted-api or --grpc-restricted-protocol name the category."""
    return any(CATEGORY in (name.strip() for name in entry.partition(":")[0].split(",")) for entry in entries)


def is_local(transport: BaseTransport) -> bool:
    """Whether the other side is on this machine: a loopback address, or a Unix socket, which has permissions."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family == socket.AF_UNIX:
        return True
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple) or not peer or not isinstance(peer[0], str):
        return False
    try:
        address = ipaddress.ip_address(peer[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback and str(address) not in SIDECARS


def _check_token(tokens: TokenFile, authorization: str | None) -> None:
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "loading and unloading models needs a token of --model-control-token-file: "
            "send the header 'Authorization: Bearer TOKEN'"
        )
    if not tokens.holds(token.strip()):
        raise Unauthenticated("the bearer token is none of those in --model-control-token-file")


def _check_local(headers: Mapping[str, str], transport: BaseTransport) -> None:
    if not is_local(transport):
        raise Forbidden(f"loading and unloading models is allowed from the server's own machine (loopback) only; {ASK}")
    prefixed = [name for name in headers if name.startswith(FORWARDED_PREFIX)]
    for kind, names in (("a proxy", (*FORWARDED, *prefixed)), ("a browser", BROWSED)):
        found = next((name for name in names if name in headers), None)
        if found is not None:
            raise Forbidden(
                "loading and unloading models is allowed to programs on the server's own machine only, and this call "
                f"came through {kind} (header '{found}'); {ASK}"
            )


def _check_size(head: Head, bytes_max: int) -> None:
    if head.content_length > bytes_max:
        raise BadRequest(
            f"request body of {head.content_length} bytes exceeds the {bytes_max} bytes of a load call; "
            "put the model's files into the repository instead"
        )


def _headers(head: Head) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers()}
