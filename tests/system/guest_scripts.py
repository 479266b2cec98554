"""Scripts that are guests of a server under test, and what is asked about them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from tests.system.helpers import ROOT, SECONDS_MAX

PRELUDE = r'''
import gc, json, os, signal, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb
from tisfast_worker.guest import GuestError, ServerGone, join

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
DIRECTORY = sys.argv[1]
TENSORS = """
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # in one piece: a child may print, too
    sys.stdout.flush()

def array(request):
    return pb.get_input_tensor_by_name(request, "A").as_numpy()

def answer(array):
    return pb.InferenceResponse([pb.Tensor("B", array)])

class Add:
    def __init__(self, by):
        self.by = by

    def execute(self, requests):
        return [answer(array(request) + self.by) for request in requests]

class Gated(Add):
    """Answers when there is a file `gate`; says so when it begins."""

    def execute(self, requests):
        say("executing")
        while not os.path.exists(GATE):
            time.sleep(0.005)
        return super().execute(requests)
'''


class GuestProcess:
    """A script that is a guest; `says` waits for what it prints."""

    def __init__(self, directory: Path, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, str(directory)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "workers")},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.printed: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._over = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.printed.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def says(self, text: str) -> str:
        def found() -> str | None:
            return next((line for line in self.printed if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() or self._over, SECONDS_MAX)
            line = found()
        assert line is not None, f"the guest does not say {text!r}:\n" + "\n".join(self.printed)
        return line

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        return code


TWO = """
with join(DIRECTORY) as server:
    server.serve("one", TENSORS, Add(1))
    server.serve("two", json.loads('{"input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}], '
                 '"output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}]}'), Add(2), version=7)
    say("serving", *server.models)
    server.wait()
"""
ONE = """
GATE = {gate!r}
with join(DIRECTORY) as server:
    server.serve("one", TENSORS, {backend})
    say("serving")
    server.wait()
"""


def index(server) -> dict[str, tuple[str, str]]:
    status, entries = server.ask("POST", "/v2/repository/index")
    assert status == 200
    return {entry["name"]: (entry.get("state", ""), entry.get("reason", "")) for entry in entries}


def values(answer: dict) -> list[float]:
    return answer["outputs"][0]["data"]


def metrics(server) -> str:
    port = server.says("Started Metrics Service")["message"].rpartition(":")[2]
    connection = socket.create_connection(("127.0.0.1", int(port)), SECONDS_MAX)
    with connection, connection.makefile("rwb") as stream:
        stream.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        stream.flush()
        return stream.read().decode()


def descriptors(pid: int) -> int:
    return psutil.Process(pid).num_fds()


def held(pid: int) -> tuple[int, int]:
    """Descriptors and mapped memory files of a server."""
    return descriptors(pid), mappings(pid)


def mappings(pid: int) -> int:
    return sum("memfd:tisfast" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
