"""Both servers in mode explicit, side by side: what is loaded, changed and unloaded, step by step.

Where tisfast differs on purpose, a test of its own says how.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perf.oracle.server import TRITON_STARTS_MAX, Kind, Server
from tests.oracle.servers import DEATH_SECONDS

MODEL = """import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("{output}", a + {n})]))
        return answers
"""
TENSORS = """input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
CONFIG = 'backend: "python"\n' + TENSORS
BROKEN = "raise ValueError('no weights')\n"
FRAMES = re.compile(r"\n\nAt:.*?(?=;\n|\Z)", re.DOTALL)
SETTLE_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 60


class Model(NamedTuple):
    """What a step writes into a repository."""

    name: str
    code: str = MODEL.format(n=1, output="B")
    config: str = CONFIG
    version: str = "1"


class Gone(NamedTuple):
    """What a step removes from it."""

    path: str


def adding(n: int, name: str = "m", **more: str) -> Model:
    return Model(name, MODEL.format(n=n, output="B"), **more)


def ensemble(name: str, *steps: str) -> Model:
    names = ["A", *(f"t{i}" for i in range(1, len(steps))), "B"]
    parts = ", ".join(
        f'{{ model_name: "{step}" model_version: -1 input_map {{ key: "A" value: "{names[i]}" }} '
        f'output_map {{ key: "B" value: "{names[i + 1]}" }} }}'
        for i, step in enumerate(steps)
    )
    return Model(name, "", f'platform: "ensemble"\n{TENSORS}ensemble_scheduling {{ step [ {parts} ] }}')


TWO = CONFIG + "instance_group [ { count: 2 kind: KIND_CPU } ]\n"
ALL = CONFIG + "version_policy { all { } }\n"
OTHER_OUTPUT = Model("s1", MODEL.format(n=1, output="C"), CONFIG.replace('"B"', '"C"'))
SCENARIOS: dict[str, list[Any]] = {
    "load, change, unload": [
        Model("m"), "index", "load m", "index", "infer m", adding(2), "load m", "infer m", "index",
        "unload m", "index", "infer m", "ready", "model m", "load m", "infer m",
    ],
    "a load that fails": [
        Model("m", BROKEN), "load m", "index", "ready", "infer m", adding(1), "load m", "index", "ready", "infer m",
    ],
    "a reload that fails": [
        Model("m"), "load m", Model("m", BROKEN), "load m", "infer m", "ready", "model m", adding(3), "load m",
        "infer m", "index",
    ],
    "what is nowhere": ["load x", "unload x", "index"],
    "versions": [
        adding(1), "load m", adding(2, version="2"), "load m", "index", "infer m", adding(2, config=ALL, version="2"),
        "load m", "index", "infer m", Model("m", BROKEN, ALL, "3"), "load m", "infer m", Gone("m/3"),
    ],
    "instances": [adding(1), "load m", adding(1, config=TWO), "load m", "index", "infer m"],
    "a folder that is gone": [Model("m"), "load m", Gone("m"), "load m", "infer m", "unload m", "infer m"],
    "an ensemble": [
        Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load e", "index", "infer e", "unload e", "index",
        "load e", "unload+ e", "index", "infer s1",
    ],
    "an ensemble whose step was asked for": [
        Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load s1", "load e", "unload+ e", "index",
    ],
    "a step goes and comes": [
        Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load e", "unload s1", "index", "infer e", "load s1",
        "index", "infer e",
    ],
    "a step changes": [
        Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load e", adding(5, "s1"), "load s1", "infer e",
        adding(7, "s2"), "load e", "infer e", OTHER_OUTPUT, "load s1", "infer e", adding(1, "s1"), "load s1", "infer e",
    ],
    "an ensemble whose step cannot be changed": [
        Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load e", Model("s1", BROKEN), "load e", "infer e",
        "infer s1", adding(4, "s1"), "load e", "infer e",
    ],
    "an ensemble of nobody": [Model("s1"), ensemble("e", "s1", "nobody"), "load e", "infer e"],
    "an ensemble of a broken step": [Model("s1"), Model("bad", BROKEN), ensemble("e", "s1", "bad"), "load e"],
}  # fmt: skip


class Crashed(Exception):
    """The real Triton ended in the middle (boost's lock_exception, as at some starts): no answer of it counts."""


