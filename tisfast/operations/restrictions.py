"""Restricted APIs: which categories of calls need a header.  Layer 4 (operations).

The grammar of --http-restricted-api and --grpc-restricted-protocol: CATEGORY[,CATEGORY...]:NAME=VALUE, repeatable.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tisfast.errors import ConfigError
from tisfast.types import API_CATEGORIES


class Requirement(NamedTuple):
    """A header that a call must carry.  name: as configured, with the protocol's prefix."""

    name: str
    value: str


class Restrictions:
    """The restrictions of one port.

    flag: whose entries these are, without dashes; prefix: of the header names ("triton-grpc-protocol-" on gRPC); noun:
    what Triton's refusal calls it ("API" or "protocol").  Raises ConfigError, naming entry and flag.
    """

    def __init__(self, entries: Iterable[str], *, flag: str, prefix: str = "", noun: str = "API") -> None:
        self._flag, self._noun = flag, noun
        self._required: dict[str, Requirement] = {}
        for entry in entries:
            self._add(entry, prefix)

    def __bool__(self) -> bool:
        """Whether anything is restricted."""
        return bool(self._required)

    def required(self, category: str) -> Requirement | None:
        """The header that calls of a category must carry."""
        return self._required.get(category)

    def refusal(self, category: str, headers: Mapping[str, str]) -> str | None:
        """Triton's text for a call that may not be made, None for one that may.  headers: names in lower case."""
        required = self._required.get(category)
        if required is None:
            return None
        given = headers.get(required.name.lower())
        # In constant time: the value is a secret.
        if given is not None and hmac.compare_digest(given.encode(), required.value.encode()):
            return None
        return f"This {self._noun} is restricted, expecting header '{required.name}'"

    def _add(self, entry: str, prefix: str) -> None:
        names, colon, header = entry.partition(":")
        key, equals, value = header.partition("=")
        if not (colon and equals and names.strip() and key.strip() and value):
            raise self._error(entry, "it is not of the form CATEGORY[,CATEGORY...]:HEADER=VALUE")
        for name in (part.strip() for part in names.split(",")):
            which = f"restricted {self._noun.lower()} '{name}'"
            if name not in API_CATEGORIES:
                raise self._error(entry, f"unknown {which}", f"known are {', '.join(API_CATEGORIES)}")
            if name in self._required:
                raise self._error(entry, f"{which} can not be specified in multiple config groups")
            self._required[name] = Requirement(prefix + key.strip(), value.strip())

    def _error(self, entry: str, what: str, hint: str = "") -> ConfigError:
        # The value is a secret, and messages end up in logs.
        shown = entry.partition("=")[0] + ("=..." if "=" in entry else "")
        return ConfigError(f"--{self._flag}={shown}: {what}", key=self._flag, hint=hint)
