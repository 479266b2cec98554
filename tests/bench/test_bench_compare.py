"""`tisfast bench compare`: real differences are found, chance is not, and wrong files are named."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from tests.bench.made_levels import latencies, level_of, run_of
from tisfast.bench.compare import compare, main
from tisfast.bench.documents import read_run
from tisfast.bench.json_output import document_text, profile_export
from tisfast.bench.results import Level, Target

RUN = document_text(run_of(level_of(latencies(1000))))


def written(path, *levels, target=None):
    path.write_text(document_text(run_of(*levels, target=target)))
    return str(path)


def of(tmp_path, name, median_us=1000, seed=1, requests=100, **more):
    return written(tmp_path / name, level_of(latencies(median_us, seed=seed, requests=requests, windows=80), **more))


def run(*arguments) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return main(arguments, out, err), out.getvalue(), err.getvalue()


def test_equal_runs_are_the_same(tmp_path):
    code, out, _ = run(of(tmp_path, "a.json"), of(tmp_path, "b.json", seed=2), "--margin", "10")

    assert code == 0
    assert out.count("same within 10 %") == 6
    assert "No figure is worse" in out


def test_a_slower_run_is_a_regression(tmp_path):
    code, out, _ = run(of(tmp_path, "a.json"), of(tmp_path, "b.json", median_us=1100, seed=2, requests=90))

    assert code == 4
    assert "REGRESSION: p50 usec at concurrency 4 is worse by " in out
    assert "REGRESSION: infer/sec at concurrency 4 is worse by 10.0 %" in out


def test_a_faster_run_is_better(tmp_path):
    code, out, _ = run(of(tmp_path, "a.json"), of(tmp_path, "b.json", median_us=800, seed=2, requests=130))

    assert code == 0
    assert out.count("better") >= 5


def test_what_fails_is_stated(tmp_path):
    a, b = of(tmp_path, "a.json"), of(tmp_path, "b.json", median_us=1100, seed=2)

    assert run(a, b, "--fail-above", "20")[0] == 0
    assert run(a, b, "--fail-above", "5")[0] == 4


def test_the_margin_hides_no_regression(tmp_path):
    a, b = of(tmp_path, "a.json"), of(tmp_path, "b.json", median_us=1040)

    code, out, _ = run(a, b, "--margin", "10", "--fail-above", "2")

    assert code == 4
    assert "REGRESSION: p50 usec at concurrency 4 is worse by " in out


def test_the_ratio_of_the_medians_is_in_its_interval(tmp_path):
    a, b = of(tmp_path, "a.json"), of(tmp_path, "b.json", median_us=1200, seed=3)
    rows = {row.name: row for row in compare([read_run(a)], [read_run(b)], 5.0)}

    assert rows["p50 usec"].ratio.low <= 1.2 <= rows["p50 usec"].ratio.high
    assert rows["p50 usec"].p < 0.001


def test_chance_is_no_regression(tmp_path):
    """Of many runs of one server hardly one is called worse."""
    found = 0
    for seed in range(30):
        a, b = of(tmp_path, "a.json", seed=100 + 2 * seed), of(tmp_path, "b.json", seed=101 + 2 * seed)
        found += [row.verdict for row in compare([read_run(a)], [read_run(b)], 0.1)].count("worse")
    assert found <= 3  # of 30 x 6 figures


def test_perf_analyzers_export_is_read_too(tmp_path):
    paths = []
    for number, step in enumerate((1_000_000, 1_300_000)):
        level = level_of(latencies(1000, windows=60, requests=50, seed=number))
        records = np.concatenate(level.records)
        records["sent"] = level.began_ns + np.arange(len(records)) * 2_000_000
        records["last"] = records["sent"] + step + np.arange(len(records)) % 7 * 10_000
        level = replace(level, records=(records,))
        path = tmp_path / f"{number}.json"
        path.write_text("".join(profile_export(run_of(level), "2.41.1")))
        paths.append(str(path))

    code, out, _ = run(*paths)

    assert code == 4
    assert "REGRESSION: mean usec at concurrency 4 is worse by 29" in out


def test_several_runs_of_each(tmp_path):
    a = ",".join(of(tmp_path, f"a{number}.json", seed=number) for number in range(3))
    b = ",".join(of(tmp_path, f"b{number}.json", seed=10 + number) for number in range(3))

    code, out, _ = run(a, b)

    assert code == 0
    assert "One run each" not in out


def test_one_run_may_have_a_comma_in_its_name(tmp_path):
    assert run(of(tmp_path, "a,1.json"), of(tmp_path, "b.json", seed=2), "--margin", "10")[0] == 0


def test_unlike_runs_are_refused_unless_forced(tmp_path):
    a = of(tmp_path, "a.json")
    b = written(tmp_path / "b.json", level_of(latencies(1000)), target=Target("x", "grpc", "add_sub"))

    code, _, err = run(a, b)
    assert code == 99
    assert f"the protocol is 'http' in {a} and 'grpc' in {b}" in err
    assert run(a, b, "--force")[0] == 0


def test_no_level_in_common(tmp_path):
    a, b = of(tmp_path, "a.json"), of(tmp_path, "b.json", level=Level("request_rate", 50.0))

    code, _, err = run(a, b)
    assert code == 99
    assert "concurrency 4" in err and "request rate 50" in err


def test_too_short_runs_are_not_compared(tmp_path):
    short = written(tmp_path / "a.json", level_of(latencies(1000, windows=4)))

    code, out, _ = run(short, short)
    assert code == 99
    assert "measure for longer" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON (line 1, column 2: "),
        ("[]", "no JSON object"),
        ("{}", '"schema" is None'),
        (RUN.replace("tisfast-bench/1", "tisfast-bench/9"), "'tisfast-bench/9'"),
        (RUN.replace('"windows"', '"widnows"'), "lacks the key 'windows'"),
        (RUN.replace('"value":4.0', '"value":"x"'), "another kind"),
        (RUN.replace("VEZIM", "AAAAA"), "no histogram"),
        ('{"experiments": [{"experiment": {"mode": "concurrency"}}]}', "lacks the key 'value'"),
        ('{"experiments": 3}', "another kind"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, text, said):
    good, bad = of(tmp_path, "a.json"), tmp_path / "bad.json"
    bad.write_text(text)

    code, _, err = run(good, str(bad))

    assert code == 99
    assert said in err and str(bad) in err
    assert err.count("\n") == 1


def test_a_missing_file_and_wrong_flags(tmp_path):
    good = of(tmp_path, "a.json")

    assert "cannot be read (No such file or directory)" in run(good, str(tmp_path / "none"))[2]
    assert run(good, good, "--margin", "x")[0] == 99
    assert "--margin is -1" in run(good, good, "--margin", "-1")[2]
    assert run(good)[0] == 99
    assert run(good, good, "--unknown")[0] == 99
    assert run("--help")[0] == 0


def test_one_run_each_has_no_line_about_pairs(tmp_path):
    assert "in each pair" not in run(of(tmp_path, "a.json"), of(tmp_path, "b.json"))[1]


def test_runs_of_other_requests_are_not_compared(tmp_path):
    paths = []
    for name, more in (("a.json", ("--shape", "A:4")), ("b.json", ("--shape", "A:4000", "-p", "300", "--json", "x"))):
        path = tmp_path / name
        alike = run_of(level_of(latencies(1000, windows=80)))
        path.write_text(document_text(replace(alike, arguments=(*alike.arguments, *more))))
        paths.append(str(path))

    code, _, err = run(*paths)

    assert code == 99
    assert """the --shape is "['A:4']" in""" in err
    assert run(*paths, "--force")[0] == 0
    assert run(paths[0], paths[0])[0] == 0
