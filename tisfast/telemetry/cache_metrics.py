"""Families of the response cache, shown where there is one.  Layer 4 (telemetry)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from tisfast.engine.response_cache import LocalStore
from tisfast.telemetry.metric_families import FamilyText, family, labels_of, summary
from tisfast.telemetry.summaries import Windows

if TYPE_CHECKING:
    from tisfast.engine.interface import Runtime

_PER_MODEL: Final = (
    ("nv_cache_num_hits_per_model", "Number of cache hits per model", "cache_hit", "count"),
    ("nv_cache_hit_duration_per_model", "Total cache hit duration per model, in microseconds", "cache_hit", "ns"),
    ("nv_cache_num_misses_per_model", "Number of cache misses per model", "cache_miss", "count"),
    (
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        "cache_miss",
        "ns",
    ),
)
_SUMMARIES: Final = (
    (
        "nv_cache_hit_summary_per_model",
        "Summary of cache hit counts/durations per model, in microseconds.",
        "hit_times",
    ),
    (
        "nv_cache_miss_summary_per_model",
        "Summary of cache miss counts/durations per model, in microseconds.",
        "miss_times",
    ),
)


def per_model(runtimes: list[Runtime]) -> Iterator[FamilyText]:
    """Counters of the models whose answers are kept."""
    cached = [runtime for runtime in runtimes if runtime.cache is not None]
    for name, text, key, unit in _PER_MODEL if cached else ():
        tallies = ((labels_of(runtime), runtime.stats.inference_stats()[key][unit]) for runtime in cached)
        yield family(name, text, "counter", ((labels, n // 1000 if unit == "ns" else n) for labels, n in tallies))


class SharedCacheFace(Protocol):
    """A cache beyond this process, as far as it is shown."""

    @property
    def up(self) -> bool:
        """Whether it answers."""

    @property
    def skipped(self) -> int:
        """Requests that were executed without asking it."""


def of_store(store: LocalStore | SharedCacheFace | None) -> Iterator[FamilyText]:
    """Families of the server's cache, of all models together."""
    if isinstance(store, LocalStore):
        yield from _of_local(store)


def of_shared(store: LocalStore | SharedCacheFace | None) -> Iterator[FamilyText]:
    """tisfast's own: whether a shared cache is there."""
    if store is None or isinstance(store, LocalStore):
        return
    text = "Requests executed without asking the shared cache, which was away or asked too much"
    yield family("tisfast_cache_up", "Whether the shared cache answers", "gauge", [({}, store.up)])
    yield family("tisfast_cache_skipped", text, "counter", [({}, store.skipped)], suffix="_total")


def _of_local(store: LocalStore) -> Iterator[FamilyText]:
    for name, text, value in (
        ("nv_cache_util", "Cache utilization [0.0 - 1.0]", store.used_bytes / store.size_bytes),
        ("nv_cache_num_entries", "Number of responses stored in response cache", len(store)),
        ("nv_cache_num_hits", "Number of cache hits in response cache", store.hits),
        ("nv_cache_num_misses", "Number of cache misses in response cache", store.misses),
        ("nv_cache_num_lookups", "Number of cache lookups in response cache", store.hits + store.misses),
        ("nv_cache_num_evictions", "Number of cache evictions in response cache", store.evictions),
        (
            "nv_cache_lookup_duration",
            "Total cache lookup duration (hit and miss), in microseconds",
            store.lookup_ns // 1000,
        ),
        (
            "nv_cache_insertion_duration",
            "Total cache insertion duration, in microseconds",
            store.insertion_ns // 1000,
        ),
    ):
        yield family(name, text, "gauge", [({}, value)])


class CacheSummaries:
    """The summaries of hits and misses over the last minute or so."""

    def __init__(self) -> None:
        self._windows = Windows(tuple(part for _, _, part in _SUMMARIES))

    def collect(self, runtimes: list[Runtime], labelled: dict[str, float], now: float) -> Iterator[FamilyText]:
        """labelled: share by its label."""
        cached = [(runtime, runtime.cache) for runtime in runtimes if runtime.cache is not None]
        self._windows.forget_others([cache for _, cache in cached])
        shares = list(labelled.values())
        found = [(runtime, cache, self._windows.quantiles(cache, shares, now)) for runtime, cache in cached]
        for name, text, part in _SUMMARIES if cached else ():
            yield summary(
                name,
                text,
                (
                    (labels_of(runtime), getattr(cache, part), dict(zip(labelled, quantiles[part], strict=True)))
                    for runtime, cache, quantiles in found
                ),
            )
