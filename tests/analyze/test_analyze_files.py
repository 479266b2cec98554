"""Command lines, checkpoints, pages and words."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest

from tests.analyze.made_trials import served, trial, variant
from tests.bench.checked_html import BROWSER, Checked, draw
from tisfast.analyze.aims import Aims, Constraint
from tisfast.analyze.arguments import NOT_BENCHS, read
from tisfast.analyze.checkpoint import Checkpoint
from tisfast.analyze.explain import explained, out
from tisfast.analyze.fingerprint import files_fingerprint, folder_fingerprint
from tisfast.analyze.page import Result, page
from tisfast.analyze.ranking import Simplicity, ranking
from tisfast.analyze.space import Automatic, Axis, Space
from tisfast.analyze.subject import Subject
from tisfast.analyze.table import csv_text, table
from tisfast.analyze.trials import joined
from tisfast.analyze.variants import configured
from tisfast.analyze.written_files import check_ours, same_reason, write
from tisfast.bench.flags import parser as bench_parser
from tisfast.errors import BadRequest, ConfigError, Unavailable

SPACE = Space((Axis("instances", (1, 2, 4)),))
OWN = ["-m", "m", "--model-repository", "models"]
SUBJECT = Subject({"m": {"max_batch_size": 8, "instance_group": [{"count": 1}]}})
SETUP = {"model": "m", "flags of bench": ["-i", "grpc"], "search space": {"instances": [1, 2]}}
ROWS = [
    trial({}, 4, 100, p99=40, served=served(queue=900, infer=100)),
    trial({"instances": 4}, 8, 380, p99=20, served=served(queue=100, infer=105), memory_mb=88.0),
    trial({"instances": 2}, 8, 190, p99=30, served=served(queue=500, infer=100), stable=False, reason="it drifts"),
    trial({"instances": 5}, 8, 0, failure="no room <for> it"),
]


def ranked(rows=ROWS, aims=None):
    return ranking(rows, aims or Aims(), Simplicity(SPACE))


def test_a_whole_command_line():
    given = read(
        [*OWN, "--instances", "1:3", "--queue-delays", "0,100", "--preferred-batch-sizes", "4,8", "--set", "a.b=1,2"]
        + ["--concurrency", "2,4", "--latency-budget", "50", "--min-throughput", "10", "--max-memory", "500"]
        + ["--objective", "perf_throughput=2", "--objective", "p99", "--constraint", "latency_avg<=9", "-i", "grpc"]
        + ["--shape", "A:4", "-p", "300"]
    )
    assert [(axis.name, axis.values) for axis in given.space.axes] == [
        ("instances", (1, 2, 3)),
        ("preferred_batch_size", ("[4, 8]",)),
        ("max_queue_delay_microseconds", (0, 100)),
        ("a.b", (1, 2)),
    ]
    assert given.aims.objectives == (("throughput", 2.0), ("latency_p99", 1.0))
    assert [each.text for each in given.aims.constraints] == [
        "latency_avg <= 9 ms",
        "latency_p99 <= 50 ms",
        "throughput >= 10/s",
        "memory <= 500 MB",
    ]
    assert given.asked.address.grpc
    assert given.asked.settings.window_ms == 300
    assert given.asked.data.shapes == (("A", (4,)),)
    assert read(OWN).asked.settings.window_ms == 1000


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--model-repository", "models"], "-m: the model must be given"),
        (["-m", "m"], "give either --model-repository"),
        ([*OWN, "-u", "localhost:8000"], "give either --model-repository"),
        (["-m", "m", "-u", "localhost:8000", "--max-memory", "1"], "the processes of one at -u are not known"),
        (["-m", "m", "-u", "192.0.2.1:8000", "--max-gpu-memory", "1"], "http://192.0.2.1:8000 is another one"),
        (["-m", "m", "-u", "192.0.2.1:8000", "--objective", "gpu_memory"], "leave that objective or bound out"),
        (["-m", "m", "-u", "localhost:8000", "--server-flag=--x"], "leave it out with -u"),
        ([*OWN, "--concurrency-range", "1:4"], "--concurrency-range of tisfast bench has no place here"),
        ([*OWN, "--replay", "x"], "--replay of tisfast bench has no place here"),
        ([*OWN, "--report", "x"], "report.html is in the output directory"),
        ([*OWN, "--concurrency", "1", "--request-rate", "5"], "give either --concurrency or --request-rate"),
        ([*OWN, "--set", "format=a,b"], "format is no key of a configuration; --formats A,B names the formats"),
        (["--formats", "m,n", *OWN[2:], "--set", "n:format=zz"], "format is no key of a configuration"),
        ([*OWN, "--set", "x"], "--set x: write PATH=VALUE"),
        ([*OWN, "--set", "x=[1"], "the list is no JSON"),
        ([*OWN, "--set", "x=1", "--set", "x=2"], "x is given twice"),
        ([*OWN, "--instances", "1,2", "--instances", "7"], "instances is given twice: give all its values at once"),
        ([*OWN, "--set", f"x=[{'9' * 5000}]"], "the list is no JSON (Exceeds the limit"),
        ([*OWN, "--set", "x=" + 100_000 * "["], "lists or objects lie too deep within each other"),
        ([*OWN, "--first-request", "-1"], "--first-request -1: it is a number of seconds up to 600"),
        ([*OWN, "--set", 'x={"a":1', "--set", "x=2"], "the value is no JSON"),
        ([*OWN, "--set", "x=1", "--set", "x.y=2"], "x.y is within x, which is given, too"),
        ([*OWN, "--instances", "1,2", "--set", "instance_group=[[]]"], "instance_group"),
        ([*OWN, "--queue-delays", "1", "--set", "dynamic_batching=1"], "is within dynamic_batching"),
        ([*OWN, "--request-rate", "1e12"], "--request-rate 1e12: 1e+12 cannot be; give numbers from 0.001 to 10000000"),
        ([*OWN, "--concurrency", "70000"], "--concurrency 70000: 70000 cannot be; give whole numbers from 1 to 65536"),
        ([*OWN, "--instances", "1e300"], "from 1 to 2147483647"),
        ([*OWN, "--objective", "speed"], "'speed' is no metric"),
        ([*OWN, "--objective", "throughput=0"], "a weight above 0"),
        ([*OWN, "--constraint", "latency_p99=5"], "write METRIC<=N"),
        ([*OWN, "--latency-budget", "-1"], "the bound is a number above 0"),
        ([*OWN, "--margin", "-1"], "--margin"),
        ([*OWN, "--latency-budget", "5", "--constraint", "latency_p99>=10"], "no variant can keep both"),
        ([*OWN, "--trials", "5"], "--trials 5 is of --search bayesian, and the search is quick"),
        ([*OWN, "-o", "models/out"], "the output directory models/out is within the model repository models"),
        ([*OWN, "--search", "wise"], "--search wise: it is quick or brute or bayesian"),
        ([*OWN, "--checkpoint", "old"], "resume or extend or new"),
        ([*OWN, "--best", "0"], "--best 0: it is at least 1"),
        ([*OWN, "--trials", "0"], "--trials 0"),
        ([*OWN, "--confirm", "-1"], "--confirm -1: it is from 0 to 100"),
        ([*OWN, "--run-config-search-max-instance-count", "0"], "a least of 1 or more"),
        ([*OWN, "--run-config-search-max-concurrency", "1000000"], "a most of 65536 or less"),
        ([*OWN, "--no-such-flag"], "no-such-flag"),
    ],
)
def test_what_is_wrong_is_told(flags, told):
    with pytest.raises(ConfigError, match=r".*") as error:
        read(flags)
    assert told in str(error.value)


def test_flags_without_a_place_are_flags_of_bench():
    assert set(NOT_BENCHS) <= set(vars(bench_parser().parse_args([])))


def test_a_checkpoint_keeps_rows(tmp_path):
    made = Checkpoint.opened(tmp_path, SETUP, "resume")
    rows = [joined(ROWS[0], ROWS[0], 1), *ROWS[1:]]
    for each in rows:
        made.add(each)
    made.save()
    again = Checkpoint.opened(tmp_path, SETUP, "resume")
    assert list(again.trials.values()) == rows
    assert Checkpoint.opened(tmp_path, SETUP, "new").trials == {}


def test_a_checkpoint_tells_all_levels_apart(tmp_path):
    made = Checkpoint.opened(tmp_path, SETUP, "resume")
    levels = (1, 1000001, 1000002, 0.1, 0.1000001)
    for level in levels:
        made.add(trial({}, level, 100))
    assert [each.level for each in made.trials.values()] == list(levels)
    assert trial({}, 1000001, 1).load == "concurrency 1000001"
    made.save()
    assert len(Checkpoint.opened(tmp_path, SETUP, "resume").trials) == len(levels)


@pytest.mark.parametrize(
    "change",
    [
        {"throughput": "x"},
        {"throughput": True},
        {"failure": 5},
        {"latency_ms": {"p99": "x"}},
        {"rounds": [5]},
        {"rounds": [{"turn": 1, "throughput": "x", "latency_ms": {}, "memory_mb": None, "models": {}}]},
        {"level": None},
        {"memory_mb": "much"},
        {"throughput": 10**400},
        {"variant": {"instances": 1.5}},
        {"served": {"queue_us": 1}},
        {"models": {"a": {"throughput": 1, "latency_ms": {}, "supported": 1, "served": None}}},
    ],
    ids=json.dumps,
)
def test_a_row_of_other_types_is_refused(tmp_path, change):
    made = Checkpoint.opened(tmp_path, SETUP, "resume")
    made.add(ROWS[0])
    made.save()
    file = tmp_path / "checkpoint.json"
    document = json.loads(file.read_text())
    document["trials"][0].update(change)
    file.write_text(json.dumps(document))
    with pytest.raises(BadRequest, match="has a row that cannot be read"):
        Checkpoint.opened(tmp_path, SETUP, "resume")


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    Checkpoint.opened(tmp_path, SETUP, "resume").save()
    wider, other = {**SETUP, "search space": {}}, {**SETUP, "model": "n"}
    for mode, setup, told in (
        ("resume", wider, "is of another run, as search space differs"),
        ("resume", other, "as model differs: it has m, and now it is n"),
        ("extend", other, "as model differs"),
    ):
        with pytest.raises(BadRequest, match=told):
            Checkpoint.opened(tmp_path, setup, mode)
    Checkpoint.opened(tmp_path, wider, "extend")
    file = tmp_path / "checkpoint.json"
    whole = file.read_text()
    for text, told in (
        (whole[:-20], r"it was changed or cut; take another --output-directory, or --checkpoint new"),
        ("[]", "is no checkpoint of this version"),
        (whole.replace("analyze 3", "analyze 2"), "is no checkpoint of this version"),
        (whole.replace('"trials": []', '"trials": [{"variant": {}}]'), "has a row that cannot be read"),
    ):
        file.write_text(text)
        with pytest.raises(BadRequest, match=told):
            Checkpoint.opened(tmp_path, SETUP, "resume")


def test_words_stand_on_figures():
    said = "\n".join(explained(ranked(), ROWS, Aims(), SUBJECT))
    assert "Best: instances 4, at concurrency 8: 380 inferences/s, p99 20 ms" in said
    assert "3.8 times as good by throughput" in said
    assert "90 % of its 1 ms in the server waiting in the queue and 100 µs computing; now it is 49 % of 205 µs" in said
    assert "1: 100/s with 100 µs for an execution, 2: 190/s" in said
    assert "instances 5 is out: no room <for> it." in said


def test_a_variant_with_one_level_that_failed_is_not_out():
    rows = [*ROWS[:2], trial({"instances": 4}, 16, 0, failure="3 of 9 requests failed")]
    said = "\n".join(explained(ranked(rows), rows, Aims(), SUBJECT))
    assert "is out" not in said
    assert "instances 4 failed at concurrency 16, and its other levels count: 3 of 9 requests failed." in said
    text = page(Result("m", ranked(rows), rows, Aims(), [], "All was done.", {}, []))
    assert "<td>3 of 9 requests failed</td>" in text
    assert '<b class="good">0</b>of them have no figures' in text


def test_a_variant_that_is_out_is_a_row_with_its_reason():
    gone = out(ranked(), ROWS).values()
    last = list(csv.DictReader(io.StringIO(csv_text(1, SUBJECT, ranked(), gone))))[-1]
    assert (last["Model"], last["Model Config"], last["Concurrency"]) == ("m", "instances 5", "8")
    assert (last["Satisfies Constraints"], last["Throughput (infer/sec)"]) == ("No", "")
    assert last["Failure"] == "no room <for> it"
    variants = page(Result("m", ranked(), ROWS, Aims(), [], "", {}, [])).partition("<h2>Variants</h2>")[2]
    assert "<tr><td>instances 5</td>" in variants.partition("</section>")[0]
    assert "<td>no room &lt;for&gt; it</td></tr>" in variants.partition("</section>")[0]


def test_preferred_batches_that_the_server_fills_in_follow_the_maximum():
    def batching(sizes, **settings):
        config = {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": sizes}}
        return configured(variant(**settings), config)["dynamic_batching"].get("preferred_batch_size")

    assert batching([8], max_batch_size=32) is None
    assert batching([8], max_batch_size=4) is None
    assert batching([8], max_batch_size=8) == [8]  # the default itself, which is measured once
    assert batching([4], max_batch_size=32) == [4]
    assert batching([8], max_batch_size=32, preferred_batch_size="[8]") == [8]


def test_preferred_batches_of_the_file_that_bound_larger_ones_are_told():
    rows = [trial({}, 8, 100), trial({"max_batch_size": 32}, 8, 130)]
    for sizes, told in (([4], True), ([8], False)):
        config = {"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": sizes}}
        said = " ".join(explained(ranked(rows), rows, Aims(), Subject({"m": config})))
        assert ("preferred_batch_size [4], which bounds the batches of max_batch_size 32 to 4 samples" in said) is told


def test_a_gain_that_may_be_chance_is_told_in_the_headline_and_on_the_page():
    once = [trial({}, 8, 100), trial({"instances": 2}, 8, 121)]
    surely = once
    for turn in (1, 2, 3):
        surely = [joined(each, trial({}, 8, each.throughput + turn), turn) for each in surely]
    for rows, told in ((once, True), (surely, False)):
        headline = explained(ranked(rows), rows, Aims(), SUBJECT)[0]
        assert ("a gain of +21 % by throughput, but it was measured once: it may be chance." in headline) is told
        text = page(Result("m", ranked(rows), rows, Aims(), [], "", {}, []))
        assert ("gain against the default, measured once" in text) is told


def test_values_of_headers_are_kept_nowhere():
    given = read([*OWN, "-H", "Authorization: Bearer secret", "-HX-Key:other", "-b", "2"])
    assert given.bench == {"headers": ["Authorization", "X-Key"], "batch_size": 2}
    assert given.asked.headers == (("Authorization", "Bearer secret"), ("X-Key", "other"))


def test_files_have_a_fingerprint(tmp_path):
    """Of the names, sizes and times of all files below a folder; bytecode, which comes by itself, is none."""
    weights = tmp_path / "1" / "model.pt"
    weights.parent.mkdir()
    weights.write_text("one")
    before, input_before = folder_fingerprint(tmp_path), files_fingerprint([str(weights), str(tmp_path / "no")])
    (tmp_path / "1" / "__pycache__").mkdir()
    (tmp_path / "1" / "__pycache__" / "x.pyc").write_text("x")
    assert folder_fingerprint(tmp_path) == before
    weights.write_text("longer")
    assert folder_fingerprint(tmp_path) != before
    assert files_fingerprint([str(weights), str(tmp_path / "no")]) != input_before
    times = os.stat(weights).st_mtime_ns
    before = folder_fingerprint(tmp_path)
    os.utime(weights, ns=(times, times + 1))
    assert folder_fingerprint(tmp_path) != before


def test_a_row_that_is_measured_again_has_the_figures_of_its_turns():
    once, more = trial({}, 4, 100, p99=40), trial({}, 4, 130, p99=10, stable=False, reason="it drifts")
    twice = joined(once, more, 1)
    assert (twice.throughput, len(twice.turns)) == (130, 1)
    assert [(each.turn, each.throughput) for each in twice.rounds] == [(0, 100), (1, 130)]
    assert twice.latency_ms["p99"] == 10
    assert (twice.stable, twice.reason, twice.requests) == (False, "it drifts", 1000)
    twice = joined(joined(twice, trial({}, 4, 160, p99=12), 2), trial({}, 4, 161, p99=90), 3)
    assert (twice.throughput, twice.latency_ms["p99"]) == (160, 12)  # medians
    assert (twice.stable, twice.requests) == (False, 3000)
    assert (twice.first.throughput, twice.first.latency_ms) == (once.throughput, once.latency_ms)
    failed = joined(once, trial({}, 4, 0, failure="it broke"), 1)
    assert (failed.failure, failed.rounds) == ("when it was measured again, it broke", twice.rounds[:1])
    assert failed.first == once


def test_a_percentile_of_few_requests_is_marked_by_any_of_its_turns():
    rows = [trial({}, 8, 100), trial({}, 8, 100, supported=False), trial({}, 8, 100), trial({}, 8, 100)]
    for marked, turns in ((False, rows[2:]), (True, rows[1:])):
        row = trial({}, 8, 100, supported=False)  # the search's own is no part of it
        for turn, each in enumerate(turns, 1):
            row = joined(row, each, turn)
        found = ranked([row])
        assert ("~10 ms" in table(found)) is marked
        said = "\n".join(explained(found, [row], Aims(), SUBJECT))
        assert ("p99 stands on fewer than 368 requests, in one of its 3 turns" in said) is marked


def test_words_of_batches_and_of_what_did_not_help():
    single = trial({}, 8, 100, served=served(infer=1000))
    many = trial({"max_batch_size": 8}, 8, 500, served=served(infer=1600, inferences=800))
    said = "\n".join(explained(ranked([single, many]), [], Aims(), SUBJECT))
    assert "Batches grew from 1 to 8 samples (100 % of 8): a sample costs an instance 200 µs instead of 1 ms" in said
    crowded = trial({"instances": 4}, 8, 99, served=served(infer=4000))
    said = "\n".join(explained(ranked([single, crowded]), [], Aims(), SUBJECT))
    assert "It is the default: no variant is better by more than 3 %" in said
    assert "Executions take 4 times as long with the most" in said
    for count, hinder in ((1, False), (2, True)):  # one has nobody beside it
        slower = trial({"instances": count}, 8, 200, served=served(infer=2000))
        said = "\n".join(explained(ranked([single, slower]), [], Aims(), SUBJECT))
        assert ("the instances hinder each other" in said) is hinder
    assert explained([], [], Aims(), SUBJECT) == ["No variant could be measured, so nothing can be said of them."]


def test_the_csv_has_the_count_that_is_in_force():
    """Where the whole group is the setting: a kind and a count, as of Model Analyzer's `count: [3]`."""
    rows = [trial({"instance_group": '[{"count": 3, "kind": "KIND_CPU"}]'}, 8, 190), trial({}, 8, 100)]
    found = ranking(rows, Aims(), Simplicity(SPACE))
    table_rows = list(csv.DictReader(io.StringIO(csv_text(1, SUBJECT, found))))
    assert [row["Instance Group"] for row in table_rows] == ["3", "1"]
    assert "By instances, the best of each: 1: 100/s, 3: 190/s." in explained(found, rows, Aims(), SUBJECT)


