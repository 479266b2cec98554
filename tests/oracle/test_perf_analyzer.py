"""The real perf_analyzer measures tisfast without knowing that it is not Triton."""

from __future__ import annotations

import re
import subprocess

import pytest

from perf.oracle.launch import perf_analyzer
from tests.oracle.servers import Servers

SECONDS_MAX = 60
SHARED = ("--shared-memory=system", "--output-shared-memory-size=602112")


@pytest.mark.parametrize(
    "flags",
    [
        ["-m", "add_sub"],
        ["-m", "add_sub", "--async", "--concurrency-range", "8"],
        ["-m", "add_sub", "--output-tensor-format", "json"],  # its JSON inputs fail against Triton, too
        ["-m", "identity_fp32", "--shape", "INPUT0:150528"],
        ["-m", "digits", "--shape", "IMAGE:8,8", "-b", "4"],
        ["-m", "sequence_direct", "--input-data", "zero", "--sequence-length", "10", "--concurrency-range", "8"],
        ["-m", "sequence_oldest", "--input-data", "zero", "--sequence-length", "10", "--sequence-id-range", "7:12",
         "--concurrency-range", "3"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_perf_analyzer_measures(tisfast: Servers, flags: list[str]) -> None:
    measure(tisfast, "http", flags)


@pytest.mark.parametrize(
    "flags",
    [
        ["-m", "add_sub"],
        ["-m", "add_sub", "--async", "--concurrency-range", "8"],
        ["-m", "add_sub", "--streaming", "--async", "--concurrency-range", "8"],
        ["-m", "identity_fp32", "--shape", "INPUT0:150528"],
        ["-m", "identity_fp32", "--shape", "INPUT0:150528", "--streaming"],
        ["-m", "sequence_direct", "--input-data", "zero", "--sequence-length", "10", "--streaming"],
    ],
    ids=" ".join,
)
def test_perf_analyzer_measures_over_grpc(tisfast: Servers, flags: list[str]) -> None:
    measure(tisfast, "grpc", flags)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_measures_in_shared_memory(tisfast: Servers, protocol: str) -> None:
    measure(tisfast, protocol, ["-m", "identity_fp32", "--shape", "INPUT0:150528", *SHARED, "--concurrency-range", "2"])


def measure(servers: Servers, protocol: str, flags: list[str]) -> None:
    server = servers.get()
    address = server.address if protocol == "http" else server.grpc_address
    windows = ("-p", "300", "-s", "10000", "-r", "20")  # on a busy machine one of them may have no request
    launch = perf_analyzer([*flags, "-u", address, "-i", protocol, *windows])
    run = subprocess.run(
        launch.command, env=launch.env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert float(re.search(r"Throughput: ([\d.]+) infer/sec", run.stdout)[1]) > 0
    assert re.search(r"Successful request count: [1-9]", run.stdout)  # by the server's own statistics
