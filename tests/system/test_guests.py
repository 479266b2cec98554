"""Guests: models of processes that the server did not start.  They come, serve, die, return and leave."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import psutil
import pytest
import tritonclient.http as httpclient

from tests.system.guest_scripts import ONE, TWO, held, index, metrics, values
from tests.system.helpers import SECONDS_MAX, in_background, until


def no_more_than(before, server) -> bool:
    return all(now <= most for now, most in zip(held(server.process.pid), before, strict=True))


def test_a_script_serves_two_models_is_killed_and_returns(serve_guests, join, tmp_path):
    server = serve_guests()
    before = held(server.process.pid)
    guest = join(TWO)
    guest.says("serving one two")
    assert index(server) == {"one": ("READY", ""), "two": ("READY", "")}
    assert values(server.infer("one", [1.0, 2.0])[1]) == [2.0, 3.0]
    assert values(server.infer("two", [1.0])[1]) == [3.0]
    assert server.ask("GET", "/v2/models/two")[1]["versions"] == ["7"]
    assert server.ask("GET", "/v2/models/one/stats")[1]["model_stats"][0]["inference_count"] == 1
    assert 'nv_inference_count{model="two",version="7"} 1' in metrics(server)
    assert server.ask("GET", "/v2/health/ready")[0] == 200

    guest.end()
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "the index says that it is gone")
    assert all(
        state == "UNAVAILABLE" and f"(pid {guest.pid}) has ended" in reason and "try again" in reason
        for state, reason in index(server).values()
    )
    assert server.ask("GET", "/v2/health/ready")[0] != 200
    assert server.infer("one")[0] in (400, 404)
    until(lambda: no_more_than(before, server), "its memory and descriptors are given back")

    join(TWO).says("serving one two")
    assert index(server) == {"one": ("READY", ""), "two": ("READY", "")}
    assert server.ask("GET", "/v2/health/ready")[0] == 200
    assert values(server.infer("two", [1.0])[1]) == [3.0]
    assert server.end() == 0


def test_what_a_guest_executes_when_it_is_killed_is_to_be_tried_again(serve_guests, join, tmp_path):
    server = serve_guests()
    guest = join(ONE.format(backend="Gated(1)", gate=str(tmp_path / "gate")))
    guest.says("serving")
    answers: list[tuple[int, dict]] = []
    asking = [in_background(lambda: answers.append(server.infer("one"))) for _ in range(3)]
    guest.says("executing")
    until(lambda: 'nv_inference_pending_request_count{model="one",version="1"} 2' in metrics(server), "the others wait")
    guest.end()
    for thread in asking:
        thread.join(SECONDS_MAX)
    assert [status for status, _ in answers] == [503] * 3
    assert all("try again" in answer["error"] for _, answer in answers), answers


def test_who_leaves_answers_first_and_the_server_stays_ready(serve_guests, join, tmp_path):
    server = serve_guests()
    gate = tmp_path / "gate"
    guest = join(
        f"""
GATE = {str(gate)!r}
server = join(DIRECTORY)
server.serve("one", TENSORS, Gated(1))
say("serving")
sys.stdin.readline()
server.close(timeout={SECONDS_MAX})
say("closed", server.models, server.gone)
"""
    )
    guest.says("serving")
    answers: list[tuple[int, dict]] = []
    asking = in_background(lambda: answers.append(server.infer("one", [1.0])))
    guest.says("executing")
    guest.tell("leave")
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "it gets no new requests")
    assert "its guest has taken it away" in index(server)["one"][1] and not answers
    gate.touch()
    asking.join(SECONDS_MAX)
    assert answers[0][0] == 200 and values(answers[0][1]) == [2.0]
    assert guest.ended() == 0 and guest.says("closed")
    assert server.ask("GET", "/v2/health/ready")[0] == 200
    assert not [record for record in server.log if record["level"] in ("error", "critical")]


def test_ctrl_c_and_what_it_prints_are_the_users_own(serve_guests, join):
    server = serve_guests()
    guest = join(
        """
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
try:
    with join(DIRECTORY) as server:
        class Talks(Add):
            def execute(self, requests):
                print("printed by the model", flush=True)
                pb.Logger.log_warn("logged by the model")
                return super().execute(requests)
        server.serve("one", TENSORS, Talks(1))
        assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
        say("serving")
        server.wait()
except KeyboardInterrupt:
    say("interrupted by the user")
"""
    )
    guest.says("serving")
    assert server.infer("one")[0] == 200
    guest.says("printed by the model")
    assert server.says("logged by the model")["model"] == "one"
    assert not [record for record in server.log if "printed by the model" in record["message"]]
    guest.end(signal.SIGINT)
    guest.says("interrupted by the user")
    assert guest.process.returncode == 0
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "it has left")


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGKILL, "has ended"), (signal.SIGTERM, "the server is stopping")]
)
def test_a_guest_says_that_its_server_has_gone(serve_guests, join, number, reason):
    server = serve_guests()
    guest = join(
        """
