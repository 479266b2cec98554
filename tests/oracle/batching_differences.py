"""Batches that tisfast makes otherwise than Triton, on purpose."""

from __future__ import annotations

from typing import Final

AHEAD: Final = (
    "A batch of the largest preferred size, or a full one, is handed to a busy instance as soon as it is there, so "
    "that it begins at once when the one before it ends (docs/batching.md)"
)
DELIBERATE: Final[dict[str, tuple[str, list[str], list[str]]]] = {  # case: why, Triton's batches, ours
    "the largest preferred size, then more": (
        f"{AHEAD}; 2.51 hands out each preferred size that it meets, the smallest first.",
        ["ab", "cd", "ef", "g"], ["abcdef", "g"],
    ),
    "the largest preferred size within a delay": (
        f"{AHEAD}; 2.51 looks again when the instance is free, by then past the delay, and takes all that has come.",
        ["abcdef"], ["abcd", "ef"],
    ),
}  # fmt: skip
