"""What `tisfast bench` shows on a terminal while it measures: on a real pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.bench.stub_server import StubServer
from tests.system.helpers import ROOT

LINE = re.compile(r"concurrency 2  (\d+ s left  )?\d+ infer/s  0 failed  p50 \d+ p90 \d+ p99 \d+ us$")
MEASURED = ["-p", "500", "-r", "3", "-s", "1000000", "--concurrency-range", "2"]


def on_terminal(
    *arguments: object, interrupt: str = "", columns: int = 100, **environment: str
) -> tuple[int, str, str]:
    """The exit code, standard output, and what came to the terminal that is standard error.

    interrupt: Ctrl-C when the terminal shows this.
    """
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "tisfast", "bench", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment},
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
    )
    os.close(its)
    shown = b""
    try:
        while piece := read(ours):
            shown += piece
            if interrupt and interrupt.encode() in shown:
                process.send_signal(signal.SIGINT)
                interrupt = ""
        assert process.stdout is not None
        out = process.stdout.read()
        return process.wait(60), out, shown.decode()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(ours)


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when nobody has the other side any more
        return b""


def lines(shown: str) -> list[str]:
    """What stood on the line, one after the other."""
    return [re.sub(r"\x1b\[\d*m", "", each) for each in shown.split("\r\x1b[2K")]


@pytest.fixture
def stub():
    with StubServer() as server:
        yield ["-m", "stub", "-u", f"127.0.0.1:{server.port}"]


def test_one_line_is_written_over_and_nothing_is_left_of_it(stub):
    code, out, shown = on_terminal(*stub, *MEASURED)
    assert code == 0
    seen = [each for each in lines(shown) if each]
    assert seen and all(LINE.search(each) for each in seen)
    assert any("s left" in each for each in seen)
    assert shown.endswith("\r\x1b[2K") and "\n" not in shown
    assert "infer/s  " not in out and "\x1b" not in out and "Request concurrency: 2" in out
    assert "\x1b[1m" in shown


def test_it_is_written_four_times_a_second_at_most(stub):
    began = time.monotonic()
    _, _, shown = on_terminal(*stub, *MEASURED)
    assert len([each for each in lines(shown) if each]) <= 4 * (time.monotonic() - began)


def test_no_color_leaves_the_colours_out_and_no_live_all_of_it(stub):
    _, _, shown = on_terminal(*stub, *MEASURED, NO_COLOR="1")
    assert any(LINE.search(each) for each in lines(shown))
    assert re.findall(r"\x1b\[[^K]*?m", shown) == []
    assert on_terminal(*stub, *MEASURED, "--no-live")[2] == ""
    assert on_terminal(*stub, *MEASURED, TERM="dumb")[2] == ""


def test_a_narrow_terminal_is_not_written_beyond_its_edge(stub):
    _, _, shown = on_terminal(*stub, *MEASURED, columns=40)
    seen = [each for each in lines(shown) if each]
    assert seen and max(map(len, seen)) < 40


def test_ctrl_c_ends_clean(stub):
    code, out, shown = on_terminal(*stub, "-p", "3600000", interrupt="infer/s")
    assert code == 0
    assert "Not stable: it was interrupted" in out
    assert shown.endswith("\r\x1b[2K")


def test_failures_are_shown():
    with StubServer(lambda number: "" if number < 3 else "no luck") as server:
        _, _, shown = on_terminal("-m", "stub", "-u", f"127.0.0.1:{server.port}", *MEASURED)
    assert re.search(r"\x1b\[31m  [1-9]\d* failed", shown)
