"""One format as clients will see it: served by tisfast, asked for all samples, and measured.  Layer 5 (convert)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast.bench.asked import Asked
from tisfast.bench.results import Measurement, Settings
from tisfast.bench.session import Session, look_up
from tisfast.bench.templates import Step
from tisfast.client import Client
from tisfast.client.address import parse_url
from tisfast.client.arrays import tensor_of
from tisfast.convert.compare import Difference, Tolerance
from tisfast.convert.results import Measured
from tisfast.convert.samples import Case
from tisfast.convert.signature import Signature
from tisfast.convert.steps import StepFailed, log_end, shortened
from tisfast.errors import TisError
from tisfast.local_server import LocalServer
from tisfast.wire.buffer_tensor import BufferTensor

FLAGS: Final = (
    *("--http-port=0", "--http-address=127.0.0.1", "--allow-grpc=false", "--allow-metrics=false"),
    *("--allow-client-shm=false", "--log-info=false", "--log-format=json", "--exit-timeout-secs=2"),
)
LOG: Final = "server.log"
TRIALS: Final = 5
"""A load may take so many times its least time until its average is known well enough."""
PERCENT: Final = 3.0
"""Well enough: the 95 % interval of the average latency is this narrow to both sides."""


@dataclass(frozen=True)
class Wanted:
    """The source's answers.  names: of the outputs, as the format calls them, where it calls them otherwise."""

    signature: Signature
    feeds: Sequence[Case]
    answers: Sequence[Case]
    tolerance: Tolerance
    outputs: Mapping[str, str]


class Loads(NamedTuple):
    """How it is measured.  concurrency: requests under way, one load after the other; seconds: the least of each."""

    concurrency: Sequence[int]
    seconds: float


@contextmanager
def served(repository: Path, folder: Path, seconds_max: float) -> Iterator[tuple[Client, str]]:
    """A server of this repository: a client of it, and its URL.  Raises StepFailed with what it says."""
    log = folder / LOG
    server = LocalServer([*FLAGS, f"--model-repository={repository}", f"--log-file={log}"])
    try:
        try:
            server.start(seconds_max)
        except TisError as error:
            raise StepFailed(_said(log) or shortened(error.message)) from None
        url = f"http://{server.http_address}"
        with Client(url, retries=0, shared_memory=False, timeout=seconds_max) as client:
            yield client, url
    finally:
        server.stop()


def _said(log: Path) -> str:
    """The first error of its log."""
    for line in log_end(log).splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("level") in ("error", "critical"):
            return shortened(str(record.get("message", "")))
    return ""


def compared(client: Client, name: str, wanted: Wanted) -> Difference:
    """Ask for all samples.  Raises StepFailed where one is not answered."""
    model = client.model(name)
    signature, found = wanted.signature, Difference()
    for case, answer in zip(wanted.feeds, wanted.answers, strict=True):
        try:
            result = model.infer(_sent(signature, case.feeds))
        except TisError as error:
            raise StepFailed(f"{case.name} is not answered: {shortened(error.message)}") from None
        for output, array in answer.feeds.items():
            answered = np.asarray(result[wanted.outputs.get(output, output)])
            found.add(output, case.name, array, answered, wanted.tolerance)
    return found


def _sent(signature: Signature, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        each.name: feeds[each.name].reshape(signature.sent(each, feeds[each.name].shape)) for each in signature.inputs
    }


def measured(
    client: Client, url: str, name: str, wanted: Wanted, loads: Loads, told: Callable[[str], None]
) -> tuple[Measured, ...]:
    """Each load, with the samples that are compared one by one."""
    signature = wanted.signature
    single = [each for each in wanted.feeds if not signature.batches or _rows(each) == 1]
    steps = [Step(_tensors(signature, case.feeds)) for case in single]
    found = []
    for concurrency in loads.concurrency:
        told(f"measured with {concurrency} at one time")
        settings = Settings(
            window_ms=max(int(loads.seconds * 1000), 1),
            stop="confidence",
            stability_percent=PERCENT,
            trials=TRIALS,
            concurrency_end=concurrency,
        )
        asked = Asked(parse_url(url), name, "", "concurrency", (concurrency, concurrency, 1), settings)
        (level,) = Session(asked, client, look_up(client, asked), steps).run().levels
        found.append(_figures(concurrency, level))
    return tuple(found)


def _tensors(signature: Signature, feeds: Mapping[str, NDArray[Any]]) -> list[BufferTensor]:
    sent = _sent(signature, feeds)
    return [tensor_of(each.name, each.datatype, sent[each.name]) for each in signature.inputs]


def _rows(case: Case) -> int:
    return len(next(iter(case.feeds.values())))


def _figures(concurrency: int, level: Measurement) -> Measured:
    latency = level.response
    if not latency.count:
        raise StepFailed(f"nothing was answered with {concurrency} requests at one time: {level.reason}")
    return Measured(
        concurrency,
        level.throughput,
        latency.mean / 1e6,
        latency.quantile(0.5) / 1e6,
        latency.quantile(0.99) / 1e6,
        level.completed,
        level.errors.count,
        level.stable,
        level.reason,
    )


def size_of(folder: Path) -> int:
    """Bytes of its files."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
