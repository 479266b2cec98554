"""pb_utils.MetricFamily and its metrics: in a model's unit tests, and in an instance that asks its server."""

from __future__ import annotations

import gc
import math
import struct
import threading

import numpy as np
import pytest
import triton_python_backend_utils as pb

from tests.workers.models import both, model

F = pb.MetricFamily
GONE = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)


def test_counters_and_gauges():
    counts, levels = F("t_counts", "text", F.COUNTER), F(name="t_levels", description="text", kind=F.GAUGE)
    count, level = counts.Metric(labels={"a": "1"}), levels.Metric()
    for value in (2, 0.5, True, np.float32(1), 0):
        count.increment(value)
    level.set(10)
    level.increment(-2.5)
    assert (count.value(), type(count.value()), level.value()) == (4.5, float, 7.5)
    level.set(math.inf)
    assert level.value() == math.inf


def test_equal_labels_are_one_number_and_others_are_not():
    family, again = F("t_shared", "text", F.COUNTER), F("t_shared", "other text", F.COUNTER)
    first, second = family.Metric({"a": "1", "b": "2"}), again.Metric({"b": "2", "a": "1"})
    family.Metric({"a": "1"}).increment(5)
    first.increment(1)
    second.increment(2)
    assert first.value() == second.value() == 3


def test_a_family_outlives_its_metrics_and_they_do_not_outlive_it():
    family = F("t_life", "text", F.COUNTER)
    family.Metric().increment(3)
    gc.collect()
    metric = family.Metric()
    assert metric.value() == 3
    del family
    gc.collect()
    for call, verb in ((metric.value, "get"), (lambda: metric.increment(1), "increment")):
        with pytest.raises(pb.TritonModelException) as raised:
            call()
        assert str(raised.value) == f"Failed to {verb} metric value: {GONE}"
    assert F("t_life", "text", F.GAUGE).Metric().value() == 0


