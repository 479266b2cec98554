"""Names and namespaces: which models a name means, and of which models an ensemble is made."""

import pytest

from tisfast.repo.dependencies import dependencies
from tisfast.repo.lookup import NoModel, find, find_around
from tisfast.repo.model_names import Names, NamespacedNames, having
from tisfast.repo.scan import ScanOptions, scan
from tisfast.types import identity_of, split_identity

TENSORS = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
MAPS = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
NAMESPACED = ScanOptions(namespaces=True)


@pytest.fixture
def repositories(tmp_path):
    found = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    for repository in found:
        repository.mkdir()
    return found


def write(repository, name):
    (repository / name / "1").mkdir(parents=True)
    code = "class TritonPythonModel:\n    def execute(self, requests): ...\n"
    (repository / name / "1" / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text('backend: "python"' + TENSORS)


def write_ensemble(repository, name, step):
    (repository / name / "1").mkdir(parents=True)
    scheduling = f'ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 {MAPS} }} ] }}'
    (repository / name / "config.pbtxt").write_text('platform: "ensemble"' + TENSORS + scheduling)


def test_an_identity_is_split_where_it_was_joined():
    assert identity_of("", "m") == "m"
    assert split_identity(identity_of("/a::b/models", "m")) == ("/a::b/models", "m")


def test_without_namespaces_a_name_is_a_model(repositories):
    names = Names()
    assert list(names.lying("m")) == ["m"]
    assert list(names.held("m", ["a", "m"])) == ["m"]
    assert names.affected({"m"}, {}) == {"m"}


def test_with_namespaces_a_name_is_a_model_of_each_repository(repositories):
    one, two, _ = repositories
    write(one, "m")
    write(two, "m")
    names = NamespacedNames(repositories)
    assert list(names.lying("m")) == [f"{one}::m", f"{two}::m"]
    assert list(names.lying("nobody")) == ["nobody"]
    assert list(names.lying("../one/m")) == ["../one/m"]
    held = [f"{one}::m", f"{two}::m", f"{two}::other"]
    assert list(names.held("m", held)) == held[:2]
    assert list(names.held(f"{two}::m", held)) == held[1:2]
    assert having(repositories, "m") == (f"{one}::m", f"{two}::m")


def test_a_scan_tells_namesakes_apart(repositories):
    one, two, _ = repositories
    write(one, "m")
    write(two, "m")
    found = scan(repositories, NAMESPACED)
    assert [(model.name, model.config.name, model.namespace) for model in found.models] == [
        (f"{one}::m", "m", str(one)),
        (f"{two}::m", "m", str(two)),
    ]
    assert scan(repositories).failures[0].name == "m"
    assert [model.namespace for model in scan([one]).models] == [""]


def test_models_are_found_by_their_identity(repositories):
    one, two, _ = repositories
    write(one, "m")
    found = find(repositories, [f"{one}::m", f"{two}::m", "m"], NAMESPACED)
    assert found[f"{one}::m"].folder == one / "m"
    assert isinstance(found[f"{two}::m"], NoModel)
    assert isinstance(found["m"], NoModel)
    assert find_around(repositories, [f"{one}::m"], NAMESPACED).names == (f"{one}::m",)


def test_a_name_that_looks_like_an_identity_is_left_aside(repositories):
    write(repositories[0], "a::b")
    found = scan(repositories, NAMESPACED)
    assert found.models == ()
    assert "with --model-namespacing no model's name may have '::' in it" in found.notes[0]
    assert [model.name for model in scan(repositories).models] == ["a::b"]


@pytest.mark.parametrize(
    ("having_it", "meant"),
    [((0, 1), 0), ((0,), 0), ((1,), 1), ((1, 2), 0), ((), 0)],
    ids=["its own first", "its own", "the only one elsewhere", "of several elsewhere none", "none"],
)
def test_a_step_means_a_model_of_its_own_repository_first(repositories, having_it, meant):
    write_ensemble(repositories[0], "e", "m")
    for number in having_it:
        write(repositories[number], "m")
    ensemble = next(model for model in scan(repositories, NAMESPACED).models if model.config.ensemble is not None)
    assert dependencies(ensemble) == (f"{repositories[meant]}::m",)


def test_ensembles_are_affected_by_whatever_has_the_name_of_a_step(repositories):
    one, two, _ = repositories
    write_ensemble(one, "e", "m")
    write(two, "m")
    sources = {model.name: model for model in scan(repositories, NAMESPACED).models}
    names = NamespacedNames(repositories)
    assert names.affected({f"{one}::m"}, sources) == {f"{one}::m", f"{one}::e"}
    assert names.affected({f"{one}::other"}, sources) == {f"{one}::other"}
