"""`tisfast analyze --formats`: one model in several formats, ranked in one table."""

from __future__ import annotations

import csv

import tritonclient.http as httpclient

from tests.system.analyze_models import ALONE, PLAIN, SHORT, analyze

FASTER = ALONE.replace("0.02", "0.002")
LOAD = ("--concurrency", "8", "--search", "brute")


def rows(folder):
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


def test_the_faster_format_with_its_own_settings_is_the_best(tmp_path, write_model):
    write_model("slow", ALONE, PLAIN)
    write_model("fast", FASTER, PLAIN)
    out = tmp_path / "out"
    own = ("--formats", "slow,fast", "--model-repository", tmp_path / "models", "-o", out, *SHORT, *LOAD)
    code, text, err = analyze(*own, "--instances", "fast:1,4", "--explain")
    assert (code, err) == (0, ""), text
    found = rows(out)
    assert [row["Model"] for row in found] == ["fast", "fast", "slow"], text  # each once, as slow has no settings
    assert found[0]["Model Config"] == "format fast, fast:instances 4"
    written = (out / "best/1/config.pbtxt").read_text()
    assert 'name: "fast"' in written
    assert "count: 4" in written
    assert "By formats, the best of each: fast: " in text


def test_a_running_server_has_all_formats_in_the_end(tmp_path, write_model, serve):
    write_model("slow", ALONE, PLAIN)
    write_model("fast", FASTER, PLAIN)
    server = serve("--model-control-mode=explicit", "--load-model=slow", "--load-model=fast").ready()
    url = f"127.0.0.1:{server.port}"
    own = ("--formats", "slow,fast", "-u", url, "-o", tmp_path / "out")
    code, text, err = analyze(*own, *SHORT, *LOAD, "--instances", "1")
    assert (code, err) == (0, ""), text
    assert rows(tmp_path / "out")[0]["Model"] == "fast"
    with httpclient.InferenceServerClient(url) as client:
        assert client.is_model_ready("slow")
        assert client.is_model_ready("fast")


def test_a_format_that_does_not_load_is_a_row(tmp_path, write_model):
    write_model("slow", ALONE, PLAIN)
    write_model("broken", "raise ValueError('no such runtime here')", PLAIN)
    write_model("fast", FASTER, PLAIN)
    out = tmp_path / "out"
    own = ("--formats", "slow,broken,fast", "--model-repository", tmp_path / "models", "-o", out, *SHORT, *LOAD)
    code, text, err = analyze(*own, "--instances", "1", "--explain")
    assert (code, err) == (0, ""), text
    assert [row["Model"] for row in rows(out)] == ["fast", "slow", "broken"]
    assert "format broken is out: it could not be loaded: " in text
    assert "no such runtime here" in (out / "report.html").read_text()
    code, _, err = analyze(*own, "--formats", "broken,fast", "--instances", "1")
    assert code == 99  # without the default there is nothing to compare with
    assert "no such runtime here" in err


def test_models_that_are_not_the_same_are_refused(tmp_path, write_model):
    write_model("one", ALONE, PLAIN)
    write_model("other", ALONE, PLAIN.replace("TYPE_FP32", "TYPE_FP64", 1))
    code, _, err = analyze("--formats", "one,other", "--model-repository", tmp_path / "models", "-o", tmp_path / "out")
    assert code == 99
    assert "'A' of the inputs is FP64 [4] in model 'other' and FP32 [4] in 'one': they are not the same model" in err


def test_climbing_tries_every_format(tmp_path, write_model):
    """The second one is worse than the default, and the third one the best."""
    for name, seconds in (("mid", "0.02"), ("slow", "0.04"), ("fast", "0.002")):
        write_model(name, ALONE.replace("0.02", seconds), PLAIN)
    flags = ("--concurrency", "1", "--search", "quick", "--instances", "1")
    own = ("--formats", "mid,slow,fast", "--model-repository", tmp_path / "models", "-o", tmp_path / "out")
    code, text, err = analyze(*own, *SHORT, *flags, "--explain")
    assert (code, err) == (0, ""), text
    assert [row["Model"] for row in rows(tmp_path / "out")] == ["fast", "mid", "slow"], text
