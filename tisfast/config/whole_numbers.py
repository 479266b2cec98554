"""Whole numbers in texts that come from outside: flags, variables, parameters.  Layer 2 (config)."""

from __future__ import annotations


def whole_number(text: str, most: int) -> int | None:
    """The number that a text of ASCII digits writes; None for other texts, and for numbers above `most`."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0")
    if len(digits) > len(str(most)):  # int() refuses thousands of digits in words of its own
        return None
    number = int(digits or "0")
    return number if number <= most else None
