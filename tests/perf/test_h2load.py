"""What h2load prints, and what it takes for a success."""

from __future__ import annotations

import pytest

from perf import grpc_body
from perf.figures import RunFailed
from perf.h2load import parse

ANSWER_BYTES = 93


def printed(done: int = 2592, succeeded: int = 2592, data: int = 2592 * ANSWER_BYTES) -> str:
    """As nghttp2 1.52 prints it."""
    return (
        "progress: 100% of clients started\n\n"
        "finished in 1.00s, 2592.00 req/s, 327.69KB/s\n"
        f"requests: 2592 total, 2624 started, {done} done, {succeeded} succeeded, 0 failed, 0 errored, 0 timeout\n"
        "status codes: 2592 2xx, 0 3xx, 0 4xx, 0 5xx\n"
        f"traffic: 327.69KB (335559) total, 7.89KB (8076) headers (space savings 96.15%), 235.41KB ({data}) data\n"
    )


def test_the_rate_is_read():
    assert parse(printed(), ANSWER_BYTES) == 2592.0


@pytest.mark.parametrize(
    "output",
    [printed(succeeded=2591), printed(data=0), printed(data=2591 * ANSWER_BYTES), printed(done=0, succeeded=0, data=0)],
    ids=["status", "all errors of gRPC", "one error of gRPC", "nothing"],
)
def test_answers_without_data_are_no_success(output):
    with pytest.raises(RunFailed, match=r"answers with status 200"):
        parse(output, ANSWER_BYTES)


def test_a_run_without_figures_shows_what_was_printed():
    with pytest.raises(RunFailed, match=r"could not connect"):
        parse("could not connect to host", ANSWER_BYTES)


def test_streams_are_spread_over_connections():
    flags = grpc_body.flags("body", 1.5, 8, 4)
    assert {"-m8", "-c4", "1500ms"} <= set(flags)