HISTOGRAM_KIND = "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support"
COUNTER_KIND = "TRITONSERVER_METRIC_KIND_COUNTER"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c, g, h: c.increment(-1), f"Failed to increment metric value: {COUNTER_KIND} can only be incremented "
                                          "monotonically by non-negative values."),
        (lambda c, g, h: c.set(1), f"Failed to set metric value: {COUNTER_KIND} does not support Set"),
        (lambda c, g, h: c.observe(1), f"Failed to observe metric value: {COUNTER_KIND} does not support Observe"),
        (lambda c, g, h: g.observe(1), "Failed to observe metric value: TRITONSERVER_METRIC_KIND_GAUGE does not "
                                       "support Observe"),
        (lambda c, g, h: h.value(), f"Failed to get metric value: {HISTOGRAM_KIND} Value"),
        (lambda c, g, h: h.set(1), f"Failed to set metric value: {HISTOGRAM_KIND} Set"),
        (lambda c, g, h: h.increment(1), f"Failed to increment metric value: {HISTOGRAM_KIND} Increment"),
    ],
)  # fmt: skip
def test_what_a_kind_does_not_support(call, text):
    families = F("t_c", "d", F.COUNTER), F("t_g", "d", F.GAUGE), F("t_h", "d", F.HISTOGRAM)
    with pytest.raises(pb.TritonModelException) as raised:
        call(families[0].Metric(), families[1].Metric(), families[2].Metric(buckets=[1]))
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: F("", "d", F.GAUGE), pb.TritonModelException,
         "^Error when creating MetricFamily: Invalid metric name$"),
        (lambda: F("a b", "d", F.GAUGE), pb.TritonModelException,
         "^Error when creating MetricFamily: Invalid metric name$"),
        (lambda: F("a", "d", 1), TypeError, "MetricFamily: kind must be MetricFamily.COUNTER, GAUGE or HISTOGRAM, not"),
        (lambda: F(None, "d", F.GAUGE), TypeError, "MetricFamily: name must be a str or bytes, not None"),
        (lambda: F("a", None, F.GAUGE), TypeError, "MetricFamily: description must be a str or bytes, not None"),
        (lambda: F("a", "d"), TypeError, "kind"),
        (lambda: F("a", "d", F.GAUGE).Metric([]), pb.TritonModelException,
         r"^Failed to create metric. Labels must be a dictionary.$"),
        (lambda: F("a", "d", F.GAUGE).Metric({1: "1"}), pb.TritonModelException,
         "^Error when creating Metric: Invalid label name$"),
        (lambda: F("a", "d", F.GAUGE).Metric({"a": 1}), pb.TritonModelException,
         "^Error when creating Metric: attempt to access JSON non-string as string: label 'a' is 1$"),
        (lambda: F("a", "d", F.GAUGE).Metric(buckets=[1]), pb.TritonModelException,
         r"^Failed to create metric. Unexpected buckets found.$"),
        (lambda: F("h", "d", F.HISTOGRAM).Metric(), pb.TritonModelException,
         r"^Failed to create metric. Missing required buckets.$"),
        (lambda: F("h", "d", F.HISTOGRAM).Metric(buckets=(1, 2)), pb.TritonModelException,
         r"^Failed to create metric. Buckets must be a list.$"),
        (lambda: F("h", "d", F.HISTOGRAM).Metric(buckets=[2, 1]), pb.TritonModelException,
         "^Error when creating Metric: Bucket Boundaries must be strictly sorted$"),
        (lambda: F("h", "d", F.HISTOGRAM).Metric(buckets=["x"]), TypeError, "a number is needed, got 'x' of type str"),
        (lambda: F("a", "d", F.GAUGE).Metric().set("x"), TypeError, r"set\(\): a number is needed, got 'x' of type"),
        (lambda: F("a", "d", F.GAUGE).Metric().set(None), TypeError, "got None of type NoneType"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_said(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_two_kinds_of_one_name():
    family = F("t_kind", "d", F.COUNTER)
    with pytest.raises(pb.TritonModelException, match="Family name already exists with different type$"):
        F("t_kind", "d", F.GAUGE)
    assert family.Metric().value() == 0


# ---- in an instance

KEEPS = """
    def initialize(self, args):
        F = pb_utils.MetricFamily
        self.family, self.sizes = F("hits", "text", F.COUNTER), F("sizes", "text", F.HISTOGRAM)
        self.hits = self.family.Metric({"a": "é"})
        self.size = self.sizes.Metric(buckets=[1, 2.5])
"""


def serve_metrics(router, instance, messages: list, cells: list[int], errors: dict[str, str] | None = None) -> None:
    """Answer as a server does, until the model is loaded."""
    instance.router.send(instance.id, {"t": "load", "role": "serve", "model": instance.load})
    while True:
        message = router.receive()
        if message["t"] in ("ready", "failed"):
            messages.append(message)
            return
        messages.append(message)
        if message["t"] == "metric_drop":
            continue
        answer = {"t": "answer", "n": message["n"], "error": (errors or {}).get(message["t"], "")}
        if message["t"] == "metric":
            answer.update({"cell": cells.pop(0), "buckets": message["buckets"]})
        router.send(instance.id, answer)


def cell(instance, number: int) -> float:
    return struct.unpack_from("<d", instance.plane.cells.memory, 8 * number)[0]


@pytest.fixture
def start(nursery, router, tmp_path):
    from tests.workers.driver import Instance

    return lambda source, **more: Instance(nursery, router, tmp_path, source, **more)


@both
def test_an_instance_asks_for_cells_and_then_only_writes_to_them(start, router):
    body = """
self.hits.increment(arr(r)[0])
self.size.observe(arr(r)[0])
return [answer(np.float32([self.hits.value()]))]
"""
    instance, said = start(model(body, KEEPS)), []
    serve_metrics(router, instance, said, [5, 7])
    assert said[0] == {"t": "metric_family", "n": 1, "family": 1, "name": "hits", "text": "text", "kind": 0}
    assert said[2] == {"t": "metric", "n": 3, "family": 1, "labels": {"a": "é"}, "buckets": []}
    assert said[3]["buckets"] == [1, 2.5] and said[4]["t"] == "ready"
    struct.pack_into("<d", instance.plane.cells.memory, 8 * 5, 100)  # another instance's
    for value, total in ((1, 101), (2, 103), (9, 112)):
        assert struct.unpack("<f", instance.ask([value], [0]).outputs[0][4]) == (total,)
    assert [cell(instance, at) for at in range(5, 12)] == [112, 0, 12, 1, 1, 1, 0]


def test_a_refusal_is_the_models_to_handle(start, router):
    instance, said = start(model("pass", KEEPS)), []
    serve_metrics(router, instance, said, [], {"metric_family": "Family name already exists with different type"})
    assert said[-1]["error"] == (
        "TritonModelException: Error when creating MetricFamily: Failed to process the request for model 'm_0_0', "
        "message: Family name already exists with different type"
    )


def test_a_cell_that_lies_outside_is_refused(start, router):
    instance, said = start(model("pass", KEEPS)), []
    serve_metrics(router, instance, said, [65536])
    assert "the server said cell 65536 of 65536" in said[-1]["error"]


def test_a_family_that_is_dropped_is_told(start, router):
    body = "self.family = self.hits = None; return [answer(arr(r))]"
    instance, said = start(model(body, KEEPS)), []
    serve_metrics(router, instance, said, [0, 1])
    instance.ask([1], [0])
    assert router.receive() == {"t": "metric_drop", "family": 1}


def test_threads_and_processes_lose_no_addition(start, router):
    body = """
import threading
def work():
    for _ in range(2000): self.hits.increment(1)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
return [answer(arr(r))]
"""
    instance, said = start(model(body, KEEPS)), []
    serve_metrics(router, instance, said, [0, 1])
    library = instance.plane.lib
    import ctypes

    library.tf_cell_add.argtypes = [ctypes.c_size_t, ctypes.c_double]

    def work():
        for _ in range(2000):
            library.tf_cell_add(instance.plane.cells.base, 1.0)

    thread = threading.Thread(target=work)
    thread.start()
    instance.ask([1], [0])
    thread.join()
    assert cell(instance, 0) == 10000
