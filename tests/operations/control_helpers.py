"""A stand-in for the lifecycle, with its face: it notes what it is told, and ends calls when told to."""

from __future__ import annotations

import asyncio
import os


class FakeControl:
    """Calls end at once, unless `hold` has been called: then when `let_go` is."""

    def __init__(self, explicit=True):
        self.explicit = explicit
        self.loaded, self.unloaded, self.error = [], [], None
        self._held = None

    def hold(self):
        self._held = asyncio.Event()

    def let_go(self):
        self._held.set()

    async def load(self, order):
        self.loaded.append(order)
        await self._end()

    async def unload(self, name, *, dependents=False):
        self.unloaded.append((name, dependents))
        await self._end()

    async def _end(self):
        if self._held is not None:
            await self._held.wait()
        if self.error is not None:
            raise self.error


def write(file, text):
    """As whoever rotates secrets does: a new file in the place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)