def test_the_table_and_the_csv():
    text = table(ranked())
    assert text.splitlines()[1].split()[:4] == ["1", "instances", "4", "concurrency"]
    assert "not stable" in text
    rows = list(csv.DictReader(io.StringIO(csv_text(1, SUBJECT, ranked()))))
    assert [row["Instance Group"] for row in rows] == ["4", "2", "1"]
    assert {row["Max Batch Size"] for row in rows} == {"8"}


def test_the_page_is_whole_and_shows_the_bound():
    aims = Aims(constraints=(Constraint("latency_p99", 35, True),))
    found = ranked(aims=aims)
    many = [trial({"instances": at}, 8, 50 + at) for at in range(10, 20)]
    for rows in (ROWS, [*ROWS, *many], []):
        order = ranked(rows, aims) if rows else []
        text = page(Result("m<1>", order, rows, aims, ["Because."], "All was done.", {"model": "m"}, ["a: 1 -> 2"]))
        checked = Checked()
        checked.feed(text)
        assert not checked.open or set(checked.open) <= {"circle", "polyline", "line", "rect", "i"}
        assert "script" not in checked.tags
        assert ('class="bound"' in text) is bool(rows)
        assert ("the others" in text) is (len(rows) > 8)
        assert "inferences and latencies are medians, also p99; batch and queue are of all their requests" in text
        assert "m<1>" not in text
    assert found[0].trial.variant.text == "instances 4"


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_draws_the_page_without_a_complaint(tmp_path, width):
    aims = Aims(constraints=(Constraint("latency_p99", 35, True), Constraint("throughput", 150, False)))
    result = Result("m", ranked(aims=aims), ROWS, aims, ["Because."], "All was done.", {"model": "m"}, ["-count: 1"])
    draw(page(result), tmp_path, width)


