import asyncio
import logging
import os
import subprocess
import sys

import pytest

from tests.waiting import until
from tisfast import limits, tuning
from tisfast.processes.worker_output import LineReader, written_level


@pytest.fixture
def pipe(loop):
    read, write = os.pipe()
    lines: list[str] = []
    reader = LineReader(read, lines.append, loop)
    yield reader, write, lines
    reader.close()


def test_lines_come_one_by_one_and_the_last_needs_no_end(pipe, run):
    reader, write, lines = pipe
    os.write(write, b"one\ntwo\r\n\nthree")
    os.close(write)
    run(until(lambda: reader.closed))
    assert lines == ["one", "two", "", "three"]


def test_a_line_in_pieces_is_one_line(pipe, run):
    reader, write, lines = pipe
    os.write(write, b"he")
    run(asyncio.sleep(0))
    os.write(write, b"llo\n")
    run(until(lambda: lines))
    os.close(write)
    assert lines == ["hello"]


def test_bytes_that_are_no_utf8_are_shown_not_raised(pipe, run):
    reader, write, lines = pipe
    os.write(write, b"\xff\xfe\n")
    os.close(write)
    run(until(lambda: reader.closed))
    assert lines == ["\ufffd\ufffd"]


@pytest.mark.parametrize("ending", [b"\nnext\n", b""])
def test_an_overlong_line_is_cut_and_marked(loop, run, ending):
    read, write = os.pipe()
    lines: list[str] = []
    reader = LineReader(read, lines.append, loop)
    script = f"open({write}, 'wb').write(b'x' * {limits.WORKER_OUTPUT_LINE_BYTES_MAX * 3} + {ending!r})"
    with subprocess.Popen([sys.executable, "-c", script], pass_fds=[write]) as writer:
        os.close(write)
        run(until(lambda: reader.closed))
    assert writer.returncode == 0
    assert lines[0] == "x" * limits.WORKER_OUTPUT_LINE_BYTES_MAX + " ... [line cut at 65536 bytes]"
    assert lines[1:] == (["next"] if ending else [])


def test_a_flood_is_taken_in_turns_so_that_the_loop_serves_others(loop, run):
    read, write = os.pipe()
    lines: list[str] = []
    reader = LineReader(read, lines.append, loop)
    most: list[int] = []

    async def watch() -> None:
        seen = 0
        while not reader.closed:
            await asyncio.sleep(0)
            most.append(len(lines) - seen)
            seen = len(lines)

    script = f"import os\nfor _ in range(50): os.write({write}, b'line\\n' * 20)"
    with subprocess.Popen([sys.executable, "-c", script], pass_fds=[write]):
        os.close(write)
        run(watch())
    assert "\n".join(lines).split("\n") == ["line"] * 1000
    assert max(most) <= 2 * tuning.WORKER_OUTPUT_TURN_LINES_MAX


def test_a_turn_reads_no_more_than_its_bytes(pipe, run):
    reader, write, lines = pipe
    sizes: list[int] = []

    async def watch() -> None:
        seen = 0
        while not reader.closed:
            await asyncio.sleep(0)
            size = sum(map(len, lines))
            sizes.append(size - seen)
            seen = size

    os.write(write, b"y\n" * 32 * 1024)  # what a pipe holds
    os.close(write)
    run(watch())
    assert "\n".join(lines).split("\n") == ["y"] * 32 * 1024
    assert 0 < max(sizes) <= tuning.WORKER_OUTPUT_TURN_BYTES_MAX


@pytest.mark.parametrize("more", [0, 1])
def test_lines_share_a_record_when_there_are_many(pipe, run, more):
    reader, write, lines = pipe
    count = tuning.WORKER_OUTPUT_TURN_LINES_MAX + more
    os.write(write, b"line\r\n" * count + b"cut")
    os.close(write)
    run(until(lambda: reader.closed))
    assert lines == (["\n".join(["line"] * count), "cut"] if more else [*["line"] * count, "cut"])


def test_a_record_of_many_lines_is_bounded_and_an_overlong_line_among_them_is_cut(pipe, run):
    reader, write, lines = pipe
    most = limits.WORKER_OUTPUT_LINE_BYTES_MAX
    parts = [*[b"a"] * 100, b"x" * (most - 10), *[b"b"] * 100, b"y" * (most + 10), *[b"c"] * 100]
    data = b"\n".join(parts)
    with subprocess.Popen([sys.executable, "-c", f"import sys; open({write}, 'wb').write(sys.stdin.buffer.read())"],
                          stdin=subprocess.PIPE, pass_fds=[write]) as writer:  # fmt: skip
        os.close(write)
        writer.stdin.write(data)
        writer.stdin.close()
        run(until(lambda: reader.closed))
    cut = "y" * most + " ... [line cut at 65536 bytes]"
    assert "\n".join(lines).split("\n") == [*["a"] * 100, "x" * (most - 10), *["b"] * 100, cut, *["c"] * 100]
    assert max(len(text) for text in lines if text != cut) <= most


def test_finish_reads_what_is_left_though_another_process_holds_the_pipe(pipe, run):
    reader, write, lines = pipe
    os.write(write, b"last words\n")
    reader.finish()
    run(until(lambda: reader.closed))
    os.close(write)
    assert lines == ["last words"]


def test_finish_does_not_read_forever_from_a_process_that_was_left_behind(pipe, run):
    reader, write, lines = pipe
    os.set_blocking(write, False)

    async def flood() -> None:
        reader.finish()
        while not reader.closed:
            try:
                os.write(write, b"y" * 60000 + b"\n")
            except BlockingIOError:
                await asyncio.sleep(0)

    run(flood())
    os.close(write)
    assert sum(map(len, lines)) <= limits.WORKER_OUTPUT_AFTER_DEATH_BYTES_MAX + 2 * 65536


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ERROR:root:no", logging.ERROR),
        ("2026-01-01 10:00:00,123 - name - INFO - fine", logging.INFO),
        ("DEBUG:x:y", logging.DEBUG),
        ("[CRITICAL] worker timeout", logging.CRITICAL),
        ("W1124 10:00:00.000000 1 x.cc:3] low memory", logging.WARNING),
        ("E1124 10:00:00.000000 1 x.cc:3] no memory", logging.ERROR),
        ("Traceback (most recent call last):", logging.ERROR),
        ("/x/y.py:3: UserWarning: deprecated", logging.WARNING),
        ("INFORMATION about an ERRORS", logging.WARNING),
        ("anything", logging.WARNING),
        ("", logging.WARNING),
        ("x" * 200 + " ERROR", logging.WARNING),
    ],
)
def test_the_level_of_a_line_on_stderr(line, level):
    assert written_level(line) == level
