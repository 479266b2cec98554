"""Models that call models: the examples of examples/bls, and every call that tests/oracle/bls makes, good and bad."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle.server import Kind, Server
from tests.oracle.bls_differences import BY_CASE, CRASHES
from tests.oracle.cases.table import post, tensor
from tests.oracle.exchange import converse
from tests.oracle.servers import ASKED, DEATH_SECONDS, HERE

EXAMPLES: Final = Path(__file__).parents[2] / "examples/bls"
CALLS: Final = HERE / "bls"
NAMES: Final = re.findall(r'^    "(.+?)": ', (CALLS / "asker/1/model.py").read_text(), re.MULTILINE)
FOUR: Final = [tensor("INPUT0", "FP32", [4], [1, 2, 3, 4]), tensor("INPUT1", "FP32", [4], [10, 20, 30, 40])]
REQUESTS: Final = [
    *(post(model, {"inputs": FOUR}) for model in ("bls_sync", "bls_async") for _ in range(3)),
    *(post("bls_decoupled", {"inputs": [tensor("COUNT", "INT32", [1], [n])]}) for n in (0, 1, 50)),
    post("bls_sync", {"inputs": FOUR[:1]}),
]


def answers(kind: Kind) -> list[tuple[int, Any]]:
    with Server(kind, [EXAMPLES]) as server:
        return [(answer.status, json.loads(answer.body)) for answer in converse(server.http, REQUESTS)]


def test_examples_answer_alike() -> None:
    ours, theirs = answers("tisfast"), answers("triton")
    assert [status for status, _ in ours] == [200] * 9 + [400]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine[0] == other[0]
        if mine[0] == 200:
            assert mine[1]["outputs"] == other[1]["outputs"]


class Asked:
    """One server on tests/oracle/bls; started anew when a call has hung or killed it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.server: Server | None = None

    def ask(self, model: str, name: str, datatype: str, value: object) -> Any:
        """What the model says; "silence" when it never does, "crashed" when the server died of it (ASKED)."""
        for _ in range(ASKED[self.kind]):
            if self.server is None:
                flags = ["--exit-on-error=false"]
                self.server = Server(self.kind, [CALLS], flags, "/v2/models/asker/ready").__enter__()
            (answer,) = converse(self.server.http, [post(model, {"inputs": [tensor(name, datatype, [1], [value])]})])
            if answer.status:
                body = json.loads(answer.body)
                assert answer.status == 200, body
                return body["outputs"][0]["data"]
            died = self.server.dies_within(DEATH_SECONDS)
            self.stop()
            if not died:
                return "silence"
        return "crashed"

    def case(self, name: str) -> Any:
        """What a call of the asker came to."""
        said = self.ask("asker", "CASE", "BYTES", name)
        return said if isinstance(said, str) else _plain(json.loads(said[0]))

    def stop(self) -> None:
        """End it."""
        if self.server is not None:
            self.server.stop()
            self.server = None


def _plain(value: Any) -> Any:
    """Without the frames of tracebacks, which lie in other folders, and without C++ signatures."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, str):
        return value
    text = re.sub(r"\s+At:\n.*", "", value, flags=re.DOTALL).rstrip()
    return re.sub(r"(incompatible \w+ arguments\.).*", r"\1", text, flags=re.DOTALL)


def alike(theirs: Any, ours: Any) -> bool:
    """Equal, but that our messages may go on where theirs end (rule 2 of alike.py)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return theirs.keys() == ours.keys() and all(alike(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(alike, theirs, ours))
    if isinstance(theirs, str) and isinstance(ours, str):
        return ours.startswith(theirs)
    return bool(theirs == ours)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Asked, Asked]]:
    servers = (Asked("triton"), Asked("tisfast"))
    yield servers
    for each in servers:
        each.stop()


@pytest.mark.parametrize("case", NAMES)
def test_calls_come_to_the_same(case: str, both: tuple[Asked, Asked]) -> None:
    theirs, ours = (server.case(case) for server in both)
    if theirs == "crashed" and case in CRASHES:
        assert "raised" in ours
    elif case in BY_CASE:
        assert (theirs, ours) == BY_CASE[case]
        assert not alike(theirs, ours), "no difference any more: take it off the list"
    else:
        assert alike(theirs, ours), (theirs, ours)


def test_what_models_are_told_in_initialize(both: tuple[Asked, Asked]) -> None:
    theirs, ours = (server.ask("early", "A", "FP32", 1) for server in both)
    assert alike(theirs, ours), (theirs, ours)


def test_every_difference_is_of_a_case() -> None:
    assert not BY_CASE.keys() - set(NAMES)
