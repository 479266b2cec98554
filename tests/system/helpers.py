"""The real server as a process, and what tests ask it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 90  # on a busy machine; environments are built meanwhile
LOOK_SECONDS = 0.01
AN_HOUR = "--exit-timeout-secs=3600"  # a server that ends in SECONDS_MAX, and well, has not waited for its countdown
CODEC_BYTES_MIN = os.environ.get("TISFAST_TEST_CODEC_BYTES_MIN")  # 0: codec processes read and write every text
MAIN = "import sys; from tisfast.cli import main; sys.exit(main(sys.argv[1:]))"
T = TypeVar("T")


ADD_ONE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", self.compute(a))]))
        return answers

    def compute(self, a):
        return a + 1
"""


CONFIG = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


@contextlib.contextmanager
def client_of_thread(url: str, **options: Any) -> Iterator[Any]:
    """tritonclient's of HTTP, for a thread that ends: else the descriptors of its loop of gevent stay open."""
    import gevent  # noqa: PLC0415 - not where the suite runs without tritonclient
    import tritonclient.http  # noqa: PLC0415

    try:
        with tritonclient.http.InferenceServerClient(url, **options) as client:
            yield client
    finally:
        gevent.get_hub().destroy(destroy_loop=True)


def until(condition: Callable[[], object], what: object, seconds: float = SECONDS_MAX) -> object:
    """Wait until `condition` is true; what processes do gives no event to wait for.

    what: what is waited for, as text; or asked for when it has not come.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


class Server:
    """One server process.  `log` holds its log records (JSON objects) so far.

    fault: Python that is executed before the server starts.
    """

    def __init__(self, repository: Path | None, flags: tuple[str, ...], scratch: Path, fault: str = "") -> None:
        self.log: list[dict] = []
        self.scratch = scratch
        self.began = time.monotonic()
        program = ["-c", f"{fault}\n{MAIN}"] if fault else ["-m", "tisfast"]
        command = [sys.executable, *program, "serve", "--log-format=json"]
        command += [f"--model-repository={repository}"] if repository is not None else []
        command += ["--http-port=0", "--grpc-port=0", "--http-address=127.0.0.1", "--metrics-port=0"]
        command += [f"--codec-bytes-min={CODEC_BYTES_MIN}"] if CODEC_BYTES_MIN else []
        command += flags
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                record = json.loads(line)
            except ValueError:
                record = {"message": line.rstrip(), "level": "raw"}
            with self._news:
                self.log.append(record)
                self._news.notify_all()
        with self._news:
            self.log.append({"message": "end of the log", "level": "end"})
            self._news.notify_all()

    def said(self, predicate: Callable[[dict], object], what: str, after: int = 0) -> dict:
        """The first record from number `after` on that fits, waiting for it."""
        with self._news:
            found = self._news.wait_for(
                lambda: next((r for r in self.log[after:] if predicate(r) or r["level"] == "end"), None), SECONDS_MAX
            )
            if found is None or not predicate(found):
                raise AssertionError(f"the log does not say: {what}\n" + self.text())
            return found

    def says(self, text: str, after: int = 0) -> dict:
        """The first record whose message has `text`, waiting for it."""
        return self.said(lambda record: text in record["message"], repr(text), after)

    def text(self) -> str:
        """The log as a person would want it in a failed test."""
        return "\n".join(f"{r.get('level')}: {r['message']}\n{r.get('traceback', '')}".rstrip() for r in self.log)

    def ready(self) -> Server:
        """Wait until it serves."""
        self.port = self.said(lambda r: r.get("event") in ("ready", "serving"), "it serves")["http_port"]
        return self

    def ask(self, method: str, path: str, body: object = None, seconds: float = SECONDS_MAX) -> tuple[int, dict]:
        """One request on a connection of its own: status and JSON body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else {}
        finally:
            connection.close()

    def infer(self, model: str, values: list[float] | None = None, seconds: float = SECONDS_MAX) -> tuple[int, dict]:
        """Ask a model of this file's CONFIG."""
        values = values if values is not None else [1.0]
        tensor = {"name": "A", "shape": [len(values)], "datatype": "FP32", "data": values}
        return self.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]}, seconds)

    def model_ready(self, model: str) -> bool:
        """GET .../ready."""
        return self.ask("GET", f"/v2/models/{model}/ready")[0] == 200

    def metrics(self) -> str:
        """GET /metrics of the metrics port."""
        port = self.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"]
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def pending(self, model: str) -> int:
        """How many requests wait for an instance of version 1."""
        name = f'nv_inference_pending_request_count{{model="{model}",version="1"}} '
        return int(self.metrics().partition(f"\n{name}")[2].partition("\n")[0].partition(".")[0])

    def worker(self, instance: str) -> int:
        """Process id of an instance's worker, as the log told it last."""

        def told() -> list[dict[str, object]]:
            return [r for r in self.log if r.get("instance") == instance and "worker_pid" in r]

        until(told, f"the log tells of a worker of {instance}")  # it is read as it comes
        return int(str(told()[-1]["worker_pid"]))

    def family(self) -> list[psutil.Process]:
        """The server and everything it started."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def of_family(self, question: Callable[[psutil.Process], T]) -> list[T]:
        """What they answer; one that ends meanwhile is none of them any more."""
        answers = []
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                answers.append(question(process))
        return answers

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its exit code."""
        code = self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        return code


def in_compute(code: str) -> str:
    """The model with `code` in front of its computation."""
    indented = "".join(f"        {line}\n" for line in code.splitlines())
    return ADD_ONE.replace("        return a + 1\n", f"{indented}        return a + 1\n")


def with_gate(gate) -> str:
    """A model that answers when the file `gate` exists, and makes `gate`.seen when it executes."""
    code = f"""import os, time
open({str(gate)!r} + ".seen", "w").close()
while not os.path.exists({str(gate)!r}):
    time.sleep(0.005)"""
    return in_compute(code)


def in_background(work) -> threading.Thread:
    """Do `work` beside the test.  A server that ends meanwhile takes its connection with it."""

    def attempt() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            work()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    return thread


def index(server):
    return {entry["name"]: entry for entry in server.ask("POST", "/v2/repository/index", {})[1]}
