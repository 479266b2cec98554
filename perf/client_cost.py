"""What a request costs the client: tisfast.client beside tritonclient, in turn, against one server.

    python -m perf.client_cost [--rounds N]

CPU time is of this process alone; p50 is of the wall clock.  Both grow on a busy machine.  The two follow each other in
turns, and the first half of a turn does not count: the other client's way with cores and caches is still felt in it.
A row's ratio is ours to tritonclient's, of the medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc
import tritonclient.http

from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from tisfast.client import Client

SMALL = np.ones(4, np.float32)
LARGE = np.ones(150_000, np.float32)  # 600 KB


class Cost(NamedTuple):
    cpu_us: float
    p50_us: float


def measured(ask: Callable[[], object], count: int) -> Cost:
    walls = []
    for _ in range(count):
        ask()
    cpu = time.process_time_ns()
    for _ in range(count):
        began = time.perf_counter_ns()
        ask()
        walls.append(time.perf_counter_ns() - began)
    return Cost((time.process_time_ns() - cpu) / count / 1000, statistics.median(walls) / 1000)


def theirs(module: Any, url: str, model: str, arrays: dict[str, Any]) -> Callable[[], object]:
    client = module.InferenceServerClient(url)

    def ask() -> object:
        inputs = []
        for name, array in arrays.items():
            inputs.append(module.InferInput(name, list(array.shape), "FP32"))
            inputs[-1].set_data_from_numpy(array)
        answer = client.infer(model, inputs)
        return answer.as_numpy("OUTPUT0")

    return ask


def ours(client: Client, model: str, arrays: dict[str, Any]) -> Callable[[], object]:
    asked, values = client.model(model), list(arrays.values())
    return lambda: asked(*values)


@contextmanager
def pairs(server: Server) -> Iterator[dict[str, tuple[Callable[[], object], Callable[[], object], int]]]:
    """By name: theirs, ours, and requests of a round."""
    found = {}
    small, large = {"INPUT0": SMALL, "INPUT1": SMALL}, {"INPUT0": LARGE}
    urls = {"http": f"127.0.0.1:{server.http}", "grpc": f"127.0.0.1:{server.grpc}"}
    modules = {"http": tritonclient.http, "grpc": tritonclient.grpc}
    with ExitStack() as stack:
        for protocol, url in urls.items():
            at, module = f"{protocol}://{url}", modules[protocol]
            plain = stack.enter_context(Client(at, shared_memory=False))
            auto = stack.enter_context(Client(at))
            found[f"{protocol} small"] = theirs(module, url, "add_sub", small), ours(plain, "add_sub", small), 400
            other = theirs(module, url, "identity_fp32", large)
            found[f"{protocol} 600 KB"] = other, ours(plain, "identity_fp32", large), 40
            found[f"{protocol} 600 KB, shared memory"] = other, ours(auto, "identity_fp32", large), 40
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with Server("tisfast", [ROOT / "examples/models"], ["--allow-client-shm=true"]) as server, pairs(server) as asked:
        print(f"{'':32}{'tritonclient':>20}{'tisfast.client':>20}{'ratio':>14}")
        print(f"{'':32}{'CPU us':>10}{'p50 us':>10}{'CPU us':>10}{'p50 us':>10}{'CPU':>7}{'p50':>7}")
        for name, (their, our, count) in asked.items():
            both = [(measured(their, count), measured(our, count)) for _ in range(rounds)]
            a, b = (
                Cost(*(statistics.median(cost) for cost in zip(*side, strict=True))) for side in zip(*both, strict=True)
            )
            ratio = f"{b.cpu_us / a.cpu_us:7.2f}{b.p50_us / a.p50_us:7.2f}"
            print(f"{name:32}{a.cpu_us:10.0f}{a.p50_us:10.0f}{b.cpu_us:10.0f}{b.p50_us:10.0f}{ratio}")


if __name__ == "__main__":
    main()
