"""Cut protobuf text into tokens.  No opinion on what they mean, and no error stops it.  Layer 2 (config)."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

from tisfast.config.error_report import SourcePosition

NAME: Final = "name"
NUMBER: Final = "number"
STRING: Final = "string"
SYMBOL: Final = "symbol"
END: Final = "end"
BAD: Final = "bad"

_TOKEN = re.compile(
    r"""(?P<skip>(?:\s+|\#[^\n]*)+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>(?:0[xX][0-9A-Fa-f]+|\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)
                   (?:[fF](?![A-Za-z0-9_]))?)(?P<tail>[A-Za-z0-9_.]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<symbol>[{}<>\[\]:;,/=-])
      | (?P<bad>["'][^\n]*|.)""",
    re.VERBOSE | re.ASCII,  # other digits and spaces are none to protobuf
)


class Token(NamedTuple):
    """One token.  text: as written, quotes included; offset: characters from the start of the file."""

    kind: str
    text: str
    offset: int

    def shown(self) -> str:
        """How an error calls it."""
        if self.kind == END:
            return "the end of the file"
        if self.kind == STRING:
            return f"string {_clipped(self.text)}"
        return f"'{_clipped(self.text)}'"


class Lines:
    """Where each line of a text begins, to turn offsets into places."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> SourcePosition:
        """Line and column, from 1."""
        line = bisect_right(self._starts, offset)
        return SourcePosition(line, offset - self._starts[line - 1] + 1)


def tokens(text: str) -> list[Token]:
    """All tokens, the last of kind END.  What fits no rule becomes a BAD token: a stray character or an open string."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or BAD
        if kind == "skip":
            continue
        if kind == "tail":
            kind = BAD if match["tail"] else NUMBER
        found.append(Token(kind, match.group(), match.start()))
    found.append(Token(END, "", len(text)))
    return found


def _clipped(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
