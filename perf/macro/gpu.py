"""Tensors on a GPU, on a machine with one: what serving adds to the copies and to the module alone.

    make bench-gpu GPU_PYTHON=python3       # 2 minutes; a Python with tisfast's dependencies, torch and torchvision

| row | alone | served |
|---|---|---|
| region | 16 MB from one place on the GPU to another | a Python identity, from a client's CUDA region to another |
| computed | torch adds 1 to 16 MB on the GPU | a Python model does it, from region to region |
| ensemble | the same of three Python models of four floats in host memory | three identities, one after the other |
| host | cudaMemcpyAsync of 16 MB of pinned memory, to the GPU and back | what a model's compute takes that does it |
| shared | the same | the whole request: from a client's shared memory to another |
| network | ResNet-50 in batches of 32 that lie on the GPU | the same with single images in shared memory, batched |

All times are medians of one request at a time, but the network's, which are images a second.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import torch

from perf.compare import complaining
from perf.figures import RunFailed, run_client
from perf.macro.gpu_clients import Caller, post, register_cuda, register_system, tensor
from perf.macro.gpu_models import (
    BY_TORCH,
    FROM_HOST,
    IMAGE,
    PASSED_ON,
    ROWS_MOST,
    write_chain,
    write_network,
    write_python,
)
from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from perf.table import mark
from tisfast.native.cuda import Allocated, Cuda

NBYTES: Final = 16 << 20
VALUES: Final = np.arange(NBYTES // 4, dtype=np.float32)
WARM_CALLS: Final = 20
_X: Final = {"name": "X", "shape": [len(VALUES)], "datatype": "FP32"}
REGION_MS_MOST, HOST_MOST, NETWORK_LEAST = 0.3, 1.2, 0.95
HEAD: Final = "| row | alone | served | served / alone | bar | |\n|---|---|---|---|---|---|"


class Row(NamedTuple):
    """One line.  met: whether it meets `bar`, None without one."""

    title: str
    unit: str
    alone: float
    served: float
    bar: str = "-"
    met: bool | None = None

    def __str__(self) -> str:
        """A line under HEAD."""
        alone, ratio = f"{self.alone:.3f} {self.unit}", f"{self.served / self.alone:.2f}"
        verdict = "" if self.met is None else mark(self.met)
        return f"| {self.title} | {alone} | {self.served:.3f} {self.unit} | {ratio} | {self.bar} | {verdict} |"


def median_ms(call: Callable[[], object], seconds: float) -> float:
    """Of one call after the other."""
    for _ in range(WARM_CALLS):
        call()
    took, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        call()
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def on_gpu(nbytes: int) -> Allocated:
    """Memory that other processes can open."""
    return Cuda().allocate(UUID(str(torch.cuda.get_device_properties(0).uuid)).bytes, nbytes)


def check(memory: Allocated, expected: np.ndarray[Any, Any]) -> None:
    """Raises RunFailed unless its bytes are these."""
    found = np.empty_like(expected)
    memory.to_host(0, found.ctypes.data, found.nbytes)
    if not (found == expected).all():
        raise RunFailed("a model answered with other values than it should")


def regions(seconds: float, folder: Path) -> Iterator[Row]:
    """From one CUDA region of a client's to another."""
    write_python(folder / "identity", PASSED_ON)
    write_python(folder / "second", PASSED_ON)
    write_python(folder / "third", PASSED_ON)
    write_python(folder / "computed", BY_TORCH)
    write_chain(folder / "chain", ["identity", "second", "third"])
    hosts = [f"host{at}" for at in range(3)]
    for name in hosts:
        write_python(folder / name, PASSED_ON, on_gpu=False, stays=False)
    write_chain(folder / "host_chain", hosts)
    one, two = (torch.empty(NBYTES // 4, device="cuda") for _ in range(2))
    copy = median_ms(lambda: (two.copy_(one), torch.cuda.synchronize()), seconds)
    added = median_ms(lambda: (torch.add(one, 1, out=two), torch.cuda.synchronize()), seconds)
    given, wanted = on_gpu(NBYTES), on_gpu(NBYTES)
    given.from_host(0, VALUES.ctypes.data, NBYTES)
    with Server("tisfast", [folder], ["--allow-client-shm=true"]) as server:
        register_cuda(server.address, "given", given.handle, NBYTES)
        register_cuda(server.address, "wanted", wanted.handle, NBYTES)
        x = tensor("given", NBYTES, shape=[len(VALUES)], datatype="FP32")
        four = {"name": "X", "shape": [4], "datatype": "FP32", "data": [1, 2, 3, 4]}
        with closing(Caller(server.address, "host_chain", four, {"name": "Y"})) as call:
            hops = median_ms(call, seconds)
        for title, model, alone, expected in (
            ("identity of 16 MB from CUDA region to CUDA region; p50", "identity", copy, VALUES),
            ("torch adds 1 to 16 MB, from CUDA region to CUDA region; p50", "computed", added, VALUES + 1),
            ("ensemble of three identities of 16 MB, the same; p50", "chain", hops, VALUES),
        ):
            y = tensor("wanted", NBYTES, "Y" if model == "chain" else "X")
            with closing(Caller(server.address, model, x, y)) as call:
                served = median_ms(call, seconds)
            check(wanted, expected)
            bar = (f"at most {REGION_MS_MOST} ms", served <= REGION_MS_MOST) if model == "identity" else ("-", None)
            yield Row(title, "ms", alone, served, *bar)


def hosts(seconds: float, folder: Path) -> Iterator[Row]:
    """From host memory to the GPU and back."""
    write_python(folder / "both_ways", FROM_HOST, stays=False)
    pinned, back = (torch.empty(NBYTES // 4, pin_memory=True) for _ in range(2))
    there = torch.empty(NBYTES // 4, device="cuda")

    def both_ways() -> None:
        there.copy_(pinned, non_blocking=True)
        back.copy_(there, non_blocking=True)
        torch.cuda.synchronize()

    alone = median_ms(both_ways, seconds)
    with Server("tisfast", [folder], ["--allow-client-shm=true"]) as server:
        yield _in_the_model(server, alone, seconds)
        yield _shared(server, alone, seconds)


def _in_the_model(server: Server, alone: float, seconds: float) -> Row:
    """By the server's statistics, read behind each request: their tensors come and go over HTTP."""
    head = json.dumps({
        "inputs": [_X | {"parameters": {"binary_data_size": NBYTES}}],
        "outputs": [{"name": "X", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    connection = http.client.HTTPConnection(server.address, timeout=60)

    def call() -> None:
        lengths = {"Inference-Header-Content-Length": str(len(head))}
        connection.request("POST", "/v2/models/both_ways/infer", head + VALUES.tobytes(), lengths)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200 or not data.endswith(VALUES[-1024:].tobytes()):
            raise RunFailed(f"status {answer.status}: {data[:300]!r}")

    def compute_ns() -> int:
        (found,) = post(server.address, "models/both_ways/stats")["model_stats"]
        parts = (found["inference_stats"][name] for name in ("compute_input", "compute_infer", "compute_output"))
        return sum(part["ns"] for part in parts)

    for _ in range(WARM_CALLS):
        call()
    took, before, end = [], compute_ns(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        call()
        after = compute_ns()
        took.append((after - before) / 1e6)
        before = after
    served = statistics.median(took)
    title = "16 MB of pinned host memory to the GPU and back, in the model's compute; p50"
    return Row(title, "ms", alone, served, f"at most {HOST_MOST}", served / alone <= HOST_MOST)


def _shared(server: Server, alone: float, seconds: float) -> Row:
    """The whole request, with a client's shared memory at both ends."""
    given, wanted = (SharedMemory(create=True, size=NBYTES) for _ in range(2))
    try:
        given.buf[:NBYTES] = VALUES.tobytes()
        for name, memory in (("host_given", given), ("host_wanted", wanted)):
            register_system(server.address, name, memory.name, NBYTES)
        x = tensor("host_given", NBYTES, shape=[len(VALUES)], datatype="FP32")
        with closing(Caller(server.address, "both_ways", x, tensor("host_wanted", NBYTES))) as call:
            served = median_ms(call, seconds)
        if bytes(wanted.buf[:NBYTES]) != VALUES.tobytes():
            raise RunFailed("a model answered with other values than it should")
    finally:
        for memory in (given, wanted):
            memory.close()
            memory.unlink()
    return Row("16 MB of a client's shared memory to the GPU and back, the whole request; p50", "ms", alone, served)


def network(seconds: float, folder: Path, instances: list[int], concurrency: int) -> Iterator[Row]:
    """Images a second."""
    paths = {count: write_network(folder / str(count) / "network", count) for count in instances}
    resident, moved = _network_alone(next(iter(paths.values())), seconds)
    for count in instances:
        served = _network_served(folder / str(count), seconds, concurrency)
        title = f"ResNet-50, {count} instances, {concurrency} images of 600 KB in flight"
        bar, is_met = f"at least {NETWORK_LEAST}", served / resident >= NETWORK_LEAST
        yield Row(f"{title}; batches that lie on the GPU alone", "/s", resident, served, bar, is_met)
        yield Row(f"{title}; pinned batches alone", "/s", moved, served)


def _network_served(models: Path, seconds: float, concurrency: int) -> float:
    with Server("tisfast", [models], ["--allow-client-shm=true"]) as server:
        report = models.with_suffix(".json")
        flags = ["-m", "network", "-u", server.address, "--concurrency-range", str(concurrency), "--json", str(report)]
        flags += ["--shared-memory", "system", "-p", str(int(seconds * 1000)), "--output-shared-memory-size", "8192"]
        run_client([sys.executable, "-m", "tisfast", "bench", *flags], 120, servers=[server.pid])
    return float(json.loads(report.read_text())["levels"][0]["throughput"])


def _network_alone(path: Path, seconds: float) -> tuple[float, float]:
    """Images a second of the module, of batches that lie on the GPU and of pinned ones."""
    module = torch.jit.load(str(path), map_location="cuda").eval()
    images, pinned = torch.rand(ROWS_MOST, *IMAGE, device="cuda"), torch.rand(ROWS_MOST, *IMAGE).pin_memory()
    with torch.inference_mode():
        resident = median_ms(lambda: (module(images), torch.cuda.synchronize()), seconds)
        moved = median_ms(lambda: module(pinned.to("cuda", non_blocking=True)).cpu(), seconds)
    return ROWS_MOST / resident * 1e3, ROWS_MOST / moved * 1e3


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each figure")
    parser.add_argument("--instances", type=int, nargs="+", default=[2, 4], help="of the network, one row each")
    parser.add_argument("--concurrency", type=int, default=256, help="of the network")
    parser.add_argument("--only", default="", metavar="REGEX", help="regions, hosts or network")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, tree {ROOT.name}\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        parts = {
            "regions": lambda: regions(options.seconds, Path(name, "regions")),
            "hosts": lambda: hosts(options.seconds, Path(name, "hosts")),
            "network": lambda: network(options.seconds, Path(name, "network"), options.instances, options.concurrency),
        }
        for part, rows in parts.items():
            for row in rows() if re.search(options.only, part) else ():
                print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(complaining(main))
