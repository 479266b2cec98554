"""`--calibrate`: the program that only answers, and what is said of the client's own limit."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bench.made_levels import latencies, level_of
from tests.bench.stub_server import StubServer
from tisfast import cli_bench
from tisfast.bench import answerer
from tisfast.bench.results import Settings
from tisfast.bench.text import level_text

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"


@pytest.fixture
def answering():
    """Gives a connection to the program, and the program."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-I", answerer.__file__, "http", str(listening.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(listening.fileno(),))
        process.stdin.write(len(ANSWER).to_bytes(8, "big") + ANSWER)
        process.stdin.flush()
        with socket.create_connection(listening.getsockname(), 20) as made:
            yield made, process
        process.kill()
        process.wait()
        process.stdin.close()


def received(made: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := made.recv(1 << 16)):
        found += piece
    return found


def test_each_request_is_answered_once_however_it_is_cut(answering):
    made, _ = answering
    body = b"x" * 300_000
    requests = (
        b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) + b"GET / HTTP/1.1\r\nA: b\r\n\r\n"
    )
    for at in (0, 5, 40, 60, 100_000, 300_043, len(requests)):
        made.sendall(requests[:at])
        made.sendall(requests[at:])
        assert received(made, 2 * len(ANSWER)) == 2 * ANSWER


def test_the_program_ends_with_the_one_who_started_it(answering):
    _, process = answering
    process.stdin.close()
    assert process.wait(20) == 0


def bench(port: int, *more: object) -> int:
    typed = ["-m", "stub", "-u", f"127.0.0.1:{port}", "--request-count", "20", "--calibrate"]
    return cli_bench.main([*typed, *map(str, more)])


def test_the_limit_is_said_and_written(tmp_path, capsys):
    with StubServer() as stub:
        assert bench(stub.port, "--json", tmp_path / "x.json", "--openmetrics", tmp_path / "x.txt") == 0
        assert stub.count == 1 + 1 + 20  # the probe, and the answer that is repeated
    (level,) = json.loads((tmp_path / "x.json").read_text())["levels"]
    most = level["client"]["most_requests_per_second"]
    assert most > 1000
    out = capsys.readouterr().out
    assert f"The client can do {most:.0f} such requests a second of a core (" in out
    assert f"of the {most:.0f} such requests a second that it can do here" in out
    assert f"}} {most!r}\n" in (tmp_path / "x.txt").read_text()


def test_a_server_without_an_answer_is_told(capsys):
    with StubServer(lambda number: "drop" if number == 2 else "") as stub:
        assert bench(stub.port) == 99
    assert "error: --calibrate: the server closes the connection behind an answer" in capsys.readouterr().err


def test_without_it_nothing_is_said():
    assert "such requests a second" not in level_text(level_of(latencies(1000)), Settings(), 1, "http")


def test_a_load_near_the_limit_is_a_warning():
    level = level_of(latencies(1000))
    rate = level.requests / level.seconds
    for most, warned in ((rate * 4, False), (rate * 1.1, True)):
        text = level_text(replace(level, most_requests=most), Settings(), 1, "http")
        assert f"the client sent {rate / most:.0%} of the {most:.0f} such requests a second" in text
        assert ("[WARNING] the client, and not the server, may be the limit" in text) == warned
