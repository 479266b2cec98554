"""What the server says of the same time: its statistics before and after.  Layer 5 (bench)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

from tisfast.bench.results import ServerSplit
from tisfast.bench.server_processes import Sample, ServerProcesses, used
from tisfast.client import Client
from tisfast.errors import BadResponse, TisError

SECTIONS: Final = {
    "success": "success",
    "fail": "fail",
    "queue": "queue",
    "compute_input": "compute_input",
    "compute_infer": "compute_infer",
    "compute_output": "compute_output",
    "cache_hit": "cache_hit",
    "cache_miss": "cache_miss",
}
NUMBERS: Final = tuple(each.name for each in fields(ServerSplit) if each.name.endswith(("_count", "_ns")))


class Counters(dict[tuple[str, str], ServerSplit]):
    """By model and version.  sample: of the server's processes at that time."""

    sample: Sample | None = None


class Models(NamedTuple):
    """The model that is measured, and those that it is made of or that the user names: (name, version).

    parts: instead, several models that are measured at once, by their names in the reports.
    """

    model: str
    version: str
    composing: Sequence[tuple[str, str]] = ()
    parts: Mapping[str, Models] = {}  # noqa: RUF012 - empty, and read only

    def names(self) -> set[str]:
        """Of all whose statistics are needed."""
        found = {self.model, *(name for name, _ in self.composing)} if not self.parts else set[str]()
        return found.union(*(each.names() for each in self.parts.values()))


def read_statistics(entries: Sequence[Mapping[str, Any]]) -> Counters:
    """From a server's statistics.  Raises BadResponse."""
    try:
        return Counters({(entry["name"], str(entry["version"])): _counters(entry) for entry in entries})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResponse(f"the server's statistics cannot be read ({error!r}): {entries!r:.300}") from None


def _counters(entry: Mapping[str, Any]) -> ServerSplit:
    parts = entry.get("inference_stats") or {}
    found: dict[str, Any] = {
        f"{name}_{what}": int((parts.get(section) or {}).get(key, 0))
        for name, section in SECTIONS.items()
        for what, key in (("count", "count"), ("ns", "ns"))
    }
    batches = {
        int(each["batch_size"]): int((each.get("compute_infer") or {}).get("count", 0))
        for each in entry.get("batch_stats") or ()
    }
    return ServerSplit(
        entry["name"],
        str(entry["version"]),
        inference_count=int(entry.get("inference_count", 0)),
        execution_count=int(entry.get("execution_count", 0)),
        batch_sizes=batches,
        **found,
    )


def grown(before: ServerSplit | None, after: ServerSplit) -> ServerSplit:
    """What a model's counters grew by; a server that has loaded it anew meanwhile counts from 0."""
    if before is None or before.success_count > after.success_count:
        return after
    sizes = {size: count - before.batch_sizes.get(size, 0) for size, count in after.batch_sizes.items()}
    return replace(
        after,
        **{name: getattr(after, name) - getattr(before, name) for name in NUMBERS},
        batch_sizes={size: count for size, count in sizes.items() if count},
    )


def split(before: Counters, after: Counters, models: Models) -> ServerSplit | None:
    """What a model and those that it is made of did between two looks; None: the server says nothing of it.

    Where no version was asked for, it is the one that did most.  Of several models it is the sum, with each of them as
    what it is made of.
    """
    found = _split(before, after, models)
    return None if found is None else replace(found, usage=used(before.sample, after.sample))


def _split(before: Counters, after: Counters, models: Models) -> ServerSplit | None:
    if models.parts:
        several = {name: _split(before, after, each) for name, each in models.parts.items()}
        known = {name: each for name, each in several.items() if each is not None}
        return summed(known) if known else None
    found = _most(before, after, models.model, models.version)
    if found is None:
        return None
    parts = [_most(before, after, name, version) for name, version in models.composing]
    return replace(found, composing={f"{each.model}:{each.version}": each for each in parts if each is not None})


def summed(splits: Mapping[str, ServerSplit]) -> ServerSplit:
    """Of several models together."""
    sizes: Counter[int] = Counter()
    for each in splits.values():
        sizes.update(each.batch_sizes)
    numbers = {name: sum(getattr(each, name) for each in splits.values()) for name in NUMBERS}
    return ServerSplit("", "", **numbers, batch_sizes=dict(sizes), composing=splits)


def _most(before: Counters, after: Counters, model: str, version: str) -> ServerSplit | None:
    candidates = [
        grown(before.get(key), counters)
        for key, counters in after.items()
        if key[0] == model and version in ("", key[1])
    ]
    return max(candidates, key=lambda each: (each.success_count, each.fail_count), default=None)


class ServerSide:
    """Looks at the statistics in a thread of its own: a slow answer holds up no request.

    `failure`: why the last look found nothing.  processes: looked at, too.
    """

    def __init__(self, client: Client, models: Models, processes: ServerProcesses | None = None) -> None:
        self._client, self._processes = client, processes
        self.models = models
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bench-statistics")
        self._last: Future[Counters | None] | None = None
        self.failure = ""
        self._is_closed = False

    def look(self) -> Future[Counters | None]:
        """What the server has counted until now; None: it does not say.

        While an earlier look waits for its answer there is no further one: it gives None at once.
        """
        if self._last is not None and not self._last.done():
            nothing: Future[Counters | None] = Future()
            self.failure = "an earlier call has not been answered"
            nothing.set_result(None)
            return nothing
        self._last = self._thread.submit(self._look)
        return self._last

    def _look(self) -> Counters | None:
        try:
            found = Counters()
            if self._processes is not None:
                found.sample = self._processes.look()
            for name in sorted(self.models.names()):
                found.update(read_statistics(self._client.statistics(name)))
            return found
        except TisError as error:
            self.failure = error.message
            return None

    def close(self) -> None:
        """Ends the thread, and does not wait for an answer that does not come."""
        if self._processes is not None and not self._is_closed:
            self._thread.submit(self._processes.close)  # behind a look that is under way
        self._is_closed = True
        self._thread.shutdown(wait=False)


def composing_models(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The models of an ensemble, from its configuration; version "" for what its policy serves."""
    steps = (config.get("ensemble_scheduling") or {}).get("step") or ()
    found: dict[tuple[str, str], None] = {}
    for step in steps:
        version = str(step.get("model_version", -1))
        found[(str(step["model_name"]), "" if version == "-1" else version)] = None
    return list(found)
