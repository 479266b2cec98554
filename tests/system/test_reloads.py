"""Models are replaced, unloaded and loaded while clients ask: nobody notices but by the answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from tritonclient import grpc as grpc_client
from tritonclient import http as http_client

from tests.system.helpers import ADD_ONE, CONFIG, SECONDS_MAX, until

EXPLICIT = "--model-control-mode=explicit"
BOSS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            order = int(pb_utils.get_input_tensor_by_name(request, "A").as_numpy()[0])
            try:
                [None, self.load, self.unload, self.itself][order]()
                said = None
            except pb_utils.TritonModelException as error:
                said = pb_utils.TritonError(str(error))
        ready = pb_utils.is_model_ready("m")
        import numpy as np
        answer = pb_utils.Tensor("B", np.array([ready], np.float32))
        return [pb_utils.InferenceResponse([answer], said) for _ in requests]

    def load(self):
        pb_utils.load_model("m")

    def unload(self):
        pb_utils.unload_model("m")

    def itself(self):
        pb_utils.load_model("boss", files={"file:1/model.py": FILE}, config=CONFIG)
"""


def adding(n: int, more: str = "") -> str:
    return more + ADD_ONE.replace("a + 1", f"a + {n}")


def at_gate(gate, n: int) -> str:
    """A model that answers when the file `gate` exists, and makes `gate`.seen when it executes."""
    wait = f"""import os, time
        open({str(gate)!r} + ".seen", "w").close()
        while not os.path.exists({str(gate)!r}):
            time.sleep(0.005)
        return a + {n}"""
    return ADD_ONE.replace("return a + 1", wait)


def slow_to_load(gate, n: int) -> str:
    """A model whose load ends when the file `gate` exists; it writes its process id into `gate`.pid before."""
    return f"""
import os, time
with open({str(gate)!r} + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename({str(gate)!r} + ".new", {str(gate)!r} + ".pid")
while not os.path.exists({str(gate)!r}):
    time.sleep(0.005)
{adding(n)}"""


def change(folder, code: str, version: str = "1") -> None:
    (folder / version).mkdir(exist_ok=True)
    new = folder / version / "model.py.tmp"
    new.write_text(code)
    new.rename(folder / version / "model.py")