class Stage:
    """One server on a repository of its own, which scenarios fill and empty."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder

    def restart(self) -> None:
        """After a crash."""
        self.server.stop()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.server.__enter__()

    def clear(self) -> None:
        """Unload and remove everything."""
        for path in list(self.folder.iterdir()):
            self._ask("POST", f"/v2/repository/models/{path.name}/unload")
        self._settled()
        for path in list(self.folder.iterdir()):
            shutil.rmtree(path)

    def do(self, step: Any) -> Any:
        """What came of a step; None of one that only changes files."""
        if isinstance(step, Model):
            return self._write(step)
        if isinstance(step, Gone):
            return shutil.rmtree(self.folder / step.path)
        what, _, name = step.partition(" ")
        asked = {
            "index": self._settled,
            "ready": lambda: self._ask("GET", "/v2/health/ready")[0],
            "model": lambda: self._ask("GET", f"/v2/models/{name}/ready")[0],
            "infer": lambda: self._infer(name),
        }
        return asked[what]() if what in asked else self._control(what, name)

    def _control(self, what: str, name: str) -> Any:
        body = {"parameters": {"unload_dependents": True}} if what == "unload+" else {}
        return self._ask("POST", f"/v2/repository/models/{name}/{what.rstrip('+')}", body)

    def _write(self, model: Model) -> None:
        version = self.folder / model.name / model.version
        version.mkdir(parents=True, exist_ok=True)
        if model.code:
            (version / "model.py").write_text(model.code)
        (self.folder / model.name / "config.pbtxt").write_text(model.config)

    def _infer(self, name: str) -> Any:
        tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [0]}
        status, body = self._ask("POST", f"/v2/models/{name}/infer", {"inputs": [tensor]})
        return body["outputs"][0]["data"] if status == 200 else (status, body)

    def _settled(self) -> list[dict[str, str]]:
        """The index once nothing is on its way, without versions of earlier scenarios, which Triton never forgets."""
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            _, entries = self._ask("POST", "/v2/repository/index")
            if not any(entry.get("state") == "UNLOADING" for entry in entries) or time.monotonic() > end:
                break
            time.sleep(0.05)
        here = {path.name: {each.name for each in path.iterdir()} for path in self.folder.iterdir()}
        return [entry for entry in entries if entry.get("version", "1") in here.get(entry["name"], ())]

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost", self.server.http, timeout=LOAD_SECONDS_MAX)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        except OSError as error:
            if self.server.kind == "triton" and self.server.dies_within(DEATH_SECONDS):
                raise Crashed(self.server.log()) from error
            raise
        finally:
            connection.close()
        return answer.status, _without_frames(json.loads(text) if text else {})


def _without_frames(value: Any) -> Any:
    if isinstance(value, str):
        return FRAMES.sub("", value)
    if isinstance(value, list):
        return [_without_frames(each) for each in value]
    return {key: _without_frames(each) for key, each in value.items()} if isinstance(value, dict) else value


def stage(kind: Kind) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory() as folder, Server(kind, [folder], ["--model-control-mode=explicit"]) as server:
        yield Stage(server, Path(folder))


@pytest.fixture(scope="module")
def their() -> Iterator[Stage]:
    """The real one."""
    yield from stage("triton")


@pytest.fixture(scope="module")
def our() -> Iterator[Stage]:
    """Ours."""
    yield from stage("tisfast")


def alike(theirs: Any, ours: Any) -> bool:
    """Equal, but that an error of ours may go on where Triton's ends."""
    if isinstance(theirs, tuple) and isinstance(ours, tuple) and isinstance(theirs[1], dict) and "error" in theirs[1]:
        return theirs[0] == ours[0] and str(ours[1].get("error")).startswith(theirs[1]["error"].rstrip())
    return bool(theirs == ours)


def played(steps: Sequence[Any], their: Stage, our: Stage) -> list[tuple[Any, Any, Any]]:
    """What came of each step on both, from empty repositories; all of it again when the real Triton crashes."""
    for left in reversed(range(TRITON_STARTS_MAX)):
        try:
            for each in (their, our):
                each.clear()
            return [(step, their.do(step), our.do(step)) for step in steps]
        except Crashed:
            if not left:
                raise
            their.restart()
    raise AssertionError("the last attempt has returned or raised")


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_servers_do_alike(name: str, their: Stage, our: Stage) -> None:
    found = played(SCENARIOS[name], their, our)
    wrong = [
        (number, step, theirs, ours) for number, (step, theirs, ours) in enumerate(found) if not alike(theirs, ours)
    ]
    assert not wrong


def test_a_step_that_does_not_fit_is_named(their: Stage, our: Stage) -> None:
    """Triton says that the ensemble is unloaded, and nothing more."""
    steps = [Model("s1"), Model("s2"), ensemble("e", "s1", "s2"), "load e", OTHER_OUTPUT, "load s1", "index"]
    _, *indexes = played(steps, their, our)[-1]
    theirs, ours = ({entry["name"]: entry.get("reason") for entry in index} for index in indexes)
    assert theirs["e"] == "unloaded"
    assert "mapped from non-existing output B in model s1" in ours["e"]


def test_a_failed_attempt_beside_what_serves(their: Stage, our: Stage) -> None:
    """The index says what was tried, and the server stays ready; Triton's does neither, or the opposite."""
    steps = [adding(1, config=ALL), "load m", Model("m", BROKEN, ALL, "2"), "load m", "index", "ready"]
    (_, *indexes), ready = played(steps, their, our)[-2:]
    theirs, ours = ([(entry["version"], entry["state"], entry.get("reason")) for entry in index] for index in indexes)
    tried = "Internal: ValueError: no weights"
    assert [entry[:2] for entry in theirs] == [entry[:2] for entry in ours] == [("1", "READY"), ("2", "UNAVAILABLE")]
    assert [entry[2] for entry in theirs][0] is None and {entry[2] for entry in ours} == {tried}
    assert ready == ("ready", 400, 200)


def test_what_failed_and_is_unloaded_is_forgiven(their: Stage, our: Stage) -> None:
    """Explicitly unloaded ones are exempt.  2.51 stays not ready for ever after a load that failed."""
    steps = [Model("never", BROKEN), "load never", "unload never", "ready"]
    assert played(steps, their, our)[-1] == ("ready", 400, 200)
