"""Functions of tisfast.serve that hang, fail at their end, or are replaced; servers that nobody holds."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

import tisfast
from tests.system.helpers import ROOT, SECONDS_MAX, until
from tisfast import limits
from tisfast.client import Client
from tisfast.errors import BadRequest, TisError, Unavailable
from tisfast.functions import server as functions_server

F = np.float32
X = np.arange(4, dtype=F)
PID = os.getpid()
TOO_MANY = [tisfast.Tensor(f"o{at}") for at in range(65)]  # what only the server refuses


@pytest.fixture
def serve():
    """tisfast.serve at free ports; stopped in the end."""
    with contextlib.ExitStack() as stack:

        def start(*functions, **options):
            server = tisfast.serve(*functions, **{"http_port": 0, "grpc_port": None, **options})
            stack.callback(server.stop)
            return server

        yield start


def double(x: NDArray[F]) -> NDArray[F]:
    return x * 2


class Hanging:
    """Does not answer before `gate` is open."""

    def __init__(self) -> None:
        self.entered, self.gate, self.torn = threading.Event(), threading.Event(), threading.Event()
        made.append(self)

    def predict(self, x: NDArray[F]) -> NDArray[F]:
        self.entered.set()
        assert self.gate.wait(SECONDS_MAX)
        assert not self.torn.is_set()
        return x

    def teardown(self) -> None:
        self.torn.set()


made: list[Hanging] = []


@pytest.fixture
def hung(serve):
    """(server, object, future of its answer): a function that hangs, beside one that does not."""
    server = serve(Hanging, double)
    hanging = made.pop()
    answer = server.client("Hanging").submit(X)
    assert hanging.entered.wait(SECONDS_MAX)
    yield server, hanging, answer
    hanging.gate.set()


def test_a_function_that_hangs_is_replaced(hung):
    server, hanging, answer = hung
    server.add(double, name="Hanging")
    assert server.client("Hanging")(X).tolist() == (X * 2).tolist() and server.models == ["Hanging", "double"]
    assert not hanging.torn.is_set() and not answer.done()
    server.remove("Hanging")
    server.add(double, name="Hanging")
    hanging.gate.set()
    assert answer.result(SECONDS_MAX).tolist() == X.tolist()
    assert hanging.torn.wait(SECONDS_MAX)
    assert server.client("Hanging")(X).tolist() == (X * 2).tolist()


def test_a_function_that_hangs_holds_up_no_other(hung):
    server, hanging, answer = hung
    removed = []
    thread = threading.Thread(target=lambda: removed.append(server.remove("Hanging", SECONDS_MAX)))
    thread.start()
    until(lambda: not server.client("Hanging").ready(), "it takes its leave")
    assert server.client("double")(X).tolist() == (X * 2).tolist()
    server.add(double, name="more").remove("double")
    assert server.client("more")(X).tolist() == (X * 2).tolist() and "<td>" in server._repr_html_()
    assert thread.is_alive()
    hanging.gate.set()
    thread.join(SECONDS_MAX)
    assert removed == [True] and hanging.torn.is_set() and answer.result(SECONDS_MAX).tolist() == X.tolist()
    assert server.models == ["more"]


def test_remove_waits_for_at_most_so_long(hung):
    server, hanging, answer = hung
    assert server.remove("Hanging", 0) is False
    assert server.models == ["double"] and not hanging.torn.is_set()
    hanging.gate.set()
    assert answer.result(SECONDS_MAX).tolist() == X.tolist() and hanging.torn.wait(SECONDS_MAX)


def test_the_function_before_one_that_hangs_is_said_to_be_gone(hung):
    server, _, _ = hung
    words = "'Hanging' is not served any more: .*it has not answered its last requests"
    with pytest.raises(Unavailable, match=words):
        server.add(double, name="Hanging", outputs=TOO_MANY)
    assert server.models == ["double"]


class Fragile:
    """Its teardown raises."""

    torn = 0

    def predict(self, x: NDArray[F]) -> NDArray[F]:
        return x

    def teardown(self) -> None:
        Fragile.torn += 1
        raise RuntimeError(f"teardown {Fragile.torn}")


def test_a_teardown_that_raises_costs_no_other_its_own(serve):
    Fragile.torn = 0
    server = serve({"a": Fragile, "b": Fragile, "c": Fragile}, instances=2)
    with pytest.raises(RuntimeError, match="teardown 2"):
        server.add(double, name="a")
    assert server.client("a")(X).tolist() == (X * 2).tolist()
    with pytest.raises(RuntimeError, match="teardown 4"):
        server.remove("b")
    assert server.models == ["a", "c"]
    with pytest.raises(RuntimeError, match="teardown 6"):
        server.stop()
    assert Fragile.torn == 6 and server.models == []


class OnlyHere:
    """Cannot be made in a worker process."""

    def setup(self) -> None:
        if os.getpid() != PID:
            raise RuntimeError("not in a worker")

    def predict(self, x: NDArray[F]) -> NDArray[F]:
        return x


@pytest.mark.parametrize("processes", [0, 1])
def test_a_function_that_cannot_begin_leaves_the_one_before_it(serve, processes):
    server = serve(double, name="f", processes=processes)
    with pytest.raises(BadRequest, match="65 outputs, more than 64"):
        server.add(double, name="f", outputs=TOO_MANY)
    assert server.client()(X).tolist() == (X * 2).tolist()
    with pytest.raises(TisError, match="not in a worker"):
        server.add(OnlyHere, name="f", processes=1)
    assert server.models == ["f"] and server.client()(X).tolist() == (X * 2).tolist()


def test_a_server_that_nobody_holds_serves_until_the_program_ends():
    code = (
        "import gc, numpy as np, tisfast\n"
        "model = tisfast.serve(lambda x: x * 2, name='f', sample=(np.ones(2),), http_port=0, grpc_port=None).client()\n"
        "gc.collect()\n"
        "print(model(np.ones(2)))\n"
    )
    with tempfile.TemporaryDirectory(prefix="tf") as folder:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": folder},
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "[2. 2.]\n", "")
        until(lambda: not os.listdir(folder), "nothing is left in the temporary folder")


@contextlib.contextmanager
def interrupted_when(path):
    """Ctrl-C is pressed when there is a file."""

    def interrupt():
        until(lambda: os.path.exists(path), "it begins")
        os.kill(PID, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            yield
        thread.join(SECONDS_MAX)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["slow", "double"])
def test_ctrl_c_does_not_wait_for_a_setup_that_hangs(serve, tmp_path, name):
    began, ended = str(tmp_path / "began"), str(tmp_path / "ended")

    class Slow:
        def setup(self) -> None:
            open(began, "w").close()
            time.sleep(30)
            open(ended, "w").close()

        def predict(self, x: NDArray[F]) -> NDArray[F]:
            return x

    server = serve({"double": double, "other": double})
    with interrupted_when(began):
        server.add(Slow, name=name, processes=1)
    assert not os.path.exists(ended)
    assert not list(server._local.models.iterdir())
    assert server.models == sorted({"double", "other"} - {name})
    assert server.client("other")(X).tolist() == (X * 2).tolist()


def test_servers_that_nobody_stops_are_bounded(serve, monkeypatch):
    running = sum(each.alive() for each in list(functions_server._servers))
    monkeypatch.setattr(limits, "FUNCTION_SERVERS_MAX", running + 1)
    server = serve(double)
    with pytest.raises(BadRequest, match=rf"has {running + 1} servers, which is the limit: stop\(\)"):
        serve(double)
    server.stop()
    assert serve(double).client()(X).tolist() == (X * 2).tolist()


def test_remove_waits_for_the_requests_of_workers(serve, tmp_path):
    began, gate = tmp_path / "began", tmp_path / "gate"
    names = str(began), str(gate)

    def gated(x: NDArray[F]) -> NDArray[F]:
        open(names[0], "w").close()
        while not os.path.exists(names[1]):
            time.sleep(0.01)
        return x

    server = serve(gated, processes=1)
    answer = server.client().submit(X)
    until(began.exists, "it executes")
    assert server.remove("gated", 0.1) is False
    assert server.models == [] and not answer.done()
    gate.touch()
    assert answer.result(SECONDS_MAX).tolist() == X.tolist()
    server.add(gated, processes=1)
    assert server.client()(X).tolist() == X.tolist()
    assert server.remove("gated") is True


@pytest.mark.parametrize("name", [3, b"q", ["a"]])
def test_a_name_that_is_no_text_is_refused_and_ends_nothing(serve, name):
    server = serve(double)
    with pytest.raises(BadRequest, match="the name of a function must be a str, not "):
        server.add(double, name=name)
    with pytest.raises(BadRequest, match="the name of a function must be a str, not "):
        tisfast.serve(double, http_port=0, name=name)
    with pytest.raises(BadRequest, match="the name of a function must be a str, not 3"):
        tisfast.serve({3: double}, http_port=0)
    assert server.client("double")(X).tolist() == (X * 2).tolist()


STOPPED_TWICE = """
import signal, threading
import numpy as np, tisfast
from numpy.typing import NDArray

