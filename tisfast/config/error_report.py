"""Collect every error of one configuration, each at its line and column, before giving up.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn, TypeAlias

from tisfast import limits
from tisfast.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a value lies in the message: ("input", 0, "dims", 1)."""

Hint: TypeAlias = str | Callable[[], str]
"""A hint, or what looks for it: that takes long beside the error, and of a file full of errors few are shown."""


class SourcePosition(NamedTuple):
    """Line and column in the file, both from 1; zeros when unknown."""

    line: int
    column: int


NOWHERE = SourcePosition(0, 0)


class ConfigErrors(ConfigError):
    """All errors of one configuration; `errors` holds each by itself, str() is one line for each.

    versions: that would have been loaded, of a model that could be read.
    """

    def __init__(self, errors: Iterable[ConfigError], versions: Iterable[int] = ()) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(str(error) for error in self.errors))
        self.at_load = all(error.at_load for error in self.errors)
        self.versions = tuple(versions) if self.at_load else ()

    def reword(self, change: Callable[[str], str]) -> None:
        """See TisError."""
        super().reword(change)
        for error in self.errors:
            error.reword(change)

    @property
    def message_first(self) -> str:
        """One line for each."""
        return "\n".join(error.message_first for error in self.errors)


def key_text(path: KeyPath) -> str:
    """A key path as a person writes it: input[0].dims[1]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def owner(path: KeyPath) -> str:
    """The message that a path leads to, in words: the nearest key, in quotes."""
    return next((f"'{part}'" for part in reversed(path) if isinstance(part, str)), "the model configuration")


class Report:
    """The errors of one configuration so far, and the places of its keys.

    file: shown in front of each error.  Not thread-safe; lives as long as one load.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[ConfigError] = []
        self.places: dict[KeyPath, SourcePosition] = {}
        self.malformed = False  # brackets do not match: what was read after that means nothing
        self._broken: set[KeyPath] = set()
        self._above_broken: set[KeyPath] = set()
        self.left_off = 0
        self._at_load = False

    @contextmanager
    def loading(self, *, readable: bool = True) -> Iterator[None]:
        """Errors noted inside this context are errors of the load, not of the configuration's form
        (ConfigError.at_load).

        readable: False for nothing of the kind.
        """
        before, self._at_load = self._at_load, readable
        try:
            yield
        finally:
            self._at_load = before

    @property
    def full(self) -> bool:
        """Whether further errors are counted only."""
        return len(self.errors) >= limits.CONFIG_ERRORS_MAX

    def add(self, message: str, path: KeyPath = (), *, hint: Hint = "", place: SourcePosition | None = None) -> None:
        """Note an error at a key; without a place of its own it is shown where the key, or the nearest above, is."""
        if self.full:
            self.left_off += 1
            return
        line, column = place or self.place_of(path)
        advice = hint if isinstance(hint, str) else hint()
        error = ConfigError(message, file=self.file, line=line, column=column, key=key_text(path), hint=advice)
        error.at_load = self._at_load
        self.errors.append(error)

    def wrong(self, message: str, path: KeyPath, *, hint: str = "") -> None:
        """Note a broken rule, unless the value could not even be read, which has been said already."""
        if not self.is_broken(path):
            self.add(message, path, hint=hint)

    def broke(self, path: KeyPath) -> None:
        """Mark a key whose value could not be read, so that it is not reported again as missing or wrong."""
        self._broken.add(path)
        self._above_broken.update(path[:end] for end in range(len(path)))

    def is_broken(self, path: KeyPath) -> bool:
        """Whether the key, something below it, or something above it could not be read."""
        return path in self._above_broken or any(path[:end] in self._broken for end in range(len(path) + 1))

    def place_of(self, path: KeyPath) -> SourcePosition:
        """Where the key stands, else the nearest key above it that is written in the file."""
        for end in range(len(path), 0, -1):
            found = self.places.get(path[:end])
            if found is not None:
                return found
        return NOWHERE

    def raise_all(self) -> NoReturn:
        """Raise everything noted, as one ConfigErrors, in the order of the file."""
        errors = sorted(self.errors, key=lambda error: (error.line == 0, error.line, error.column))
        if self.left_off:
            more = ConfigError(f"and {self.left_off} more errors", file=self.file, hint="correct these first")
            more.at_load = errors[0].at_load
            errors.append(more)
        raise ConfigErrors(errors)

    def raise_if_any(self) -> None:
        """Raise when anything was noted."""
        if self.errors:
            self.raise_all()