def attempt(work) -> None:
    """A server that ends takes its connections with it."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        work()


def load(server, name: str, **parameters) -> tuple[int, dict]:
    body = {"parameters": parameters} if parameters else {}
    return server.ask("POST", f"/v2/repository/models/{name}/load", body)


def unload(server, name: str) -> tuple[int, dict]:
    return server.ask("POST", f"/v2/repository/models/{name}/unload", {})


def states(server) -> dict[str, str]:
    _, entries = server.ask("POST", "/v2/repository/index")
    return {entry["name"]: entry.get("reason") or entry.get("state", "") for entry in entries}


def value(answer: tuple[int, dict]) -> float:
    status, body = answer
    assert status == 200, body
    return body["outputs"][0]["data"][0]


def beside(work) -> tuple[threading.Thread, list]:
    """Do `work` in a thread; its result goes to the list."""
    results: list = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


@pytest.fixture
def served(serve, write_model):
    """A server with model `m`, which adds one."""

    def start(*flags: str, code: str = ADD_ONE, config: str = CONFIG):
        folder = write_model("m", code, config)
        return serve(EXPLICIT, "--load-model=m", *flags).ready(), folder

    return start


class Client(threading.Thread):
    """A real client that asks without pause; `wrong`: what it got that it should not have."""

    def __init__(self, protocol, address: str) -> None:
        super().__init__(daemon=True)
        self.asked, self.wrong, self.over = 0, [], threading.Event()
        self._protocol, self._address = protocol, address

    def run(self) -> None:
        client = self._protocol.InferenceServerClient(self._address)
        tensor = self._protocol.InferInput("A", [3], "FP32")
        tensor.set_data_from_numpy(np.array([1, 2, 3], np.float32))
        while not self.over.is_set():
            try:
                added = client.infer("m", [tensor]).as_numpy("B") - np.array([1, 2, 3], np.float32)
                if added.min() != added.max() or added[0] < 1:
                    self.wrong.append(added)
            except Exception as error:
                self.wrong.append(error)
            self.asked += 1
        client.close()


def test_twenty_reloads_under_load_fail_no_request_and_leave_nothing(served):
    server, folder = served()
    grpc_port = next(record for record in server.log if record.get("event") == "ready")["grpc_port"]
    clients = [Client(http_client, f"localhost:{server.port}") for _ in range(3)]
    clients.append(Client(grpc_client, f"localhost:{grpc_port}"))
    for client in clients:
        client.start()
    main = server.family()[0]
    held = 0
    for n in range(2, 23):
        change(folder, adding(n))
        assert load(server, "m") == (200, {})
        assert value(server.infer("m", [0.0])) == n
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        if n == 3:
            until(lambda: all(client.asked for client in clients), "all are connected")
            until(lambda: len(server.family()) == 3, "one nursery, one worker")
            held = main.num_fds()
    until(lambda: len(server.family()) == 3, "one nursery, one worker")
    until(lambda: main.num_fds() <= held, "as many descriptors as before")
    for client in clients:
        client.over.set()
        client.join()
    assert [client.wrong for client in clients] == [[]] * 4
    assert all(client.asked > 20 for client in clients)
    _, found = server.ask("GET", "/v2/models/m/stats")
    [stats] = found["model_stats"]
    assert stats["inference_stats"]["fail"]["count"] == 0
    assert stats["inference_stats"]["success"]["count"] >= sum(client.asked for client in clients)


def test_a_request_that_is_being_received_ends_with_the_copy_that_it_began_with(served):
    server, folder = served()
    body = json.dumps({"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [0]}]}).encode()
    head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head + body[:20])
        until(lambda: "m" in states(server), "an answer on another connection")
        first = server.worker("m_0")
        change(folder, adding(2))
        assert load(server, "m") == (200, {})
        assert value(server.infer("m", [0.0])) == 2
        assert psutil.pid_exists(first)
        connection.sendall(body[20:])
        answer = connection.recv(65536)
    assert b"200 OK" in answer and answer.endswith(b'"data":[1.0]}]}')
    until(lambda: not psutil.pid_exists(first), "the old worker is gone")


def test_what_is_queued_and_executing_is_answered_by_the_old_copy(served, tmp_path):
    gate = tmp_path / "gate"
    server, folder = served(code=at_gate(gate, 1))
    asked = [beside(lambda: server.infer("m", [0.0])) for _ in range(5)]
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    until(lambda: server.pending("m") == 4, "the others wait")
    change(folder, adding(2))
    assert load(server, "m") == (200, {})
    assert value(server.infer("m", [0.0])) == 2
    assert unload(server, "m") == (200, {})
    assert server.infer("m")[0] == 404
    gate.touch()
    for thread, _ in asked:
        thread.join()
    assert [value(results[0]) for _, results in asked] == [1] * 5
    until(lambda: len(server.family()) == 2, "no worker is left")
    assert states(server) == {"m": "unloaded"}


def test_a_failed_reload_is_told_and_harms_nobody(served):
    server, folder = served()
    change(folder, "raise ValueError('no weights')")
    status, body = load(server, "m")
    assert status == 400 and "load failed for model 'm': version 1 is at UNAVAILABLE" in body["error"]
    assert "ValueError: no weights" in body["error"]
    assert value(server.infer("m", [0.0])) == 1
    assert states(server) == {"m": "Internal: ValueError: no weights"}
    assert server.says("failed to load 'm' version 1")["level"] == "error"
    assert server.ask("GET", "/v2/health/ready")[0] == 200
    change(folder, adding(3))
    assert load(server, "m") == (200, {})
    assert states(server) == {"m": "READY"} and value(server.infer("m", [0.0])) == 3


def test_a_new_worker_that_dies_while_it_loads(served, tmp_path):
    gate = tmp_path / "gate"
    server, folder = served()
    change(folder, slow_to_load(gate, 2))
    thread, results = beside(lambda: load(server, "m"))
    until(lambda: os.path.exists(f"{gate}.pid"), "loading")
    os.kill(int(Path(f"{gate}.pid").read_text()), signal.SIGKILL)
    thread.join()
    [(status, body)] = results
    assert status == 400 and "signal 9 (SIGKILL) before it could load the model" in body["error"]
    assert value(server.infer("m", [0.0])) == 1


def test_an_old_worker_that_dies_while_its_successor_loads(served, tmp_path):
    gate = tmp_path / "gate"
    server, folder = served()
    first = server.worker("m_0")
    change(folder, slow_to_load(gate, 2))
    thread, results = beside(lambda: load(server, "m"))
    until(lambda: os.path.exists(f"{gate}.pid"), "loading")
    os.kill(first, signal.SIGKILL)
    asked, answers = beside(lambda: server.infer("m", [0.0]))
    gate.touch()
    thread.join()
    asked.join()
    assert results == [(200, {})]
    assert answers[0][0] == 200  # by a restarted old worker, or by the new one
    assert value(server.infer("m", [0.0])) == 2
    until(lambda: len(server.family()) == 3, "one nursery, one worker")


def test_an_old_worker_that_dies_while_it_drains(served, tmp_path):
    gate = tmp_path / "gate"
    server, folder = served(code=at_gate(gate, 1))
    first = server.worker("m_0")
    thread, results = beside(lambda: server.infer("m", [0.0]))
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    change(folder, adding(2))
    assert load(server, "m") == (200, {})
    os.kill(first, signal.SIGKILL)
    thread.join()
    [(status, body)] = results
    assert status == 503 and "retrying is safe" in body["error"]
    assert value(server.infer("m", [0.0])) == 2
    until(lambda: len(server.family()) == 3, "one nursery, one worker")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_while_a_model_loads(served, tmp_path, number):
    server, folder = served()
    change(folder, slow_to_load(tmp_path / "gate", 2))
    beside(lambda: attempt(lambda: load(server, "m")))
    until(lambda: os.path.exists(tmp_path / "gate.pid"), "loading")
    family = server.family()
    code = server.end(number)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    _, alive = psutil.wait_procs(family[1:], SECONDS_MAX)
    assert not alive


def test_models_load_and_unload_models(serve, write_model):
    write_model("m")
    config = json.dumps({"backend": "python", "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
                         "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}]})  # fmt: skip
    write_model("boss", BOSS + f"\nFILE = {adding(7).encode()!r}\nCONFIG = {config!r}\n")
    server = serve(EXPLICIT, "--load-model=boss").ready()
    assert value(server.infer("boss", [1.0])) == 1
    assert value(server.infer("m", [0.0])) == 1
    assert value(server.infer("boss", [2.0])) == 0
    assert server.infer("m")[0] == 404
    assert server.infer("boss", [3.0])[0] == 200  # the old copy answers what it executes
    assert value(server.infer("boss", [0.0])) == 7


def test_models_do_not_control_models_in_other_modes(serve, write_model):
    write_model("m")
    write_model("boss", BOSS)
    server = serve().ready()
    status, body = server.infer("boss", [1.0])
    assert status == 500 and "explicit model load / unload is not allowed" in body["error"]


def test_a_sequence_ends_with_the_copy_that_it_began_with(served):
    config = CONFIG + "max_batch_size: 1\nsequence_batching { max_sequence_idle_microseconds: 60000000 }"
    server, folder = served(config=config.replace("dims: [ -1 ]", "dims: [ 1 ]"))

    def ask(**parameters):
        tensor = {"name": "A", "shape": [1, 1], "datatype": "FP32", "data": [0.0]}
        body = {"inputs": [tensor], "parameters": {"sequence_id": 5, **parameters}}
        return server.ask("POST", "/v2/models/m/infer", body)

    assert value(ask(sequence_start=True)) == 1
    change(folder, adding(2))
    assert load(server, "m") == (200, {})
    status, body = ask()
    assert status == 400 and "must specify the START flag" in body["error"]
    assert value(ask(sequence_start=True)) == 2


def test_answers_of_the_old_copy_are_not_given_for_the_new_one(served):
    server, folder = served("--cache-config=local,size=1048576", config=CONFIG + "response_cache { enable: true }")
    for n in (1, 2):
        change(folder, adding(n))
        assert load(server, "m") == (200, {})
        assert [value(server.infer("m", [0.0])) for _ in range(2)] == [n, n]


def test_an_ensemble_follows_its_steps_under_load(serve, write_model):
    folder = write_model("m")
    write_model("n")
    steps = ", ".join(
        f'{{ model_name: "{name}" model_version: -1 input_map {{ key: "A" value: "{came}" }} '
        f'output_map {{ key: "B" value: "{goes}" }} }}'
        for name, came, goes in (("m", "A", "t"), ("n", "t", "B"))
    )
    text = CONFIG.replace('backend: "python"', f'platform: "ensemble"\nensemble_scheduling {{ step [ {steps} ] }}')
    shutil.rmtree(write_model("e", "", text) / "1")
    (folder.parent / "e" / "1").mkdir()
    server = serve(EXPLICIT, "--load-model=e", "--cache-config=local,size=1048576").ready()
    over, answers = threading.Event(), []

    def ask() -> None:
        while not over.is_set():
            answers.append(server.infer("e", [0.0]))

    threads = [beside(ask)[0] for _ in range(3)]
    for n in range(2, 8):
        change(folder, adding(n))
        assert load(server, "m") == (200, {})
        assert value(server.infer("e", [0.0])) == n + 1
    over.set()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert unload(server, "m") == (200, {})
    assert server.infer("e")[0] == 404
    assert load(server, "m") == (200, {})
    assert value(server.infer("e", [0.0])) == 8
