"""The fork server with real processes, under every interpreter there is."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from tests.workers.driver import ABI, WAIT_SECONDS, WORKERS, Instance, NurseryProcess, Plane, Router, floats
from tests.workers.pythons import has_numpy

PLAIN = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = [f"{r.request_id()} of {len(r.inputs())}" for r in requests]
        return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(text)) for text in told]
"""
ADD_SUB = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        out = []
        for r in requests:
            a = pb_utils.get_input_tensor_by_name(r, "A").as_numpy()
            b = pb_utils.get_input_tensor_by_name(r, "B").as_numpy()
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("X", a + b), pb_utils.Tensor("Y", a - b)]))
        return out
"""


def test_every_interpreter_serves(python, tmp_path):
    """With numpy where the interpreter has it, and without arrays where it does not."""
    nursery = NurseryProcess(python)
    hello, _ = nursery.receive()
    assert (hello["t"], hello["pid"], hello["abi"], hello["threads"]) == ("nursery", nursery.process.pid, ABI, 1)
    assert (hello["numpy"] is not None) == has_numpy(python)
    router = Router(nursery.endpoint)
    instance = Instance(nursery, router, tmp_path, ADD_SUB if hello["numpy"] else PLAIN)
    assert instance.hello == {"t": "hello", "id": instance.id, "token": b"secret", "pid": instance.pid, "abi": ABI}
    assert instance.start()["t"] == "ready"
    for _ in range(3):
        answer = instance.ask([1, 2], [3, 4], id="r1")
        assert answer.flags == 1 and answer.batch == 1 and sorted(answer.times) == list(answer.times)
        if hello["numpy"]:
            assert [floats(data) for *_, data in answer.outputs] == [[4, 6], [-2, -2]]
        else:
            assert (answer.status, answer.text) == (2, "r1 of 2")
    instance.stop()
    assert router.until("stopped") and instance.exit_status() == 0
    nursery.close()
    router.close()
    assert nursery.process.returncode == 0 and instance.printed() == ""


@pytest.mark.parametrize("keep", ["requests[0]", "requests", "requests[0].inputs()[0]"])
def test_every_interpreter_knows_what_a_model_keeps(python, tmp_path, keep):
    """Counts of references differ between interpreters; no numpy needed for this."""
    body = f"self.kept = [{keep}] if requests[0].request_id() else None\n        return ["
    nursery = NurseryProcess(python)
    nursery.receive()
    router = Router(nursery.endpoint)
    instance = Instance(nursery, router, tmp_path, PLAIN.replace("return [", body))
    assert instance.start()["t"] == "ready"
    assert [instance.ask([1], [2], id=name).flags for name in ("", "", "keep")] == [1, 1, 3]
    instance.plane.push([instance.record([3], [4])])
    assert sorted(instance.plane.next().kind for _ in range(2)) == [3, 4]
    nursery.close()
    router.close()


def test_a_killed_child_is_reported_with_its_status(nursery, serve):
    instance = serve(PLAIN)
    os.kill(instance.pid, signal.SIGKILL)
    assert os.WTERMSIG(instance.exit_status()) == signal.SIGKILL


def test_many_children_come_and_go(nursery, serve):
    nursery_fds = f"/proc/{nursery.process.pid}/fd"
    before = None
    for _ in range(3):
        instances = [serve(PLAIN) for _ in range(3)]
        for instance in instances:
            os.kill(instance.pid, signal.SIGKILL)
        ended = {nursery.receive()[0]["pid"] for _ in instances}
        assert ended == {instance.pid for instance in instances}
        assert before in (None, len(os.listdir(nursery_fds)))
        before = len(os.listdir(nursery_fds))


def test_the_end_of_the_socket_ends_everything(nursery, serve):
    instance = serve(PLAIN)
    assert Path(nursery.folder).exists()
    nursery.close()
    assert _ended(instance.pidfd) and not Path(nursery.folder).exists()


def test_files_that_are_not_ours_stay_in_the_control_directory(nursery, serve):
    serve(PLAIN)
    kept = Path(nursery.folder, "notes.txt")
    kept.write_text("mine")
    nursery.end()
    assert os.listdir(nursery.folder) == ["notes.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_is_the_servers_affair(nursery, serve, number):
    """Ctrl-C, and what systemd and `pkill` send.  What is not there is started as ever."""
    instance = serve(PLAIN)
    for pid in (nursery.process.pid, instance.pid):
        os.kill(pid, number)
    assert instance.ask([1], [2]).status == 2
    assert serve(PLAIN).ask([1], [2]).status == 2
    assert Path(nursery.folder).exists()


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        (b"\xc1", "type byte 0xc1"),
        (msgpack.packb([1]), "expected a fork message"),
        (msgpack.packb({"t": "fork", "id": "x"}), "needs 9 descriptors, got 0"),
        (b"\xc6" + (70000).to_bytes(4, "big") + bytes(70000), "more than 65536 bytes"),
    ],
)
def test_broken_orders_are_refused_and_the_nursery_lives_on(nursery, serve, packet, error):
    nursery.socket.send(packet)
    reply, _ = nursery.receive()
    assert reply["t"] == "fork_failed" and error in reply["error"]
    assert serve(PLAIN).ask([1], [2]).status == 2


def test_an_order_without_an_endpoint_is_refused(nursery):
    plane = Plane()
    nursery.endpoint = "tcp://127.0.0.1:1"
    nursery.fork("x", [*plane.fds, 1, 2])
    reply, _ = nursery.receive()
    assert reply["t"] == "fork_failed" and "is not ipc://" in reply["error"]


SERVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.workers.driver import Instance, NurseryProcess, Router
nursery = NurseryProcess(sys.executable)
nursery.receive()
router = Router(nursery.endpoint)
instance = Instance(nursery, router, Path(sys.argv[2]), sys.argv[3])
instance.start()
print(nursery.process.pid, instance.pid, nursery.folder, flush=True)
sys.stdin.read()
"""