begun, again = threading.Event(), threading.Event()

def slow(x: NDArray[np.float32]) -> NDArray[np.float32]:
    begun.set()
    again.wait(60)
    return x

server = tisfast.serve(slow, http_port=0, grpc_port=None)
client = server.client()
threading.Thread(target=lambda: client(np.ones(1, np.float32)), daemon=True).start()
begun.wait(60)
calls = []

def handler(*_):
    calls.append(1)
    if len(calls) == 1:
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # comes while the server waits for the request
    else:
        again.set()
    server.stop()

signal.signal(signal.SIGALRM, handler)
signal.raise_signal(signal.SIGALRM)
print(len(calls), server.alive(), flush=True)
"""


def test_a_stop_within_a_stop_ends_both():
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_TWICE], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "2 False\n")


TERMINATED = """
import signal, threading
import numpy as np, tisfast
from numpy.typing import NDArray

told = threading.Event()

def slow(x: NDArray[np.float32]) -> NDArray[np.float32]:
    print("begun", flush=True)
    assert told.wait(60)
    return x * 2

def handler(*_):
    told.set()
    server.stop()

server = tisfast.serve(slow, http_port=0, grpc_port=None)
signal.signal(signal.SIGTERM, handler)
print(server.url, flush=True)
print(server.wait(), flush=True)
"""


def test_a_program_that_stops_its_server_at_sigterm_answers_what_it_executes():
    with subprocess.Popen(
        [sys.executable, "-c", TERMINATED], env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            with Client(process.stdout.readline().strip()) as client:
                answer = client.model("slow").submit(X)
                assert process.stdout.readline() == "begun\n"
                process.terminate()
                assert answer.result(SECONDS_MAX).tolist() == (X * 2).tolist()
            assert process.communicate(timeout=SECONDS_MAX)[0] == "True\n"
        finally:
            process.kill()
    assert process.returncode == 0
