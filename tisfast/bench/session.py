"""All levels of one model: what is asked of the server before, and which levels follow.  Layer 5 (bench)."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from tisfast import limits, tuning
from tisfast.bench.asked import Asked
from tisfast.bench.client_side import machine
from tisfast.bench.collected import COMPARED
from tisfast.bench.encryption import Channel
from tisfast.bench.grpc_load import GrpcLoad
from tisfast.bench.http_load import HttpLoad, HttpTemplate
from tisfast.bench.inputs import all_timestamps
from tisfast.bench.loop import Loop
from tisfast.bench.measure import Job, LevelRun, Progress, Stop
from tisfast.bench.mixture import Mixture, Order, drawn
from tisfast.bench.openai_requests import read_bodies, templates
from tisfast.bench.results import Level, Measurement, Run, Target
from tisfast.bench.sequences import Player, Sequences
from tisfast.bench.server_metrics import ServerMetrics
from tisfast.bench.server_processes import ServerProcesses
from tisfast.bench.server_side import Models, ServerSide, composing_models
from tisfast.bench.templates import Form, Step, call_fields, grpc_templates, http_templates
from tisfast.bench.tokens import Tokens
from tisfast.client import Client, ConnectFailed, ModelMetadata
from tisfast.client import Model as ClientModel
from tisfast.client.address import Address
from tisfast.errors import BadRequest, NotFound, TisError, Unknown, Unsupported
from tisfast.wire.client_request import WantedOutput

SECOND_NS: Final = 1_000_000_000
PROBE_SECONDS: Final = 60.0
"""The first request may take so long, unless somebody says otherwise: a model may load with it."""
DESCRIPTORS_KEPT: Final = 64
"""File descriptors beside those of connections."""


class NoFirstAnswer(BadRequest):
    """The first request took longer than it may."""


@dataclass(frozen=True)
class Model:
    """What the server says of the model."""

    metadata: ModelMetadata
    config: Mapping[str, Any]
    server: str = ""
    statistics: bool = False
    sequences: bool = False

    @property
    def batches(self) -> int:
        """max_batch_size."""
        return int(self.config.get("max_batch_size", 0) or 0)

    @property
    def decoupled(self) -> bool:
        """It answers any number of times."""
        return bool((self.config.get("model_transaction_policy") or {}).get("decoupled", False))


@dataclass(frozen=True)
class Part:
    """One model's requests as they are sent.  server: whose statistics are its; None: the server says nothing."""

    name: str
    weight: float
    templates: Sequence[Any]
    server: Models | None = None


def look_up(client: Client, asked: Asked) -> Model:
    """Ask the server about the model.  Raises TisError with a sentence: no server, no such model.

    OpenAI's endpoints say nothing that is needed.
    """
    if asked.endpoint:
        return Model(ModelMetadata(asked.model, (), "", (), ()), {})
    model = client.model(asked.model, asked.version)
    try:
        server = client.metadata()
    except NotFound as error:
        raise NotFound(
            f"{asked.address} does not serve KServe's protocol 2 at /v2 ({error.message}); name its port"
        ) from None
    metadata = model.metadata()
    found = Model(
        metadata,
        _config(model),
        f"{server.get('name', '')} {server.get('version', '')}".strip(),
        "statistics" in (server.get("extensions") or ()),
    )
    if _sequences(client, found.config):
        found = replace(found, sequences=True)
        _check_sequences(asked)
    elif asked.sequences.named and found.config:
        raise BadRequest(
            f"{asked.sequences.named}: model '{asked.model}' is not served in sequences (sequence_batching); leave it "
            "out"
        )
    if asked.batch_size > 1 and not found.config:
        raise BadRequest(
            f"-b {asked.batch_size}: this server does not tell the configuration of model '{asked.model}', so it is "
            "not known whether it batches; leave -b out and write the batch as the first dimension of --shape"
        )
    if asked.batch_size > 1 and found.batches == 0:
        raise BadRequest("can not specify batch size > 1 as the model does not support batching")
    if found.batches and asked.batch_size > found.batches:
        raise BadRequest(
            f"-b {asked.batch_size}: model '{asked.model}' takes at most {found.batches} samples in a request "
            "(max_batch_size)"
        )
    if found.decoupled and not asked.settings.streaming:
        raise BadRequest(f"model '{asked.model}' is decoupled: it answers in a stream, so add --streaming and -i grpc")
    return found


