"""An engine that is asked and cancelled in its own event loop, as language models' are; it says words."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field


@dataclass
class EngineArgs:
    words: list[str]
    broken: bool = False


@dataclass
class Told:
    text: str
    said: int
    finished: bool


@dataclass
class Engine:
    args: EngineArgs
    loggers: list
    gone: set[str] = field(default_factory=set)

    async def tasks(self):
        return ("generate",)

    async def check_health(self):
        if not self.args.words:
            raise RuntimeError("the engine has no words")

    async def abort(self, request_id):
        self.gone.add(request_id)

    async def generate(self, prompt, request_id, max_words):
        words = [*prompt.split(), *self.args.words][:max_words]
        for at, word in enumerate(words):
            await asyncio.sleep(0)
            if word == "!":
                raise ValueError("this word cannot be said")
            if request_id in self.gone:
                return
            for logger in self.loggers:
                logger.record(len(word))
            yield Told(word, at + 1, at + 1 == len(words))


@contextlib.asynccontextmanager
async def started(args, loggers):
    """An engine within `async with`."""
    if args.broken:
        raise RuntimeError("the engine cannot start")
    yield Engine(args, [make(args) for make in loggers])
