"""Both servers in poll mode, and with namespaces: the same edits of a repository."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from perf.oracle.server import Server
from tests.oracle.cases.table import Request, post, tensor
from tests.oracle.exchange import converse
from tests.oracle.polled import KINDS, ONE_EACH, Facts, asked, becomes, facts, infer, settled, write, write_ensemble

DUPLICATE: Final = "model appears in two or more repositories"


@pytest.fixture(params=ONE_EACH)
def polled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Path, Path]]:
    """A server that polls two repositories each second; the first holds model `m`, the second `other`."""
    one, two = tmp_path / "one" / "models", tmp_path / "two" / "models"
    one.mkdir(parents=True)
    two.mkdir(parents=True)
    write(one / "m", 1)
    write(two / "other", 5)
    flags = ["--model-control-mode=poll", "--repository-poll-secs=1"]
    with Server(request.param, [one, two], flags) as server:
        yield server, one, two


def test_what_comes_changes_and_goes(polled: tuple[Server, Path, Path]) -> None:
    server, one, _ = polled
    assert facts(server, "m") == Facts(1, {"1": "READY"}, True)
    write(one / "m", 2)
    becomes(server, "m", Facts(2, {"1": "READY"}, True))
    write(one / "m", 3, version="2")
    becomes(server, "m", Facts(3, {"1": "UNAVAILABLE", "2": "READY"}, True))
    write(one / "new", 4)
    becomes(server, "new", Facts(4, {"1": "READY"}, True))
    shutil.move(one / "new", one.parent / "away")
    gone = "Request for unknown model: 'new' has no available versions"
    found = settled(server, "new", lambda found: not found.states and not isinstance(found.adds, float))
    assert found.states == {}
    assert found.adds in (gone, "Request for unknown model: 'new' is not found")


def test_what_is_broken_leaves_the_old_copy_and_the_others(polled: tuple[Server, Path, Path]) -> None:
    server, one, _ = polled
    write(one / "m", 1, config="foo: 1")
    write(one / "bad", 1, code="raise ValueError('bad')")
    none = "Request for unknown model: 'bad' has no available versions"
    becomes(server, "bad", Facts(none, {"1": "UNAVAILABLE"}, False))
    assert facts(server, "m") == Facts(1, {"1": "READY"}, False)
    assert facts(server, "other") == Facts(5, {"1": "READY"}, False)
    write(one / "m", 2)
    becomes(server, "m", Facts(2, {"1": "READY"}, False))


WAITING: Final = """
import os
with open({told!r}, "a") as file:
    file.write("x")
if not os.path.exists({gate!r}):
    raise ValueError("not yet")
"""


def test_what_lacked_something_is_tried_again_although_its_files_are_the_same(
    polled: tuple[Server, Path, Path], tmp_path: Path
) -> None:
    """Both recover by themselves.  Deliberate: Triton tries at every poll, tisfast less and less often."""
    server, one, _ = polled
    gate, told = tmp_path / "gate", tmp_path / "told"
    write(tmp_path / "later" / "models" / "m", 8)
    with (tmp_path / "later/models/m/1/model.py").open("a") as file:
        file.write(WAITING.format(told=str(told), gate=str(gate)))
    shutil.move(one / "m", one.parent / "away")
    shutil.move(tmp_path / "later/models/m", one / "m")
    settled(server, "m", lambda _: told.exists() and len(told.read_text()) >= 3)
    assert infer(server, "m") == 1
    gate.touch()
    becomes(server, "m", Facts(8, {"1": "READY"}, True))


def test_a_second_one_of_a_name(polled: tuple[Server, Path, Path]) -> None:
    """Deliberate: Triton stops serving the first one.  What serves goes on here, and the index says what is wrong."""
    server, one, two = polled
    write(two / "m", 7)
    if server.kind == "triton":
        found = settled(server, "m", lambda found: "1" not in found.states and not isinstance(found.adds, float))
        assert found.states == {"": "UNAVAILABLE"}
    else:
        settled(server, "m", lambda found: DUPLICATE in reason(server, "m"))
        assert facts(server, "m") == Facts(1, {"1": "READY"}, True)
    assert DUPLICATE in reason(server, "m")
    assert infer(server, "other") == 5
    shutil.move(one / "m", one.parent / "away")
    becomes(server, "m", Facts(7, {"1": "READY"}, True))


def reason(server: Server, model: str) -> str:
    _, index = asked(server, Request("POST", "/v2/repository/index"))
    return next(str(each.get("reason", "")) for each in index if each["name"] == model)


NAMESPACED: Final = {
    "ambiguous": post("both", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "of one only": post("only", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "unknown": post("nobody", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "ensemble, its own part": post("e1", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "the other's ensemble": post("e2", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "a part elsewhere": post("e3", {"inputs": [tensor("A", "FP32", [1], [0.0])]}),
    "metadata": Request("GET", "/v2/models/both"),
    "config": Request("GET", "/v2/models/both/config"),
    "an unknown version": Request("GET", "/v2/models/only/versions/9"),
    "index": Request("POST", "/v2/repository/index"),
}


def test_namespaces(tmp_path: Path) -> None:
    one, two = tmp_path / "a" / "one", tmp_path / "b" / "two"
    one.mkdir(parents=True)
    two.mkdir(parents=True)
    for repository, name, number in ((one, "both", 1), (two, "both", 100), (one, "only", 7)):
        write(repository / name, number)
    for repository, name, step in ((one, "e1", "both"), (two, "e2", "both"), (two, "e3", "only")):
        write_ensemble(repository / name, step)
    said = []
    for kind in KINDS:
        with Server(kind, [one, two], ["--model-namespacing=true"]) as server:
            said.append({name: asked(server, request) for name, request in NAMESPACED.items()})
            status, config = asked(server, Request("GET", "/v2/models/e3/config"))
            assert config["ensemble_scheduling"]["step"][0]["model_namespace"] == str(one)
            assert f'namespace="{two}"' in metrics(server)
    assert said[0] == said[1]


def metrics(server: Server) -> str:
    (answer,) = converse(server.metrics, (Request("GET", "/metrics"),))
    return answer.body.decode()
