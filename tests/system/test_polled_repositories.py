"""Repositories that change under a running server (--model-control-mode=poll): seen by clients and in the log."""

import shutil
import threading
import time

from tests.system.helpers import ADD_ONE, CONFIG, until

POLL = ("--model-control-mode=poll", "--repository-poll-secs=0.2")
PLUS = {number: ADD_ONE.replace("return a + 1", f"return a + {number}") for number in (2, 3, 10)}


LOOK_SECONDS = 1


def answers(server, model, value):
    """Whether the model adds so much."""
    status, body = server.infer(model, [0.0])
    return status == 200 and body["outputs"][0]["data"] == [value]


def index(server):
    return {(entry["name"], entry.get("version", "")): entry for entry in server.ask("POST", "/v2/repository/index")[1]}


def states(server):
    return {key: (entry.get("state"), entry.get("reason", "")) for key, entry in index(server).items()}


def save(scratch, path, text):
    """As editors do: nobody sees the file half written, whose first failure would be another one."""
    (scratch / "saved").write_text(text)
    (scratch / "saved").rename(path)


def write_ensemble(repository, name, part):
    """An ensemble of one step."""
    maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    step = f'step [ {{ model_name: "{part}" model_version: -1 {maps} }} ]'
    tensors = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(f"{tensors} ensemble_scheduling {{ {step} }}")


def test_new_changed_and_removed_models_and_versions(serve, write_model, tmp_path):
    folder = write_model("m")
    server = serve(*POLL).ready()
    assert answers(server, "m", 1)

    write_model("late", PLUS[10])
    until(lambda: answers(server, "late", 10), "a new model is served")

    (folder / "1" / "model.py").write_text(PLUS[2])
    until(lambda: answers(server, "m", 2), "changed code is served")

    staged = tmp_path / "2"
    staged.mkdir()
    (staged / "model.py").write_text(PLUS[3])
    staged.rename(folder / "2")
    until(lambda: answers(server, "m", 3), "a new version is served")
    until(lambda: states(server).get(("m", "1")) in (None, ("UNAVAILABLE", "unloaded")), "the old version is gone")

    (folder / "config.pbtxt").write_text(CONFIG + "version_policy { all {} }")
    until(lambda: states(server).get(("m", "1")) == ("READY", ""), "the changed policy serves both versions")
    assert answers(server, "m", 3)

    shutil.rmtree(folder)
    until(lambda: server.infer("m")[0] == 404, "a removed model is unloaded")
    assert answers(server, "late", 10)
    until(lambda: ("m", "1") not in index(server), "the index forgets it, as Triton's does")
    shutil.copytree(tmp_path / "models" / "late", folder)
    until(lambda: answers(server, "m", 10), "a model that is there again is loaded again")


def test_a_bad_model_keeps_its_old_copy_and_stands_in_nobodys_way(serve, write_model, tmp_path):
    folder = write_model("m")
    server = serve(*POLL).ready()

    save(tmp_path, folder / "1" / "model.py", "raise ValueError('half an idea')\n")
    server.says("failed to load 'm'")
    assert answers(server, "m", 1)
    state, reason = states(server)["m", "1"]
    assert state == "READY"
    assert "half an idea" in reason
    assert server.ask("GET", "/v2/health/ready")[0] == 200

    write_model("bad", config="max_bach_size: 4")
    write_model("good", PLUS[10])
    until(lambda: answers(server, "good", 10), "a good model is loaded beside two bad ones")
    assert "max_bach_size" in states(server)["bad", ""][1]

    # Every look after this one could say it again; what its files say is wrong needs other files.
    looks = len(server.log)
    write_model("later", PLUS[3])
    until(lambda: answers(server, "later", 3), "polling goes on")
    assert [record["message"] for record in server.log[looks:] if "failed to load 'bad'" in record["message"]] == []

    (folder / "1" / "model.py").write_text(PLUS[2])
    until(lambda: answers(server, "m", 2), "the mended model is served")
    assert states(server)["m", "1"] == ("READY", "")


