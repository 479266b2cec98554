"""--grpc-restricted-protocol and --grpc-header-forward-pattern, for calls.  Layer 4 (operations).

Asked only when the flag is given.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import orjson

from tisfast.errors import Unavailable
from tisfast.operations.header_forward import HeaderForward
from tisfast.operations.restrictions import Restrictions

if TYPE_CHECKING:
    from tisfast.config.settings import GrpcSettings

RESTRICTED_PREFIX: Final = "triton-grpc-protocol-"
TRANSPORT: Final = frozenset(("te", "content-type", "triton_grpc_error"))
"""Fields that gRPC and this server take for themselves, besides grpc-*: nothing a model is told."""
BINARY_SUFFIX: Final = "-bin"


class GrpcRestriction:
    """Restricted methods."""

    def __init__(self, restrictions: Restrictions) -> None:
        self._restrictions = restrictions

    def check(self, category: str, metadata: Mapping[str, str] | None) -> None:
        """Raises Unavailable, with Triton's text, for a call that lacks the field it needs."""
        refusal = self._restrictions.refusal(category, metadata or {})
        if refusal is not None:
            raise Unavailable(refusal)


class MetadataForward:
    """Metadata that become request parameters."""

    def __init__(self, forward: HeaderForward) -> None:
        self._forward = forward

    def parameters(self, metadata: Mapping[str, str] | None) -> bytes:
        """The forwarded parameters as a JSON object; b"" for none.  Raises BadRequest for a reserved name."""
        given = (
            (name, _binary(value) if name.endswith(BINARY_SUFFIX) else value)
            for name, value in (metadata or {}).items()
            if name not in TRANSPORT and not name.startswith("grpc-")
        )
        found = self._forward.parameters(given)
        return orjson.dumps(found) if found else b""


def _binary(value: str) -> str:
    """Fields whose names end in -bin are bytes, in base64 on the wire, padded or not; a parameter is a text."""
    try:
        data = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return value
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def grpc_restriction(settings: GrpcSettings) -> GrpcRestriction | None:
    """None when nothing is restricted.  Raises ConfigError, naming the flag."""
    restrictions = Restrictions(
        settings.restricted, flag="grpc-restricted-protocol", prefix=RESTRICTED_PREFIX, noun="protocol"
    )
    return GrpcRestriction(restrictions) if restrictions else None


def metadata_forward(settings: GrpcSettings) -> MetadataForward | None:
    """None when nothing is forwarded.  Raises ConfigError, naming the flag."""
    pattern = settings.forward_pattern
    if not pattern:
        return None
    return MetadataForward(HeaderForward(pattern, flag="grpc-header-forward-pattern", ignore_case=True))
