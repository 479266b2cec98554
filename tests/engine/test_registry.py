"""Which models there are: with namespaces, and when they come and go."""

from dataclasses import dataclass

import pytest

from tisfast.engine.registry import Registry
from tisfast.errors import BadRequest, NotFound
from tisfast.types import identity_of
from tisfast.wire.signature import ModelSignature


@dataclass
class Serving:
    """As much of a runtime as the registry looks at."""

    signature: ModelSignature
    ready: bool = True


def serving(name, version="1", namespace=""):
    signature = ModelSignature(name, version, 0, False, [], [])
    signature.namespace = namespace
    return Serving(signature)


def index(registry):
    return [(entry.namespace, entry.name, entry.version, entry.state) for entry in registry.models()]


@pytest.fixture
def registry():
    found = Registry(namespaces=True)
    found.set_live(True)
    return found


def serve(registry, *namespaces, name="m"):
    made = [serving(name, namespace=namespace) for namespace in namespaces]
    for each in made:
        registry.switch(each.signature.identity, [each])
    return made


def test_models_that_are_gone_from_the_repositories_are_forgotten_once_they_are_unloaded():
    registry = Registry()
    a, b = serving("a"), serving("b")
    registry.switch("a", [a])
    registry.switch("b", [b])
    registry.know(["b"])
    assert index(registry) == [("", "a", "1", "READY"), ("", "b", "1", "READY")]
    registry.switch("a", [])
    registry.know(["b"])
    assert index(registry)[0] == ("", "a", "1", "UNLOADING")
    registry.unloaded("a", "1")
    registry.know(["b"])
    assert index(registry) == [("", "b", "1", "READY")]


def test_unloaded_models_that_still_lie_there_are_listed():
    registry = Registry()
    registry.add(serving("a"))
    registry.remove(registry.resolve("a"))
    registry.know(["a", "new"])
    assert index(registry) == [("", "a", "1", "UNAVAILABLE"), ("", "new", "", "")]


def test_a_name_means_the_only_model_that_has_it(registry):
    (one,) = serve(registry, "/one")
    assert registry.resolve("m") is one
    assert registry.resolve("m", "1") is one
    assert registry.resolve("/one::m") is one
    assert registry.versions("m") == ["1"]
    assert registry.knows("m")
    with pytest.raises(NotFound, match=r"Request for unknown model: '/one::m' version 9 is not found"):
        registry.resolve("m", "9")


def test_a_name_of_several_models_is_ambiguous(registry):
    serve(registry, "/one", "/two")
    for ask in (lambda: registry.resolve("m"), lambda: registry.resolve("m", "1"), lambda: registry.versions("m")):
        with pytest.raises(BadRequest, match=r"There are 2 identifiers of model 'm' in global map, model namespace"):
            ask()
    assert registry.knows("m")
    assert registry.resolve("/two::m").signature.namespace == "/two"


def test_a_name_that_nobody_has_is_unknown(registry):
    serve(registry, "/one")
    with pytest.raises(BadRequest, match=r"Request for unknown model: 'n' is not found"):
        registry.resolve("n")
    assert not registry.knows("n")


def test_namesakes_that_are_unloaded_do_not_count(registry):
    one, two = serve(registry, "/one", "/two")
    registry.switch("/one::m", [])
    assert registry.resolve("m") is two
    registry.unloaded("/one::m", "1")
    assert registry.resolve("m") is two
    registry.switch("/one::m", [one])
    with pytest.raises(BadRequest):
        registry.resolve("m")


def test_namesakes_that_failed_count(registry):
    """The name's owner is broken: another model must not answer in its place."""
    serve(registry, "/one")
    registry.fail("/two::m", ["1"], "it is broken")
    with pytest.raises(BadRequest, match="There are 2 identifiers"):
        registry.resolve("m")


def test_the_index_has_namespaces_beside_names(registry):
    serve(registry, "/one", "/two")
    registry.know([identity_of("/one", "m"), identity_of("/two", "m"), identity_of("/two", "n")])
    assert index(registry) == [("/one", "m", "1", "READY"), ("/two", "m", "1", "READY"), ("/two", "n", "", "")]
    registry.know([identity_of("/one", "m"), identity_of("/two", "m")])
    assert len(index(registry)) == 2
    assert not registry.knows("n")
