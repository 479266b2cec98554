"""What polled models that cannot be served do to the server's readiness and to their own, beside the real Triton."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import pytest

from perf.oracle.server import Server
from tests.oracle.cases.table import Request
from tests.oracle.polled import CONFIG, ONE_EACH, SECONDS_MAX, adds, asked, settled, write, write_ensemble

POLLS_SECONDS: Final = 3
RAISES: Final = """
with open({told!r}, "a") as file:
    file.write("x")
raise ValueError("{{number}}")
"""
NEVER_READ: Final = {
    "syntax": "no_such_key: 1",
    "value": CONFIG + "max_batch_size: -3",
    "named": CONFIG + 'name: "other"',
}


class Polled:
    """A server that polls two repositories each second, with a model that is never changed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.one, self.two, self.away = folder / "a" / "one", folder / "b" / "two", folder / "away"
        self.told = folder / "told"
        for each in (self.one, self.two, self.away):
            each.mkdir(parents=True)
        write(self.one / "good", 1)
        flags = ["--model-control-mode=poll", "--repository-poll-secs=1"]
        self.server = Server(kind, [self.one, self.two], flags)  # type: ignore[arg-type]

    def shows(self, wanted: dict[str, int]) -> None:
        """After some polls and what they began: the status of readiness of the server, "", and of models."""
        time.sleep(POLLS_SECONDS)
        deadline = time.monotonic() + SECONDS_MAX
        while (found := {model: self.status(model) for model in wanted}) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)  # what a poll has begun gives no event
        assert found == wanted

    def status(self, model: str) -> int:
        route = f"/v2/models/{model}/ready" if model else "/v2/health/ready"
        return asked(self.server, Request("GET", route))[0]

    def write_raising(self) -> None:
        """The model `raises`, whose every load tells of itself and fails."""
        self.told.touch()  # a server under load says that it is not ready before it has loaded it for the first time
        write(self.one / "raises", 1, code=RAISES.format(told=str(self.told)))

    def between_loads_of_raising(self) -> None:
        """Wait for Triton, which loads `raises` again at each poll, until it has just done so.

        A load whose model.py goes away before Triton's Python backend has read it never ends, nor does its poll.
        """
        if self.server.kind == "triton":
            before, deadline = self.told.stat().st_size, time.monotonic() + SECONDS_MAX
            while self.told.stat().st_size == before:
                assert time.monotonic() < deadline, f"the real Triton has not polled for {SECONDS_MAX} s"
                time.sleep(0.02)  # what a poll has begun gives no event

    def gone(self, model: str) -> None:
        shutil.move(self.one / model, self.away / model)


@pytest.fixture(params=ONE_EACH)
def polled(request: pytest.FixtureRequest, tmp_path: Path) -> Polled:
    return Polled(request.param, tmp_path)


def test_what_was_never_read_takes_no_readiness_away(polled: Polled) -> None:
    with polled.server:
        for name, config in NEVER_READ.items():
            write(polled.one / name, 1, config=config)
        (polled.one / "empty").mkdir()
        write_ensemble(polled.one / "steps", "nobody")
        write(polled.one / "twin", 1)
        write(polled.two / "twin", 2)
        names = (*NEVER_READ, "empty", "steps", "twin")
        polled.shows({"": 200} | dict.fromkeys(names, 400))


def test_what_was_read_and_cannot_be_loaded_takes_it_away(polled: Polled) -> None:
    with polled.server:
        (polled.one / "versionless").mkdir()
        (polled.one / "versionless/config.pbtxt").write_text(CONFIG)
        polled.shows({"": 400, "versionless": 400, "good": 200})
        polled.gone("versionless")
        # Triton keeps the failed load of what is gone; here it is forgotten.
        polled.shows({"": 400 if polled.server.kind == "triton" else 200, "versionless": 400, "good": 200})


def test_what_is_mended_gives_readiness_back(polled: Polled) -> None:
    with polled.server:
        polled.write_raising()
        polled.shows({"": 400, "raises": 400, "good": 200})
        polled.between_loads_of_raising()
        write(polled.one / "raises", 1)
        polled.shows({"": 200, "raises": 200, "good": 200})


def test_what_serves_and_becomes_broken_stays_ready(polled: Polled) -> None:
    with polled.server:
        names = (*NEVER_READ, "versionless", "raises")
        for name in names:
            write(polled.one / name, 1)
        polled.shows({"": 200} | dict.fromkeys(names, 200))
        for name, config in NEVER_READ.items():
            write(polled.one / name, 1, config=config)
        shutil.rmtree(polled.one / "versionless/1")
        polled.write_raising()
        polled.shows({"": 200} | dict.fromkeys(names, 200))
        polled.between_loads_of_raising()
        for name in names:
            polled.gone(name)
        polled.shows({"": 200} | dict.fromkeys(names, 400))


def test_a_twin_of_what_serves(polled: Polled) -> None:
    """Deliberate (docs/polling.md): Triton unloads the model, here it goes on."""
    with polled.server:
        write(polled.one / "twin", 1)
        polled.shows({"": 200, "twin": 200})
        write(polled.two / "twin", 2)
        polled.shows({"": 200, "twin": 400 if polled.server.kind == "triton" else 200})
        polled.gone("twin")
        polled.shows({"": 200, "twin": 200})
        assert settled(polled.server, "twin", adds(2)).adds == 2
