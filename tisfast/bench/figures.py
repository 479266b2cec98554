"""What the reports show of a level, derived once: averages of its parts in whole microseconds.  Layer 5 (bench)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tisfast.bench.histogram import Histogram
from tisfast.bench.results import Measurement, ServerSplit
from tisfast.bench.tokens import Tokens

PERCENTILES: Final = (50, 90, 95, 99)
"""That perf_analyzer shows; the one of --percentile comes to them."""
ONE_SIDED: Final = 0.025
"""An interval of 95 % leaves out so much at each end."""


class ServerParts(NamedTuple):
    """Averages of a successful request within the server, µs.  overhead: what is in no other part."""

    total: int
    overhead: int
    queue: int
    compute_input: int
    compute_infer: int
    compute_output: int
    cache_hit: int
    cache_miss: int

    @property
    def compute(self) -> int:
        """All of it, as ensembles show it."""
        return self.compute_input + self.compute_infer + self.compute_output


class ClientParts(NamedTuple):
    """Averages of a request as the client sees it, µs, from the sending.  service: all of it."""

    service: int
    send: int
    receive: int
    wait: int


def needed_for(quantile: float) -> int:
    """So many samples tell a quantile: with fewer, its 95 % interval has no upper end."""
    return math.ceil(math.log(ONE_SIDED) / math.log(quantile)) if 0 < quantile < 1 else 1


def supported(histogram: Histogram, percent: float) -> bool:
    """Whether there are enough samples for this percentile."""
    return histogram.count >= needed_for(percent / 100)


def percentile_us(histogram: Histogram, percent: float) -> int | None:
    """In whole µs; None where too few samples support it."""
    return histogram.quantile(percent / 100) // 1000 if supported(histogram, percent) else None


def percentiles_of(wanted: int) -> tuple[int, ...]:
    """Those that are shown, with the one of --percentile (-1: none) in its place."""
    return tuple(sorted({*PERCENTILES, *([wanted] if wanted > 0 else [])}))


def average_us(total_ns: int, count: int) -> int:
    """0 where there is nothing."""
    return total_ns // count // 1000 if count else 0


def client_parts(level: Measurement) -> ClientParts:
    """Of one level."""
    service = average_us(level.service.sum, level.service.count)
    send = average_us(level.client.send_ns, level.requests)
    receive = average_us(level.client.receive_ns, level.completed)
    return ClientParts(service, send, receive, max(service - send - receive, 0))


def server_parts(split: ServerSplit) -> ServerParts:
    """Of one model.  Compute parts are averages over executed requests, so with a cache over its misses alone."""
    total = average_us(split.success_ns, split.success_count)
    parts = [
        average_us(split.queue_ns, split.queue_count),
        average_us(split.compute_input_ns, split.compute_input_count),
        average_us(split.compute_infer_ns, split.compute_infer_count),
        average_us(split.compute_output_ns, split.compute_output_count),
    ]
    parts.append(average_us(split.cache_hit_ns, split.cache_hit_count))
    parts.append(average_us(split.cache_miss_ns, split.cache_miss_count))
    inner = split.queue_ns + split.compute_input_ns + split.compute_infer_ns + split.compute_output_ns
    inner += split.cache_hit_ns + split.cache_miss_ns
    overhead = max(average_us(split.success_ns - inner, split.success_count), 0)
    return ServerParts._make([total, overhead, *parts])


def cached(split: ServerSplit) -> bool:
    """Whether a cache answered or was asked."""
    return bool(split.cache_hit_count or split.cache_miss_count)


def network_us(level: Measurement) -> int:
    """What neither the client's calls nor the server's parts take: below 0 where their clocks and windows disagree."""
    if level.server is None:
        return 0
    client, server = client_parts(level), server_parts(level.server)
    within = server.queue + server.compute + server.cache_hit + server.cache_miss
    return client.service - client.send - client.receive - within


def throughput(level: Measurement, batch_size: int) -> float:
    """Inferences a second, as perf_analyzer counts them."""
    return level.throughput * batch_size


def token_times(tokens: Tokens) -> tuple[tuple[str, Histogram], ...]:
    """Durations of streams by the names that the reports show."""
    return (
        ("time to first token", tokens.first_token),
        ("inter-token latency", tokens.inter_token),
        ("inter-event gap", tokens.gap),
    )


def counted_events(tokens: Tokens) -> str:
    """Whose tokens the server did not tell."""
    return (
        f"Output tokens are counted by events with content in {tokens.guessed} of {tokens.requests} requests, whose "
        "answers have no usage; an event may hold several tokens"
    )


def level_name(level: Measurement) -> str:
    """The head of its column: of perf_analyzer."""
    return "Concurrency" if level.level.mode in ("concurrency", "periodic", "count") else "Request Rate"