KEEPS_THE_SOCKET = """
import subprocess
keeper = subprocess.Popen(["sleep", "1000"], pass_fds=[nursery.socket.fileno()], stdout=subprocess.DEVNULL)
print(keeper.pid, flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_server_that_is_killed(tmp_path):
    command = [sys.executable, "-c", SERVER, str(WORKERS.parent), str(tmp_path), PLAIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        nursery_pid, instance_pid, folder = server.stdout.readline().split()
        pidfds = [os.pidfd_open(int(pid)) for pid in (nursery_pid, instance_pid)]
        server.kill()
        assert all(_ended(pidfd) for pidfd in pidfds)
    for pidfd in pidfds:
        os.close(pidfd)
    assert not Path(folder).exists()


def test_a_nursery_does_not_outlive_its_server_though_another_process_keeps_the_socket(tmp_path):
    """What the server has started may have inherited it: the kernel tells of the parent's death."""
    kept = SERVER.replace("sys.stdin.read()", KEEPS_THE_SOCKET)
    command = [sys.executable, "-c", kept, str(WORKERS.parent), str(tmp_path), PLAIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        nursery_pid, _, folder = server.stdout.readline().split()
        keeper = int(server.stdout.readline())
        pidfd = os.pidfd_open(int(nursery_pid))
        server.kill()
        try:
            assert _ended(pidfd) and not Path(folder).exists()
        finally:
            os.kill(keeper, signal.SIGKILL)
            os.close(pidfd)


def test_an_instance_does_not_outlive_its_nursery(nursery, serve):
    instance = serve(PLAIN)
    nursery.process.kill()
    assert _ended(instance.pidfd)


def test_an_instance_has_no_terminal_and_is_not_stopped_by_one(serve):
    status = Path(f"/proc/{serve(PLAIN).pid}")
    lines = (status / "status").read_text().splitlines()
    ignored = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
    assert all(ignored >> (number - 1) & 1 for number in (signal.SIGTTIN, signal.SIGTTOU))
    assert (status / "stat").read_text().rpartition(")")[2].split()[4] == "0"  # tty_nr


def _ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], WAIT_SECONDS)[0])
