"""One lock for each name that is worked on.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class NameLocks:
    """Locks by name, kept only while one is held or wanted: names may be whatever clients ask for."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        """Names whose lock is held or wanted."""
        return len(self._entries)

    @asynccontextmanager
    async def all_of(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Hold the locks of all names.  All callers take them in one order, so none waits for ever."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                await stack.enter_async_context(self._one(name))
            yield

    @asynccontextmanager
    async def _one(self, name: str) -> AsyncIterator[None]:
        entry = self._entries.setdefault(name, _Entry())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[name]
