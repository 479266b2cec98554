"""Servers that a program starts for itself: start, ports, errors, and that nothing outlives anybody."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest
import uvloop

from tests.descriptors import open_descriptors
from tests.system.helpers import ROOT, SECONDS_MAX, until
from tests.unused_ports import closed_port
from tests.waiting import has_ended
from tisfast.errors import BadRequest, Unavailable
from tisfast.local_server import LocalServer, guest_runtime
from tisfast.processes import machine

FREE = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1")
CONFIG = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


class AddOne:
    def execute_batch(self, inputs):
        return {"B": inputs["A"] + 1}


class Hangs:
    def __init__(self):
        self.entered, self.gate = threading.Event(), threading.Event()

    def execute_batch(self, inputs):
        self.entered.set()
        self.gate.wait(SECONDS_MAX)
        return {"B": inputs["A"] + 1}


@pytest.fixture
def scratch(monkeypatch):
    """A temporary folder of this test's own, in which nothing is left."""
    with tempfile.TemporaryDirectory(prefix="tf") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        until(lambda: not os.listdir(folder), "nothing is left in the temporary folder")


@pytest.fixture
def start(scratch):
    """Start a server: start(*flags)."""
    started = []

    def begin(*flags, **options):
        started.append(LocalServer([*FREE, *flags], **options))
        started[-1].start(SECONDS_MAX)
        return started[-1]

    yield begin
    for server in started:
        server.stop()


def ask(address, method="GET", path="/v2/health/ready", body=None):
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS_MAX)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def infer(server, model="m"):
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1.0]}
    status, text = ask(server.http_address, "POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})
    return json.loads(text)["outputs"][0]["data"] if status == 200 else json.loads(text)["error"]


def test_it_tells_its_ports_and_serves_this_program_s_objects(start):
    server = start()
    assert server.alive() and psutil.pid_exists(server.pid)
    for address in (server.http_address, server.grpc_address, server.metrics_address):
        host, port = address.split(":")
        assert host == "127.0.0.1" and int(port) > 0
        socket.create_connection((host, int(port)), SECONDS_MAX).close()
    server.guest.serve("m", CONFIG, AddOne())
    assert infer(server) == [2.0]
    assert server.wait(0.0) is None
    server.stop()
    server.stop()
    assert server.wait() == 0 and not server.alive()


def test_ports_that_are_not_open_have_no_address_and_a_fixed_one_is_told(start):
    port = closed_port()
    server = start("--allow-grpc=false", "--allow-metrics=false", f"--http-port={port}")
    assert (server.http_address, server.grpc_address, server.metrics_address) == (f"127.0.0.1:{port}", None, None)


def test_several_servers_in_one_program(start):
    one, two = start(), start()
    one.guest.serve("m", CONFIG, AddOne())
    two.guest.serve("other", CONFIG, AddOne())
    assert infer(one) == [2.0] and infer(two, "other") == [2.0]
    one.stop()
    assert infer(two, "other") == [2.0]


def test_a_stopped_server_starts_again_and_a_running_one_does_not(start):
    server = start()
    with pytest.raises(BadRequest, match=rf"pid {server.pid}\) runs already"):
        server.start()
    server.stop()
    server.start(SECONDS_MAX)
    server.guest.serve("m", CONFIG, AddOne())
    assert infer(server) == [2.0]


def test_a_server_that_was_not_started_says_so():
    server = LocalServer()
    assert not server.alive()
    server.stop()
    with pytest.raises(Unavailable, match="call start"):
        server.wait()


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        (["--http-prt=1"], BadRequest, "unrecognized option '--http-prt'; did you mean --http-port"),
        (["--model-repository=/nowhere/at/all"], BadRequest, "/nowhere/at/all"),
        (["--log-file=/nowhere/at.log"], Unavailable, "exit status 1 before it served"),
    ],
)
def test_what_keeps_it_from_starting_is_told_in_the_server_s_words(scratch, flags, kind, words):
    server = LocalServer([*FREE, *flags])
    with pytest.raises(kind, match=words):
        server.start(SECONDS_MAX)
    assert not server.alive()


