"""The end of servers: while they start, while they execute, and in programs that fork."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.pytriton.served import ONE, add, http, model, server
from tests.unused_ports import closed_port
from tests.waiting import wait_until
from tisfast.local_server import LocalServer
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientError
from tisfast.pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonInvalidOperationError,
    PyTritonUnrecoverableError,
)
from tisfast.pytriton.model_config import ModelConfig
from tisfast.pytriton.model_config.common import ModelWarmup, WarmupInput
from tisfast.pytriton.triton import RemoteTriton

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60
WARM_UP = ModelConfig(model_warmup=[ModelWarmup("w", 1, {"a": WarmupInput(np.float32, (1,), zero_data=True)}, 1)])
STUCK = """
import threading

class TritonPythonModel:
    def initialize(self, args):
        open({begun!r}, "w").close()
        threading.Event().wait(600)
"""
CONFIG = 'backend: "python" input [{name: "a" data_type: TYPE_FP32 dims: [1]}]'
FORKS = """
import os, sys
from tisfast.pytriton.triton import Triton, TritonConfig
from tisfast.pytriton.utils.workspace import Workspace

other = Workspace()
triton = Triton(config=TritonConfig(http_port=0, grpc_port=0, metrics_port=0))
triton.run()
child = os.fork()
if not child:
    del other
    sys.exit()
os.waitpid(child, 0)
print(triton._workspace.exists(), other.exists(), triton.is_alive())
triton.stop()
"""


def ask(triton, name="m"):
    with ModelClient(http(triton), name) as client:
        return client.infer_sample(ONE)["o"].tolist()


class Outcome(threading.Thread):
    """What a call comes to in a thread."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self._call = call
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self._call()
        except Exception as error:
            self.error = error

    def ended(self):
        self.join(SECONDS_MAX)
        return not self.is_alive()


def hanging(begun):
    """A callable whose warm-up never ends."""

    def function(requests):
        begun.set()
        threading.Event().wait()

    return function


def test_stop_does_not_wait_for_a_warm_up_that_hangs(tmp_path):
    begun = threading.Event()
    triton = server(workspace=tmp_path / "work")
    triton.bind(**model("m", hanging(begun), config=WARM_UP))
    running = Outcome(triton.run)
    assert begun.wait(SECONDS_MAX)
    assert Outcome(triton.stop).ended()
    assert running.ended()
    assert isinstance(running.error, PyTritonInvalidOperationError)
    assert "`stop` was called before" in str(running.error)
    assert triton.http_address is None
    assert not (tmp_path / "work").exists()


def test_a_signal_handler_may_stop_what_it_interrupts(tmp_path):
    triton = server(workspace=tmp_path / "work")
    triton.bind(**model("m", lambda requests: os.kill(os.getpid(), signal.SIGUSR1) or add(requests), config=WARM_UP))
    stopped = []
    before = signal.signal(signal.SIGUSR1, lambda *_: stopped.append(triton.stop()))
    try:
        with pytest.raises(PyTritonInvalidOperationError, match="`stop` was called before"):
            triton.run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stopped == [True]
    assert triton.http_address is None
    assert not (tmp_path / "work").exists()


@contextlib.contextmanager
def stopped_by_a_signal(triton):
    """SIGUSR1 stops it; what `stop` has returned."""
    stopped = []
    before = signal.signal(signal.SIGUSR1, lambda *_: stopped.append(triton.stop()))
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_may_stop_a_server_to_which_a_model_is_bound(tmp_path):
    triton, ended = server(workspace=tmp_path / "work"), threading.Event()

    def function(requests):
        os.kill(os.getpid(), signal.SIGUSR1)
        ended.wait(SECONDS_MAX)

    triton.run()
    try:
        with stopped_by_a_signal(triton) as stopped, pytest.raises(PyTritonInvalidOperationError, match="`stop` was"):
            triton.bind(**model("m", function, config=WARM_UP))
        assert not ended.is_set()
        assert stopped == [True]
        assert triton.http_address is None
        assert not triton.is_connected()
        assert not (tmp_path / "work").exists()
        assert triton.stop() is False
    finally:
        ended.set()
        triton.stop()


def test_a_signal_handler_that_stops_what_ends_by_itself_stops_no_later_run(tmp_path, monkeypatch):
    triton, stop, signals = server(workspace=tmp_path / "work"), LocalServer.stop, [signal.SIGUSR1]

    def interrupted(local, seconds_max):
        stop(local, seconds_max)
        if signals:
            os.kill(os.getpid(), signals.pop())

    monkeypatch.setattr(LocalServer, "stop", interrupted)
    triton.bind(**model("m", add, config=ModelConfig(max_batch_size=0)))
    with stopped_by_a_signal(triton) as stopped:
        with pytest.raises(PyTritonInvalidOperationError, match="`stop` was called before"):
            triton.run()
        assert stopped == [True]
        with pytest.raises(PyTritonBadParameterError, match="max_batch_size"):
            triton.run()


def test_serve_returns_when_it_is_stopped_while_the_server_starts(tmp_path):
    begun, version = tmp_path / "begun", tmp_path / "models/stuck/1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(STUCK.format(begun=str(begun)))
    version.with_name("config.pbtxt").write_text(CONFIG)
    triton = server(workspace=tmp_path / "work", model_repository=tmp_path / "models")
    serving = Outcome(triton.serve)
    wait_until(begun.exists)
    assert Outcome(triton.stop).ended()
    assert serving.ended()
    assert serving.error is None
    assert triton.http_address is None


def test_a_remote_program_may_be_stopped_before_there_is_a_server(tmp_path):
    remote = RemoteTriton(f"localhost:{closed_port()}", workspace=tmp_path / "remote")
    connecting = Outcome(remote.connect)
    wait_until(lambda: remote._connecting)
    remote.stop()
    assert connecting.ended()
    assert isinstance(connecting.error, PyTritonInvalidOperationError)


def test_what_an_earlier_run_cannot_go_on_with_stops_no_later_one(triton):
    begun, release, raised = threading.Event(), threading.Event(), threading.Event()

    def function(requests):
        begun.set()
        release.wait()
        raised.set()
        raise PyTritonUnrecoverableError("out of memory")

    running = triton(model("m", function), model("fine", add), exit_timeout_secs=1)
    asking = Outcome(lambda: ask(running))
    assert begun.wait(SECONDS_MAX)
    running.stop()
    assert asking.ended()
    assert isinstance(asking.error, PyTritonClientError)
    running.run()
    release.set()
    assert raised.wait(SECONDS_MAX)
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "tisfast-pytriton-stop"])
    assert running.is_connected()
    assert ask(running, "fine") == [1]


def test_what_executes_is_answered_before_the_end(triton):
    begun, release = threading.Event(), threading.Event()

    def function(requests):
        begun.set()
        release.wait()
        return add(requests)

    running = triton(model("m", function))
    asking = Outcome(lambda: ask(running))
    assert begun.wait(SECONDS_MAX)
    threading.Timer(11, release.set).start()  # longer than a server that nobody stops has at the end of a program
    running.stop()
    assert asking.ended()
    assert asking.value == [1]


def test_a_child_of_the_program_leaves_everything_in_its_place(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTRITON_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FORKS], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "True True True\n", done.stderr
    assert not list(tmp_path.iterdir())
