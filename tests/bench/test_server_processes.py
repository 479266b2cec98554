"""The server's processes on this machine: found by the port, with all that they have started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from tisfast.bench.results import Usage
from tisfast.bench.server_processes import Sample, ServerProcesses, is_here, listener, used
from tisfast.client.address import Address

SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


def address(port: int, host: str = "127.0.0.1") -> Address:
    return Address(host, port, grpc=False, tls=False)


@pytest.fixture
def server():
    """A process that listens, and its port."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process, int(process.stdout.readline())
    process.communicate()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_listens_is_found(family):
    with socket.create_server(("127.0.0.1" if family == socket.AF_INET else "::1", 0), family=family) as mine:
        port = mine.getsockname()[1]
        assert listener(port) == os.getpid()
    assert listener(port) is None


def test_who_has_a_connection_to_the_port_is_not_who_listens(server):
    process, port = server
    with socket.create_connection(("127.0.0.1", port)):
        assert listener(port) == process.pid


def test_a_process_and_its_children_are_seen():
    with socket.create_server(("127.0.0.1", 0)) as mine, subprocess.Popen(["sleep", "60"]) as child:
        processes = ServerProcesses(address(mine.getsockname()[1], "localhost"))
        before = processes.look()
        began = time.process_time_ns()
        while time.process_time_ns() - began < 100_000_000:
            pass
        after = processes.look()
        child.kill()
    assert before.pid == os.getpid() and child.pid in before.cpu_ns and before.memory_bytes > 1_000_000
    found = used(before, after)
    assert found.cpu_ns >= 80_000_000  # the kernel counts in steps of 10 ms
    assert found.cores > 0 and found.processes == len(after.cpu_ns)


def test_a_server_that_has_ended_is_not_seen_any_more(server):
    process, port = server
    processes = ServerProcesses(address(port))
    assert processes.look().pid == process.pid
    process.kill()
    process.wait()
    assert processes.look() is None


def test_a_server_elsewhere_is_not_seen():
    assert not is_here("192.0.2.1") and not is_here("no.such.host.invalid")
    assert ServerProcesses(address(1, "192.0.2.1")).look() is None


def test_processes_that_came_or_went_between_two_looks():
    before = Sample(1, "s", 1000, {1: 50, 2: 70}, 10)
    after = Sample(1, "s", 3000, {1: 80, 3: 5}, 30)
    assert used(before, after) == Usage(1, "s", 2, 35, 2000, 30)
    assert used(before, after._replace(pid=4)) is None
    assert used(None, after) is None and used(before, None) is None
