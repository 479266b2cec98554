"""The metrics listener: Triton's families, our own, and their text."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests_front_models import Served, ask, registry

from tisfast.front.metrics import MetricsRoutes

TRITON = {
    "nv_inference_request_success": "counter",
    "nv_inference_request_failure": "counter",
    "nv_inference_count": "counter",
    "nv_inference_exec_count": "counter",
    "nv_inference_request_duration_us": "counter",
    "nv_inference_queue_duration_us": "counter",
    "nv_inference_compute_input_duration_us": "counter",
    "nv_inference_compute_infer_duration_us": "counter",
    "nv_inference_compute_output_duration_us": "counter",
    "nv_inference_pending_request_count": "gauge",
    "nv_pinned_memory_pool_total_bytes": "gauge",
    "nv_pinned_memory_pool_used_bytes": "gauge",
    "nv_cpu_utilization": "gauge",
    "nv_cpu_memory_total_bytes": "gauge",
    "nv_cpu_memory_used_bytes": "gauge",
}
OWN = {"tisfast_worker_restarts_total": "counter", "tisfast_arena_bytes": "gauge", "tisfast_batch_size": "histogram"}


def scrape(*served, restarts=()):
    handler = MetricsRoutes(registry(*served), lambda: restarts)
    response = handler.handle(ask("GET", "/metrics"), b"")
    assert (response.status, response.content_type) == (200, "text/plain; charset=utf-8")
    return response.body.decode()


def samples(text):
    """By name and label values, in the label names' order; the library's parser would rename Triton's counters."""
    assert len(list(text_string_to_metric_families(text))) == len(TRITON) + len(OWN)
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {(key.partition("{")[0], *re.findall(r'="([^"]*)"', key)): float(value) for key, value in lines}


def test_families_appear_once_with_help_and_type_in_tritons_order():
    lines = scrape(Served(), Served("n")).splitlines()
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE ")]
    assert [tuple(t) for t in types] == list({**TRITON, **OWN}.items())
    assert [line.split()[2] for line in lines if line.startswith("# HELP ")] == [name for name, _ in types]


def test_help_texts_are_tritons():
    text = scrape(Served())
    for line in (
        "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes",
        "# HELP nv_inference_count Number of inferences performed (does not include cached requests)",
        "# HELP nv_inference_request_duration_us Cumulative inference request duration in microseconds "
        "(includes cached requests)",
        "# HELP nv_inference_compute_output_duration_us Cumulative inference compute output duration in microseconds "
        "(does not include cached requests)",
        "# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution "
        "per-model.",
    ):
        assert f"{line}\n" in text


def test_counters():
    served = Served(max_batch=8)
    for batch in (1, 3, 3, 8):
        served.infer(batch=batch)
    served.infer(status=2)
    found = samples(scrape(served, restarts=[("m", "1", 4)]))
    assert found["nv_inference_request_success", "m", "1"] == 4
    assert found["nv_inference_count", "m", "1"] == 15
    assert found["nv_inference_exec_count", "m", "1"] == 5
    assert {
        r: found["nv_inference_request_failure", "m", r, "1"] for r in ("REJECTED", "CANCELED", "BACKEND", "OTHER")
    } == {
        "REJECTED": 0,
        "CANCELED": 0,
        "BACKEND": 1,
        "OTHER": 0,
    }
    assert found["nv_inference_compute_infer_duration_us", "m", "1"] == 20
    assert found["tisfast_worker_restarts_total", "m", "1"] == 4


def test_the_batch_size_histogram():
    served = Served(max_batch=5)
    for batch in (1, 3, 3, 5):
        served.infer(batch=batch)
    found = samples(scrape(served))
    buckets = {key[1]: value for key, value in found.items() if key[0] == "tisfast_batch_size_bucket"}
    assert buckets == {"1.0": 1, "2.0": 1, "4.0": 3, "8.0": 4, "+Inf": 4}
    assert found["tisfast_batch_size_sum", "m", "1"] == 12
    assert found["tisfast_batch_size_count", "m", "1"] == 4


def test_arena_bytes():
    served = Served()
    held = served.runtime.arena.take_block(5000)
    found = samples(scrape(served))
    assert found["tisfast_arena_bytes", "used", "m", "1"] >= len(held)
    assert found["tisfast_arena_bytes", "limit", "m", "1"] == 1 << 19


def test_series_go_with_their_model():
    served, found = Served(), registry()
    handler = MetricsRoutes(found, lambda: ())
    found.add(served.runtime)
    assert b'nv_inference_count{model="m",version="1"} 0.0' in handler.handle(ask("GET", "/metrics"), b"").body
    found.remove(served.runtime)
    assert b'model="m"' not in handler.handle(ask("GET", "/metrics"), b"").body


def test_machine_values_are_plausible():
    found = samples(scrape())
    assert 0 < found["nv_cpu_memory_used_bytes",] < found["nv_cpu_memory_total_bytes",]
    assert found["nv_cpu_utilization",] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics/", 200), ("POST", "/metrics", 405), ("HEAD", "/metrics", 405), ("GET", "/v2", 404)],
)
def test_other_paths_and_verbs(method, path, status):
    assert MetricsRoutes(registry(), lambda: ()).handle(ask(method, path), b"").status == status


def test_the_library_is_not_imported_before_the_first_scrape():
    code = "import sys, tisfast.front.metrics; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
