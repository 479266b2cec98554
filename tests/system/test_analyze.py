"""`tisfast analyze` finds the known best of made models, and leaves a running server as it was."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess

import pytest
import tritonclient.http as httpclient

from tests.system.analyze_models import (
    ALONE,
    BATCHED,
    HANGING,
    KILLER,
    PLAIN,
    SECONDS_MAX,
    SHARED,
    SHORT,
    SMALL,
    TOGETHER,
    analyze,
    started,
)
from tests.system.helpers import until
from tisfast.config.error_report import Report
from tisfast.config.pbtxt import parse_text


def best(folder):
    """The variants in the order of results.csv."""
    return [row["Model Config"] for row in csv.DictReader((folder / "results.csv").read_text().splitlines())]


def written(folder, place=1):
    report = Report("best")
    message = parse_text((folder / "best" / str(place) / "config.pbtxt").read_text(), report)
    report.raise_if_any()
    return message


@pytest.fixture
def search(tmp_path, write_model):
    """Search a made model with a server of its own: exit code, output, errors and the output directory."""

    def searched(code: str, config: str, *flags: object):
        write_model("made", code, config)
        out = tmp_path / "out"
        repository = tmp_path / "models"
        return *analyze("-m", "made", "--model-repository", repository, "-o", out, *SHORT, *flags), out

    return searched


def test_instances_that_work_beside_each_other_are_added(search):
    code, text, err, out = search(
        ALONE, PLAIN, "--instances", "1,4", "--concurrency", "8", "--explain", "--confirm", "3"
    )
    assert (code, err) == (0, "")
    assert best(out) == ["instances 4", "default"], text
    assert written(out).instance_group[0].count == 4
    assert "Best: instances 4, at concurrency 8" in text
    assert "waiting in the queue" in text
    assert "All of the search was done: 2 variants." in text
    assert " times each: the gain by throughput is x" in text
    assert min(len(each["rounds"]) for each in json.loads((out / "checkpoint.json").read_text())["trials"]) > 3
    page = (out / "report.html").read_text()
    assert "instances 4, concurrency 8: " in page
    assert "http" not in page.split("<body>")[0]


def test_batches_are_made_where_an_execution_costs_the_same(search):
    code, text, err, out = search(TOGETHER, BATCHED, "--max-batch-sizes", "1,8", "--concurrency", "8", "--explain")
    assert (code, err) == (0, "")
    assert best(out)[0] == "max_batch_size 8", text
    found = written(out)
    assert found.max_batch_size == 8
    assert found.HasField("dynamic_batching")
    assert "so executing samples together is cheaper" in text


def test_instances_that_hinder_each_other_are_not_added(search):
    code, text, err, out = search(
        SHARED, PLAIN, "--instances", "1:3", "--concurrency", "4", "--search", "brute", "--explain"
    )
    assert (code, err) == (0, "")
    assert best(out)[0] == "default", text
    assert len(best(out)) == 3
    assert "It is the default" in text


def test_a_bound_of_latency_decides(search):
    """8 requests in flight wait for each other: with 1 instance 160 ms, with 4 instances 40 ms."""
    flags = ("--instances", "1,4", "--concurrency", "1,8", "--search", "brute")
    code, _, err, out = search(ALONE, PLAIN, *flags, "--constraint", "latency_avg<=30")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert {(row["Model Config"], row["Concurrency"]) for row in rows} == {("default", "1"), ("instances 4", "1")}
    repository = out.parent / "models"
    code, text, _ = analyze(
        "-m", "made", "--model-repository", repository, "-o", out, *SHORT, *flags, "--latency-budget", "1"
    )
    assert code == 1
    assert "measurements are taken from" in text
    assert "latency_p99 is " in text


def test_a_file_of_model_analyzers_and_the_sampler(tmp_path, write_model):
    write_model("made", ALONE, PLAIN)
    file = tmp_path / "config.yaml"
    file.write_text(f"""
