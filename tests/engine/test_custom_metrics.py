"""Metrics that models keep: who shares what, what is refused, what is forgotten."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tisfast import limits
from tisfast.engine.custom_metrics import COUNTER, GAUGE, HISTOGRAM, CustomMetrics, MetricRefused


class Numbers:
    """Cells in this process."""

    def __init__(self) -> None:
        self.values: dict[int, float] = {}

    def cell(self, index: int) -> float:
        return self.values[index]

    def zero_cell(self, index: int) -> None:
        self.values[index] = 0.0


@pytest.fixture
def numbers():
    return Numbers()


@pytest.fixture
def metrics(numbers):
    return CustomMetrics(numbers)


def shown(metrics: CustomMetrics) -> dict:
    return {f.name: {tuple(m.labels): (m.value, m.counts) for m in f.metrics} for f in metrics.read()}


def test_equal_names_and_labels_are_one_number(metrics, numbers):
    for worker in ("a", "b"):
        metrics.declare(worker, 1, "hits", f"said by {worker}", COUNTER)
    first, _ = metrics.add("a", 1, {"x": "1", "y": "2"}, [])
    assert metrics.add("b", 1, {"y": "2", "x": "1"}, []) == (first, [])
    numbers.values[first] = 5.0
    assert shown(metrics) == {"hits": {(("x", "1"), ("y", "2")): (5.0, ())}}
    (family,) = metrics.read()
    assert (family.text, family.kind) == ("said by a", "counter")


def test_the_first_buckets_stay(metrics):
    metrics.declare("a", 1, "sizes", "", HISTOGRAM)
    first, bounds = metrics.add("a", 1, {}, [1.0, 2.0, math.inf])
    assert bounds == [1.0, 2.0] and metrics.add("a", 1, {}, [7.0]) == (first, [1.0, 2.0])
    assert shown(metrics) == {"sizes": {(): (0.0, (0.0, 0.0, 0.0))}}


def test_a_metric_goes_with_its_last_holder(metrics, numbers):
    for worker in ("a", "b"):
        metrics.declare(worker, 1, "hits", "", GAUGE)
    cells = [metrics.add(worker, 1, {"by": name}, [])[0] for worker, name in (("a", "a"), ("b", "b"), ("a", "b"))]
    assert cells[1] == cells[2]
    metrics.forget("b")
    assert set(shown(metrics)["hits"]) == {(("by", "a"),), (("by", "b"),)}
    metrics.drop("a", 1)
    assert shown(metrics) == {}
    numbers.values[cells[0]] = 9.0
    metrics.declare("c", 1, "hits", "", COUNTER)  # of another kind by now
    assert metrics.add("c", 1, {}, [])[0] in cells and shown(metrics) == {"hits": {(): (0.0, ())}}


def test_dropping_what_is_unknown_does_nothing(metrics):
    metrics.drop("a", 1)
    metrics.forget("a")
    assert shown(metrics) == {}


@pytest.mark.parametrize("name", ["", "a b", "1a", "__a", "é"])
def test_names_are_checked(metrics, name):
    with pytest.raises(MetricRefused, match="^Invalid metric name"):
        metrics.declare("a", 1, name, "", COUNTER)
    metrics.declare("a", 1, "good:name", "", COUNTER)
    with pytest.raises(MetricRefused, match="^Invalid label name"):
        metrics.add("a", 1, {name: "x"}, [])


@pytest.mark.parametrize("name", ["nv_inference_count", "tisfast_arena_bytes", "nv_cpu_utilization"])
def test_the_servers_own_names_are_refused(metrics, name):
    with pytest.raises(MetricRefused, match="a name of the server's own metrics"):
        metrics.declare("a", 1, name, "", COUNTER)


def test_one_name_has_one_kind(metrics):
    metrics.declare("a", 1, "hits", "", COUNTER)
    with pytest.raises(MetricRefused, match="^Family name already exists with different type"):
        metrics.declare("b", 1, "hits", "", GAUGE)


@pytest.mark.parametrize("bounds", [[2.0, 1.0], [1.0, 1.0], [math.nan], [1.0, math.nan]])
def test_buckets_rise(metrics, bounds):
    metrics.declare("a", 1, "sizes", "", HISTOGRAM)
    with pytest.raises(MetricRefused, match="^Bucket Boundaries must be strictly sorted"):
        metrics.add("a", 1, {}, bounds)


def test_a_histogram_has_no_label_le(metrics):
    metrics.declare("a", 1, "sizes", "", HISTOGRAM)
    with pytest.raises(MetricRefused, match="^Invalid label name"):
        metrics.add("a", 1, {"le": "1"}, [1.0])


def test_bounds_hold_and_leave_no_trace(metrics):
    metrics.declare("a", 1, "many", "", COUNTER)
    for i in range(limits.CUSTOM_METRIC_CELLS_PER_WORKER_MAX):
        metrics.add("a", 1, {"i": str(i)}, [])
    with pytest.raises(MetricRefused, match=r"an instance may have 8192 numbers .* no bound needs more and more"):
        metrics.add("a", 1, {"i": "more"}, [])
    assert metrics.add("a", 1, {"i": "0"}, [])[0] == 0  # those that are there may be had again
    metrics.declare("b", 1, "many", "", COUNTER)
    assert metrics.add("b", 1, {"i": "more"}, [])
    with pytest.raises(MetricRefused, match="1025 characters; at most 1024"):
        metrics.declare("b", 2, "long", "x" * 1025, COUNTER)
    with pytest.raises(MetricRefused, match="33 labels; a metric has at most 32"):
        metrics.add("b", 1, {f"l{i}": "" for i in range(33)}, [])
    metrics.declare("b", 3, "sizes", "", HISTOGRAM)
    with pytest.raises(MetricRefused, match="129 buckets; a histogram has at most 128"):
        metrics.add("b", 3, {}, [float(i) for i in range(129)])


def test_all_cells_together_are_bounded(metrics):
    workers = limits.CUSTOM_METRIC_CELLS // limits.CUSTOM_METRIC_CELLS_PER_WORKER_MAX
    for worker in range(workers + 1):
        metrics.declare(str(worker), 1, f"f{worker}", "", COUNTER)
    for worker in range(workers):
        for i in range(limits.CUSTOM_METRIC_CELLS_PER_WORKER_MAX):
            metrics.add(str(worker), 1, {"i": str(i)}, [])
    with pytest.raises(MetricRefused, match="65536 numbers of custom metrics are taken"):
        metrics.add(str(workers), 1, {}, [])
    metrics.forget("0")
    assert metrics.add(str(workers), 1, {}, [])


OWNERS, HANDLES, NAMES = st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(["f", "g", "h"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))


class Sharing(RuleBasedStateMachine):
    """Against a model that remembers who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = Numbers()
        self.metrics = CustomMetrics(self.numbers)
        self.names: dict = {}  # (owner, handle): name
        self.held: dict = {}  # (name, labels): declarations

    @rule(owner=OWNERS, handle=HANDLES, name=NAMES)
    def declare(self, owner, handle, name):
        if (owner, handle) not in self.names:
            self.metrics.declare(owner, handle, name, "", HISTOGRAM if name == "h" else COUNTER)
            self.names[owner, handle] = name

    @rule(owner=OWNERS, handle=HANDLES, labels=LABELS)
    def add(self, owner, handle, labels):
        name = self.names.get((owner, handle))
        if name is None:
            with pytest.raises(MetricRefused):
                self.metrics.add(owner, handle, labels, [])
            return
        first, _ = self.metrics.add(owner, handle, labels, [1.0] if name == "h" else [])
        holders = self.held.setdefault((name, tuple(sorted(labels.items()))), set())
        if not holders:
            assert self.numbers.values[first] == 0.0
        self.numbers.values[first] += 1.0
        holders.add((owner, handle))

    @rule(owner=OWNERS, handle=HANDLES)
    def drop(self, owner, handle):
        self.metrics.drop(owner, handle)
        self._gone(lambda each: each == (owner, handle))

    @rule(owner=OWNERS)
    def forget(self, owner):
        self.metrics.forget(owner)
        self._gone(lambda each: each[0] == owner)

    def _gone(self, which):
        self.names = {each: name for each, name in self.names.items() if not which(each)}
        for key in list(self.held):
            self.held[key] = {each for each in self.held[key] if not which(each)}
            if not self.held[key]:
                del self.held[key]

    @invariant()
    def shows_what_is_held(self):
        assert {(f.name, m.labels) for f in self.metrics.read() for m in f.metrics} == set(self.held)

    @invariant()
    def no_cell_is_shared_or_lost(self):
        used = [
            cell for f in self.metrics._families.values() for m in f.metrics.values()
            for cell in range(m.first, m.first + m.cells)
        ]  # fmt: skip
        free = [first + at for cells, firsts in self.metrics._free.items() for first in firsts for at in range(cells)]
        assert sorted(used + free) == list(range(self.metrics._used))


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