def test_a_port_that_is_taken_is_named(scratch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = LocalServer([*FREE, f"--http-port={port}"])
        with pytest.raises(Unavailable, match=rf"Socket '127.0.0.1:{port}' already in use"):
            server.start(SECONDS_MAX)


def test_a_start_that_takes_too_long_leaves_no_process(scratch):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(Unavailable, match="did not serve within 0 s"):
        LocalServer(FREE).start(0)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_who_gives_up_before_the_start_has_begun_ends_it_all_the_same(scratch):
    server = LocalServer(FREE)
    server.give_up()
    with pytest.raises(Unavailable, match="before it served"):
        server.start(SECONDS_MAX)
    server.start(SECONDS_MAX)
    assert server.alive()
    server.stop()


class Killed(subprocess.Popen):
    """By somebody else, at once."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kill()


@pytest.mark.parametrize(
    ("kills", "gives_up", "why"),
    [
        (1, False, ", most likely by the kernel, for want of memory: give it more, or run less beside it"),
        (0, False, ""),
        (1, True, ""),
    ],
)
def test_a_server_that_was_killed_before_it_served_says_so(scratch, monkeypatch, kills, gives_up, why):
    monkeypatch.setattr(machine, "oom_kills", itertools.count(step=kills).__next__)  # the kernel kills others meanwhile
    server = LocalServer(FREE)
    if gives_up:
        server.give_up()
    else:
        monkeypatch.setattr(subprocess, "Popen", Killed)
    with pytest.raises(Unavailable) as told:
        server.start(SECONDS_MAX)
    assert told.value.message == f"the server was killed by signal 9 before it served{why}"


def test_a_server_that_crashes_before_it_serves_says_by_which_signal(scratch, monkeypatch):
    class Crashed(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.send_signal(signal.SIGSEGV)

    monkeypatch.setattr(subprocess, "Popen", Crashed)
    with pytest.raises(Unavailable) as told:
        LocalServer(FREE).start(SECONDS_MAX)
    assert told.value.message == "the server was killed by signal 11 before it served; its log may say why"


def test_who_gives_up_a_server_that_has_ended_meanwhile_hears_nothing(scratch, monkeypatch):
    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            status = super().wait(timeout)
            server.give_up()  # as a signal handler may
            return status

    server = LocalServer([*FREE, "--log-file=/nowhere/at.log"])
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(Unavailable, match="exit status 1 before it served"):
        server.start(SECONDS_MAX)


def test_a_callable_that_hangs_does_not_keep_stop_from_ending_it(start):
    server, backend = start(), Hangs()
    server.guest.serve("m", CONFIG, backend)
    asking = threading.Thread(target=lambda: pytest.raises(OSError, infer, server))
    asking.start()
    assert backend.entered.wait(SECONDS_MAX)
    server.stop(0.2)
    asking.join(SECONDS_MAX)
    backend.gate.set()
    assert not asking.is_alive() and server.wait() == -signal.SIGKILL


def test_what_it_executes_is_answered_before_it_ends(start):
    server, backend = start(), Hangs()
    server.guest.serve("m", CONFIG, backend)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(infer(server)))
    asking.start()
    assert backend.entered.wait(SECONDS_MAX)
    stopping = threading.Thread(target=server.stop, args=(SECONDS_MAX,))
    stopping.start()
    backend.gate.set()
    stopping.join(SECONDS_MAX)
    asking.join(SECONDS_MAX)
    assert answers == [[2.0]] and server.wait() == 0


def test_it_starts_in_a_thread_and_beside_event_loops(scratch):
    found = []

    def once():
        server = LocalServer(FREE)
        server.start(SECONDS_MAX)
        server.guest.serve("m", CONFIG, AddOne())
        found.append(infer(server))
        server.stop()

    async def beside():
        once()
        await asyncio.sleep(0)

    thread = threading.Thread(target=once)
    thread.start()
    thread.join(SECONDS_MAX)
    asyncio.run(beside())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) if sys.version_info >= (3, 11) else _Runner() as runner:
        runner.run(beside())
    assert found == [[2.0]] * 3


class _Runner:
    """asyncio.Runner with uvloop, for CPython 3.10."""

    def __enter__(self):
        self.loop = uvloop.new_event_loop()
        return self

    def __exit__(self, *_):
        self.loop.close()

    def run(self, coroutine):
        self.loop.run_until_complete(coroutine)


def test_after_ten_servers_nothing_is_left(scratch):
    shared = set(os.listdir("/dev/shm"))

    def once():
        server = LocalServer(FREE)
        server.start(SECONDS_MAX)
        server.guest.serve("m", CONFIG, AddOne())
        assert infer(server) == [2.0]
        server.stop()

    once()
    before = len(open_descriptors()), threading.active_count()
    for _ in range(10):
        once()
    until(
        lambda: len(open_descriptors()) <= before[0] and threading.active_count() <= before[1],
        "descriptors and threads are back",
    )
    new = set(os.listdir("/dev/shm")) - shared  # those of tests beside this one go by themselves
    until(lambda: not new & set(os.listdir("/dev/shm")), "nothing is left in /dev/shm")


PROGRAM = f"""
import os, signal, sys, time
from tisfast.local_server import LocalServer
server = LocalServer({FREE!r})
server.start({SECONDS_MAX})
print(server.pid, flush=True)
"""


DIES_AT_ONCE = """
import os, subprocess
class Fatal(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), 9)
subprocess.Popen = Fatal
"""


@pytest.fixture
def program(scratch):
    """Start a program with a server of its own: program(code) is the process and the server's pid."""
    started = []

    def start(code, before=""):
        process = subprocess.Popen(
            [sys.executable, "-c", before + PROGRAM + code],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        line = process.stdout.readline()
        return process, int(line) if line.strip().isdecimal() else line + process.stderr.read()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def gone(pid):
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    until(lambda: has_ended(process), "it has ended")


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(3600)",
        # A child of the user's has copies of all descriptors, and lives on.
        "child = os.fork()\nif child == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(3600)\ntime.sleep(3600)",
    ],
    ids=["alone", "with a forked child"],
)
def test_it_ends_with_its_program_however_that_dies(program, code):
    process, pid = program(code)
    # It says so itself: by then it has let go of the lock of the server's folder.
    child = int(process.stdout.readline()) if "fork" in code else None
    try:
        process.kill()
        process.wait()
        gone(pid)
    finally:
        if child is not None:
            assert psutil.pid_exists(child)
            os.kill(child, signal.SIGKILL)


