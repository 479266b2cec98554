"""JSON that users give in files: read up to a bound, and what is wrong with it in words.  Layer 5 (bench)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tisfast.errors import BadRequest

HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""How half of a surrogate pair is written; a whole pair is one character of the parsed text."""


def parsed(text: bytes) -> Any:
    """Raises ValueError whose text is the reason."""
    try:
        decoded = text.decode(json.detect_encoding(text))
        found = json.loads(decoded)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no {error.encoding.upper()}") from None
    except ValueError:  # of Python, for a whole number of thousands of digits
        raise ValueError("a number in it has too many digits") from None
    except RecursionError:
        raise ValueError("lists or objects lie too deep within each other") from None
    if HALF.search(decoded):
        half = _half(found)
        if half:
            raise ValueError(f"{half!a:.60} has half of a surrogate pair, which is no character")
    return found


def read_json(path: str, of: str, bytes_max: int, remedies: tuple[str, str, str]) -> Any:
    """of: the file, for errors; remedies: where it cannot be read, is too large, is no JSON.  Raises BadRequest."""
    try:
        text = read_bytes(path, bytes_max)
    except OSError as error:
        raise BadRequest(f"{of} cannot be read ({error.strerror}); {remedies[0]}") from None
    if len(text) > bytes_max:
        raise BadRequest(f"{of} has more than {bytes_max} bytes; {remedies[1]}")
    try:
        return parsed(text)
    except ValueError as error:
        raise BadRequest(f"{of} is no JSON ({error}); {remedies[2]}") from None


def read_bytes(path: str, bytes_max: int) -> bytes:
    """A file, or one byte more than the bound of a larger one: a pipe or a device does not tell its size.

    Raises OSError, for a name that no file can have, too.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(bytes_max + 1)
    except ValueError as error:  # a name with NUL
        raise OSError(0, str(error)) from None


def _half(found: Any) -> str:
    """A text in it, of keys or values, that nothing could send; or ""."""
    waiting = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeEncodeError:
                return each
        elif isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            waiting += each
    return ""
