"""A line of a terminal that is written over and over, seen at the other end of a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator

import pytest

from tisfast.terminal_line import TerminalLine, bar, clock


@pytest.fixture
def terminal() -> Iterator[tuple[TerminalLine, int]]:
    """A line on a terminal of 20 columns, and the end where a person would look."""
    looked_at, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    out = os.fdopen(theirs, "w")
    try:
        yield TerminalLine(out), looked_at
    finally:
        out.close()
        os.close(looked_at)


def sees(looked_at: int, text: bytes) -> bool:
    """Whether this is what comes out of a terminal: the kernel hands it on in pieces of any size."""
    seen = b""
    while len(seen) < len(text) and text.startswith(seen):
        seen += os.read(looked_at, 1000)
    return seen == text


def test_each_line_is_written_over_the_last_one(terminal):
    line, looked_at = terminal
    line.show([("one", "")])
    line.show([("two", "\x1b[1m"), (" parts", "")])
    line.erase()
    line.erase()
    assert sees(looked_at, b"\r\x1b[2Kone\r\x1b[2K\x1b[1mtwo\x1b[0m parts\r\x1b[2K")


def test_parts_without_room_are_left_out_so_that_no_line_wraps(terminal):
    line, looked_at = terminal
    line.show([("x" * 12, ""), ("y" * 8, ""), ("z", "")])
    assert sees(looked_at, b"\r\x1b[2K" + b"x" * 12)


def test_a_terminal_that_is_gone_costs_nothing(tmp_path):
    out = (tmp_path / "closed").open("w")
    line = TerminalLine(out)
    out.close()
    line.show([("one", "")])
    line.erase()
    assert line.gone


@pytest.mark.parametrize(
    ("done", "total", "filled"), [(0, 3, 0), (1, 3, 8), (3, 3, 24), (5, 3, 24), (-1, 3, 0), (1, 0, 0), (1, 2.5e12, 0)]
)
def test_a_bar_has_one_length(done, total, filled):
    assert bar(done, total) == "[" + "#" * filled + "." * (24 - filled) + "]"


def test_times_are_minutes_and_seconds():
    assert [clock(each) for each in (0, 9.9, 61, 3600)] == ["0:00", "0:09", "1:01", "60:00"]
