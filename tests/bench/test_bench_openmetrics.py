"""The figures in OpenMetrics' form, read by Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.bench.made_levels import latencies, level_of, run_of, server_of
from tests.bench.stub_server import StubServer
from tisfast import cli_bench
from tisfast.bench.openmetrics import openmetrics
from tisfast.bench.results import Errors, Target


def read(run) -> dict[str, list]:
    """Samples by the family's name."""
    return {family.name: family.samples for family in text_string_to_metric_families("".join(openmetrics(run)))}


def test_figures_are_those_of_the_run():
    level = level_of(latencies(1000))
    families = read(run_of(level))

    (throughput,) = families["tisfast_bench_throughput"]
    assert throughput.value == pytest.approx(level.throughput * run_of(level).target.batch_size)
    assert throughput.labels["mode"] == "concurrency" and throughput.labels["load"] == "4"
    latency = {each.labels.get("quantile", each.name): each.value for each in families["tisfast_bench_latency_seconds"]}
    assert latency["0.99"] == level.response.quantile(0.99) / 1e9
    assert latency["tisfast_bench_latency_seconds_count"] == level.response.count
    assert latency["tisfast_bench_latency_seconds_sum"] == pytest.approx(level.response.sum / 1e9)


def test_buckets_rise_to_the_count():
    level = level_of(latencies(1000))
    samples = read(run_of(level))["tisfast_bench_latency_distribution_seconds"]
    buckets = [(float(each.labels["le"]), each.value) for each in samples if each.name.endswith("_bucket")]
    counts = [count for _, count in buckets]

    assert counts == sorted(counts) and counts[-1] == level.response.count
    for end, count in buckets[:-1]:
        assert count == level.response.count - level.response.above(round(end * 1e9))


def test_the_servers_parts_are_sums():
    samples = read(run_of(replace(level_of(latencies(1000)), server=server_of(100))))["tisfast_bench_server_seconds"]

    assert {each.labels["part"]: each.value for each in samples}["queue"] == pytest.approx(100 * 100e-6)


def test_errors_are_counted_by_status():
    errors = Errors(5, 5, 0, {("503", "full"): 2, ("503", "busy"): 1, ("connection", "lost"): 2})
    samples = read(run_of(replace(level_of(latencies(1000)), errors=errors)))["tisfast_bench_failed_requests"]

    assert {each.labels["status"]: each.value for each in samples} == {"503": 3, "connection": 2}


def test_names_with_odd_characters_are_escaped():
    target = Target('a"b\\c\nd:1', "http", "mo\\del")
    (info,) = read(run_of(level_of(latencies(1000)), target=target))["tisfast_bench_target"]

    assert (info.labels["url"], info.labels["model"]) == ('a"b\\c\nd:1', "mo\\del")


def test_the_command_writes_a_file_for_each_server(tmp_path):
    target = tmp_path / "run.txt"
    with StubServer() as first, StubServer() as second:
        typed = ["-m", "stub", "-u", f"127.0.0.1:{first.port}", "--vs", f"127.0.0.1:{second.port}"]
        typed += ["--request-count", "3", "-r", "8", "--fail-above", "1e9", "--openmetrics", str(target)]
        assert cli_bench.main(typed) == 0
    for path, port in ((target, first.port), (tmp_path / "run.vs.txt", second.port)):
        families = {each.name: each for each in text_string_to_metric_families(path.read_text())}
        (requests,) = families["tisfast_bench_requests"].samples
        assert (requests.value, requests.labels["url"]) == (24, f"127.0.0.1:{port}")
