"""Blocking work beside the event loop, a bounded number at a time.  Layer 3 (storage).

Daemon threads: a read that hangs in a dead network must not hold up the server's end.  And not those of the loop's
executor, where it would take the place of other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Event-loop thread only."""

    def __init__(self, most: int) -> None:
        self._slots = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; returns or raises what it does.  When cancelled, the thread ends by itself and is not
        waited for.
        """
        async with self._slots:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()

            def settle(set_it: Callable[[Any], None], value: object) -> None:
                if not done.cancelled():
                    set_it(value)

            def body() -> None:
                set_it: Callable[[Any], None] = done.set_result
                value: object
                try:
                    value = work()
                except BaseException as error:  # handed to the waiter, whatever it is
                    set_it, value = done.set_exception, error
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(settle, set_it, value)

            threading.Thread(target=body, name="tisfast-storage", daemon=True).start()
            return await done
