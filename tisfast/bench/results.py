"""What a measurement gives: values without behaviour, which the load fills and the reports read.  Layer 5 (bench).

Times are nanoseconds of CLOCK_MONOTONIC, where the name does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from tisfast import limits
from tisfast.bench.histogram import Histogram
from tisfast.bench.mixture import Mixture
from tisfast.bench.tokens import Tokens

Mode = Literal["concurrency", "request_rate", "intervals", "periodic", "count"]

RECORD: Final = np.dtype(
    [
        ("intended", "<i8"),
        ("sent", "<i8"),
        ("first", "<i8"),
        ("last", "<i8"),
        ("sequence_id", "<u8"),
        ("sent_bytes", "<u4"),
        ("received_bytes", "<u4"),
        ("step", "<u4"),
        ("responses", "<u4"),
        ("status", "<u2"),
        ("flags", "<u2"),
        ("serial", "<u4"),
    ]
)
"""One request.  first: of its answer's bytes; status: of HTTP, or gRPC's code; step: of the input data that it sent;
serial: its number, of which the upper bits are lost.
"""
STAMP: Final = np.dtype([("ns", "<i8"), ("serial", "<u4"), ("unused", "<u4")])
"""When a response of a decoupled model came, and to which request."""

Records = np.ndarray[Any, np.dtype[np.void]]
FAILED: Final = 1
"""A flag of a record: the request had an error."""
DELAYED: Final = 2
"""A flag of a record: it left more than 1 ms behind its intended time."""


@dataclass(frozen=True)
class Level:
    """One load.  value: requests in flight, requests a second, or the number of requests."""

    mode: Mode
    value: float


@dataclass(frozen=True)
class Errors:
    """Requests that failed.

    count: in the whole level, but not in its warm-up; measured: in the windows that are the result, as `completed`;
    warm_up: in the warm-up alone; by_text: those of `count`, by (status, text); first: of those, the text, and seconds
    after the start of the level; unanswered: of `count`, those that nobody waited for any more at the end.
    """

    count: int = 0
    measured: int = 0
    warm_up: int = 0
    by_text: Mapping[tuple[str, str], int] = field(default_factory=dict)
    first: tuple[str, float] | None = None
    unanswered: int = 0


@dataclass(frozen=True)
class Window:
    """What ended within a piece of the measurement, 100 ms or more.

    packed: latencies from the intended time, as Histogram.to_bytes makes them: a range may have thousands of windows.
    """

    began_ns: int
    ended_ns: int
    responses: int
    packed: bytes

    @property
    def latency(self) -> Histogram:
        """Unpacked anew each time."""
        return Histogram.from_bytes(self.packed)


@dataclass(frozen=True)
class GpuUse:
    """A GPU within the window; None for what NVML does not tell.

    memory_bytes: at the end, of the server's processes, or, where NVML does not know those, of all (whole);
    utilization: 0 to 1, and power_watts: of the whole GPU.
    """

    memory_bytes: int | None
    whole: bool
    utilization: float | None
    power_watts: float | None


@dataclass(frozen=True)
class Usage:
    """What the server's processes used within the window.

    pid, name: of the one that listens; processes: it and all that it has started; memory_bytes: of all, at the end:
    proportional set size, 0 where it may not be read; gpus: by UUID, all that NVML shows.
    """

    pid: int
    name: str
    processes: int
    cpu_ns: int
    wall_ns: int
    memory_bytes: int
    gpus: Mapping[str, GpuUse] = field(default_factory=dict)

    @property
    def gpus_in_use(self) -> dict[str, GpuUse]:
        """Without those where the processes have no memory."""
        return {uuid: use for uuid, use in self.gpus.items() if use.whole or use.memory_bytes != 0}

    @property
    def cores(self) -> float:
        """That were busy, on the average."""
        return self.cpu_ns / self.wall_ns if self.wall_ns else 0.0


@dataclass(frozen=True)
class ServerSplit:
    """What the server's statistics grew by in the window: sums over its requests.

    batch_sizes: executions by their size; composing: of an ensemble's models, by "NAME:VERSION"; usage: of the whole
    server, where it is on this machine.
    """

    model: str
    version: str
    inference_count: int = 0
    execution_count: int = 0
    success_count: int = 0
    success_ns: int = 0
    fail_count: int = 0
    fail_ns: int = 0
    queue_count: int = 0
    queue_ns: int = 0
    compute_input_count: int = 0
    compute_input_ns: int = 0
    compute_infer_count: int = 0
    compute_infer_ns: int = 0
    compute_output_count: int = 0
    compute_output_ns: int = 0
    cache_hit_count: int = 0
    cache_hit_ns: int = 0
    cache_miss_count: int = 0
    cache_miss_ns: int = 0
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    composing: Mapping[str, ServerSplit] = field(default_factory=dict)
    usage: Usage | None = None


@dataclass(frozen=True)
class ClientCost:
    """What the client itself needed.

    cpu_ns: of its thread; busy_ns: not in epoll_wait; gil_ns: of those, waiting for this process's other threads;
    runqueue_ns: ready to run, and waiting for a core; lateness: from the intended time to the sending; send_ns,
    receive_ns: sums over all requests, of the calls that send and receive; limited: why the client, and not the server,
    may be the limit, in one sentence, or "".
    """

    cpu_ns: int
    wall_ns: int
    busy_ns: int
    gil_ns: int
    runqueue_ns: int
    lateness: Histogram
    send_ns: int
    receive_ns: int
    limited: str = ""


@dataclass(frozen=True)
class Measurement:
    """One level.

    requests: sent; responses: answers, of which a decoupled model gives any number to one request; completed: requests
    that ended well; response: latency from the intended time; service: from the sending; first_byte: from the sending
    to the first byte of the answer.  delayed: left more than 1 ms behind the intended time.  unsent: were due, and
    never left.  reason: why it ended, one sentence; notes: what else is to be known, a sentence each.  warm_up_ns: of
    the warm-up; windows_before: windows that were measured and are not the result.  gpus: by UUID, of the server's
    metrics: utilization, power_watts, memory_used, memory_total.  records: RECORD arrays, in the order of the windows;
    records_missed: requests of those windows that found no room there.  stamps: STAMP arrays, of their responses.
    tokens: of OpenAI's endpoints.  most_requests: that the client itself can do in a second (--calibrate), or 0.
    models: of several, what each of them did in the same time; without windows, records and notes.
    """

    level: Level
    began_ns: int
    ended_ns: int
    began_realtime_ns: int
    requests: int
    completed: int
    responses: int
    delayed: int
    errors: Errors
    response: Histogram
    service: Histogram
    first_byte: Histogram
    windows: tuple[Window, ...]
    sent_bytes: int
    received_bytes: int
    server: ServerSplit | None
    client: ClientCost
    stable: bool
    reason: str
    unsent: int = 0
    notes: tuple[str, ...] = ()
    warm_up_ns: int = 0
    windows_before: int = 0
    interrupted: bool = False
    sequences: int = 0
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    records: tuple[Records, ...] = ()
    records_missed: int = 0
    stamps: tuple[Records, ...] = ()
    tokens: Tokens | None = None
    most_requests: float = 0.0
    models: Mapping[str, Measurement] = field(default_factory=dict)

    @property
    def open_loop(self) -> bool:
        """Requests had intended times: latencies count from those."""
        return self.level.mode not in ("concurrency", "periodic", "count")

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def asked_share(self) -> float:
        """Of the most requests that the client can do, those that it did; 0 where the most is not known."""
        return self.requests / self.seconds / self.most_requests if self.most_requests and self.seconds else 0.0

    @property
    def throughput(self) -> float:
        """Requests that ended well, a second."""
        return self.completed / self.seconds if self.ended_ns > self.began_ns else 0.0


@dataclass(frozen=True)
class Target:
    """What is measured.  protocol: "http" or "grpc"; endpoint: of OpenAI's, else ""."""

    url: str
    protocol: str
    model: str
    version: str = ""
    batch_size: int = 1
    decoupled: bool = False
    ensemble: bool = False
    endpoint: str = ""


