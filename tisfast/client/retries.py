"""When a call is made again.  Layer 3 (client)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from numbers import Real
from typing import Final

from tisfast import limits
from tisfast.client.errors import ClientClosed, ConnectFailed, ConnectionLost, TimedOut
from tisfast.errors import BadRequest, TisError, Unavailable


@dataclass(frozen=True)
class Retries:
    """count: calls beyond the first one; seconds: from the first one's start, after which none begins; pause_seconds:
    before the second one, doubled for each further one and drawn between a half and the whole.  Raises BadRequest.
    """

    count: int = 2
    seconds: float = 10.0
    pause_seconds: float = 0.05

    def __post_init__(self) -> None:
        """None may be less than 0, or without end."""
        most = limits.CLIENT_RETRIES_MAX
        if not isinstance(self.count, int) or isinstance(self.count, bool) or not 0 <= self.count <= most:
            raise BadRequest(f"Retries(count={self.count!r:.60}) must be an integer from 0 to {most}")
        for name in ("seconds", "pause_seconds"):
            value = getattr(self, name)
            number = isinstance(value, int | float | Real) and not isinstance(value, bool)
            if not number or not 0 <= value <= limits.CLIENT_SECONDS_MAX:
                raise BadRequest(
                    f"Retries({name}={value!r:.60}) must be seconds, from 0 to {limits.CLIENT_SECONDS_MAX}"
                )

    def pause(self, error: TisError, made: int, passed: float) -> float | None:
        """Seconds until the call is made again; None: it is not.

        made: how often it was made; passed: seconds since the first time.  Only what has executed nothing is made
        again: no connection, and what the server itself says is for later (HTTP 503, gRPC UNAVAILABLE), but for what
        it marks as perhaps executed.
        """
        if made > self.count or not repeatable(error):
            return None
        pause = self.pause_seconds * 2 ** (made - 1) * (0.5 + random.random() / 2)
        wanted = error.facts.get("retry_after")
        if isinstance(wanted, float):
            pause = max(pause, wanted)
        return pause if passed + pause <= self.seconds else None


def repeatable(error: TisError) -> bool:
    """The same call may be made again without harm, and may succeed."""
    if isinstance(error, ConnectFailed):
        return True
    if isinstance(error, ClientClosed | ConnectionLost | TimedOut) or error.facts.get("executed"):
        return False
    return isinstance(error, Unavailable)


NO_RETRIES: Final = Retries(count=0)
