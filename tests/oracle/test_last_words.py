"""What both servers log while they end, as far as people look for it, and how long it takes."""

from __future__ import annotations

import http.client
import os
import re
import signal
import time
from itertools import groupby
from pathlib import Path

import pytest

from perf.oracle.server import Kind, Server

MODELS = Path(__file__).parent / "broken_models"  # one of them is sound
WORDS = re.compile(r"(?:Signal .15. received|Timeout|Waiting for in-flight|All models are|Exit timeout expired).*")
END_SECONDS_MAX = 40
TRITON_SECONDS = 3
CONNECTIONS = "Timeout N: Found N HTTP service connections"


def last_words(kind: Kind, clients: int) -> tuple[list[str], int | None, float]:
    """The lines after SIGTERM without repetitions and figures, the exit code, and seconds.

    tisfast gets more than is waited for here: a tisfast that waits for its countdown fails the test.
    """
    seconds = TRITON_SECONDS if kind == "triton" else 10 * END_SECONDS_MAX
    flags = ["--exit-on-error=false", f"--exit-timeout-secs={seconds}"]
    with Server(kind, [MODELS], flags, "/v2/health/live") as server:
        idle = [http.client.HTTPConnection("localhost", server.http, timeout=60) for _ in range(clients)]
        for each in idle:
            each.request("GET", "/v2/health/live")
            each.getresponse().read()
        before, began = len(server.log(1 << 20)), time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert server.dies_within(END_SECONDS_MAX)
        seconds = time.monotonic() - began
        said = [re.sub(r"\d+", "N", found[0].rstrip('"')) for found in WORDS.finditer(server.log(1 << 20)[before:])]
        for each in idle:
            each.close()
        return [line for line, _ in groupby(said)], server.exit_code, seconds


def test_an_idle_server_says_what_triton_says() -> None:
    """But for the connection that asked whether it is live, which may be gone by then, or not."""
    theirs, ours = last_words("triton", 0), last_words("tisfast", 0)
    assert [line for line in ours[0] if line != CONNECTIONS] == [line for line in theirs[0] if line != CONNECTIONS]
    assert (theirs[1], ours[1]) == (0, 0)


@pytest.mark.parametrize("clients", [10])
def test_idle_clients_hold_up_triton_and_not_us(clients: int) -> None:
    theirs, ours = last_words("triton", clients), last_words("tisfast", clients)
    assert CONNECTIONS in theirs[0] and CONNECTIONS in ours[0]
    assert (theirs[1], ours[1]) == (1, 0)
    assert theirs[2] > TRITON_SECONDS