@dataclass(frozen=True)
class Settings:
    """How it is measured, as the reports say it.

    stop: "windows", perf_analyzer's rule, or "confidence": the interval of the wanted latency is narrow enough.
    alternated: with another server, so `trials` windows of both belong together in pairs.  drain_seconds: in which what
    is under way at the end may still be answered.
    """

    asynchronous: bool = False
    streaming: bool = False
    measurement_mode: Literal["time_windows", "count_windows"] = "time_windows"
    window_ms: int = 5000
    request_count: int = 0
    warm_up_count: int = 0
    measurement_request_count: int = 50
    stop: Literal["windows", "confidence"] = "windows"
    stability_percent: float = 10.0
    trials: int = 10
    percentile: int = -1
    latency_threshold_ms: int = 0
    concurrency_end: int = 1
    rate_end: float = 0.0
    distribution: Literal["constant", "poisson"] = "constant"
    binary_search: bool = False
    verbose: int = 0
    alternated: bool = False
    drain_seconds: float = limits.BENCH_DRAIN_SECONDS_MAX


@dataclass(frozen=True)
class Run:
    """All levels.  arguments: as they were typed; machine: of the client; server_version: name and version, or "";
    payloads: bodies for OpenAI's endpoints, by their step, where single requests are kept; mixture: of several
    models; held: digests of the files that flags name, by flag.
    """

    target: Target
    settings: Settings
    arguments: tuple[str, ...]
    machine: Mapping[str, str]
    server_version: str
    levels: tuple[Measurement, ...]
    payloads: Sequence[bytes] = ()
    mixture: Mixture | None = None
    held: Mapping[str, str] = field(default_factory=dict)
