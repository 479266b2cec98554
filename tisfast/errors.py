"""The one tree of errors that cross layers.  Each class has one status; types.STATUS_CODES maps it to the wires.

Raised where known, translated once per boundary, logged once where they are stopped.  Layer 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tisfast.types import Status


def writable(text: str) -> str:
    """A text that may quote names of files which are no UTF-8: nothing could send it, or what has it in it."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class TisError(Exception):
    """Base of all errors that cross a layer.

    message: what the client reads (Triton's wording where its clients match on it); facts: for the log.
    """

    status: ClassVar[Status] = Status.INTERNAL

    def __init__(self, message: str, **facts: object) -> None:
        self.message = writable(message)
        super().__init__(self.message)
        self.facts = facts

    def reword(self, change: Callable[[str], str]) -> None:
        """Change its texts, of which some may name files by names that nobody gave them."""
        self.message = change(self.message)
        self.args = (self.message,)


class Unknown(TisError):
    """No better code fits."""

    status = Status.UNKNOWN


class BadResponse(Unknown):
    """A client of ours cannot read the server's response: another protocol, or this one broken."""


class Internal(TisError):
    """Our fault, or a model's."""

    status = Status.INTERNAL


class NotFound(TisError):
    """The named thing exists nowhere."""

    status = Status.NOT_FOUND


class BadRequest(TisError):
    """The caller sent what no retry can fix.  Not our fault, so never logged above debug."""

    status = Status.INVALID_ARG


class Unavailable(TisError):
    """Not now: the same request may succeed later, so clients may retry."""

    status = Status.UNAVAILABLE


class Unsupported(TisError):
    """Known to Triton, not served here, or not served in this form."""

    status = Status.UNSUPPORTED


class AlreadyExists(TisError):
    """The name is taken."""

    status = Status.ALREADY_EXISTS


class Cancelled(TisError):
    """The client left or took the request back."""

    status = Status.CANCELLED


class Unauthenticated(TisError):
    """The caller has not identified itself."""

    status = Status.UNAUTHENTICATED


class Forbidden(TisError):
    """The caller may not do this."""

    status = Status.FORBIDDEN


class ConfigError(BadRequest):
    """A model configuration or flag is wrong.

    file, line, column and key say where (line and column start at 1, 0 when unknown); hint what to do.
    at_load: the configuration can be read, and it is the load that fails by it: Triton has other statuses then.
    """

    at_load = False

    def __init__(
        self, message: str, *, file: str = "", line: int = 0, column: int = 0, key: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, file=file, line=line, column=column, key=key)
        self.file, self.line, self.column, self.key, self.hint = writable(file), line, column, key, writable(hint)

    def reword(self, change: Callable[[str], str]) -> None:
        """See TisError."""
        super().reword(change)
        self.file, self.hint = change(self.file), change(self.hint)

    def __str__(self) -> str:
        """FILE:LINE:COLUMN: message; HINT, leaving out what is unknown."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}; {self.hint}" if self.hint else text

    @property
    def message_first(self) -> str:
        """The text beginning with Triton's words, which scripts read: MESSAGE; HINT (FILE:LINE:COLUMN)."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return f"{text} ({place})" if place else text


BY_STATUS: dict[Status, type[TisError]] = {
    cls.status: cls
    for cls in (Unknown, Internal, NotFound, BadRequest, Unavailable, Unsupported, AlreadyExists, Cancelled)
}
