"""What a command says never changes what it does: whoever reads it may have gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tisfast.local_server import ROOT

SAYS = "from tisfast.standard_streams import say; input(); say('a'); say('b'); say('c', error=True); print('end')"


def started(code, **streams):
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **streams)


def test_where_nobody_reads_it_goes_on():
    process = started(SAYS, stdout=subprocess.PIPE)
    process.stdout.close()
    _, err = process.communicate(b"\n")
    assert (process.returncode, err) == (0, b"c\n")


def test_where_the_terminal_has_gone_it_goes_on():
    ours, theirs = pty.openpty()
    process = started(SAYS, stdout=theirs)
    os.close(theirs)
    os.close(ours)
    _, err = process.communicate(b"\n")
    assert (process.returncode, err) == (0, b"c\n")


def test_a_slow_reader_of_a_pipe_that_does_not_wait_gets_all():
    code = "import os; from tisfast.standard_streams import say; os.set_blocking(1, False); say('x' * 9**6); say('y')"
    process = started(code, stdout=subprocess.PIPE)
    read, err = process.communicate()
    assert (process.returncode, read, err) == (0, b"x" * 9**6 + b"\ny\n", b"")


def test_a_full_disk_is_said_once_and_changes_no_exit_code():
    code = "from tisfast.standard_streams import say; say('a'); say('b'); say('c', error=True)"
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    said = b"error: standard output takes no more (No space left on device): what is told there is lost\nc\n"
    assert (ran.returncode, ran.stderr) == (0, said)


def test_a_stream_that_was_closed_before_the_start_is_none():
    """Of standard error, too: its texts do not go to standard output."""
    code = f"{SAYS}".replace("input(); ", "").replace("; print('end')", "")
    for closed, said in (("2>&-", "a\nb\n"), (">&-", "")):
        ran = subprocess.run(
            ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (0, said)


@pytest.mark.parametrize(("encoding", "said"), [("ascii", rb"\xe9 \udcff"), ("utf-8", b"\xc3\xa9 \\udcff")])
def test_what_the_encoding_lacks_is_shown_as_escapes(encoding, said):
    """Names of files may be no UTF-8."""
    code = "from tisfast.standard_streams import say; say('\\u00e9 \\udcff')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, said + b"\n", b"")
