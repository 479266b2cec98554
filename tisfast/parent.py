"""The program that started this server, when it wants to be told, and to be followed into its end.  Layer 5 (app).

It hands over two descriptors: a pidfd of its own (--parent-pidfd), which no child of it can keep from ending, and the
end of a pipe (--ready-fd) that takes one line of JSON: that the server serves, and where; or why it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence

from tisfast import limits
from tisfast.config.settings import ParentSettings
from tisfast.errors import ConfigError

READY_FLAG = "--ready-fd="


class Parent:
    """The starter of one server.  Without descriptors, nobody wants to know."""

    def __init__(self, settings: ParentSettings) -> None:
        """Takes the descriptors over.  Raises ConfigError for one that is not open."""
        self._pidfd = _own("parent-pidfd", settings.pidfd)
        self._ready = _own("ready-fd", settings.ready_fd)
        self.ended = False
        self._words: _Words | None = None
        if self._ready >= 0:
            self._words = _Words()
            logging.getLogger("tisfast").addHandler(self._words)

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        """Call `ended` once, when the program has ended.  Raises ConfigError for what is no pidfd."""
        if self._pidfd < 0:
            return

        def gone() -> None:
            loop.remove_reader(self._pidfd)
            self.ended = True
            ended()

        try:
            loop.add_reader(self._pidfd, gone)
        except OSError as error:
            raise ConfigError(
                f"--parent-pidfd={self._pidfd} cannot be waited for: {error.strerror}", key="parent-pidfd",
                hint="give the number of an inherited pidfd",
            ) from None  # fmt: skip

    def tell_ready(self, facts: Mapping[str, object]) -> None:
        """The server serves."""
        self._tell({"event": "ready", **facts})

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """At the end of the server: if it never served, the errors of its log say why."""
        self._tell({"event": "failed", "error": self._words.text if self._words is not None else ""})
        if self._pidfd >= 0:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _tell(self, message: Mapping[str, object]) -> None:
        if self._ready < 0:
            return
        if self._words is not None:
            logging.getLogger("tisfast").removeHandler(self._words)
        write_line(self._ready, message)
        os.close(self._ready)
        self._ready = -1


def tell_refused(arguments: Sequence[str], error: ConfigError) -> None:
    """Tell the starter of a server whose flags are wrong."""
    given = next((each.removeprefix(READY_FLAG) for each in arguments if each.startswith(READY_FLAG)), "")
    if given.isdecimal():
        write_line(int(given), {"event": "refused", "error": str(error)})


def write_line(descriptor: int, message: Mapping[str, object]) -> None:
    """One line of JSON; a reader that has gone misses it."""
    with contextlib.suppress(OSError):
        os.write(descriptor, json.dumps(message).encode() + b"\n")


class _Words(logging.Handler):
    """Keeps the first errors of the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._messages: list[str] = []

    @property
    def text(self) -> str:
        """All of them; "" where there was none."""
        return "; ".join(self._messages)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        message = record.getMessage()[: limits.START_ERROR_CHARS_MAX]
        if len(self._messages) < limits.START_ERRORS_TOLD_MAX and message not in self._messages:
            self._messages.append(message)


def _own(flag: str, descriptor: int) -> int:
    if descriptor >= 0:
        try:
            os.set_inheritable(descriptor, False)
        except OSError as error:
            raise ConfigError(
                f"--{flag}={descriptor} is no open descriptor: {error.strerror}", key=flag,
                hint="the program that starts the server lets it inherit one (pass_fds of Python's subprocess)",
            ) from None  # fmt: skip
    return descriptor
