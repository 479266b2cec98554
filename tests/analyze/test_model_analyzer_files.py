"""Model Analyzer's files: what a key becomes, and what is refused."""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tisfast.analyze.arguments import parser, read, read_all
from tisfast.analyze.model_analyzer import READERS
from tisfast.analyze.model_analyzer_keys import ELSEWHERE, HARMLESS, PLAIN, REASONS, REFUSED, SCRATCH
from tisfast.errors import ConfigError

# As Model Analyzer's documentation writes them.
WHOLE = """
model_repository: /models
export_path: /tmp/results
run_config_search_mode: quick
client_protocol: grpc
num_configs_per_model: 2
perf_analyzer_flags:
  percentile: 95
  shape: [A:4, B:8]
  measurement-interval: 300
triton_server_flags:
  backend-config: python,stub-timeout-seconds=9
objectives:
  perf_throughput: 2
constraints:
  perf_latency_p99:
    max: 100
profile_models:
  resnet:
    parameters:
      concurrency:
        start: 2
        stop: 8
        step: 2
      batch_sizes: 4
    objectives: [perf_latency_avg]
    model_config_parameters:
      max_batch_size: [4, 8]
      dynamic_batching:
        max_queue_delay_microseconds: [100, 200]
        preferred_batch_size: [[4, 8], [8]]
      instance_group:
        - count: [1, 2]
      parameters:
        THREADS:
          string_value: ["1", "2"]
      optimization:
        graph:
          level: [0, 1]
"""


@pytest.fixture
def given(tmp_path):
    """What is read of a file's text, with further flags."""

    def read_text(text: str, *more: str, name: str = "config.yaml"):
        file = tmp_path / name
        file.write_text(text)
        return read(["-f", str(file), *more])

    return read_text


def test_a_whole_file(given):
    found = given(WHOLE)
    assert (found.asked.model, str(found.repository), str(found.output)) == ("resnet", "/models", "/tmp/results")
    assert (found.search, found.best) == ("quick", 2)
    assert found.asked.address.grpc
    assert found.asked.settings.percentile == 95
    assert found.asked.settings.window_ms == 300
    assert found.asked.batch_size == 4
    assert found.asked.data.shapes == (("A", (4,)), ("B", (8,)))
    assert found.server_flags == ("--backend-config=python,stub-timeout-seconds=9",)
    assert found.load.levels == (2, 4, 6, 8)
    assert found.aims.objectives == (("latency_avg", 1.0),)
    assert [each.text for each in found.aims.constraints] == ["latency_p99 <= 100 ms"]
    assert {axis.name: axis.values for axis in found.space.axes} == {
        "instances": (1, 2),
        "max_batch_size": (4, 8),
        "preferred_batch_size": ("[4, 8]", "[8]"),
        "max_queue_delay_microseconds": (100, 200),
        "parameters.THREADS": ('"1"', '"2"'),
        "optimization.graph.level": (0, 1),
    }


def test_what_is_typed_wins(given):
    found = given(WHOLE, "--concurrency", "3", "--search", "brute", "-u", "localhost:9", "-i", "http")
    assert found.load.levels == (3,)
    assert found.search == "brute"
    assert found.repository is None
    assert found.asked.address.port == 9


