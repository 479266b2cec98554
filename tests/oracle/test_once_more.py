"""What is run once more, and what is not: tests that fail in their first run, with real servers that are hurt."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from perf.oracle.launch import ROOT

SECONDS_MAX: Final = 300
TESTS: Final = """
import os, signal
from pathlib import Path

import pytest

from perf.oracle.server import Server, StartFailed

pytestmark = pytest.mark.oracle
HERE = Path(__file__).parent
EXAMPLES = {models!r}


def first(name):
    "Whether it is asked for the first time."
    with (HERE / name).open("a+") as file:
        file.write("x")
        return file.tell() == 1


def hurt(server, signal):
    os.kill(server.pid, signal)
    if signal == signal.SIGKILL:
        assert server.dies_within(60)


@pytest.fixture(scope="module")
def both():
    flags = ["--model-control-mode=explicit"]
    with Server("triton", [EXAMPLES], flags) as theirs, Server("tisfast", [EXAMPLES], flags) as ours:
        yield theirs, ours


def asked(both):
    return [server.get("/v2") for server in both]


def test_both_are_well(both):
    assert asked(both) == [200, 200]


def test_a_wrong_answer_of_ours(both):
    assert not first("wrong")


@pytest.mark.parametrize("kind", [pytest.param("triton", marks=pytest.mark.reference), "tisfast"])
def test_of_one(kind, both):
    assert not first(kind)


def test_theirs_is_killed(both):
    if first("killed"):
        hurt(both[0], signal.SIGKILL)
    assert asked(both) == [200, 200]


def test_theirs_hangs(both):
    if first("hangs"):
        hurt(both[0], signal.SIGSTOP)
    assert asked(both) == [200, 200]


def test_theirs_is_killed_each_time(both):
    first("each")
    hurt(both[0], signal.SIGKILL)
    assert asked(both) == [200, 200]


def test_a_wrong_answer_of_ours_once_theirs_runs_again(both):
    if first("then wrong"):
        hurt(both[0], signal.SIGKILL)
    assert asked(both) == [200, 400]


def test_theirs_is_killed_in_a_context():
    with Server("triton", [EXAMPLES], ["--model-control-mode=explicit"]) as server:
        if first("context"):
            hurt(server, signal.SIGKILL)
        assert server.get("/v2") == 200


def test_theirs_does_not_start():
    if first("start"):
        Server("triton", [EXAMPLES], ["--no-such-flag"]).__enter__()


def test_ours_does_not_start():
    if first("our start"):
        Server("tisfast", [EXAMPLES], ["--no-such-flag"]).__enter__()


def test_both_are_killed(both):
    if first("both"):
        for server in both:
            hurt(server, signal.SIGKILL)
    assert asked(both) == [200, 200]
"""


def test_what_is_run_once_more(tmp_path: Path) -> None:
    """A first run that does not count is shown, and the second one decides."""
    (tmp_path / "test_hurt.py").write_text(TESTS.replace("{models!r}", repr(str(ROOT / "examples/models"))))
    plugins = ["-p", "tests.oracle.once_more", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-vv", "-rN", "-c", str(ROOT / "pyproject.toml"), *plugins]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTEST_XDIST_WORKER", None)
    what = [*command, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(what, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    said: dict[str, list[str]] = {}
    for name, word in re.findall(r"^\S*test_hurt.py::test_(\S+) (?:.*)?(PASSED|FAILED|ERROR|AGAIN)", done.stdout, re.M):
        said.setdefault(name, []).append(word)
    for name, word in re.findall(r"^AGAIN \S*test_hurt.py::test_(\S+): (.*)$", done.stdout, re.M):
        said[name].append(word)
    hurt = "it has crashed, or does not answer"
    expected = {
        "both_are_well": ["PASSED"],
        "a_wrong_answer_of_ours": ["FAILED"],
        "of_one[triton]": ["AGAIN", "PASSED", "it is the only subject"],
        "of_one[tisfast]": ["FAILED"],
        "theirs_is_killed": ["AGAIN", "PASSED", hurt],
        "theirs_hangs": ["AGAIN", "PASSED", hurt],
        "theirs_is_killed_each_time": ["AGAIN", "FAILED", hurt],
        "a_wrong_answer_of_ours_once_theirs_runs_again": ["AGAIN", "FAILED", hurt],
        "theirs_is_killed_in_a_context": ["AGAIN", "PASSED", hurt],
        "theirs_does_not_start": ["AGAIN", "PASSED", "it did not start"],
        "ours_does_not_start": ["FAILED"],
        "both_are_killed": ["FAILED"],
    }
    assert said.keys() == expected.keys(), done.stdout + done.stderr
    wrong = {name: (said[name], words) for name, words in expected.items() if said[name] != words}
    assert not wrong, "\n".join([repr(wrong), *(_report(name, done.stdout) for name in wrong)])
    assert done.returncode == 1
    assert "assert [0, 200] == [200, 200]" in done.stdout


def _report(name: str, output: str) -> str:
    """What pytest says of one test: of its failure, and of a first run that did not count."""
    title = re.escape(name)
    sections = re.findall(rf"^_+ test_{title} _+$.*?(?=^_+ |^=+ |\Z)", output, re.M | re.S)
    return "\n".join([*sections, *re.findall(rf"^AGAIN \S*test_{title}: .*?(?=^AGAIN |^=+ |\Z)", output, re.M | re.S)])