server = join(DIRECTORY)
server.serve("one", TENSORS, Add(1))
server.serve("streams", TENSORS + "model_transaction_policy { decoupled: true }", Add(1))
say("serving")
try:
    server.wait()
except ServerGone as gone:
    say("gone:", gone)
say(server.models, threading.active_count())
try:
    server.serve("more", TENSORS, Add(1))
except ServerGone as gone:
    say("refused:", gone)
"""
    )
    guest.says("serving")
    server.end(number)
    assert reason in guest.says("gone: ") and reason in guest.says("refused: ")
    assert reason in guest.says("the server is not there any more"), "and says so by itself"
    assert guest.ended() == 0


def test_a_child_of_the_guest_does_not_keep_it_alive(serve_guests, join):
    server = serve_guests()
    guest = join(
        """
server = join(DIRECTORY)
server.serve("one", TENSORS, Add(1))
child = os.fork()
if child == 0:
    try:
        server.serve("two", TENSORS, Add(1))
    except GuestError as error:
        say("child:", error)
    signal.pause()
say("serving", child)
server.wait()
"""
    )
    child = int(guest.says("serving").split()[1])
    try:
        guest.says("child: this process was forked from the guest")
        assert server.infer("one")[0] == 200
        os.kill(guest.pid, signal.SIGKILL)
        until(lambda: index(server)["one"][0] == "UNAVAILABLE", "the guest is gone, and its child is not")
    finally:
        os.kill(child, signal.SIGKILL)


def test_two_hundred_large_requests(serve_guests, join, connect):
    server = serve_guests()
    join(
        """
with join(DIRECTORY) as server:
    server.serve("echo", TENSORS, Add(1), instances=2)
    say("serving")
    server.wait()
"""
    ).says("serving")
    given = np.arange(4 << 20, dtype=np.float32)  # 16 MB
    clients = [connect(server) for _ in range(2)]
    wrong: list[object] = []

    def ask(client) -> None:
        tensor = httpclient.InferInput("A", [len(given)], "FP32")
        tensor.set_data_from_numpy(given)
        for _ in range(100):
            found = client.infer("echo", [tensor]).as_numpy("B")
            if found[0] != 1 or found[-1] != given[-1] + 1 or len(found) != len(given):
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert server.ask("GET", "/v2/models/echo/stats")[1]["model_stats"][0]["inference_count"] == 200
    assert not [record for record in server.log if record["level"] in ("warning", "error", "critical")]


def test_after_a_hundred_joins_nothing_is_left(serve_guests, join, serve, directory):
    shared = set(os.listdir("/dev/shm"))
    server = serve_guests()
    guest = join(
        """
import http.client
PORT = int(sys.stdin.readline())
def once():
    with join(DIRECTORY) as server:
        server.serve("one", TENSORS, Add(1), instances=2)
        server.serve("streams", TENSORS + "model_transaction_policy { decoupled: true }", Add(1))
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        connection.request("POST", "/v2/models/one/infer", json.dumps(
            {"inputs": [{"name": "A", "shape": [1], "datatype": "FP32", "data": [1.0]}]}))
        assert connection.getresponse().status == 200
        connection.close()
def measured():
    gc.collect()
    maps = open("/proc/self/maps").read()
    return len(os.listdir("/proc/self/fd")), maps.count("tisfast"), threading.active_count()
for number in range(100):
    once()
    if number == 4:
        before = measured()
        say("five")
        sys.stdin.readline()
say("hundred", before, measured())
sys.stdin.readline()
"""
    )
    pid = server.process.pid
    guest.tell(str(server.port))
    guest.says("five")

    def left() -> int:
        return sum(r["message"].startswith("guest ") and "has left" in r["message"] for r in server.log)

    until(lambda: left() == 5, "the fifth guest has left")
    before = held(pid)
    rss = psutil.Process(pid).memory_info().rss
    guest.tell("go on")
    found = guest.says("hundred").removeprefix("hundred ")
    assert found[: len(found) // 2] == found[(len(found) + 1) // 2 :], found
    until(lambda: no_more_than(before, server), "descriptors and mappings are back")
    assert psutil.Process(pid).memory_info().rss - rss < 32 << 20
    guest.tell("end")
    assert guest.ended() == 0
    assert server.end() == 0
    assert list(server.scratch.iterdir()) == []
    new = set(os.listdir("/dev/shm")) - shared  # those of tests beside this one go by themselves
    until(lambda: not new & set(os.listdir("/dev/shm")), "nothing is left in /dev/shm")
    assert list(directory.iterdir()) == []