def copied_slowly(weights, halfway) -> float:
    """Write a file as a copying program does, for longer than two looks; the seconds that it stood still at most."""
    longest, last = 0.0, time.monotonic()
    with weights.open("wb", buffering=0) as file:
        for number in range(40):
            file.write(bytes(1500))
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
            time.sleep(0.05)
            if number == 10:
                halfway()
    return longest


def test_what_is_being_copied_is_not_loaded(serve, write_model, tmp_path):
    """A model, then a version of it, whose files appear one after the other and slowly.  Where a busy machine lets the
    copying stand still from one look to the next, another model is copied."""
    (tmp_path / "models").mkdir()
    server = serve("--model-control-mode=poll", f"--repository-poll-secs={LOOK_SECONDS}").ready()
    code = PLUS[10].replace("def compute", "def initialize(self, args):\n        import os\n        "
                            "here = os.path.join(args['model_repository'], args['model_version'])\n        "
                            "assert os.path.getsize(os.path.join(here, 'weights')) == 60_000, 'half a file'\n\n    "
                            "def compute")  # fmt: skip
    for name in map("big{}".format, range(5)):
        folder, whole = tmp_path / "models" / name, f"whole_{name}"
        write_ensemble(tmp_path / "models", whole, name)
        config = tmp_path / "models" / whole / "config.pbtxt"
        longest = 0.0
        for version in ("1", "2"):
            (folder / version).mkdir(parents=True)
            (folder / "config.pbtxt").write_text(CONFIG)
            (folder / version / "model.py").write_text(code)
            # The ensemble's change must not bring the half model in with it.
            longest = max(longest, copied_slowly(folder / version / "weights", config.touch))
            key = (name, version)
            until(lambda key=key: index(server).get(key, {}).get("state") == "READY", "it is loaded")
        if longest < 0.9 * LOOK_SECONDS:
            break
    assert longest < 0.9 * LOOK_SECONDS, "the machine lets nobody copy"
    loads = [record["message"].split(":")[1] for record in server.log if f"loading {name}:" in record["message"]]
    assert loads == ["1", "2"], server.text()  # and none of half a file, which would have failed and begun anew
    assert answers(server, name, 10)
    until(lambda: answers(server, whole, 10), "the ensemble is loaded, too")


def test_what_a_model_lacked_may_come_by_itself(serve, write_model, tmp_path):
    """It is tried again although its folder is as it was; what serves goes on meanwhile, and the failure is told."""
    weights = tmp_path / "weights"
    folder = write_model("m")
    server = serve(*POLL, "--exit-on-error=false").ready()
    save(tmp_path, folder / "1" / "model.py", f"open({str(weights)!r})\n" + PLUS[2])
    server.says("what could not be loaded is tried again: m")
    assert answers(server, "m", 1) and "No such file" in states(server)["m", "1"][1]
    weights.touch()
    until(lambda: answers(server, "m", 2), "it is served")
    assert states(server)["m", "1"] == ("READY", "")
    folder = write_model("late", f"open({str(tmp_path / 'more')!r})\n" + PLUS[3])
    until(lambda: states(server).get(("late", "1"), ("", ""))[0] == "UNAVAILABLE", "it fails")
    (tmp_path / "more").touch()
    until(lambda: answers(server, "late", 3), "it is served, too")


def test_a_duplicate_is_refused_and_loaded_when_it_is_the_only_one(serve, write_model, tmp_path):
    folder = write_model("m")
    write_model("other", PLUS[3])
    second = tmp_path / "second"
    shutil.copytree(folder, second / "m")
    server = serve(*POLL, f"--model-repository={second}", "--exit-on-error=false").ready()
    state, reason = states(server)["m", ""]
    assert state == "UNAVAILABLE"
    assert reason == "model appears in two or more repositories"
    assert answers(server, "other", 3)
    shutil.rmtree(folder)
    until(lambda: answers(server, "m", 1), "it is loaded from the second repository")
    seen = len(server.log)
    shutil.copytree(second / "m", folder)
    server.says("failed to load 'm'", after=seen)
    assert answers(server, "m", 1)
    assert states(server)["m", "1"][1] == "model appears in two or more repositories"


