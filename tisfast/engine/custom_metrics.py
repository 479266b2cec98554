"""Metrics that models keep: which instance declared which, and where their numbers lie.  Layer 3 (engine).

As in Triton a family is one for the whole server, whoever declares it, and so is a metric of equal labels: instances
and models add to one number, or overwrite it.  The numbers are cells in memory that all workers map (csrc/tf_cell.h):
what a model does to them is no message.  A metric goes with the last family object, or worker, that it was made with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from tisfast import limits
from tisfast.errors import BadRequest

COUNTER, GAUGE, HISTOGRAM = range(3)
KINDS: Final = ("counter", "gauge", "histogram")
OWN_NAMES: Final = re.compile(r"tisfast_|nv_(inference|gpu|cpu|energy|pinned_memory|cache|model_load)_")
"""Families of the server itself: whatever a model declared there would be taken for the server's."""

_FAMILY_NAME: Final = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
Labels: TypeAlias = tuple[tuple[str, str], ...]
Declaration: TypeAlias = tuple[str, int]
"""A family object of a model: worker, and the number that it gave the object."""


class CellsFace(Protocol):
    """The shared numbers (native.channel.Bell)."""

    def cell(self, index: int) -> float:
        """The number in a cell."""

    def zero_cell(self, index: int) -> None:
        """Make it 0."""


class Reading(NamedTuple):
    """One metric at a scrape.  value: of a counter or gauge, and the sum of a histogram; counts: of its buckets, each
    by itself, the one without an upper bound last."""

    labels: Labels
    value: float
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()


class FamilyReading(NamedTuple):
    """One family at a scrape.  kind: as Prometheus calls it."""

    name: str
    text: str
    kind: str
    metrics: list[Reading]


class MetricRefused(BadRequest):
    """A model's declaration cannot be honoured; the message goes to the model."""


@dataclass
class _Metric:
    """bounds: of a histogram's buckets; cells: their number, from `first` on: the value or sum, then the counts."""

    first: int
    cells: int
    bounds: tuple[float, ...]
    holders: set[Declaration]


@dataclass
class _Family:
    text: str
    kind: int
    declarations: set[Declaration] = field(default_factory=set)
    metrics: dict[Labels, _Metric] = field(default_factory=dict)