def test_typed_flags_that_may_be_repeated_win(given):
    text = """
model_repository: /m
profile_models: m
objectives: {perf_throughput: 2}
constraints: {perf_latency_p99: {max: 100}, perf_throughput: {min: 5}}
triton_server_flags: {log-verbose: 1, cache-config: "local,size=1"}
perf_analyzer_flags: {shape: "A:4", input-data: zero, b: 2}
concurrency: [1, 2]
model_config_parameters:
  dynamic_batching: {preferred_batch_size: [[2], [4]]}
  parameters: {A: {string_value: "1"}, B: {string_value: "2"}}
"""
    found = given(
        text,
        *("--objective", "latency_p99", "--latency-budget", "50", "--server-flag=--log-verbose=0", "--shape", "A:8"),
        *("--preferred-batch-sizes", "8", "--set", "parameters.A=7", "--request-rate", "10", "--batch-size", "4"),
    )
    assert found.aims.objectives == (("latency_p99", 1.0),)
    assert [each.text for each in found.aims.constraints] == ["throughput >= 5/s", "latency_p99 <= 50 ms"]
    assert found.server_flags == ("--cache-config=local,size=1", "--log-verbose=0")
    assert found.asked.data.shapes == (("A", (8,)),)
    assert found.asked.data.zero
    assert found.asked.batch_size == 4
    assert (found.load.mode, found.load.levels) == ("request_rate", (10,))
    assert {axis.name: axis.values for axis in found.space.axes} == {
        "preferred_batch_size": ("[8]",),
        "parameters.A": (7,),
        "parameters.B": ('"2"',),
    }
    assert [each.text for each in given(text, "--constraint", "perf_latency_p99<=7").aims.constraints] == [
        "throughput >= 5/s",
        "latency_p99 <= 7 ms",
    ]
    remote = "triton_launch_mode: remote\nprofile_models: m\nlatency_budget: 5\n"
    assert str(given(remote, "--model-repository", "models").repository) == "models"
    assert given(remote, "--constraint", "p99<=7").aims.constraints[0].limit == 7