@pytest.mark.parametrize(
    ("name", "theirs", "ours"),
    [
        ("report.html", "<title>My notes</title>", page(Result("m", [], [], Aims(), [], "", {}, []))),
        ("results.csv", "a,b\n1,2\n", csv_text(1, SUBJECT, [])),
        ("checkpoint.json", '{"weights": 1}', '{"schema": "tisfast analyze 1"}'),
        ("best/1/config.pbtxt", 'name: "mine"', "# rank 1 of tisfast analyze"),
        ("best/2/m/config.pbtxt", 'name: "mine"', "# rank 1 of tisfast analyze"),
    ],
)
def test_what_a_person_made_is_not_replaced(tmp_path, name, theirs, ours):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(ours)
    check_ours(tmp_path)
    file.write_text(theirs)
    with pytest.raises(BadRequest, match="tisfast analyze has not written it"):
        check_ours(tmp_path)


def test_a_checkpoint_that_was_cut_is_ours(tmp_path):
    Checkpoint.opened(tmp_path, SETUP, "new").save()
    file = tmp_path / "checkpoint.json"
    file.write_text(file.read_text()[:-20])
    check_ours(tmp_path)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("optimization.priority=FOO", "optimization.priority"),
        ("dynamic_batching.max_queue_delay_microsecond=1", "did you mean 'max_queue_delay_microseconds'?"),
        ("max_batchsize=1", "did you mean 'max_batch_size'?"),
        ("input=1", "'input' takes a list"),
        ("name=a,b", "it is the name of the model's folder, 'm'"),
        ("foo.bar=1,2", "unknown key 'foo'"),
    ],
)
def test_settings_that_no_configuration_has_are_refused(setting, told):
    space = read([*OWN, "--set", setting]).space
    with pytest.raises(BadRequest) as error:
        SUBJECT.space(space, Automatic())
    assert told in str(error.value)


def test_a_setting_that_a_configuration_has_is_searched():
    for setting in ("parameters.x=1,a", "dynamic_batching.preserve_ordering=true,false", "backend=python,onnx"):
        assert SUBJECT.space(read([*OWN, "--set", setting]).space, Automatic()).count == 2


def test_a_full_disk_is_told_with_what_helps(tmp_path):
    """The checkpoint's error and a report's have one reason, so that it is said once."""
    for name in ("checkpoint.json", "results.csv"):
        (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(Unavailable) as first:
        Checkpoint(tmp_path, SETUP).save()
    with pytest.raises(Unavailable) as second:
        write(tmp_path / "results.csv", "x")
    for error in (first, second):
        assert "(No space left on device): make room there, or name another output directory with -o" in str(
            error.value
        )
    assert same_reason(first.value, second.value)
    assert not same_reason(first.value, Unavailable(f"{tmp_path} could not be written (Permission denied): x"))