model_repository: {tmp_path / "models"}
export_path: {tmp_path / "out"}
run_config_search_mode: optuna
optuna_max_trials: 3
profile_models:
  made:
    parameters: {{concurrency: [8]}}
    model_config_parameters:
      instance_group: [{{count: [1, 2, 4]}}]
""")
    code, text, err = analyze("-f", file, *SHORT)
    assert (code, err) == (0, "")
    assert best(tmp_path / "out")[0] == "instances 4", text


def test_a_variant_that_does_not_load_is_a_row(search):
    code, text, err, out = search(SMALL, PLAIN, "--instances", "1:4", "--concurrency", "8", "--search", "brute")
    assert code == 0, text + err
    assert best(out) == ["instances 2", "default", "instances 3", "instances 4"], text
    assert "no room for a third instance" in (out / "results.csv").read_text().splitlines()[-1]
    assert "failed: instances 3, concurrency 8: " in text
    assert "no room for a third instance" in text
    assert "no room for a third instance" in (out / "report.html").read_text()


def test_where_all_variants_fail_the_exit_code_tells(search):
    """Also where the default is one of the values that are searched."""
    code, text, err, out = search(ALONE, PLAIN, "--set", "backend=python,nosuch", "--concurrency", "1")
    assert code == 3, text + err
    assert "no variant but the default could be measured; the lines with 'failed:' have the reasons" in err
    (line,) = [each for each in text.splitlines() if each.startswith('failed: backend "nosuch", concurrency 1: ')]
    assert line.partition("1: ")[2] in (out / "results.csv").read_text().replace('""', '"')


def test_where_there_is_no_other_variant_the_exit_code_tells(search):
    code, text, err, _ = search(ALONE, PLAIN, "--instances", "1,1", "--concurrency", "1")
    assert code == 3, text + err
    assert "what is searched has no other configuration: name more values" in err


def test_batches_grow_with_the_maximum_where_the_file_leaves_their_size_to_the_server(search):
    config = PLAIN + "max_batch_size: 2\ndynamic_batching { }\n"
    code, text, err, out = search(TOGETHER, config, "--max-batch-sizes", "2,8", "--concurrency", "8")
    assert (code, err) == (0, ""), text
    assert best(out) == ["max_batch_size 8", "default"], text
    assert not written(out).dynamic_batching.preferred_batch_size
    assert text.count("configurations in best/1 and best/2") == 1


def test_what_is_refused_leaves_no_folder(search):
    code, _, err, out = search(ALONE, PLAIN, "--max-batch-sizes", "1,2")
    assert code == 99
    assert "has max_batch_size 0" in err
    assert not out.exists()


def test_a_server_that_a_variant_has_killed_is_started_again(search):
    flags = ("--set", 'parameters.MODE=["kill", "calm"]', "--concurrency", "1", "--search", "brute", "--margin", "0")
    code, text, _, out = search(KILLER, PLAIN, *flags)
    assert code == 0
    assert sorted(best(out)) == ["default", 'parameters.MODE "calm"', 'parameters.MODE "kill"'], text
    assert 'failed: parameters.MODE "kill", concurrency 1: the server ended with exit status -9' in text


def test_a_run_goes_on_where_it_ended(search):
    flags = ("--concurrency", "4", "--search", "brute")
    code, _, _, out = search(ALONE, PLAIN, *flags, "--instances", "1,2")
    assert code == 0
    before = json.loads((out / "checkpoint.json").read_text())["trials"]
    again = ["-m", "made", "--model-repository", out.parent / "models", "-o", out, *SHORT, *flags]
    code, _, err = analyze(*again, "--instances", "1:3")
    assert code == 99
    assert "as search space differs" in err
    code, text, _ = analyze(*again, "--instances", "1:3", "--checkpoint", "extend")
    assert code == 0
    assert "2 measurements are taken from" in text
    after = json.loads((out / "checkpoint.json").read_text())["trials"]
    assert after[:2] == before
    assert len(after) == 3
    code, text, _ = analyze(*again, "--instances", "1,3", "--checkpoint", "extend", "--best", "1")
    assert code == 0
    assert "instances 2" not in text + (out / "report.html").read_text()  # no row of this space
    assert len(json.loads((out / "checkpoint.json").read_text())["trials"]) == 3
    assert [file.parent.name for file in out.glob("best/*/config.pbtxt")] == ["1"]


def test_figures_of_other_weights_are_not_taken(search):
    flags = ("--instances", "1,2", "--concurrency", "2", "-H", "Authorization: secret")
    code, _, _, out = search(ALONE, PLAIN, *flags)
    assert code == 0
    models = out.parent / "models"
    again = ["-m", "made", "--model-repository", models, "-o", out, *SHORT, *flags]
    assert "2 measurements are taken from" in analyze(*again)[1]
    for file in out.rglob("*.*"):
        assert "secret" not in file.read_text(errors="replace"), file
    (models / "made" / "1" / "weights").write_text("new")
    for mode in ("resume", "extend"):
        code, _, err = analyze(*again, "--checkpoint", mode)
        assert code == 99
        assert "as files of the model differs" in err
    shutil.copytree(models, out.parent / "others")
    code, _, err = analyze(*again, "--model-repository", out.parent / "others")
    assert code == 99
    assert "as model repository differs" in err
    assert analyze(*again, "--checkpoint", "new")[0] == 0


def test_files_that_are_replaced_meanwhile_are_noticed(tmp_path, write_model):
    write_model("made", ALONE, PLAIN)
    models, out = tmp_path / "models", tmp_path / "out"
    flags = ("-m", "made", "--model-repository", models, "-o", out, *SHORT, "--concurrency", "1", "--instances", "2,3")
    process = started(*flags, "--search", "brute")
    try:
        next(line for line in process.stdout if line.startswith("  "))  # a row; there are two more
        (models / "made" / "1" / "weights").write_text("new")
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 2, err
    assert "error: The files of the model changed while they were measured" in err
    assert "The files of the model changed while they were measured" in (out / "report.html").read_text()
    assert analyze(*flags, "--search", "brute")[0] == 99


def test_an_interrupt_ends_all_searches_of_a_file(tmp_path, write_model):
    """Also before the first row."""
    for name in ("first", "second"):
        write_model(name, ALONE, PLAIN)
    file, out = tmp_path / "config.json", tmp_path / "out"
    file.write_text(json.dumps({"model_repository": str(tmp_path / "models"), "profile_models": ["first", "second"]}))
    process = started("-f", file, "-o", out)
    try:
        next(line for line in process.stdout if line.startswith("***"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 2, err
    assert [folder.name for folder in out.iterdir()] == ["analyze-first"]


@pytest.mark.parametrize("interrupted", [0, 1, 2], ids=["whole", "interrupted", "twice"])
def test_a_running_server_gets_its_configuration_back(tmp_path, write_model, serve, interrupted):
    write_model("made", ALONE, PLAIN)
    server = serve("--model-control-mode=explicit", "--load-model=made").ready()
    url, out = f"127.0.0.1:{server.port}", tmp_path / "out"
    flags = ["-m", "made", "-u", url, "-o", out, *SHORT, "--instances", "2:9", "--concurrency", "8"]
    with httpclient.InferenceServerClient(url) as client:
        before = client.get_model_config("made")
        process = started(*flags, "--search", "brute")
        try:
            for number in range(interrupted):
                until(lambda: client.get_model_config("made") != before, "a variant is loaded")
                process.send_signal((signal.SIGINT, signal.SIGTERM)[number])
            text, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
        assert client.get_model_config("made") == before
    assert ("Interrupt signal" in err) == bool(interrupted), err
    assert f"is loaded from the repository of http://{url}: files that a load call gave instead" in text
    if interrupted == 2:  # it may have come while the server got its configuration back
        assert process.returncode in (2, 99), err
    else:
        assert process.returncode == (2 if interrupted else 0)
    assert (out / "report.html").exists()
    assert ("It was interrupted" in text) == bool(interrupted)
    assert best(out)[-1] == "default"


@pytest.fixture
def hanging(tmp_path, write_model):
    """A search whose second variant hangs as it loads; gives the process as soon as it does."""
    write_model("made", HANGING, PLAIN)

    def search(*flags: object) -> subprocess.Popen[str]:
        process = started(
            *("-m", "made", "-o", tmp_path / "out", *SHORT, "--set", 'parameters.MODE=["hang"]', "--concurrency", "4"),
            *("--search", "brute", *flags),
        )
        until(lambda: (tmp_path / "hangs").exists() or process.poll() is not None, "a load hangs")
        return process

    return search


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_load_that_hangs_is_abandoned_with_its_server(tmp_path, hanging, number):
    """It would be waited for ten minutes; nobody reads what is printed, as behind a terminal that was closed."""
    process = hanging("--model-repository", tmp_path / "models")
    try:
        process.stdout.close()
        process.stderr.close()
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 2
    finally:
        process.kill()
    assert best(tmp_path / "out") == ["default"]
    assert "It was interrupted" in (tmp_path / "out" / "report.html").read_text()


def test_a_running_server_gets_its_configuration_back_behind_a_load_that_hangs(tmp_path, hanging, serve):
    server = serve("--model-control-mode=explicit", "--load-model=made").ready()
    url = f"127.0.0.1:{server.port}"
    with httpclient.InferenceServerClient(url) as client:
        before = client.get_model_config("made")
        process = hanging("-u", url)
        try:
            process.send_signal(signal.SIGHUP)
            text, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
        assert process.returncode == 99
        assert "has not loaded model 'made' with its configuration of before within 10 s" in err
        assert "It was interrupted" in text
        assert best(tmp_path / "out") == ["default"]
        seen = len(server.log)
        (tmp_path / "go on").touch()
        variant = server.says("successfully loaded", seen)
        server.says("successfully loaded", server.log.index(variant) + 1)
        assert client.get_model_config("made") == before


def test_a_report_is_written_though_the_models_folder_has_gone(tmp_path, hanging):
    process = hanging("--model-repository", tmp_path / "models")
    try:
        (tmp_path / "models" / "made").rename(tmp_path / "moved")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, best(tmp_path / "out")) == (2, ["default"]), err
    assert "files of the model" in (tmp_path / "out" / "report.html").read_text()


def test_a_start_that_hangs_is_given_up(tmp_path, write_model):
    write_model("made", HANGING.replace('mode_of(args) == "hang"', "True"), PLAIN)
    process = started("-m", "made", "-o", tmp_path / "out", "--model-repository", tmp_path / "models")
    try:
        until(lambda: (tmp_path / "hangs").exists() or process.poll() is not None, "the start hangs")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 2
    assert err == "error: it was interrupted before anything was measured\n"


def test_wrong_input_ends_with_a_sentence(tmp_path, write_model, serve):
    write_model("made", ALONE, PLAIN)
    write_model("open", ALONE, PLAIN.replace("[ 4 ]", "[ -1 ]"))
    repository = tmp_path / "models"
    own = ("-m", "made", "--model-repository", repository, "-o", tmp_path / "out")
    for flags, told in (
        (("-m", "none", "--model-repository", repository), "has no folder of a model 'none'; it has made, open"),
        (("-m", "made", "--model-repository", tmp_path / "no"), "is no folder"),
        (("-m", "made", "-u", "127.0.0.1:1"), "Connection refused"),
        ((*own, "--max-batch-sizes", "1,2"), "model 'made' has max_batch_size 0"),
        ((*own, "--set", "bogus.key=1"), "unknown key 'bogus'"),
        ((*own, "--set", "instance_group.count=1,2"), "'instance_group' is no message of the configuration"),
        ((*own, "--server-flag=--no-such-flag"), "no-such-flag"),
        ((*own[2:], "-m", "open"), "--shape"),
    ):
        code, _, err = analyze(*flags)
        assert code == 99, (flags, err)
        assert told in err
        assert ("server.log)" in err) == (tmp_path / "out/server.log").exists(), "it stays where it is named"
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    server = serve().ready()
    code, _, err = analyze("-m", "made", "-u", f"127.0.0.1:{server.port}", "-o", tmp_path / "out")
    assert code == 99
    assert "start it with --model-control-mode=explicit" in err
