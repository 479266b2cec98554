"""Lines of code in Python and Cython files: without blanks, comments and docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# In this order: what begins a text ends with the same quotes, and a backslash takes the next character along.
PARTS: Final = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<text>[a-zA-Z]{0,2}(?:
          "{3}(?:\\.|[^\\])*?"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'))
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<continued>\\\n)
      | (?P<end>\n)
      | (?P<space>[^\S\n]+)
      | (?P<word>\w+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def code_lines(text: str) -> int:
    """How many lines of a file hold code.  A text that is a statement of its own is a docstring."""
    found: set[int] = set()
    line, depth = 1, 0
    statement: list[tuple[bool, int, int]] = []  # of the logical line: is it a text, first and last line
    for part in PARTS.finditer(text):
        kind, last = part.lastgroup, line + part[0].count("\n")
        if kind == "end" and depth == 0:
            found |= lines_of(statement)
            statement = []
        elif kind not in ("end", "comment", "space", "continued"):
            statement.append((kind == "text", line, last))
            depth += (kind == "open") - (kind == "close")
        line = last
    return len(found | lines_of(statement))


def lines_of(statement: list[tuple[bool, int, int]]) -> set[int]:
    """The lines that the parts of one statement stand on; none of a docstring."""
    if all(is_text for is_text, _, _ in statement):
        return set()
    return {line for _, first, last in statement for line in range(first, last + 1)}


def lines_in(files: Iterable[Path]) -> int:
    """Lines of code in these files."""
    return sum(code_lines(file.read_text()) for file in files)
