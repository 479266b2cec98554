"""pb_utils.MetricFamily and its metrics; texts are Triton's."""

import re
from bisect import bisect_left
from enum import IntEnum

from tisfast_worker import arguments
from tisfast_worker.errors import TritonModelException
from tisfast_worker.metric_store import MetricRefused
from tisfast_worker.serving_context import current

_FAMILY_NAME = re.compile(r"(?!__)[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)


class MetricKind(IntEnum):
    """The kinds of metrics."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class MetricFamily:
    """Metrics of one name and kind, on the server's /metrics for as long as this object lives.

    Families of one name are one family, whichever instance or model makes them, and so are metrics of equal labels.
    """

    COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

    def __init__(self, name, description, kind):
        """`kind`: MetricFamily.COUNTER, GAUGE or HISTOGRAM.  Raises TypeError, or TritonModelException for the name."""
        self._life = None
        name = arguments.text("MetricFamily", "name", name)
        description = arguments.text("MetricFamily", "description", description)
        if not isinstance(kind, MetricKind):
            raise arguments.wrong("MetricFamily", "kind", "MetricFamily.COUNTER, GAUGE or HISTOGRAM", kind)
        try:
            if not _FAMILY_NAME.match(name):
                raise MetricRefused("Invalid metric name")
            store = current().metrics
            self._life = _Life(store, kind, store.declare(name, description, kind))
        except MetricRefused as refused:
            raise _failure("Error when creating MetricFamily", str(refused)) from None

    def Metric(self, labels=None, buckets=None):  # noqa: N802 - Triton's name
        """A metric of this family: `labels` a dict of str, `buckets` the upper bounds that a histogram needs."""
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        bounds = _checked_buckets(self._life.kind, buckets)
        try:
            _check_labels(labels or {})
            if any(not low < high for low, high in zip(bounds, bounds[1:])):
                raise MetricRefused("Bucket Boundaries must be strictly sorted")
            cell, bounds = self._life.store.metric(self._life.handle, labels or {}, bounds)
        except MetricRefused as refused:
            raise _failure("Error when creating Metric", str(refused)) from None
        return Metric(self._life, cell, bounds)

    def __del__(self):
        """Its metrics go with it."""
        life = getattr(self, "_life", None)
        if life is not None:
            life.end()


class Metric:
    """One number, or one histogram.  From any thread."""

    __slots__ = ("_bounds", "_cell", "_kind", "_life", "_store")

    def __init__(self, life, cell, bounds):
        """Made by MetricFamily.Metric."""
        self._life, self._store, self._kind = life, life.store, life.kind
        self._cell, self._bounds = cell, bounds

    def increment(self, value):
        """Add `value`: to a counter no less than 0."""
        value = _number(value, "increment")
        if self._kind is MetricKind.HISTOGRAM:
            raise self._unsupported("increment", "Increment")
        if value < 0 and self._kind is MetricKind.COUNTER:
            text = "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values."
            raise _failure("Failed to increment metric value", text)
        self._check("increment")
        self._store.add(self._cell, value)

    def set(self, value):
        """Overwrite a gauge's value."""
        value = _number(value, "set")
        if self._kind is not MetricKind.GAUGE:
            raise self._unsupported("set", "Set")
        self._check("set")
        self._store.set(self._cell, value)

    def observe(self, value):
        """Count `value` in a histogram."""
        value = _number(value, "observe")
        if self._kind is not MetricKind.HISTOGRAM:
            raise self._unsupported("observe", "Observe")
        self._check("observe")
        self._store.add(self._cell + 1 + bisect_left(self._bounds, value), 1.0)
        self._store.add(self._cell, value)

    def value(self):
        """The number of a counter or gauge: of all instances that have this metric."""
        if self._kind is MetricKind.HISTOGRAM:
            raise self._unsupported("get", "Value")
        self._check("get")
        return self._store.get(self._cell)

    def _check(self, verb):
        if self._life.ended:
            raise TritonModelException(f"Failed to {verb} metric value: {_GONE}")

    def _unsupported(self, verb, operation):
        return _failure(
            f"Failed to {verb} metric value",
            f"TRITONSERVER_METRIC_KIND_{self._kind.name} does not support {operation}",
        )


class _Life:
    """The part of a family that its metrics refer to, so that they do not keep the family."""

    __slots__ = ("ended", "handle", "kind", "store")

    def __init__(self, store, kind, handle):
        self.store, self.kind, self.handle = store, kind, handle
        self.ended = False

    def end(self):
        self.ended = True
        self.store.drop(self.handle)


def _checked_buckets(kind, buckets):
    if kind is not MetricKind.HISTOGRAM:
        if buckets is not None:
            raise TritonModelException("Failed to create metric. Unexpected buckets found.")
        return []
    if buckets is None:
        raise TritonModelException("Failed to create metric. Missing required buckets.")
    if not isinstance(buckets, list):
        raise TritonModelException("Failed to create metric. Buckets must be a list.")
    return [_number(bound, "Metric") for bound in buckets]


def _check_labels(labels):
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL_NAME.match(name):
            raise MetricRefused("Invalid label name")
        if not isinstance(value, str):
            raise MetricRefused(f"attempt to access JSON non-string as string: label '{name}' is {value!r}")


def _number(value, where):
    if value.__class__ is float:
        return value
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{where}(): a number is needed, got {value!r} of type {type(value).__name__}")
    return float(value)


def _failure(what, why):
    instance = current().instance
    served = f"Failed to process the request for model '{instance}', message: " if instance else ""
    return TritonModelException(f"{what}: {served}{why}")
