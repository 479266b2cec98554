"""For tests of models and processes: a loop to run coroutines on, and supervisors of models written in place."""

import asyncio
import os
import sys

import pytest

from tests.descriptors import open_descriptors
from tests.loops import fresh_loop
from tests.waiting import until
from tisfast.config.settings import RepositorySettings, WorkerSettings
from tisfast.engine.registry import Registry
from tisfast.models.supervisor import Supervisor
from tisfast.processes.clock import MachineClock

SECONDS_MAX = 90  # of a coroutine, on a machine that has much else to do
MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
CONFIG = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


@pytest.fixture
def loop():
    with fresh_loop() as made:
        yield made
        made.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def run(loop):
    """Run one coroutine to its end, within a deadline."""
    return lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS_MAX))


@pytest.fixture
def write(tmp_path):
    def model(name: str, code: str = MODEL, config: str = CONFIG, version: str = "1"):
        folder = tmp_path / name
        (folder / version).mkdir(parents=True)
        (folder / version / "model.py").write_text(code)
        (folder / "config.pbtxt").write_text(config)
        return folder

    return model


@pytest.fixture
def registry():
    made = Registry()
    made.set_live(True)
    return made


@pytest.fixture
def supervise(tmp_path, loop, run, registry, monkeypatch):
    """Load the test's repository; returns the supervisor."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    started: list[Supervisor] = []

    def start(
        *, retries: int = 0, workers: WorkerSettings | None = None, explicit: tuple[str, ...] | None = None
    ) -> Supervisor:
        """explicit: names to load at the start, in that mode; None for mode none."""
        mode = "none" if explicit is None else "explicit"
        supervisor = Supervisor(
            RepositorySettings((str(tmp_path),), load_retries=retries, control_mode=mode, load_models=explicit or ()),
            workers or WorkerSettings(sys.executable),
            registry,
            MachineClock(),
            loop,
        )
        started.append(supervisor)
        supervisor.open()
        supervisor.find()
        run(supervisor.load_all(lambda _: None))
        return supervisor

    yield start
    for supervisor in started:
        run(supervisor.close())


async def descriptors() -> int:
    """How many this process has open, those of the running loop among them."""
    return len(open_descriptors())


async def descriptors_are(most: int) -> None:
    """Waits for it: ZeroMQ lets go of a connection when its own thread sees that the worker there is gone."""
    await until(lambda: len(os.listdir("/proc/self/fd")) <= most)