def form_of(asked: Asked, model: Model, places: Sequence[WantedOutput] = ()) -> Form:
    """How the requests of one model are written."""
    return Form(
        asked.address,
        asked.model,
        asked.version,
        asked.headers,
        asked.binary_inputs,
        asked.binary_outputs,
        [each.name for each in model.metadata.outputs],
        stream=asked.settings.streaming,
        decoupled=model.decoupled,
        sequences=model.sequences,
        places=places,
        compression=asked.compression,
    )


def counted_models(asked: Asked, model: Model) -> Models:
    """Whose statistics tell of this model."""
    return Models(asked.model, asked.version, list(asked.composing) or composing_models(model.config))


def _sequences(client: Client, config: Mapping[str, Any]) -> bool:
    """The model is served in sequences, or an ensemble has one that is."""
    if "sequence_batching" in config:
        return True
    return any("sequence_batching" in _config(client.model(*each)) for each in composing_models(config))


def _check_sequences(asked: Asked) -> None:
    if asked.batch_size > 1:
        raise BadRequest(f"can not specify batch size > 1 when using a sequence model: leave -b {asked.batch_size} out")
    if asked.mode == "periodic" or asked.fixed_schedule:
        raise BadRequest(
            f"model '{asked.model}' is served in sequences, whose requests come in their order: use "
            "--concurrency-range, --request-rate-range or --request-intervals"
        )


def _config(model: ClientModel) -> Mapping[str, Any]:
    """Of servers that have Triton's extension for it; else nothing is known of batches and answers."""
    try:
        return model.config()
    except (NotFound, Unsupported, Unknown):
        return {}


