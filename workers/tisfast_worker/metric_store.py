"""Where the numbers of custom metrics lie: in cells that the server reads, or outside the server in this process.

Both stores have the same face.  A family object is known by its handle; a metric by its first cell, behind which lie
the counts of a histogram's buckets.
"""

import itertools

_CELL_BYTES = 8


class MetricRefused(Exception):  # noqa: N818 - told to the model, with Triton's words around it
    """A family or metric cannot be had; the text says why."""


class SharedMetrics:
    """In the server: cells that all workers map.  One addition is one atomic operation, and no message."""

    def __init__(self, thread, library, cells):
        """`thread`: the ControlThread, which asks for cells; `cells`: the mapping of all of them."""
        self._ask, self._send = thread.ask, thread.send
        self._add, self._set, self._get = library.tf_cell_add, library.tf_cell_set, library.tf_cell_get
        self._mapping = cells  # must stay mapped
        self._base, self._cells = cells.base, cells.nbytes // _CELL_BYTES
        self._handles = itertools.count(1)

    def declare(self, name, text, kind):
        """The handle of a new family object.  Raises MetricRefused."""
        handle = next(self._handles)
        self._asked({"t": "metric_family", "family": handle, "name": name, "text": text, "kind": int(kind)})
        return handle

    def metric(self, handle, labels, bounds):
        """(first cell, bounds in force) of a metric.  Raises MetricRefused."""
        answer = self._asked({"t": "metric", "family": handle, "labels": labels, "buckets": bounds})
        first, bounds = answer["cell"], answer["buckets"]
        if not 0 <= first < self._cells - len(bounds) - 1:
            raise MetricRefused(f"the server said cell {first} of {self._cells}")
        return first, bounds

    def drop(self, handle):
        """A family object is gone.  From finalisers, too: never waits."""
        self._send({"t": "metric_drop", "family": handle})

    def add(self, cell, by):
        """Add to a number."""
        self._add(self._base + _CELL_BYTES * cell, by)

    def set(self, cell, value):
        """Overwrite a number."""
        self._set(self._base + _CELL_BYTES * cell, value)

    def get(self, cell):
        """A number."""
        return self._get(self._base + _CELL_BYTES * cell)

    def _asked(self, message):
        answer = self._ask(message)
        if answer.get("error"):
            raise MetricRefused(answer["error"])
        return answer


class LocalMetrics:
    """Outside the server: a model's own tests see the same numbers, and nobody else does."""

    def __init__(self):
        """No families."""
        self._families = {}  # name: [kind, handles, {labels: (first cell, bounds)}]
        self._names = {}  # by handle
        self._numbers = []
        self._handles = itertools.count(1)

    def declare(self, name, text, kind):
        """The handle of a new family object.  Raises MetricRefused when there is one of another kind."""
        family = self._families.setdefault(name, [kind, set(), {}])
        if family[0] != kind:
            raise MetricRefused("Family name already exists with different type")
        handle = next(self._handles)
        family[1].add(handle)
        self._names[handle] = name
        return handle

    def metric(self, handle, labels, bounds):
        """(first cell, bounds in force) of a metric."""
        metrics = self._families[self._names[handle]][2]
        key = tuple(sorted(labels.items()))
        if key not in metrics:
            metrics[key] = (len(self._numbers), bounds)
            self._numbers += [0.0] * (len(bounds) + 2)
        return metrics[key]

    def drop(self, handle):
        """A family object is gone."""
        name = self._names.pop(handle)
        handles = self._families[name][1]
        handles.discard(handle)
        if not handles:
            del self._families[name]

    def add(self, cell, by):
        """Add to a number."""
        self._numbers[cell] += by

    def set(self, cell, value):
        """Overwrite a number."""
        self._numbers[cell] = value

    def get(self, cell):
        """A number."""
        return self._numbers[cell]
