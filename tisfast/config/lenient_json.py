"""JSON as protobuf's reader takes it, and so Triton: a bit more than JSON.  Layer 2 (config).

Beyond JSON: keys without quotation marks, single ones around texts and keys, a comma behind the last member, and line
ends and tabs within texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from tisfast import limits

_TEXT: Final = r"(?:[^{0}\\]|\\.?)*(?:{0}|\Z)"
# Each alternative matches wherever it begins, so that no text, however wrong, is looked through twice.
_BEYOND: Final = re.compile(
    rf'"{_TEXT.format(chr(34))}'
    rf"|'(?P<single>{_TEXT.format(chr(39))})"
    r"|(?<![\w$])(?P<key>[A-Za-z_$][\w$]*)(?=\s*:)"
    r"|(?P<comma>,)(?=\s*[}\]])",
    re.DOTALL | re.ASCII,
)
_QUOTED: Final = re.compile(r"\\(.)|\"", re.DOTALL)
_RESERVED: Final = ("true", "false", "null")


def loads(text: str, pairs_hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """The value of `text`.  Raises json.JSONDecodeError, whose place is that in `text`, and RecursionError."""
    decoder = json.JSONDecoder(object_pairs_hook=pairs_hook, strict=False)
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        if len(text) > limits.CONFIG_LENIENT_CHARS_MAX:
            raise
        strict = _BEYOND.sub(_strict, text)
        try:
            return decoder.decode(strict)
        except json.JSONDecodeError:
            raise error from None


def _strict(found: re.Match[str]) -> str:
    """The found piece as strict JSON."""
    if found["comma"]:
        return ""
    if found["key"]:
        return found[0] if found["key"] in _RESERVED else f'"{found["key"]}"'
    single = found["single"]
    if single is None or not single.endswith("'"):
        return found[0]
    return f'"{_QUOTED.sub(_requoted, single[:-1])}"'


def _requoted(found: re.Match[str]) -> str:
    return "'" if found[1] == "'" else '\\"' if found[0] == '"' else found[0]
