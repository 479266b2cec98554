"""The metrics listener: Triton's families, our own, and their text."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.operations.helpers import Served, ask, registry
from tisfast.config.metrics_settings import MetricsSettings
from tisfast.engine.custom_metrics import FamilyReading, Reading
from tisfast.engine.response_cache import LocalStore, ModelCache
from tisfast.native.cuda_lanes import GpuCondition
from tisfast.native.nvml import GpuReading
from tisfast.processes.gpu_pool import LentMemory
from tisfast.telemetry.metrics import MetricsRoutes, Sources

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
OWN = {
    "nv_model_load_duration_secs": "gauge",
    "tisfast_worker_restarts_total": "counter",
    "tisfast_arena_bytes": "gauge",
    "tisfast_shared_memory_regions": "gauge",
    "tisfast_batch_size": "histogram",
    "tisfast_request_duration_seconds": "histogram",
    "tisfast_queue_duration_seconds": "histogram",
    "tisfast_compute_duration_seconds": "histogram",
}
PARTS = ("request", "queue", "compute_input", "compute_infer", "compute_output")


def routes(
    *served, restarts=(), loads=(), gpus=None, found=None, now=lambda: 0.0, memory=(), lent=(), used_gpus=(), **shown
):
    sources = Sources(
        found or registry(*served), lambda: restarts, lambda: loads, gpus, memory=lambda: memory, lent=lambda: lent,
        regions=lambda: {"system": 3, "cuda": 2}, used_gpus=lambda: used_gpus,
    )  # fmt: skip
    return MetricsRoutes(sources, MetricsSettings(**shown), now, math.inf)


def scrape(*served, **more):
    return scraped(routes(*served, **more))


def scraped(handler):
    response = handler.handle(ask("GET", "/metrics"), b"")
    assert (response.status, response.content_type) == (200, "text/plain; charset=utf-8")
    return response.body.decode()


def samples(text):
    """By name and label values, in the label names' order; the library's parser would rename Triton's counters."""
    assert list(text_string_to_metric_families(text))
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {(key.partition("{")[0], *re.findall(r'="([^"]*)"', key)): float(value) for key, value in lines}


def test_families_appear_once_with_help_and_type_in_tritons_order():
    lines = scrape(Served(), Served("n")).splitlines()
    types = [line.split()[2:] for line in lines if line.startswith("# TYPE ")]
    assert [tuple(t) for t in types] == list({**TRITON, **OWN}.items())
    assert [line.split()[2] for line in lines if line.startswith("# HELP ")] == [name for name, _ in types]


def test_regions_and_lent_memory_are_shown_by_their_kind_and_gpu():
    text = scrape(lent=[LentMemory(1, 2, 1, 1 << 24)])
    found = samples(text)
    assert (found["tisfast_shared_memory_regions", "system"], found["tisfast_shared_memory_regions", "cuda"]) == (3, 2)
    assert found["tisfast_gpu_lent_bytes", "1"] == 2 << 24
    assert (found["tisfast_gpu_lent_parts", "1", "lent"], found["tisfast_gpu_lent_parts", "1", "free"]) == (2, 1)
    assert "tisfast_gpu_lent" not in scrape()


def test_gpus_that_the_server_uses_are_shown_with_their_losses_and_what_they_are_down_for():
    well = {"losses": 0, "is_lost": False, "is_unusable": False, "hangs": False}
    worse = ("GPU-a", {"losses": 3, "is_lost": True}), ("GPU-b", {"is_unusable": True}), ("", {"hangs": True})
    used = [GpuCondition(device, uuid, **{**well, **each}) for device, (uuid, each) in enumerate(worse)]
    text = scrape(used_gpus=used)
    assert 'tisfast_gpu_losses_total{device_id="0",gpu_uuid="GPU-a"} 3' in text
    assert 'tisfast_gpu_losses_total{device_id="2"} 0' in text  # of a driver that tells none
    found = samples(re.sub(',gpu_uuid="[^"]*"', "", text))
    assert {key: value for key, value in found.items() if key[0].startswith("tisfast_gpu_")} == {
        **{("tisfast_gpu_losses_total", str(gpu)): count for gpu, count in enumerate((3, 0, 0))},
        **{
            ("tisfast_gpu_down", str(gpu), reason): int(gpu == of)
            for gpu in range(3)
            for of, reason in enumerate(("lost", "unusable", "hangs"))
        },
    }
    assert "tisfast_gpu_" not in scrape()


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


