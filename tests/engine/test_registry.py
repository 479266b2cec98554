"""Which models there are: with namespaces, and when they come and go."""

from dataclasses import dataclass

import pytest

from tisfast.engine.registry import Registry
from tisfast.errors import BadRequest, NotFound, Unavailable
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


def test_what_could_never_be_read_takes_no_readiness_away():
    registry = Registry()
    registry.set_live(True)
    registry.add(serving("good"))
    registry.fail("bad", [""], "line 3: no such key", read=False)
    assert registry.ready()
    with pytest.raises(NotFound, match="^Request for unknown model: 'bad' is not found$"):
        registry.resolve("bad")
    assert [(entry.name, entry.state) for entry in registry.models()] == [("bad", "UNAVAILABLE"), ("good", "READY")]
    registry.fail("bad", ["1"], "no weights")
    assert not registry.ready()


def test_an_ensemble_that_could_be_read_and_never_joined_has_no_versions():
    registry = Registry()
    registry.fail("e", ["1"], "nobody has its step", read=False)
    with pytest.raises(NotFound, match="^Request for unknown model: 'e' has no available versions$"):
        registry.resolve("e")


def test_a_model_that_was_read_once_and_failed_stays_one_when_it_cannot_be_read_any_more():
    registry = Registry()
    registry.set_live(True)
    registry.fail("bad", ["1"], "no weights")
    registry.fail("bad", [""], "line 3: no such key", read=False)
    assert not registry.ready()
    registry.switch("bad", [])  # unloaded
    assert registry.ready()


def test_who_is_not_ready_is_named():
    registry = Registry()
    assert registry.why_not_ready() == "the server has not initialised"
    registry.set_live(True)
    good = serving("good")
    registry.add(good)
    assert registry.why_not_ready() == "" and registry.failed() == []
    registry.fail("bad", ["1"], "no weights")
    registry.fail("unread", [""], "no such key", read=False)
    good.ready = False
    assert registry.why_not_ready() == "models that are not ready: bad, good"
    assert sorted(registry.failed()) == ["bad", "unread"]
    for number in range(100):
        registry.fail(f"m{number:03}", ["1"], "no weights")
    assert registry.why_not_ready().endswith(" m016, m017 and 82 more")
    registry.set_stopping()
    assert registry.why_not_ready() == "the server is stopping"


def test_a_server_that_could_not_initialise_says_so_of_every_model():
    registry = Registry()
    registry.set_unusable("a repository cannot be read")
    assert not registry.live() and not registry.ready()
    for ask in (lambda: registry.resolve("m"), lambda: registry.resolve("m", "1"), registry.check_usable):
        with pytest.raises(Unavailable, match="^Server not ready: a repository cannot be read$"):
            ask()


def test_the_index_has_namespaces_beside_names(registry):
    serve(registry, "/one", "/two")
    registry.know([identity_of("/one", "m"), identity_of("/two", "m"), identity_of("/two", "n")])
    assert index(registry) == [("/one", "m", "1", "READY"), ("/two", "m", "1", "READY"), ("/two", "n", "", "")]
    registry.know([identity_of("/one", "m"), identity_of("/two", "m")])
    assert len(index(registry)) == 2
    assert not registry.knows("n")
