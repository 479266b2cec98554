"""Which requests were executing when a model's workers died: a request that kills each worker is not to be sent again.

A request is known by its content, as it comes again as another one.  Layer 4 (processes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from tisfast import limits
from tisfast.errors import TisError
from tisfast.wire.fingerprint import fingerprint

_NEXT = "new instance is being started"
SAFE = f"retrying is safe: a {_NEXT}"


class Deaths:
    """The deaths of one model version's workers."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def advice(self, requests: Sequence[Any]) -> dict[str, list[Any]]:
        """The error text for each request that a worker had when it died, once for each death."""
        told: dict[str, list[Any]] = {}
        for request in requests:
            told.setdefault(self._advice(request), []).append(request)
        return told

    def _advice(self, request: Any) -> str:
        given = getattr(request, "input", None)
        if regions := given.gpu_regions() if given is not None else ():
            its, them = ("input in region", "it") if len(regions) == 1 else ("inputs in regions", "them")
            names = ", ".join(f"'{name:.60}'" for name in regions)
            return f"its {its} {names} may be changed: write {them} again before you retry. A {_NEXT}"
        digest = _digest(given)
        if digest is None:
            return SAFE
        number = self._counts.pop(digest, 0) + 1
        if len(self._counts) >= limits.DEATHS_REMEMBERED_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[digest] = number
        if number == 1:
            return SAFE
        return (
            f"a request with these inputs was executing each of the {number} times, so it may be what ends the worker: "
            "look at it before you send it again"
        )


class _Bounded:
    """A hash of what tensors begin with: their sizes are in the request's record."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)

    def update(self, data: Any) -> None:
        """More of the request."""
        self.hash.update(data[: limits.DEATH_DIGEST_BYTES_MAX])

    def digest(self) -> bytes:
        """The digest of the whole input."""
        return self.hash.digest()


def _digest(given: Any) -> bytes | None:
    """The digest of a request; None where the memory is the client's, which may have changed it."""
    try:
        return fingerprint(given, _Bounded()) if given is not None else None
    except TisError:  # its record is not sound: the worker that died may have written to it
        return None
