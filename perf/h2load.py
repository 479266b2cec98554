"""h2load with a prepared ModelInfer call: what a gRPC server does when the client costs almost nothing."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path
from typing import Final

import grpc

from perf import grpc_body
from perf.figures import Figures, RunFailed, run_client
from perf.oracle import launch

CONNECTIONS: Final = 4
SECONDS_MORE_MAX: Final = 60
PROBE_SECONDS_MAX: Final = 10
PREFIX_BYTES: Final = 5
"""Of each gRPC message: compressed or not, and its length."""

_RATE: Final = re.compile(r"^finished in .*?, ([\d.]+) req/s", re.MULTILINE)
_COUNTS: Final = re.compile(r"^requests: .* (\d+) done, (\d+) succeeded", re.MULTILINE)
_DATA: Final = re.compile(r"^traffic: .*\((\d+)\) data", re.MULTILINE)


def h2load(address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """Requests a second of add_sub, so many at a time over at most four connections.  Latencies are NaN.

    h2load tells a mean latency but no percentiles, unless it writes a line to a log for each request.
    """
    if case != "add_sub":
        raise RunFailed(f"unknown case {case!r} for h2load; it is add_sub")
    connections = min(CONNECTIONS, concurrency)
    answer_bytes = PREFIX_BYTES + probe(address)
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder, "body")
        body.write_bytes(grpc_body.message())
        flags = grpc_body.flags(str(body), seconds, concurrency // connections, connections)
        url = f"http://{address}{grpc_body.CALL}"
        output = run_client([launch.h2load(), *flags, url], seconds + SECONDS_MORE_MAX)
    return Figures(parse(output, answer_bytes), math.nan, math.nan)


def probe(address: str) -> int:
    """Size of the answer, by a client that looks at status and trailers; this also warms the model up."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(grpc_body.CALL)
        try:
            return len(call(grpc_body.message()[PREFIX_BYTES:], timeout=PROBE_SECONDS_MAX))
        except grpc.RpcError as e:
            raise RunFailed(f"the call that h2load is to repeat fails: {e}") from e


def parse(output: str, answer_bytes: int) -> float:
    """Requests a second; raises RunFailed when some were not answered with data.

    h2load reads no trailers and takes an error of gRPC, which is HTTP status 200 without data, for a success.
    """
    rate, counts, data = (pattern.search(output) for pattern in (_RATE, _COUNTS, _DATA))
    if not (rate and counts and data):
        raise RunFailed(f"h2load gave no figures: {output[-2000:]}")
    done, good = int(counts[1]), int(counts[2])
    if not done or good < done or int(data[1]) < done * answer_bytes:
        raise RunFailed(f"h2load: {good} of {done} answers with status 200, {data[1]} bytes of {answer_bytes} each")
    return float(rate[1])