def test_it_ends_with_a_program_that_dies_while_it_starts(scratch):
    found = subprocess.run(
        [sys.executable, "-c", DIES_AT_ONCE + PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        check=False,
    )  # fmt: skip
    assert found.returncode == -signal.SIGKILL
    gone(int(found.stdout))


@pytest.mark.parametrize("code", ["sys.exit(3)", "raise ValueError('it breaks')", "del server\nsys.exit(3)"])
def test_a_program_that_ends_without_stopping_it_leaves_nothing(program, code):
    process, pid = program(code)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == (1 if "raise" in code else 3)
    gone(pid)


def test_a_forked_child_that_ends_does_not_end_it(program):
    process, pid = program(
        "child = os.fork()\nif child == 0:\n    sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1], server.alive(), flush=True)\ninput()"
    )
    assert process.stdout.readline() == "0 True\n"
    assert psutil.pid_exists(pid)


INTERRUPTED = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
try:
    print("waiting", flush=True)
    server.wait()
except KeyboardInterrupt:
    print(server.alive(), flush=True)
    server.stop()
    print(server.wait(), flush=True)
"""


def test_the_terminal_s_ctrl_c_is_the_program_s(program):
    process, pid = program(INTERRUPTED)
    assert os.getsid(pid) != os.getsid(process.pid)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "True\n" and process.stdout.readline() == "0\n"


def test_a_folder_with_modules_of_well_known_names_does_not_harm_it(program, tmp_path):
    for name in ("logging", "types", "socket"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the user has a module of this name')")
    _, pid = program("time.sleep(3600)", before=f"import os, sys\nsys.path.remove('')\nos.chdir({str(tmp_path)!r})\n")
    assert isinstance(pid, int), pid


def test_the_runtime_of_guests_is_found_in_a_checkout():
    assert guest_runtime().join


def test_a_server_that_is_killed_is_noticed(start):
    server = start()
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait(SECONDS_MAX) == -signal.SIGKILL and not server.alive()
