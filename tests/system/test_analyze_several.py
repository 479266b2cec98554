"""`tisfast analyze` of several models that are served together, and of one model in several formats."""

from __future__ import annotations

import csv
import json

import pytest
import tritonclient.http as httpclient

from tests.system.analyze_models import ALONE, BATCHED, PLAIN, SHORT, TOGETHER, analyze

LOAD = ("--concurrency", "12", "--search", "brute")


def rows(folder):
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


@pytest.fixture
def two(tmp_path, write_model):
    """Two models: `many` is faster with instances, `wide` with batches.  Gives the repository and a folder."""
    write_model("many", ALONE, PLAIN)
    write_model("wide", TOGETHER, BATCHED)
    return tmp_path / "models", tmp_path / "out"


def test_models_that_share_a_server_are_searched_together(two):
    """Each one holds up the other in a closed loop, so only both settings together win, by a factor of 2 or more."""
    repository, out = two
    own = ("-m", "many,wide", "--model-repository", repository, "-o", out, *SHORT, *LOAD[:2], "--search", "quick")
    flags = ("--instances", "many:1,4", "--max-batch-sizes", "wide:1,8", "--explain")
    code, text, err = analyze(*own, *flags)
    assert (code, err) == (0, ""), text
    found = rows(out)
    assert [row["Model"] for row in found[:2]] == ["many", "wide"]
    assert found[0]["Model Config"] == "many:instances 4, wide:max_batch_size 8", text
    assert (found[0]["Instance Group"], found[1]["Max Batch Size"]) == ("4", "8")
    share = float(found[1]["Throughput (infer/sec)"]) / float(found[0]["Throughput (infer/sec)"])
    assert 0.5 < share < 2  # half of the requests are for each, drawn by chance
    assert "count: 4" in (out / "best/1/many/config.pbtxt").read_text()
    assert "max_batch_size: 8" in (out / "best/1/wide/config.pbtxt").read_text()
    assert "Of wide: " in text
    page = (out / "report.html").read_text()
    assert "many:" in page
    assert "<td>  wide</td>" in page
    assert len(json.loads((out / "checkpoint.json").read_text())["trials"]) == 4  # of 2 times 2
    code, text, _ = analyze(*own, *flags)
    assert code == 0
    assert "4 measurements are taken from" in text


def test_figures_of_another_mix_are_not_taken(two, tmp_path):
    repository, out = two
    mix = tmp_path / "mix.json"
    own = ("--mix", mix, "--model-repository", repository, "-o", out, *SHORT, "--concurrency", "2", "--search", "brute")
    for number, code in ((1, 0), (1, 0), (2, 99)):
        models = [{"model": "many", "parameters": {"number": number}}, {"model": "wide"}]
        mix.write_text(json.dumps({"models": models}))
        found, text, err = analyze(*own, "--instances", "many:1,2")
        assert found == code, (text, err)
    assert "as requests of the models differs" in err


def test_configurations_of_other_models_do_not_stay_beside(two):
    repository, out = two
    flags = ("--model-repository", repository, "-o", out, *SHORT, "--concurrency", "2", "--instances", "1,2")
    own = out / "best" / "1" / "mine.txt"
    for models, files in (
        ("many", ["1/config.pbtxt"]),
        ("many,wide", ["1/many/config.pbtxt", "1/mine.txt", "1/wide/config.pbtxt"]),
        ("wide", ["1/config.pbtxt", "1/mine.txt"]),
    ):
        code, text, err = analyze("-m", models, *flags, "--best", "1", "--checkpoint", "new")
        assert (code, err) == (0, ""), text
        found = sorted(str(file.relative_to(out / "best")) for file in out.glob("best/**/*") if file.is_file())
        assert found == files
        own.write_text("somebody else's")


def test_a_bound_of_one_model_decides(two):
    """`many` has most of the load: with one instance ten requests wait for 200 ms there, with 4 for 30 ms."""
    repository, out = two
    code, text, err = analyze(
        *("-m", "many=3,wide", "--model-repository", repository, "-o", out, *SHORT, *LOAD),
        *("--instances", "many:1,4", "--objective", "throughput", "--constraint", "many:latency_avg<=90"),
    )
    assert (code, err) == (0, ""), text
    assert rows(out)[0]["Model Config"] == "many:instances 4", text
    assert "many:latency_avg is " in text


def test_a_running_server_gets_all_configurations_back(two, serve):
    _, out = two
    server = serve("--model-control-mode=explicit", "--load-model=many", "--load-model=wide").ready()
    url = f"127.0.0.1:{server.port}"
    with httpclient.InferenceServerClient(url) as client:
        before = [client.get_model_config(name) for name in ("many", "wide")]
        code, text, err = analyze("-m", "many,wide", "-u", url, "-o", out, *SHORT, *LOAD, "--instances", "1,2")
        assert (code, err) == (0, ""), text
        assert [client.get_model_config(name) for name in ("many", "wide")] == before
    assert len({row["Model Config"] for row in rows(out)}) == 4
