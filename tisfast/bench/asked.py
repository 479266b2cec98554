"""What a measurement is asked to do: the target, the load, and what is sent.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tisfast.bench.encryption import Encryption
from tisfast.bench.results import Settings
from tisfast.bench.schedules import Constant, Fixed, Intervals, Pacing, Periodic, Poisson, Ramp, Times
from tisfast.bench.sequences import ID_MAX, Plan
from tisfast.client.address import Address


@dataclass(frozen=True)
class Data:
    """What is sent.  files: of --input-data; zero: else zeros and not random data; parameters: of each request."""

    files: Sequence[str] = ()
    zero: bool = False
    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    string_length: int = 128
    string_data: str = ""
    parameters: dict[str, bool | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelShare:
    """One of several models in a load: it gets `weight` of the sum of all weights of the requests."""

    model: str
    version: str
    weight: float
    data: Data

    @property
    def name(self) -> str:
        """By which it is told apart."""
        return f"{self.model}:{self.version}" if self.version else self.model


Tracing = Mapping[str, str | list[str]]
"""The server's trace settings meanwhile, in the words of its call; empty: it keeps its own."""


class Replay(NamedTuple):
    """Traffic of a file, so many times as fast.  model, version: of lines that name none."""

    path: str
    speed: float = 1.0
    model: str = ""
    version: str = ""


@dataclass(frozen=True)
class SequencesAsked:
    """Of sequences.  count: open at one time, at a rate; length: None for the data's, or 20; named: a flag of them."""

    count: int = 4
    length: int | None = None
    variation: float = 20.0
    id_begin: int = 1
    id_end: int = ID_MAX
    named: str = ""

    def plan(self, in_flight: int, streams: Sequence[int]) -> Plan:
        """Raises BadRequest."""
        return Plan(streams, self.length, self.variation, self.id_begin, self.id_end, in_flight)


@dataclass(frozen=True)
class Asked:
    """What the user has said of the target and the load.

    levels: (start, end, step) of concurrency, or of the rate; end 0: until the latency threshold; listed: these
    instead, which begin with the start and end with the end.  Instead of a rate an open loop has intervals, a ramp
    (start, end, seconds), or the seconds of a schedule.  connections: at most, 0 for the default.  records: each
    request is kept.  output_bytes: of each output in shared memory, on_gpu: in a GPU's; 0: tensors go through the
    connection.  compression: gzip or deflate, of gRPC. endpoint: of OpenAI's, instead of KServe's protocol.  mix:
    several models; `model` then names them together.  tls: None where nothing is encrypted.  held: digests of the
    files that flags name, by flag.
    """

    address: Address
    model: str
    version: str
    mode: str
    levels: tuple[float, float, float]
    settings: Settings
    listed: tuple[float, ...] = ()
    headers: Sequence[tuple[str, str]] = ()
    batch_size: int = 1
    data: Data = Data()
    binary_inputs: bool = True
    binary_outputs: bool = True
    output_bytes: int = 0
    on_gpu: bool = False
    compression: str = ""
    tls: Encryption | None = None
    intervals: Times | None = None
    ramp: tuple[float, float, float] | None = None
    fixed_schedule: bool = False
    schedule: Sequence[float] = ()
    periodic: Periodic | None = None
    sequences: SequencesAsked = SequencesAsked()
    seed: int = 0
    connections: int = 0
    records: bool = False
    composing: Sequence[tuple[str, str]] = ()
    arguments: tuple[str, ...] = ()
    endpoint: str = ""
    mix: Sequence[ModelShare] = ()
    replay: Replay | None = None
    tracing: Tracing = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Of the service."""
        return "openai" if self.endpoint else "triton"

    @property
    def several(self) -> bool:
        """Requests are of several models, or may be."""
        return bool(self.mix) or (self.replay is not None and not self.endpoint)

    def pacing(self, rate: float) -> Callable[[], Pacing] | None:
        """Makes the intended times of an open loop; None for a closed one."""
        if self.mode in ("concurrency", "periodic"):
            return None
        if self.ramp is not None:
            return partial(Ramp, *self.ramp)
        if self.schedule:
            return partial(Fixed, np.array(self.schedule))
        if self.intervals is not None:
            return partial(Intervals, self.intervals)
        if self.settings.distribution == "poisson":
            return partial(Poisson, rate, self.seed)
        return partial(Constant, rate)

    def at_times(self, milliseconds: Sequence[float]) -> Asked:
        """With the times of the input data, which are sent once each."""
        times = [each / 1000 for each in milliseconds]
        rate = len(times) / max(*times, 1e-3)
        settings = replace(self.settings, request_count=len(times))
        return replace(self, schedule=times, levels=(rate, rate, 1.0), settings=settings)
