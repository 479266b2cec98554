"""For conversations that depend on which requests meet in time, by two servers that tell nobody what waits there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec

TRIES: Final = 5
P = ParamSpec("P")


def again(check: Callable[P, None]) -> Callable[P, None]:
    """Check up to TRIES times: what a busy machine does once does not decide, what is so each time does."""

    @functools.wraps(check)
    def tried(*arguments: P.args, **named: P.kwargs) -> None:
        for _ in range(TRIES - 1):
            try:
                return check(*arguments, **named)
            except AssertionError as error:
                print(f"once more, after {error}")
        return check(*arguments, **named)

    return tried