class CustomMetrics:
    """All of a server.  owner: a worker's id; handle: its number for one family object."""

    def __init__(self, cells: CellsFace) -> None:
        self._cells = cells
        self._families: dict[str, _Family] = {}
        self._names: dict[Declaration, str] = {}
        self._free: dict[int, list[int]] = {}  # first cells by number of cells
        self._used = 0  # cells handed out at least once
        self._held: dict[str, int] = {}  # cells by owner, counted for each that holds them

    def declare(self, owner: str, handle: int, name: str, text: str, kind: int) -> None:
        """A model made a family object.  Raises MetricRefused with Triton's text."""
        if not _FAMILY_NAME.fullmatch(name):
            raise MetricRefused("Invalid metric name")
        if OWN_NAMES.match(name):
            raise MetricRefused(f"'{name}' is a name of the server's own metrics; choose another prefix")
        _check_length(f"description of metric family '{name}'", text)
        _check_length("name of a metric family", name)
        family = self._families.get(name)
        if family is not None and family.kind != kind:
            raise MetricRefused("Family name already exists with different type")
        if len(self._names) >= limits.CUSTOM_FAMILIES_MAX:
            raise MetricRefused(f"there are {limits.CUSTOM_FAMILIES_MAX} MetricFamily objects already; no more fit")
        if family is None:
            family = self._families[name] = _Family(text, kind)
        family.declarations.add((owner, handle))
        self._names[owner, handle] = name

    def add(self, owner: str, handle: int, labels: dict[str, str], bounds: Sequence[float]) -> tuple[int, list[float]]:
        """A model made a metric; its first cell, and the bounds in force: those it was first made with.

        Raises MetricRefused.
        """
        name = self._names.get((owner, handle))
        if name is None:
            raise MetricRefused("its MetricFamily is gone")
        family = self._families[name]
        key = _checked_labels(labels, family.kind)
        metric = family.metrics.get(key)
        if metric is None:
            metric = self._new(owner, family, _checked_bounds(bounds))
            family.metrics[key] = metric
        elif (owner, handle) not in metric.holders:
            self._hold(owner, metric.cells)
        metric.holders.add((owner, handle))
        return metric.first, list(metric.bounds)

    def drop(self, owner: str, handle: int) -> None:
        """A model let go of a family object, and with it of the metrics it made of it."""
        declaration = (owner, handle)
        name = self._names.pop(declaration, None)
        if name is None:
            return
        family = self._families[name]
        for labels, metric in list(family.metrics.items()):
            if declaration not in metric.holders:
                continue
            metric.holders.remove(declaration)
            self._held[owner] -= metric.cells
            if not metric.holders:
                self._free.setdefault(metric.cells, []).append(family.metrics.pop(labels).first)
        family.declarations.remove(declaration)
        if not family.declarations:
            del self._families[name]

    def forget(self, owner: str) -> None:
        """A worker has ended."""
        for declaration in [each for each in self._names if each[0] == owner]:
            self.drop(*declaration)
        self._held.pop(owner, None)

    def read(self) -> Iterator[FamilyReading]:
        """All families that have metrics."""
        for name, family in self._families.items():
            if family.metrics:
                metrics = [self._read(labels, metric) for labels, metric in family.metrics.items()]
                yield FamilyReading(name, family.text, KINDS[family.kind], metrics)

    def _read(self, labels: Labels, metric: _Metric) -> Reading:
        first, *counts = (self._cells.cell(metric.first + at) for at in range(metric.cells))
        return Reading(labels, first, metric.bounds, tuple(counts))

    def _new(self, owner: str, family: _Family, bounds: tuple[float, ...]) -> _Metric:
        cells = len(bounds) + 2 if family.kind == HISTOGRAM else 1
        self._hold(owner, cells)
        free = self._free.get(cells)
        if free:
            first = free.pop()
        elif self._used + cells <= limits.CUSTOM_METRIC_CELLS:
            first, self._used = self._used, self._used + cells
        else:
            self._held[owner] -= cells
            raise MetricRefused(f"the server's {limits.CUSTOM_METRIC_CELLS} numbers of custom metrics are taken")
        for at in range(cells):
            self._cells.zero_cell(first + at)
        return _Metric(first, cells, bounds, set())

    def _hold(self, owner: str, cells: int) -> None:
        held = self._held.get(owner, 0) + cells
        if held > limits.CUSTOM_METRIC_CELLS_PER_WORKER_MAX:
            raise MetricRefused(
                f"an instance may have {limits.CUSTOM_METRIC_CELLS_PER_WORKER_MAX} numbers in its metrics (a histogram "
                "has two and one for each bucket); a label whose values have no bound needs more and more"
            )
        self._held[owner] = held


def _checked_labels(labels: dict[str, str], kind: int) -> Labels:
    if len(labels) > limits.CUSTOM_LABELS_MAX:
        raise MetricRefused(f"{len(labels)} labels; a metric has at most {limits.CUSTOM_LABELS_MAX}")
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name) or (kind == HISTOGRAM and name == "le"):
            raise MetricRefused("Invalid label name")
        _check_length("name of a label", name)
        _check_length(f"value of label '{name}'", value)
    return tuple(sorted(labels.items()))


def _checked_bounds(bounds: Sequence[float]) -> tuple[float, ...]:
    """Strictly rising; infinity at the end says what is there anyway."""
    rising = all(low < high for low, high in zip(bounds, bounds[1:], strict=False))
    if not rising or any(math.isnan(bound) for bound in bounds):
        raise MetricRefused("Bucket Boundaries must be strictly sorted")
    kept = tuple(bounds[:-1]) if bounds and bounds[-1] == math.inf else tuple(bounds)
    if len(kept) > limits.CUSTOM_BUCKETS_MAX:
        raise MetricRefused(f"{len(kept)} buckets; a histogram has at most {limits.CUSTOM_BUCKETS_MAX}")
    return kept


def _check_length(what: str, text: str) -> None:
    if len(text) > limits.CUSTOM_TEXT_CHARS_MAX:
        raise MetricRefused(f"the {what} has {len(text)} characters; at most {limits.CUSTOM_TEXT_CHARS_MAX} are taken")
