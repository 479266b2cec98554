"""The server's flags about a request's headers: restrictions, and what is forwarded.  Layer 4 (operations).

Asked once for each head that a connection has not just seen, and only when one of the flags is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from tisfast.errors import TisError
from tisfast.operations.header_forward import HeaderForward
from tisfast.operations.http_response import Response, error_response, http_error
from tisfast.operations.restrictions import Restrictions
from tisfast.operations.routes import category_of

if TYPE_CHECKING:
    from tisfast.config.settings import HttpSettings
    from tisfast.wire.head import Head


class HeaderDecision(NamedTuple):
    """refusal: the answer to a request that may not be made; forwarded: parameters as JSON, b"" for none."""

    refusal: Response | None
    forwarded: bytes


class Policy(Protocol):
    """What a listener asks about a head."""

    def judge(self, head: Head) -> HeaderDecision:
        """Whether the request may be made, and what of it is forwarded."""


class HeaderPolicy:
    """--http-restricted-api and --http-header-forward-pattern."""

    def __init__(self, restrictions: Restrictions, forward: HeaderForward | None) -> None:
        self._restrictions = restrictions
        self._forward = forward

    def judge(self, head: Head) -> HeaderDecision:
        """Restriction comes first: before verb and model are looked at."""
        pairs = [(name.decode("latin-1"), _text(value)) for name, value in head.headers()]
        category = category_of(head.path)
        if category:
            refusal = self._restrictions.refusal(category, {name.lower(): value for name, value in pairs})
            if refusal is not None:
                return HeaderDecision(http_error(403, refusal), b"")
        if self._forward is None or not head.is_infer:
            return HeaderDecision(None, b"")
        try:
            parameters = self._forward.parameters(pairs)
        except TisError as error:
            return HeaderDecision(error_response(error.status, error.message), b"")
        return HeaderDecision(None, orjson.dumps(parameters) if parameters else b"")


def http_policy(settings: HttpSettings) -> HeaderPolicy | None:
    """The policy that these settings ask for, None when they ask for none.  Raises ConfigError, naming the flag."""
    restrictions = Restrictions(settings.restricted, flag="http-restricted-api")
    pattern = settings.forward_pattern
    forward = HeaderForward(pattern, flag="http-header-forward-pattern", ignore_case=True) if pattern else None
    return HeaderPolicy(restrictions, forward) if restrictions or forward else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