def test_what_the_memory_budget_knows():
    figures = {"memory_bytes": 5, "asleep": True, "sleeps": 3, "wakes": 2, "wake_seconds": 0.5}
    found = samples(scrape(Served("m"), memory=[("m", "1", figures)]))
    assert found["tisfast_model_memory_bytes", "m", "1"] == 5 and found["tisfast_model_asleep", "m", "1"] == 1
    assert found["tisfast_model_sleeps_total", "m", "1"] == 3 and found["tisfast_model_wakes_total", "m", "1"] == 2
    assert found["tisfast_model_wake_seconds_total", "m", "1"] == 0.5


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
    handler = routes(found=found)
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
    assert routes().handle(ask(method, path), b"").status == status


def test_load_durations():
    served = Served()
    found = samples(scrape(served, loads=[("m", "1", 1.5), ("unloaded", "1", 9.0)]))
    assert found["nv_model_load_duration_secs", "m", "1"] == 1.5
    assert not [key for key in found if "unloaded" in key]


def test_metric_tags_are_labels():
    served = Served(config={"name": "m", "backend": "python", "metric_tags": {"team": "vision"}})
    assert 'nv_inference_count{_team="vision",model="m",version="1"} 0.0' in scrape(served)


def test_own_histograms():
    served = Served()
    for _ in range(3):
        served.infer()  # takes 5 us
    found = samples(scrape(served))
    assert found["tisfast_request_duration_seconds_bucket", "3.2e-05", "m", "1"] == 3
    assert found["tisfast_request_duration_seconds_bucket", "+Inf", "m", "1"] == 3
    assert found["tisfast_compute_duration_seconds_sum", "m", "1"] == pytest.approx(15e-6)
    assert found["tisfast_queue_duration_seconds_count", "m", "1"] == 3


def test_counters_of_durations_can_be_switched_off():
    assert not [key for key in samples(scrape(Served(), counter_latencies=False)) if "_duration_us" in key[0]]


def test_summaries():
    served = Served()
    text = scrape(served, summary_latencies=True, quantiles=((0.5, 0.05), (0.999, 0.001)))
    for part in PARTS:
        assert f'nv_inference_{part}_summary_us{{model="m",quantile="0.999",version="1"}} NaN' in text
    served.infer()
    found = samples(scrape(served, summary_latencies=True, quantiles=((0.5, 0.05),)))
    assert found["nv_inference_compute_infer_summary_us", "m", "0.5", "1"] == 5
    assert found["nv_inference_request_summary_us_count", "m", "1"] == 1
    assert found["nv_inference_request_summary_us_sum", "m", "1"] == 5


def test_quantiles_are_of_the_last_minute():
    served, clock = Served(), [0.0]
    handler = routes(served, summary_latencies=True, quantiles=((0.5, 0.05),), now=lambda: clock[0])
    key = ("nv_inference_compute_infer_summary_us", "m", "0.5", "1")
    served.infer()
    assert samples(scraped(handler))[key] == 5
    clock[0] = 50
    assert samples(scraped(handler))[key] == 5
    clock[0] = 70
    assert str(samples(scraped(handler))[key]) == "nan"


def test_the_first_response_histogram():
    config = {
        "name": "m",
        "model_metrics": {
            "metric_control": [
                {
                    "metric_identifier": {"family": "nv_inference_first_response_histogram_ms"},
                    "histogram_options": {"buckets": [0.001, 10]},
                }
            ]
        },
    }
    served, plain = Served(config=config), Served("n")
    served.infer()
    plain.infer()
    found = samples(scrape(served, plain, histogram_latencies=True))
    name = "nv_inference_first_response_histogram_ms"
    buckets = {key[1:3]: value for key, value in found.items() if key[0] == f"{name}_bucket"}
    assert buckets == {
        ("0.001", "m"): 0, ("10", "m"): 1, ("+Inf", "m"): 1,
        ("100", "n"): 1, ("500", "n"): 1, ("2000", "n"): 1, ("5000", "n"): 1, ("+Inf", "n"): 1,
    }  # fmt: skip
    assert found[f"{name}_sum", "m", "1"] == pytest.approx(0.005)


class Gpus:
    readings = (GpuReading("GPU-1", 0.25, 100, 60, 70.5, 700.0, 3.5), GpuReading("GPU-2", *[None] * 6))


def test_gpus():
    text = scrape(gpus=Gpus())
    assert "# TYPE nv_energy_consumption counter\n" in text
    for line in (
        "nv_gpu_utilization 0.25", "nv_gpu_memory_total_bytes 100.0", "nv_gpu_memory_used_bytes 60.0",
        "nv_gpu_power_usage 70.5", "nv_gpu_power_limit 700.0", "nv_energy_consumption 3.5",
    ):  # fmt: skip
        name, value = line.split()
        assert f'{name}{{gpu_uuid="GPU-1"}} {value}\n' in text
    assert "GPU-2" not in text


