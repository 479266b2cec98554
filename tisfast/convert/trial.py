"""One format as clients will see it: served by tisfast, asked for all samples, and measured.  Layer 5 (convert)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast import limits
from tisfast.bench.asked import Asked
from tisfast.bench.figures import needed_for, supported
from tisfast.bench.results import Measurement, Settings
from tisfast.bench.session import Session, look_up
from tisfast.bench.statistics import mean_interval
from tisfast.bench.templates import Step
from tisfast.client import Client
from tisfast.client.address import parse_url
from tisfast.client.arrays import tensor_of
from tisfast.convert.compare import Allowed, Difference
from tisfast.convert.results import Measured
from tisfast.convert.samples import Case, dtype_of
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
LONGER: Final = 5
"""One with too few answers to know anything of its average is measured again, so many times as long."""
PERCENT: Final = 3.0
"""Well enough: the 95 % interval of the average latency is this narrow to both sides."""
P99: Final = 99.0
ENOUGH: Final = 1.2
"""So many times the requests that a p99 takes: the second try is somewhat slower or quicker than the first."""
Verify = Callable[[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]], bool]
"""Of a format's answers to all samples and the source's, by the source's names: whether they are right."""


class ServedAs(NamedTuple):
    """A format's own signature.

    inputs, outputs: its names by the source's; none where they are the same.  The source's other outputs are not there.
    wrong: why its answers are not the source's on other hardware, though they are here; unseen: what of that was not
    looked at.
    """

    signature: Signature
    inputs: Mapping[str, str] = MappingProxyType({})
    outputs: Mapping[str, str] = MappingProxyType({})
    wrong: str = ""
    unseen: str = ""

    def note(self, source: Signature) -> str:
        """What clients must know of it; "" where it is asked as the source is."""
        renamed = [f"{new} ({old})" for old, new in {**self.inputs, **self.outputs}.items() if new != old]
        lacking = self.lacking(source)
        told = [f"clients ask it for {', '.join(renamed)}"] if renamed else []
        told += [f"it does not answer {', '.join(lacking)}"] if lacking else []
        told += [self.unseen] if self.unseen else []
        return "; ".join(told)

    def lacking(self, source: Signature) -> tuple[str, ...]:
        """Outputs of the source that it does not answer."""
        return tuple(each.name for each in source.outputs if self.outputs and each.name not in self.outputs)

    def sent(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Arrays by its names, in its types and shapes, of those of the source."""
        found = {}
        for name, array in feeds.items():
            (tensor,) = (each for each in self.signature.inputs if each.name == self.inputs.get(name, name))
            own = array if tensor.datatype == "BYTES" else array.astype(dtype_of(tensor), copy=False)
            found[tensor.name] = own.reshape(self.signature.sent(tensor, own.shape))
        return found


@dataclass(frozen=True)
class Wanted:
    """The source's signature and answers, and how the format is asked for them.

    tolerances: by output; seconds_max: for all requests that are compared; verify: the user's own judgement, in place
    of the tolerances.
    """

    signature: Signature
    feeds: Sequence[Case]
    answers: Sequence[Case]
    tolerances: Mapping[str, Allowed]
    served_as: ServedAs
    seconds_max: float
    verify: Verify | None = None


class Loads(NamedTuple):
    """How it is measured.

    concurrency: requests under way, one load after the other; seconds: the least of each; p99: is wanted, so that a
    load takes longer where its requests are too few for one.  longest: seconds that a request was seen to take.
    """

    concurrency: Sequence[int]
    seconds: float
    p99: bool = False
    longest: float = 0.0


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


def compared(client: Client, name: str, wanted: Wanted) -> tuple[Difference, float]:
    """Ask for all samples: how they differ, and the seconds that the longest took.

    Raises StepFailed where one is not answered, or they take too long.
    """
    model = client.model(name)
    served_as, found = wanted.served_as, Difference()
    answers: list[dict[str, NDArray[Any]]] = []
    until, longest = time.monotonic() + wanted.seconds_max, 0.0
    for case, answer in zip(wanted.feeds, wanted.answers, strict=True):
        left = until - (began := time.monotonic())
        if left <= 0:
            raise StepFailed(
                f"{len(answers)} of {len(wanted.feeds)} samples were answered in {wanted.seconds_max:g} s: give fewer, "
                "or more time with --step-seconds"
            )
        try:
            result = model.infer(served_as.sent(case.feeds), timeout=left)
        except TisError as error:
            raise StepFailed(f"{case.name} is not answered: {shortened(error.message)}") from None
        longest = max(longest, time.monotonic() - began)
        answers.append({})
        for output, array in answer.feeds.items():
            name = served_as.outputs.get(output, "" if served_as.outputs else output)
            if name:
                answers[-1][output] = np.asarray(result[name])
                found.add(output, case.name, array, answers[-1][output], wanted.tolerances[output])
    if wanted.verify is not None:
        try:
            right = bool(wanted.verify(answers, [each.feeds for each in wanted.answers]))
        except Exception as error:  # of the user's own code
            raise StepFailed(f"the function `verify` raised {type(error).__name__}: {shortened(str(error))}") from error
        found.wrong = "" if right else "the function `verify` says so"
    return found, longest


def measured(
    client: Client, url: str, name: str, wanted: Wanted, loads: Loads, told: Callable[[str], None]
) -> tuple[Measured, ...]:
    """Each load, with the samples that are compared one by one."""
    signature = wanted.signature
    single = [each for each in wanted.feeds if not signature.batches or _rows(each) == 1]
    steps = [Step(_tensors(wanted.served_as, case.feeds)) for case in single]

    def level_of(concurrency: int, seconds: float) -> Measurement:
        told(f"measured with {concurrency} at one time")
        settings = Settings(
            window_ms=max(int(seconds * 1000), 1),
            stop="confidence",
            stability_percent=PERCENT,
            trials=max(int(loads.seconds * LONGER * TRIALS / seconds), 1) if seconds > loads.seconds else TRIALS,
            concurrency_end=concurrency,
            drain_seconds=_drain_seconds(concurrency, loads.longest, wanted.seconds_max),
        )
        asked = Asked(parse_url(url), name, "", "concurrency", (concurrency, concurrency, 1), settings)
        (level,) = Session(asked, client, look_up(client, asked), steps).run().levels
        return level

    found = []
    for concurrency in loads.concurrency:
        level = level_of(concurrency, loads.seconds)
        cut = _is_cut(concurrency, loads.longest, wanted.seconds_max)
        again = _seconds_again(level, loads, cut)
        found.append(_figures(concurrency, level_of(concurrency, again) if again else level, cut))
    return tuple(found)


def _drain_seconds(concurrency: int, longest: float, seconds_max: float) -> float:
    """In which what is under way at the end of a load is answered, were it one by one, in twice the time."""
    return max(min(2 * longest * concurrency, seconds_max), limits.BENCH_DRAIN_SECONDS_MAX)


def _is_cut(concurrency: int, longest: float, seconds_max: float) -> bool:
    """Whether they are not waited for as long as they may take."""
    return _drain_seconds(concurrency, longest, seconds_max) < 2 * longest * concurrency


def _seconds_again(level: Measurement, loads: Loads, cut: bool) -> float:
    """Of a second try, where the first has too few answers to know anything; 0: it has enough, or requests failed."""
    if _failed(level, cut):
        return 0.0
    if loads.p99 and level.throughput and not supported(level.response, P99):
        enough = ENOUGH * needed_for(P99 / 100) / level.throughput
        return min(max(enough, loads.seconds * LONGER), loads.seconds * LONGER * TRIALS)
    known = level.response.count and math.isfinite(_within(level))
    return 0.0 if known else loads.seconds * LONGER


def _tensors(served_as: ServedAs, feeds: Mapping[str, NDArray[Any]]) -> list[BufferTensor]:
    sent = served_as.sent(feeds)
    inputs = [each for each in served_as.signature.inputs if each.name in sent]
    return [tensor_of(each.name, each.datatype, sent[each.name]) for each in inputs]


def _rows(case: Case) -> int:
    return len(next(iter(case.feeds.values())))


def _figures(concurrency: int, level: Measurement, cut: bool) -> Measured:
    latency = level.response
    if not latency.count:
        said = level.errors.first[0] if level.errors.first else level.reason
        raise StepFailed(f"nothing was answered with {concurrency} requests at one time: {shortened(said)}")
    failed = _failed(level, cut)
    return Measured(
        concurrency,
        level.throughput,
        latency.mean / 1e6,
        latency.quantile(0.5) / 1e6,
        latency.quantile(0.99) / 1e6,
        level.completed,
        failed,
        level.stable,
        level.reason,
        _within(level),
        shortened(level.errors.first[0]) if failed and level.errors.first else "",
        supported(latency, P99),
    )


def _failed(level: Measurement, cut: bool) -> int:
    """Requests that failed.  cut: without those that were not waited for long enough: that is no fault of the model."""
    return level.errors.count - (level.errors.unanswered if cut else 0)


def _within(level: Measurement) -> float:
    return mean_interval([each.latency for each in level.windows]).half_width


def size_of(folder: Path) -> int:
    """Bytes of its files."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
