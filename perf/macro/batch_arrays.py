"""What `execute_batch` saves: batches of 32 requests of 150 KB, taken as one array, or joined and cut up by the model.

    python -m perf.macro.batch_arrays [--seconds 3] [--rounds 3]

One server with both models, each with one instance; as many connections as two batches have requests, each of which
asks again when it is answered.  The models take turns, and each has its median in the table.  Client and server share
the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from perf.oracle.server import Server

ELEMENTS: Final = 38_400  # of FP32: 150 KB
BATCH: Final = 32
CONNECTIONS: Final = 2 * BATCH
ARRAYS: Final = """
import numpy as np
class TritonPythonModel:
    def execute_batch(self, inputs):
        return {"SUM": inputs["ROW"].sum(axis=1, keepdims=True)}
"""
LIST: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        rows = np.concatenate([pb_utils.get_input_tensor_by_name(r, "ROW").as_numpy() for r in requests])
        sums = rows.sum(axis=1, keepdims=True)
        answers, at = [], 0
        for request in requests:
            size = pb_utils.get_input_tensor_by_name(request, "ROW").shape()[0]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", sums[at : at + size])]))
            at += size
        return answers
"""
CONFIG: Final = f"""
backend: "python" max_batch_size: {BATCH} dynamic_batching {{ }}
input [ {{ name: "ROW" data_type: TYPE_FP32 dims: [ {ELEMENTS} ] }} ]
output [ {{ name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }} ]
"""


class Figures(NamedTuple):
    """One run of one model.  infer_us: of an execution in the worker; batch: requests of one."""

    per_second: float
    p50_ms: float
    batch: float
    infer_us: float


class Client(asyncio.Protocol):
    """One connection that always has a request out."""

    def __init__(self, model: str, number: int) -> None:
        head = json.dumps(
            {
                "id": f"{number:04}",
                "inputs": [{"name": "ROW", "datatype": "FP32", "shape": [1, ELEMENTS],
                            "parameters": {"binary_data_size": 4 * ELEMENTS}}],
            }
        ).encode()  # fmt: skip
        body = head + struct.pack("<f", number) * ELEMENTS
        lines = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {len(head)}\r\n"
        self.request = f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.latencies: list[float] = []
        self.failed = b""
        self.answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.answer += data
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().rpartition(b"\ncontent-length: ")[2].split(b"\r")[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.failed = self.answer
            return
        self.latencies.append(time.perf_counter() - self.began)
        self.answer = b""
        self.ask()


async def load(port: int, model: str, seconds: float) -> list[float]:
    """Latencies of one run, in seconds."""
    loop = asyncio.get_running_loop()
    clients = [Client(model, number) for number in range(CONNECTIONS)]
    transports = [(await loop.create_connection(lambda c=each: c, "127.0.0.1", port))[0] for each in clients]
    await asyncio.sleep(seconds)
    for transport in transports:
        transport.abort()
    failed = next((each.failed for each in clients if each.failed), None)
    if failed is not None:
        raise RuntimeError(failed.decode())
    return [latency for each in clients for latency in each.latencies]


def counters(server: Server, model: str) -> tuple[int, int, int]:
    """Inferences, executions, and ns in `execute` so far."""
    import urllib.request  # noqa: PLC0415 - one call

    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/v2/models/{model}/stats") as answer:
        stats = json.load(answer)["model_stats"][0]
    infer = sum(each["compute_infer"]["ns"] for each in stats["batch_stats"])
    return stats["inference_count"], stats["execution_count"], infer


def measure(server: Server, model: str, seconds: float) -> Figures:
    """One run."""
    before = counters(server, model)
    latencies = asyncio.run(load(server.http, model, seconds))
    inferences, executions, ns = (b - a for a, b in zip(before, counters(server, model), strict=True))
    p50 = statistics.median(latencies) * 1000
    return Figures(len(latencies) / seconds, p50, inferences / executions, ns / executions / 1000)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    uvloop.install()
    with tempfile.TemporaryDirectory() as folder:
        for name, code in (("arrays", ARRAYS), ("list", LIST)):
            version = Path(folder, name, "1")
            version.mkdir(parents=True)
            (version / "model.py").write_text(code)
            (version.parent / "config.pbtxt").write_text(CONFIG)
        with Server("tisfast", [folder]) as server:
            runs = {name: [] for name in ("arrays", "list")}
            for _ in range(options.rounds):
                for name, found in runs.items():
                    found.append(measure(server, name, options.seconds))
    print("| model | requests/s | p50 ms | requests per batch | in the model, µs per batch |\n|---|---|---|---|---|")
    for name, found in runs.items():
        row = [statistics.median(column) for column in zip(*found, strict=True)]
        print(f"| {name} | {row[0]:.0f} | {row[1]:.1f} | {row[2]:.1f} | {row[3]:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