def test_no_gpu_and_no_cpu_families_when_not_wanted():
    assert "nv_gpu" not in scrape()
    assert "nv_cpu" not in scrape(cpu=False)


def test_cpu_is_read_once_per_interval():
    clock = [0.0]
    handler = routes(now=lambda: clock[0])
    first = samples(scraped(handler))["nv_cpu_utilization",]
    clock[0] = 1.9
    assert samples(scraped(handler))["nv_cpu_utilization",] == first == 0


# ---- the response cache


def cached(store):
    served = Served()
    served.runtime.cache = ModelCache(store, b"salt")
    return served


def test_a_model_whose_answers_are_kept_shows_its_hits_and_misses():
    store = LocalStore(1 << 20)
    found = samples(scrape(cached(store), Served("plain")))
    for name in ("num_hits", "num_misses", "hit_duration", "miss_duration"):
        assert found[f"nv_cache_{name}_per_model", "m", "1"] == 0
        assert (f"nv_cache_{name}_per_model", "plain", "1") not in found


def test_no_model_no_families_of_the_cache():
    assert "nv_cache" not in scrape(Served())


def test_the_sums_go_with_the_other_durations():
    assert "nv_cache" not in scrape(cached(LocalStore(1 << 20)), counter_latencies=False)


def test_the_store_shows_what_it_holds():
    sources = Sources(registry(Served()), tuple, tuple, None, LocalStore(1 << 20))
    text = scraped(MetricsRoutes(sources, MetricsSettings(), slice_seconds=math.inf))
    for name in ("util", "num_entries", "num_hits", "num_misses", "num_lookups", "num_evictions", "lookup_duration"):
        assert f"nv_cache_{name} 0.0" in text
    assert "nv_cache_insertion_duration 0.0" in text


def test_summaries_of_hits_stand_for_those_of_requests():
    text = scrape(cached(LocalStore(1 << 20)), summary_latencies=True, quantiles=((0.5, 0.05),))
    assert "nv_inference_request_summary_us" not in text
    assert 'nv_cache_hit_summary_per_model{model="m",quantile="0.5",version="1"} NaN' in text
    assert 'nv_cache_miss_summary_per_model_count{model="m",version="1"} 0.0' in text


@pytest.mark.parametrize(("up", "shown"), [(True, "1.0"), (False, "0.0")])
def test_a_shared_cache_shows_whether_it_is_there(up, shown):
    sources = Sources(registry(Served()), tuple, tuple, None, SimpleNamespace(up=up, skipped=7))
    text = scraped(MetricsRoutes(sources, MetricsSettings(), slice_seconds=math.inf))
    assert f"tisfast_cache_up {shown}\n" in text
    assert "tisfast_cache_skipped_total 7.0\n" in text
    assert "nv_cache" not in text


# ---- metrics that models keep


def test_custom_families_come_last_under_their_own_names():
    labels = (("b", 'q"uo\\te\nnew é'), ("le_", "1"))
    readings = [
        FamilyReading("hits", "text\nof two lines", "counter", [Reading((), 3.0), Reading(labels, 0.5)]),
        FamilyReading("hits_total", "text", "counter", [Reading((), 1.0)]),
        FamilyReading("level", "text", "gauge", [Reading((), float("inf"))]),
        FamilyReading("sizes", "", "histogram", [Reading((("m", "x"),), 12.5, (0.1, 1.0, 1e22), (1.0, 0.0, 2.0, 4.0))]),
    ]
    sources = Sources(registry(Served()), tuple, custom=lambda: readings)
    text = scraped(MetricsRoutes(sources, MetricsSettings(), slice_seconds=math.inf))
    own = text[text.index("# HELP hits ") :].splitlines()
    assert own == [
        "# HELP hits text\\nof two lines",
        "# TYPE hits counter",
        "hits 3.0",
        'hits{b="q\\"uo\\\\te\\nnew é",le_="1"} 0.5',
        "# HELP hits_total text",
        "# TYPE hits_total counter",
        "hits_total 1.0",
        "# HELP level text",
        "# TYPE level gauge",
        "level +Inf",
        "# HELP sizes ",
        "# TYPE sizes histogram",
        'sizes_bucket{le="0.1",m="x"} 1.0',
        'sizes_bucket{le="1",m="x"} 1.0',
        'sizes_bucket{le="1e+22",m="x"} 3.0',
        'sizes_bucket{le="+Inf",m="x"} 7.0',
        'sizes_count{m="x"} 7.0',
        'sizes_sum{m="x"} 12.5',
    ]