@dataclass
class Session:
    """Measures level after level.

    steps: the input data as requests; streams: how many of them each stream of a file has; places: of outputs in shared
    memory; on_level: told of each level when it is done; parts: several models, instead of steps,
    whose requests are drawn by weights, or come in this order.
    """

    asked: Asked
    client: Client
    model: Model
    steps: Sequence[Step]
    streams: Sequence[int] = ()
    places: Sequence[WantedOutput] = ()
    metrics: ServerMetrics | None = None
    parts: Sequence[Part] = ()
    order: Order | None = None
    stop: Stop = field(default_factory=Stop)
    progress: Callable[[Progress], None] = lambda _: None
    on_level: Callable[[Measurement], None] = lambda _: None
    failure: TisError | None = None  # ended the run behind its first level
    most_requests: float = 0.0  # a second, of the client itself; 0: not known
    probe_seconds: float = PROBE_SECONDS  # that the first request may take
    probed_seconds: float = 0.0  # that it took

    def __post_init__(self) -> None:
        """Make the requests.  Raises BadRequest for what cannot be sent."""
        asked = self.asked
        self._payloads: Sequence[bytes] = ()
        self._counting: Callable[[], Tokens] | None = None
        self._sequences: Sequences | None = None  # of the last load
        self._places = _resolved(asked.address)  # once: all levels measure the same server
        grpc = asked.address.grpc
        self._channel: Callable[[], Channel] | None = None
        if asked.tls is not None:
            self._channel = partial(Channel, asked.tls.context(grpc), asked.address.host, grpc)
        self._form = form_of(asked, self.model, self.places)
        self.mixture: Mixture | None = None
        if asked.endpoint:
            self.templates: list[Any] = self._openai_templates()
        elif self.parts:
            self.templates = [each for part in self.parts for each in part.templates]
            counts = [len(part.templates) for part in self.parts]
            models, order = drawn(counts, [part.weight for part in self.parts], asked.seed)
            names = [part.name for part in self.parts]
            self.mixture = Mixture(names, models, order if self.order is None else self.order)
        else:
            self.templates = list((grpc_templates if grpc else http_templates)(self._form, self.steps))
        self.server = None
        if self.model.statistics:
            parts = {part.name: part.server for part in self.parts if part.server is not None}
            found = Models("", "", parts=parts) if parts else counted_models(asked, self.model)
            self.server = ServerSide(self.client, found, ServerProcesses(asked.address))

    def _openai_templates(self) -> list[HttpTemplate]:
        asked = self.asked
        bodies = read_bodies(asked)
        if asked.fixed_schedule or asked.replay is not None:
            bodies = bodies.in_order()
            self.asked = asked.at_times(all_timestamps(bodies.timestamps))
        self._payloads = bodies.texts if asked.records else ()
        self._counting = partial(Tokens, limits.BENCH_CONTENTS_BYTES_MAX // COMPARED if asked.records else 0)
        return templates(bodies, asked)

    def run(self) -> Run:
        """All levels.  Raises TisError when nothing could be measured at all."""
        measured: list[Measurement] = []
        try:
            for level in self.levels(measured):
                measured.append(self._measure(level))
                self.on_level(measured[-1])
                if self.stop.requested:
                    break
        except TisError as error:
            if not measured:
                raise
            self.failure = error
        finally:
            self.close()
        return self.run_of(measured)

    def close(self) -> None:
        """Nothing further is asked of the server."""
        if self.server is not None:
            self.server.close()

    def run_of(self, measured: Sequence[Measurement]) -> Run:
        """What the levels make together."""
        asked = self.asked
        return Run(
            target=Target(
                asked.address.authority,
                "grpc" if asked.address.grpc else "http",
                asked.model,
                asked.version,
                asked.batch_size,
                self.model.decoupled,
                "ensemble_scheduling" in self.model.config,
                asked.endpoint,
            ),
            settings=asked.settings,
            arguments=asked.arguments,
            held=asked.held,
            machine=machine(),
            server_version=self.model.server,
            levels=tuple(measured),
            payloads=self._payloads,
            mixture=self.mixture,
        )

    def probe(self) -> None:
        """One request before all, to the first address that connects; all levels use that one.

        Raises BadRequest with the server's own words when it fails.
        """
        for place in self._places[:-1]:
            try:
                socket.create_connection(place[0][:2], limits.BENCH_CONNECT_SECONDS_MAX).close()
            except OSError:
                continue
            self._places = [place]
            break
        else:
            self._places = self._places[-1:]
        mixture = self.mixture.firsts() if self.mixture is not None else None
        loop = self._loop(1, 1, self._player(1, length=1), mixture)
        try:
            loop.open_connections(1)
            if not loop.ready(time.monotonic_ns() + int(limits.BENCH_CONNECT_SECONDS_MAX * SECOND_NS)):
                raise ConnectFailed(f"{self.asked.address}: {loop.lost_text or 'it does not take connections'}")
            loop.allow(1 if mixture is None else len(mixture.order))
            loop.keep_in_flight(1)
            began = time.monotonic_ns()
            deadline = began + int(self.probe_seconds * SECOND_NS)
            while (now := time.monotonic_ns()) < deadline and not self.stop.requested:
                if not loop.run(now + SECOND_NS // 10):
                    break
            else:
                if not self.stop.requested:
                    raise NoFirstAnswer(f"the first request had no answer within {self.probe_seconds:.3g} s")
            self.probed_seconds = (time.monotonic_ns() - began) / SECOND_NS
            _, first = loop.swap_errors()
        finally:
            loop.close()
        if first is not None:
            raise BadRequest(f"the first request of model '{self.asked.model}' failed: {first[0]}")

    def _player(self, count: int, length: int | None = None) -> Player | None:
        """Of sequences, where the model wants them.  length: instead of what the user says, exactly."""
        if not self.model.sequences:
            return None
        asked = self.asked.sequences
        if length is not None:
            asked = replace(asked, length=length, variation=0.0)
        firsts = [sum(self.streams[:at]) for at in range(max(len(self.streams), 1))]
        next_id = 0 if self._sequences is None else self._sequences.next_id
        self._sequences = Sequences(asked.plan(count, self.streams), self.asked.seed, next_id)
        return Player(self._sequences, firsts, count)

    @property
    def _places_each(self) -> int:
        """Requests under way on one connection.  A stream answers in order, and sequences wait for each other's end."""
        if not self.asked.address.grpc or (self.model.sequences and self.asked.settings.streaming):
            return 1
        return tuning.BENCH_CALLS_PER_CONNECTION

    @property
    def place(self) -> tuple[Any, int]:
        """The server's address, as socket.connect takes it, and its family."""
        return self._places[0]

    def loop_to(self, address: Any, family: int, in_flight: int) -> Loop:
        """This load to somebody else."""
        return self._loop(in_flight, -(-in_flight // self._places_each), place=(address, family))

    def _loop(
        self,
        slots: int,
        connections_max: int,
        player: Player | None = None,
        mixture: Mixture | None = None,
        place: tuple[Any, int] | None = None,
    ) -> Loop:
        asked = self.asked
        address, family = place or self.place
        make: Callable[[Loop], Any] = HttpLoad
        if asked.address.grpc:
            fields, places = call_fields(self._form), self._places_each
            make = partial(
                _grpc_load, fields=fields, places=places, stream=self._form.stream, decoupled=self._form.decoupled
            )
        return Loop(
            address,
            family,
            make,
            self.templates,
            slots=slots,
            connections_max=connections_max,
            player=player,
            channel=self._channel,
            counting=self._counting,
            mixture=mixture,
        )

    def _measure(self, level: Level) -> Measurement:
        loop, job = self.prepared(level)
        try:
            found = LevelRun(loop, job, self.server, self.stop).measure()
        finally:
            loop.close()
        return replace(found, most_requests=self.most_requests)

    def prepared(self, level: Level) -> tuple[Loop, Job]:
        """What measures a level; the caller closes the loop.  Raises BadRequest for too many requests under way."""
        asked = self.asked
        places = self._places_each
        if level.mode in ("concurrency", "periodic"):
            in_flight = int(level.value)
            connections = most = -(-in_flight // places)
        else:
            most = asked.connections or limits.BENCH_OPEN_LOOP_CONNECTIONS
            in_flight, connections = most * places, min(most, 4)
            if self.model.sequences:
                in_flight = min(in_flight, asked.sequences.count)
        if in_flight > limits.BENCH_IN_FLIGHT_MAX:
            raise BadRequest(
                f"{in_flight} requests under way are more than tisfast bench can have ({limits.BENCH_IN_FLIGHT_MAX})"
            )
        if most > limits.BENCH_CONNECTIONS_MAX:
            raise BadRequest(
                f"{most} connections are more than tisfast bench opens ({limits.BENCH_CONNECTIONS_MAX}); over gRPC "
                f"{tuning.BENCH_CALLS_PER_CONNECTION} requests share one"
            )
        _allow_descriptors(most)
        pacing = asked.pacing(level.value)
        records = limits.BENCH_RECORDS_MAX if asked.records else 0
        job = Job(level, asked.settings, connections, pacing, asked.periodic, records, self.metrics, self.progress)
        return self._loop(in_flight, most, self._player(in_flight), self.mixture), job

    def levels(self, measured: list[Measurement]) -> Iterator[Level]:
        """Those that are asked for, as long as what was measured is stable and below the latency threshold."""
        asked, settings = self.asked, self.asked.settings
        mode: Any = asked.mode
        start, end, step = asked.levels
        if settings.binary_search:
            yield from self._search(mode, measured)
            return
        for listed in asked.listed:
            yield Level(mode, listed)
            if not measured[-1].stable or self._over(measured[-1]):
                return
        if asked.listed:
            return
        value, count = start, 0
        while (end == 0 or value <= end * (1 + 1e-12)) and count < limits.BENCH_LEVELS_MAX:
            yield Level(mode, value)
            count += 1
            if not measured[-1].stable or self._over(measured[-1]):
                return
            if step <= 0:
                return
            value = start + count * step

    def _search(self, mode: Any, measured: list[Measurement]) -> Iterator[Level]:
        """Start must pass and end must fail; then the middle, until both are a step apart."""
        start, end, step = self.asked.levels
        yield Level(mode, start)
        if not measured[-1].stable or self._over(measured[-1]):
            return
        yield Level(mode, end)
        if measured[-1].stable and not self._over(measured[-1]):
            return
        passed, failed = start, end
        while failed - passed > step:
            middle = (passed + failed) / 2
            middle = float(int(middle)) if mode == "concurrency" else middle
            if middle in (passed, failed):
                return
            yield Level(mode, middle)
            if measured[-1].stable and not self._over(measured[-1]):
                passed = middle
            else:
                failed = middle

    def _over(self, measured: Measurement) -> bool:
        settings, found = self.asked.settings, measured.response
        if not settings.latency_threshold_ms or not found.count:
            return False
        latency = found.quantile(settings.percentile / 100) if settings.percentile > 0 else found.sum / found.count
        return latency > settings.latency_threshold_ms * 1e6


def _grpc_load(loop: Loop, **options: Any) -> GrpcLoad:
    return GrpcLoad(loop, **options)


def _resolved(address: Address) -> list[tuple[Any, int]]:
    """All addresses of a name, with their families."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed(f"{address} has no address: {error.strerror or error}") from None
    return [(place, family) for family, _, _, _, place in found]


def _allow_descriptors(connections: int) -> None:
    """Raises BadRequest when this process may not have so many connections."""
    wanted = connections + DESCRIPTORS_KEPT
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise BadRequest(
                f"{connections} connections need {wanted} file descriptors, this process may have {hard} (ulimit -n)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
