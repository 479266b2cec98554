"""Which models an ensemble needs, and which ensembles cannot be."""

from __future__ import annotations

from tests.repo.sources import MODEL
from tisfast.repo.dependencies import dependencies, impossible, unfit
from tisfast.repo.scan import scan

TENSORS = 'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }'


def ensemble(*models):
    names = ["A", *(f"t{i}" for i in range(1, len(models))), "B"]
    steps = "".join(
        f'step {{ model_name: "{model}" model_version: -1 input_map {{ key: "A" value: "{names[i]}" }} '
        f'output_map {{ key: "B" value: "{names[i + 1]}" }} }} '
        for i, model in enumerate(models)
    )
    return {"config.pbtxt": f'platform: "ensemble" {TENSORS} ensemble_scheduling {{ {steps} }}', "1/.keep": ""}


def wrong(repo):
    found = scan([repo])
    return {name: error.message for name, error in impossible(found.models, found.failures).items()}


def test_an_ensemble_has_versions_without_files(repo, add):
    folder = add("e", ensemble("m"))
    add("m")
    model = next(model for model in scan([repo]).models if model.name == "e")
    assert [(version.number, version.file) for version in model.versions] == [(1, folder / "1")]
    assert not model.may_complete


def test_a_model_file_that_is_named_is_not_looked_for(repo, add):
    files = ensemble("m")
    add("e", {**files, "config.pbtxt": files["config.pbtxt"] + ' default_model_filename: "none.py"'})
    assert [model.name for model in scan([repo]).models] == ["e"]


def test_dependencies_are_named_once(repo, add):
    add("e", ensemble("m", "n", "m"))
    add("m")
    by_name = {model.name: model for model in scan([repo]).models}
    assert (dependencies(by_name["e"]), dependencies(by_name["m"])) == (("m", "n"), ())


def test_models_that_are_not_there(repo, add):
    add("e", ensemble("m", "no", "neither"))
    add("m")
    text = "ensemble e contains models that are not available or ambiguous: no, neither"
    assert wrong(repo) == {"e": text}


def test_a_model_with_a_bad_configuration_is_not_there_either(repo, add):
    add("e", ensemble("bad"))
    add("bad", {"config.pbtxt": "max_bach_size: 1", "1/model.py": ""})
    found = scan([repo])
    error = impossible(found.models, found.failures)["e"]
    assert error.message == "ensemble e contains models that are not available or ambiguous: bad"
    assert "unknown key 'max_bach_size'" in error.hint


def test_a_circle(repo, add):
    for name, other in (("e1", "e2"), ("e2", "e3"), ("e3", "e1"), ("outside", "e1")):
        add(name, ensemble(other))
    assert wrong(repo) == {
        "e1": "circular dependency between ensembles: e1 -> ... -> e3 -> e1",
        "e2": "circular dependency between ensembles: e2 -> ... -> e1 -> e2",
        "e3": "circular dependency between ensembles: e3 -> ... -> e2 -> e3",
    }


def test_an_ensemble_of_itself(repo, add):
    add("e", ensemble("e"))
    assert wrong(repo) == {"e": "circular dependency between ensembles: e -> ... -> e -> e"}


PLAIN = f'backend: "python" {TENSORS}'
STREAMS = "model_transaction_policy { decoupled: true }"


def not_fitting(repo):
    return {name: error.message for name, error in unfit(scan([repo]).models).items()}


def test_an_ensemble_that_fits_its_models(repo, add):
    add("m", {"config.pbtxt": PLAIN, "1/model.py": MODEL})
    add("inner", ensemble("m", "m"))
    add("outer", ensemble("inner", "m"))
    assert not_fitting(repo) == {}


def test_tensors_that_do_not_fit_are_said_at_the_step(repo, add):
    add("m", {"config.pbtxt": PLAIN.replace("TYPE_FP32", "TYPE_INT32", 1), "1/model.py": MODEL})
    folder = add("e", ensemble("m"))
    (error,) = unfit(scan([repo]).models).values()
    assert "ensemble tensor A: inconsistent data type: TYPE_FP32 is inferred from model e" in error.message
    assert (error.file, error.line) == (str(folder / "config.pbtxt"), 1) and error.column > 1


def test_a_step_that_is_an_ensemble_is_decoupled_as_its_own_steps_are(repo, add):
    add("m", {"config.pbtxt": PLAIN + STREAMS, "1/model.py": MODEL})
    add("inner", ensemble("m"))
    outer = ensemble("inner")
    add("outer", {**outer, "config.pbtxt": outer["config.pbtxt"] + " response_cache { enable: true }"})
    assert "does not currently support model outer with 'decoupled' transaction policy" in not_fitting(repo)["outer"]


def test_a_version_that_the_policy_does_not_serve(repo, add):
    add("m", {"config.pbtxt": PLAIN, "1/model.py": MODEL, "2/model.py": MODEL})
    files = ensemble("m")
    add("e", {**files, "config.pbtxt": files["config.pbtxt"].replace("model_version: -1", "model_version: 1")})
    assert not_fitting(repo) == {"e": "ensemble 'e' depends on 'm' whose required version 1 is not loaded."}


def test_what_only_the_model_can_tell_is_not_judged(repo, add):
    completes = MODEL + "    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
    add("m", {"config.pbtxt": PLAIN.replace("TYPE_FP32", "TYPE_INT32", 1), "1/model.py": completes})
    add("inner", ensemble("m"))
    add("outer", ensemble("inner"))
    add("lost", ensemble("nowhere"))
    assert not_fitting(repo) == {}