def test_models_of_a_repository_that_is_away_keep_serving(serve, write_model, tmp_path):
    write_model("m")
    second = tmp_path / "second"
    second.mkdir()
    server = serve(*POLL, f"--model-repository={second}").ready()
    (tmp_path / "models").rename(tmp_path / "away")
    server.says("failed to poll model repository")
    shutil.copytree(tmp_path / "away" / "m", second / "other")
    until(lambda: answers(server, "other", 1), "the repository that is there is polled")
    assert answers(server, "m", 1)
    (tmp_path / "away").rename(tmp_path / "models")
    server.says("is there again")
    assert answers(server, "m", 1)
    assert sum("failed to poll" in record["message"] for record in server.log) == 1
    assert not [record for record in server.log if "unload" in record["message"]]


def test_an_ensemble_follows_its_parts(serve, write_model, tmp_path):
    write_ensemble(tmp_path / "models", "whole", "part")
    server = serve(*POLL, "--exit-on-error=false").ready()
    assert server.infer("whole")[0] == 404
    part = write_model("part", PLUS[2])
    until(lambda: answers(server, "whole", 2), "the ensemble is loaded when its part is there")
    (part / "1" / "model.py").write_text(PLUS[3])
    until(lambda: answers(server, "whole", 3), "and asks the new copy of it")
    shutil.rmtree(part)
    until(lambda: server.infer("whole")[0] != 200, "and goes with it")
    write_model("part", PLUS[10])
    until(lambda: answers(server, "whole", 10), "and comes back with it")


def test_no_request_fails_while_a_model_is_replaced_under_load(serve, write_model):
    folder = write_model("m")
    server = serve(*POLL).ready()
    stop, failed = threading.Event(), []

    def ask():
        while not stop.is_set():
            status, body = server.infer("m", [0.0])
            if status != 200:
                failed.append(body)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in (2, 3, 10):
            (folder / "1" / "model.py").write_text(PLUS[number])
            until(lambda number=number: answers(server, "m", number), f"{number} is added")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failed == []


# ---- --reload, for developers


def test_a_save_is_served(serve, write_model):
    folder = write_model("m")
    (folder / "1" / "mine.py").write_text("NUMBER = 1\n")
    server = serve("--reload=true").ready()
    for file, text, number in [("model.py", PLUS[2], 2),
                               ("model.py", "import mine\n" + ADD_ONE.replace("a + 1", "a + mine.NUMBER"), 1),
                               ("mine.py", "NUMBER = 10\n", 10)]:  # fmt: skip
        seen = len(server.log)
        (folder / "1" / file).write_text(text)
        until(lambda number=number: answers(server, "m", number), f"{number} is added")
        assert f"1/{file} changed" in server.says("model 'm' has changed", seen)["message"]
        assert server.says("model 'm' is up to date after", seen)


def test_a_save_that_does_not_load_shows_its_traceback_once(serve, write_model, tmp_path):
    folder = write_model("m")
    server = serve("--reload=true").ready()
    save(tmp_path, folder / "1" / "model.py", ADD_ONE + "\n1 / 0\n")
    record = server.says("failed to load 'm'")
    assert "ZeroDivisionError" in record["traceback"]
    assert answers(server, "m", 1)
    (folder / "1" / "model.py").write_text(PLUS[2])
    until(lambda: answers(server, "m", 2), "the mended model is served")
    assert sum("ZeroDivisionError" in record.get("traceback", "") for record in server.log) == 1


def test_reload_does_not_go_with_explicit_control(serve, write_model):
    write_model("m")
    server = serve("--reload=true", "--model-control-mode=explicit")
    assert server.ended() == 1
    assert "--reload does not go with --model-control-mode=explicit" in server.text()


def test_without_polling_nothing_is_looked_at(serve, write_model):
    folder = write_model("m")
    server = serve("--model-control-mode=poll", "--repository-poll-secs=0").ready()
    (folder / "1" / "model.py").write_text(PLUS[2])
    other = serve(*POLL).ready()  # by the time that this one has seen a change, the first one would have
    (folder / "1" / "model.py").write_text(PLUS[3])
    until(lambda: answers(other, "m", 3), "the second server polls")
    assert answers(server, "m", 1)