KEYS = (
    *REFUSED,
    *REASONS,
    *PLAIN,
    *READERS,
    *ELSEWHERE,
    "max_batch_size",
    "instance_group",
    "dynamic_batching",
    "count",
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(datetime.date(2020, 1, 1))
    | st.sampled_from(["1", "1:4", "http", "grpc", "remote", "optuna", "p99", "10", "--help", "-h"])
)  # fmt: skip
NAMES = st.sampled_from(KEYS) | st.sampled_from(
    ["min", "max", "start", "stop", "step", "kind", "preferred_batch_size", "max_queue_delay_microseconds", "m", "f"]
    + ["string_value", "parameters", "percentile", "shape", "help", "u"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def odd_file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("odd") / "config.yaml"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@drawn(st.dictionaries(st.sampled_from(sorted({*READERS, *ELSEWHERE, *PLAIN})), VALUES, max_size=4), st.booleans())
def test_nothing_but_a_sentence_comes_of_an_odd_file(odd_file, document, whole):
    if whole:
        document = {"model_repository": "/m", "profile_models": "m", **document}
    odd_file.write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        read(["-f", str(odd_file)])
    except ConfigError as error:
        assert str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@drawn(st.text(alphabet="am:[]{}&*!<>?|-\n \"'%@#,.0x~", max_size=30))
def test_nothing_but_a_sentence_comes_of_any_text(odd_file, text):
    odd_file.write_text(text)
    with pytest.raises(ConfigError):
        read(["-f", str(odd_file)])


def test_the_search_is_model_analyzers_where_nothing_is_said(given):
    found = given("model_repository: /m\nprofile_models: add\nrun_config_search_max_instance_count: 2\n")
    assert found.search == "brute"
    assert found.space is None
    assert found.automatic.instances == (1, 2)
    assert found.automatic.batches == (1, 2, 4, 8, 16, 32, 64, 128)
    assert found.load.levels[-1] == 1024
    rates = given(
        "model_repository: /m\nprofile_models: [add]\nrequest_rate_search_enable: true\n"
        "run_config_search_max_request_rate: 64\nrun_config_search_mode: optuna\noptuna_max_trials: 7\n"
    )
    assert (rates.load.mode, rates.load.levels) == ("request_rate", (16, 32, 64))
    assert (rates.search, rates.trials) == ("bayesian", 7)


def test_a_running_server(given):
    text = "triton_launch_mode: remote\ntriton_grpc_endpoint: h:1\ntriton_http_endpoint: h:2\nprofile_models: m\n"
    assert given(text).asked.address.port == 2
    assert given(text + "client_protocol: grpc\n").asked.address.port == 1


@pytest.mark.parametrize(
    ("more", "url"),
    [
        ("", "http://localhost:8000"),
        ("triton_grpc_endpoint: h:1\n", "http://localhost:8000"),
        ("client_protocol: grpc\n", "grpc://localhost:8001"),
    ],
)
def test_a_running_server_is_where_model_analyzer_looks_for_it(given, more, url):
    """The file's repository is that server's: no server of our own is started."""
    found = given("triton_launch_mode: remote\nmodel_repository: /m\nprofile_models: m\n" + more)
    assert (str(found.asked.address), found.repository) == (url, None)


def test_several_models_are_searched_one_after_the_other(given, tmp_path):
    text = "model_repository: /m\nexport_path: /x\nprofile_models: [a, b]\n"
    with pytest.raises(ConfigError, match="profile_models has 2 models \\(a, b\\): name one with -m"):
        given(text)
    assert given(text, "-m", "b").asked.model == "b"
    file = ["-f", str(tmp_path / "config.yaml")]
    assert [(each.models, str(each.output)) for each in read_all(file)] == [
        (("a",), "/x/analyze-a"),
        (("b",), "/x/analyze-b"),
    ]
    assert [each.models for each in read_all([*file, "-m", "a,b"])] == [("a", "b")]


# As Model Analyzer's documentation writes them.
TOGETHER_FILE = """
model_repository: /m
run_config_profile_models_concurrently_enable: true
latency_budget: 50
objectives: {perf_throughput: 3, perf_latency_p99: 1}
constraints: {perf_throughput: {min: 10}, cpu_used_ram: {max: 900}}
profile_models:
  a:
    weighting: 3
    objectives: [perf_latency_avg]
    constraints: {perf_latency_avg: {max: 5}}
    model_config_parameters: {max_batch_size: [1, 2]}
  b:
    model_config_parameters:
      instance_group: [{count: [1, 2], kind: KIND_CPU}]
      dynamic_batching: {max_queue_delay_microseconds: [0, 100]}
"""


def test_models_that_are_profiled_concurrently(given):
    found = given(TOGETHER_FILE)
    assert found.models == ("a", "b")
    assert [(each.name, each.weight) for each in found.asked.mix] == [("a", 1), ("b", 1)]
    assert found.search == "quick"
    assert dict(found.aims.objectives) == {"a:latency_avg": 3, "b:throughput": 0.75, "b:latency_p99": 0.25}
    assert sorted(each.text for each in found.aims.constraints) == [
        "a:latency_avg <= 5 ms",
        "a:latency_p99 <= 50 ms",
        "b:latency_p99 <= 50 ms",
        "b:throughput >= 10/s",
        "memory <= 900 MB",
    ]
    assert [axis.name for axis in found.space.axes] == [
        "a:max_batch_size",
        "b:max_queue_delay_microseconds",
        "b:instance_group",
    ]
    assert given(TOGETHER_FILE, "-m", "a=3,b").asked.mix[0].weight == 3
    typed = given(TOGETHER_FILE, "--constraint", "a:perf_latency_avg<=9").aims.constraints
    assert [each.text for each in typed if each.metric == "a:latency_avg"] == ["a:latency_avg <= 9 ms"]
    for text, told in (
        (TOGETHER_FILE.replace("weighting: 3", "weighting: x"), "objectives and weighting have numbers above 0"),
        (TOGETHER_FILE.replace("weighting: 3", "parameters: {concurrency: [1]}"), "a.parameters is of one model"),
        (TOGETHER_FILE.replace("enable: true", "enable: 2"), r"concurrently_enable \(it is true or false"),
    ):
        with pytest.raises(ConfigError, match=told):
            given(text, *(("-m", "a") if "enable: 2" in text else ()))


def test_json_needs_no_library(given, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    document = {"model_repository": "/m", "profile_models": {"a": {"model_config_parameters": {
        "instance_group": [{"kind": "KIND_CPU", "count": [1, 3]}]}}}}  # fmt: skip
    (axis,) = given(json.dumps(document), name="x.json").space.axes
    assert axis.name == "instance_group"
    assert axis.values[1] == '[{"count": 3, "kind": "KIND_CPU"}]'
    with pytest.raises(ConfigError, match=r"needs PyYAML, which is not installed: pip install 'tisfast\[analyze\]'"):
        given("a: 1")


@pytest.mark.parametrize("key", sorted(REFUSED | REASONS))
def test_a_key_without_a_place_is_refused_by_name(given, key):
    with pytest.raises(ConfigError, match=f"{key} is not served by tisfast analyze: "):
        given(f"model_repository: /m\nprofile_models: m\n{key}: something\n")
    for value in HARMLESS.get(key, ()):
        given(f"model_repository: /m\nprofile_models: m\n{key}: {json.dumps(value)}\n")


def test_keys_that_only_say_where_files_of_the_way_are_are_passed_over(given):
    text = "model_repository: /m\nprofile_models: m\noutput_model_repository_path: /x\ncheckpoint_directory: /y\n"
    (note,) = given(text).notes
    assert note.startswith("output_model_repository_path, checkpoint_directory: passed over")


def test_all_keys_without_a_place_are_refused_at_once(given):
    with pytest.raises(ConfigError, match="3 keys are not served by tisfast analyze: monitoring_interval .*; gpus .*"):
        given("model_repository: /m\nprofile_models: m\nmonitoring_interval: 1\ngpus: [0]\nsummarize: true\n")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ("{perf_latency_p99: 10}", "constraints.perf_latency_p99: write {max: 10}"),
        ("{perf_throughput: 10}", "constraints.perf_throughput: write {min: 10}"),
        ("{perf_latency_p99: {min: 20, max: 10}}", "constraints.perf_latency_p99: min 20 is above max 10"),
    ],
)
def test_bounds_that_are_none_are_refused(given, bounds, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        given(f"model_repository: /m\nprofile_models: m\nconstraints: {bounds}\n")


def test_keys_are_in_one_place_and_their_flags_exist():
    groups = (set(REFUSED), set(REASONS), set(PLAIN), set(READERS), set(ELSEWHERE), set(SCRATCH))
    assert sum(map(len, groups)) == len(set().union(*groups))
    assert set(HARMLESS) <= set(REFUSED) | set(REASONS)
    known = {name for action in parser()._actions for name in action.option_strings}
    assert set(PLAIN.values()) - {"--protocol"} <= known  # which is bench's


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("objective: [perf_throughput]", "objective is no key that is known here; is objectives meant?"),
        ("concurrency: {from: 1}", "a range has start, stop and step"),
        ("concurrency: [[1]]", "concurrency has one value, not"),
        ("profile_models: {m: 5}", "profile_models.m has keys below it"),
        ("profile_models: {1: {}}", "profile_models has keys below it that are texts"),
        ("perf_analyzer_flags: {1: 2}", "perf_analyzer_flags has keys below it that are texts"),
        ("perf_analyzer_flags: {f: out.csv}", "-f of tisfast bench has no place here: results.csv"),
        ("perf_analyzer_flags: {m: other}", "-m has no place there: profile_models names the model"),
        ("perf_analyzer_flags: {url: x}", "--url has no place there: triton_http_endpoint"),
        ("perf_analyzer_flags: {help: true}", "--help measures nothing"),
        ("perf_analyzer_flags: {search: brute}", "--search=brute"),
        ("model_config_parameters: {dynamic_batching: {preferred_batch_size: []}}", "--preferred-batch-sizes"),
        ("model_config_parameters: {instance_group: [{count: []}]}", "--instances"),
        ("model_config_parameters: {instance_group: [{kind: KIND_CPU, count: []}]}", "the list has no value"),
        ("model_config_parameters: {max_batch_size: []}", "--max-batch-sizes"),
        ("model_config_parameters: {x: 2020-01-01}", "cannot be in a configuration"),
        ("model_config_parameters: &a {x: *a}", "values within values without an end"),
        ("x: 2020-50-01", "is no YAML"),
        (f"concurrency: 0x{'f' * 5000}", "concurrency: a whole number has at most 4300 digits"),
        ("concurrency: []", "--concurrency"),
        ("batch_sizes: [1, 2]", "give one number"),
        ("constraints: [1]", "constraints has keys below it"),
        ("constraints: {perf_throughput: {least: 1}}", "constraints.perf_throughput.least is no key"),
        ("constraints: {gpu_utilization: {min: 1}}", "'gpu_utilization' is no metric"),
        ("perf_analyzer_flags: {concurrency-range: 1}", "--concurrency-range of tisfast bench has no place here"),
        ("perf_analyzer_flags: {no-such: 1}", "no-such"),
        ("triton_launch_mode: docker", "no container is started"),
        ("triton_http_endpoint: x:1", "the server takes free ports"),
        ("model_config_parameters: {instance_group: [{count: 1}, {count: 2}]}", "write one group"),
        ("profile_models: {m: {concurrency: 1}}", "profile_models.m.concurrency is no key"),
        ("x: [", "is no YAML"),
        ("- 1", "has no keys at its top"),
        ("1: 2", "has no keys at its top"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(given, text, told):
    models = "" if "profile_models" in text else "\nprofile_models: m\n"
    head = "" if text in ("- 1", "x: [", "1: 2") else f"model_repository: /m{models}\n"
    with pytest.raises(ConfigError) as error:
        given(f"{head}{text}\n" if head else text)
    assert told in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read(["-f", str(tmp_path / "no.yaml")])
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ConfigError, match="is no JSON"):
        read(["-f", str(tmp_path / "x.json")])


def test_everything_that_is_refused_is_named_at_once(given):
    text = """
model_repository: m
profile_models: [batchy]
triton_launch_mode: docker
gpus: all
reload_model_disable: true
duration_seconds: 3
collect_cpu_metrics: true
"""
    with pytest.raises(ConfigError) as error:
        given(text)
    told = str(error.value)
    assert told.startswith("3 keys are not served")
    for key in ("triton_launch_mode ('docker': no container is started", "reload_model_disable", "duration_seconds"):
        assert key in told
    assert "collect_cpu_metrics" not in told


def test_what_is_passed_over_is_told(given):
    notes = given("model_repository: m\nprofile_models: m\ngpus: all\ncollect_cpu_metrics: true\n").notes
    assert [each.partition(":")[0] for each in notes] == ["gpus", "collect_cpu_metrics"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "run_config_search_max_instance_count: lots",
            "run_config_search_max_instance_count: 'lots' is no whole number",
        ),
        ("num_configs_per_model: 1.5", "num_configs_per_model: 1.5 is no whole number"),
        ("latency_budget: soon", "latency_budget: 'soon' is no number"),
        ("constraints: {perf_throughput: {max: x}}", "constraints.perf_throughput.max: 'x' is no number above 0"),
        ("constraints: {perf: {max: 1}}", "constraints.perf: 'perf' is no metric"),
        ("objectives: {perf_throughput: -1}", "objectives.perf_throughput: -1 is no weight above 0"),
        ("objectives: [speed]", "objectives: 'speed' is no metric"),
    ],
)
def test_errors_name_keys_and_no_flags(given, text, told):
    with pytest.raises(ConfigError) as error:
        given(f"model_repository: m\nprofile_models: m\n{text}\n")
    assert str(error.value).startswith(told)
    assert "--" not in str(error.value)
