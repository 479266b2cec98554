"""Both servers with the flags of model control, side by side: attempts, threads, configurations, readiness, exits."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from perf.oracle.server import Kind, Server, StartFailed

KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")
SECONDS_MAX: Final = 40
TENSORS: Final = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
CONFIG: Final = 'backend: "python"' + TENSORS
CODE: Final = """
import os, time
import triton_python_backend_utils as pb_utils

def note(what):
    with open({told!r}, "a") as file:
        file.write(what)

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
        {execute}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
                for r in requests]
"""
BROKEN: Final = "raise ValueError('no weights')"
LIVE: Final = "/v2/health/live"


def write(repository: Path, name: str, initialize: str = "pass", execute: str = "pass", config: str = CONFIG) -> Path:
    """A model; what it notes is in NAME.told beside the repository."""
    (repository / name / "1").mkdir(parents=True)
    told = str(repository.parent / f"{name}.told")
    code = CODE.format(told=told, initialize=initialize, execute=execute)
    (repository / name / "1" / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(config)
    return repository / name


def told(repository: Path, name: str) -> str:
    path = repository.parent / f"{name}.told"
    return path.read_text() if path.exists() else ""


def asked(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", server.http, timeout=SECONDS_MAX)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else ""
    finally:
        connection.close()


def both(
    tmp_path: Path, fill: Callable[[Path], object], flags: list[str], look: Callable[[Server, Path], Any]
) -> list[Any]:
    """What `look` makes of each server on a repository of its own."""
    seen = []
    for kind in KINDS:
        repository = tmp_path / kind / "models"
        repository.mkdir(parents=True)
        fill(repository)
        with Server(kind, [repository], flags, LIVE) as server:
            seen.append(look(server, repository))
    return seen


NO_COMPLETION: Final = "--disable-auto-complete-config"
"""With it, a model is imported and initialized once for each attempt, on both sides."""


@pytest.mark.parametrize("retries", [0, 2])
def test_a_load_is_tried_so_many_times(tmp_path: Path, retries: int) -> None:
    flags = [NO_COMPLETION, "--exit-on-error=false", f"--model-load-retry-count={retries}"]
    counts = both(tmp_path, lambda r: write(r, "bad", f"note('x'); {BROKEN}"), flags, lambda _, r: len(told(r, "bad")))
    assert counts == [retries + 1] * 2


def test_an_attempt_that_succeeds_is_enough(tmp_path: Path) -> None:
    """The second one does."""
    once = f"note('x')\n        if os.path.getsize({{told!r}}) == 1: {BROKEN}"

    def fill(repository: Path) -> None:
        write(repository, "m", once.replace("{told!r}", repr(str(repository.parent / "m.told"))))

    flags = [NO_COMPLETION, "--model-load-retry-count=3"]
    look = lambda server, r: (len(told(r, "m")), server.get("/v2/models/m/ready"))  # noqa: E731
    assert both(tmp_path, fill, flags, look) == [(2, 200)] * 2


@pytest.mark.parametrize("threads", [1, 4])
def test_so_many_models_load_at_one_time(tmp_path: Path, threads: int) -> None:
    """Each notes where it begins and ends: with one thread nobody begins before the other has ended."""

    def fill(repository: Path) -> None:
        for name in "abcd":
            folder = write(repository, name, "note('(')\n        time.sleep(1)\n        note(')')")
            path = folder / "1" / "model.py"
            path.write_text(path.read_text().replace(f"{name}.told", "all.told"))

    flags = [NO_COMPLETION, f"--model-load-thread-count={threads}"]
    one_by_one = [text == "()()()()" for text in both(tmp_path, fill, flags, lambda _, r: told(r, "all"))]
    assert one_by_one == [threads == 1] * 2


def test_named_configurations(tmp_path: Path) -> None:
    """One model has it, one has not, and of one it is wrong."""

    def fill(repository: Path) -> None:
        size = 'parameters { key: "size" value { string_value: "big" } }'
        for name, named in (("with", CONFIG + size), ("without", None), ("wrong", "foo: 1")):
            folder = write(repository, name)
            if named is not None:
                (folder / "configs").mkdir()
                (folder / "configs" / "big.pbtxt").write_text(named)

    def look(server: Server, _: Path) -> Any:
        configs = [asked(server, "GET", f"/v2/models/{name}/config") for name in ("with", "without", "wrong")]
        return [(status, config.get("parameters")) for status, config in configs]

    theirs, ours = both(tmp_path, fill, ["--exit-on-error=false", "--model-config-name=big"], look)
    assert theirs == ours


@pytest.mark.parametrize("strict", ["true", "false"])
def test_readiness_with_a_model_that_failed(tmp_path: Path, strict: str) -> None:
    def fill(repository: Path) -> None:
        write(repository, "good")
        write(repository, "bad", BROKEN)

    def look(server: Server, _: Path) -> list[int]:
        paths = ("/v2/health/ready", LIVE, "/v2/models/good/ready", "/v2/models/bad/ready", "/v2/models/nobody/ready")
        return [server.get(path) for path in paths]

    theirs, ours = both(tmp_path, fill, ["--exit-on-error=false", f"--strict-readiness={strict}"], look)
    assert theirs == ours


def test_a_model_that_fails_ends_the_start(tmp_path: Path) -> None:
    """--exit-on-error is on by default."""
    for kind in KINDS:
        repository = tmp_path / kind / "models"
        repository.mkdir(parents=True)
        write(repository, "bad", BROKEN)
        with pytest.raises(StartFailed, match="ended with 1 "):
            Server(kind, [repository], [], LIVE).__enter__()


@pytest.mark.parametrize(("seconds", "code", "status"), [(30, 0, 200), (1, 1, None)])
def test_requests_have_the_exit_timeout(tmp_path: Path, seconds: int, code: int, status: int | None) -> None:
    """One that takes 8 s is answered within 30 s, and not within 1 s."""

    def look(server: Server, repository: Path) -> tuple[int | None, int | None]:
        answers: list[int | None] = []
        thread = threading.Thread(target=lambda: answers.append(answered(server)))
        thread.start()
        while not told(repository, "slow"):
            time.sleep(0.01)
        os.kill(server.pid, signal.SIGTERM)
        assert server.dies_within(SECONDS_MAX)
        thread.join()
        return server.exit_code, answers[0] if answers[0] == 200 else None

    slow = lambda repository: write(repository, "slow", execute="note('x'); time.sleep(8)")  # noqa: E731
    assert both(tmp_path, slow, [f"--exit-timeout-secs={seconds}"], look) == [(code, status)] * 2


def answered(server: Server) -> int | None:
    """The status of a request to `slow`; None when there is none."""
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [0]}
    try:
        return asked(server, "POST", "/v2/models/slow/infer", {"inputs": [tensor]})[0]
    except (OSError, http.client.HTTPException):
        return None
