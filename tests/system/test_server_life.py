"""What a server withstands: dying, hanging, lying and shouting models, signals, and its own death."""

import http.client
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.system.helpers import ADD_ONE, AN_HOUR, CONFIG, SECONDS_MAX, in_background, in_compute, until, with_gate
from tests.unused_ports import closed_port
from tests.waiting import has_ended


def traceback_count(server, text: str) -> int:
    return sum(text in record.get("traceback", "") for record in server.log)


# ---- workers that die


def test_a_killed_worker_loses_only_what_it_executed_and_comes_back(serve, write_model):
    write_model("m")
    server = serve().ready()
    answers: list[tuple[int, dict]] = []
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            answers.append(server.infer("m", [1.0, 2.0]))

    threads = [in_background(hammer) for _ in range(4)]
    until(lambda: len(answers) > 50, "answers before the kill")
    mark, first = len(server.log), server.worker("m_0")
    os.kill(first, signal.SIGKILL)
    server.says("instance m_0 is ready", after=mark)
    assert not any("could not be restarted" in record["message"] for record in server.log)  # the first try is enough
    count = len(answers)
    until(lambda: len(answers) > count + 50, "answers after the kill")
    stop.set()
    for thread in threads:
        thread.join()
    assert server.worker("m_0") != first
    lost = [body["error"] for status, body in answers if status != 200]
    assert all(status in (200, 503) for status, _ in answers)
    for error in lost:
        assert "'m'" in error and "m_0" in error and "signal 9 (SIGKILL)" in error and "retrying" in error
    assert server.model_ready("m")


def test_a_model_is_not_ready_while_its_worker_is_away(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    slow = (
        ADD_ONE
        + f"""
    def initialize(self, args):
        import os, time
        while os.path.exists({str(gate)!r}):
            time.sleep(0.005)
"""
    )
    write_model("m", slow)
    server = serve().ready()
    gate.touch()
    os.kill(server.worker("m_0"), signal.SIGKILL)
    until(lambda: not server.model_ready("m"), "not ready")
    assert server.ask("GET", "/v2/health/ready")[0] == 400
    assert server.ask("GET", "/v2/health/live")[0] == 200
    waiting: list[tuple[int, dict]] = []
    asker = in_background(lambda: waiting.append(server.infer("m")))
    gate.unlink()
    until(lambda: server.model_ready("m"), "ready again")
    asker.join()
    assert waiting[0][0] == 200  # it waited for the restart
    assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_requests_not_yet_taken_survive_the_death_of_a_worker(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    write_model("m", with_gate(gate))
    server = serve().ready()
    answers: list[tuple[int, dict]] = []
    askers = [in_background(lambda: answers.append(server.infer("m"))) for _ in range(8)]
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    os.kill(server.worker("m_0"), signal.SIGKILL)
    gate.touch()
    for asker in askers:
        asker.join()
    assert sorted(status for status, _ in answers) == [200] * 7 + [503]


@pytest.mark.parametrize(
    ("code", "told"),
    [("import os; os._exit(3)", "exited with code 3"), ("import os; os.abort()", "signal 6 (SIGABRT)")],
)
def test_a_model_that_ends_its_process_is_named_and_restarted(serve, write_model, code, told):
    write_model("m", in_compute(f"if a[0] == 13:\n    {code}"))
    server = serve().ready()
    status, body = server.infer("m", [13.0])
    assert status == 503
    assert told in body["error"] and "'m'" in body["error"]
    assert server.infer("m", [1.0])[0] == 200


def test_many_kills_leave_nothing_behind(serve, write_model):
    write_model("m")
    server = serve().ready()

    def kill_once() -> None:
        mark = len(server.log)
        os.kill(server.worker("m_0"), signal.SIGKILL)
        server.says("instance m_0 is ready", after=mark)
        assert server.infer("m")[0] == 200

    def held() -> tuple[int, int, int]:
        """Descriptors of server and nursery, and processes."""
        main, nursery = server.family()[:2]
        until(lambda: {c.status for c in main.net_connections("tcp")} == {psutil.CONN_LISTEN}, "clients gone")
        return main.num_fds(), nursery.num_fds(), len(server.family())

    for _ in range(5):
        kill_once()
    before = held()
    for _ in range(25):
        kill_once()
    # ZeroMQ lets go of a dead worker's connection by itself.
    until(lambda: all(now <= most for now, most in zip(held(), before, strict=True)), f"no more than {before}")


def test_a_killed_nursery_is_replaced_and_its_instances_with_it(serve, write_model):
    write_model("m")
    server = serve().ready()
    pid = server.worker("m_0")
    nursery = psutil.Process(pid).ppid()
    mark = len(server.log)
    os.kill(nursery, signal.SIGKILL)
    ended = "ended together with the process that had forked it, which is started again"
    server.says(f"instance m_0 of model 'm' (pid {pid}) {ended}", mark)
    server.says("instance m_0 is ready", after=mark)
    assert server.infer("m")[0] == 200
    assert not psutil.pid_exists(nursery)


# ---- models that hang, shout, raise or do not start


def test_a_hang_is_ended_by_the_watchdog_and_others_are_served(serve, write_model):
    write_model("hangs", in_compute("import time\nwhile a[0] == 13: time.sleep(1)"))
    write_model("fine")
    server = serve("--execution-timeout-secs=1").ready()
    answers: list[tuple[int, dict]] = []
    asker = in_background(lambda: answers.append(server.infer("hangs", [13.0])))
    assert server.infer("fine")[0] == 200
    asker.join()
    status, body = answers[0]
    assert status == 503
    assert "longer than the limit of 1 s" in body["error"] and "EXECUTION_TIMEOUT_SECONDS" in body["error"]
    assert server.infer("hangs", [1.0])[0] == 200


def test_a_model_may_set_its_own_limit(serve, write_model):
    config = CONFIG + 'parameters { key: "EXECUTION_TIMEOUT_SECONDS" value { string_value: "0.5" } }'
    write_model("hangs", in_compute("import time\nwhile a[0] == 13: time.sleep(1)"), config)
    server = serve().ready()
    assert "limit of 0.5 s" in server.infer("hangs", [13.0])[1]["error"]


def test_a_model_that_fails_to_initialize_ends_the_server_by_default(serve, write_model):
    write_model("fine")
    write_model("bad", ADD_ONE + "\n    def initialize(self, args):\n        raise ValueError('no weights')\n")
    server = serve()
    assert server.process.wait(SECONDS_MAX) == 1
    server.says("failed to load all models")
    assert "ValueError: no weights" in server.says("failed to load 'bad'")["message"]
    assert traceback_count(server, "ValueError: no weights") == 1


def test_without_exit_on_error_the_others_are_served(serve, write_model):
    write_model("fine")
    write_model("bad", ADD_ONE + "\n    def initialize(self, args):\n        raise ValueError('no weights')\n")
    server = serve("--exit-on-error=false").ready()
    assert server.infer("fine")[0] == 200
    assert server.infer("bad")[0] in (400, 404, 503)
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert server.ask("GET", "/v2/health/ready")[0] == 400
    assert server.end() == 0


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("import os; os._exit(7)", "exited with code 7"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "TritonPythonModel"),
    ],
)
def test_whatever_a_model_does_at_load_is_told(serve, write_model, code, told):
    write_model("bad", code)
    server = serve()
    assert server.process.wait(SECONDS_MAX) == 1
    assert told in server.says("failed to load 'bad'")["message"]


def test_one_failing_version_fails_the_model(serve, write_model):
    config = CONFIG + "version_policy { all { } }"
    write_model("m", config=config)
    write_model("m", "raise ValueError('second')", config, version="2")
    server = serve("--exit-on-error=false").ready()
    assert server.infer("m")[0] != 200
    until(lambda: len(server.family()) == 2, "only server and nursery: the good version's worker is given up as well")


def test_a_model_that_prints_megabytes_slows_only_itself(serve, write_model, tmp_path):
    """It prints until others have had their answers: who waited for its end would wait for ever."""
    gate = tmp_path / "gate"
    code = "import os, itertools\nfor n in itertools.count():\n    print('x' * 100)\n"
    write_model("loud", in_compute(code + f"    if n > 20000 and os.path.exists({str(gate)!r}): break"))
    write_model("fine")
    server = serve().ready()
    with ThreadPoolExecutor(1) as pool:
        shouting = pool.submit(server.infer, "loud")
        try:
            server.says("x" * 100)
            assert [server.infer("fine")[0] for _ in range(30)] == [200] * 30
            assert not shouting.done()
        finally:
            gate.touch()
        assert shouting.result()[0] == 200


def test_a_model_that_prints_many_short_lines_does_not_wait_for_the_log(serve, write_model):
    write_model("loud", in_compute("import sys; sys.stderr.write('y\\n' * 200000)"))
    server = serve().ready()
    assert server.infer("loud")[0] == 200
    server.end()
    told = [record["message"] for record in server.log if record["message"].startswith("loud_0: ")]
    assert sum(message.count("y") for message in told) == 200000
    assert len(told) < 1000, "32 lines at a time, each 5 ms, would take 30 s"


def test_what_a_model_prints_and_logs_carries_its_name(serve, write_model):
    code = "pb_utils.Logger.log_warn('careful')\nprint('printed')\nprint('y' * 100000)\nprint('after')"
    write_model("m", in_compute(code))
    server = serve().ready()
    assert server.infer("m")[0] == 200
    logged = server.says("careful")
    assert (logged["level"], logged["file"], logged["model"]) == ("warning", "model.py", "m")
    assert server.says("printed")["instance"] == "m_0"
    assert "line cut" in server.says("yyyy")["message"]
    server.says("after")


def test_an_exception_s_traceback_is_logged_once_with_the_request_s_id(serve, write_model):
    write_model("m", in_compute("raise ValueError('bad input')"))
    server = serve().ready()
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}
    status, body = server.ask("POST", "/v2/models/m/infer", {"id": "r7", "inputs": [tensor]})
    assert status == 500 and "bad input" in body["error"]
    record = server.said(lambda r: "ValueError: bad input" in r.get("traceback", ""), "the traceback")
    assert record["request_ids"] == ["r7"] and record["instance"] == "m_0"
    assert server.infer("m")[0] == 500
    until(lambda: traceback_count(server, "ValueError: bad input") == 2, "one for each failed request")


def test_a_wrong_output_is_logged_once_with_who_and_for_whom(serve, write_model):
    write_model("m", ADD_ONE.replace('Tensor("B"', 'Tensor("NOPE"'))
    server = serve("--strict-outputs").ready()
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}
    status, body = server.ask("POST", "/v2/models/m/infer", {"id": "r7", "inputs": [tensor]})
    assert status == 500 and "returned output 'NOPE'" in body["error"]
    record = server.says(body["error"])
    assert record["message"] == f"model 'm' version 1, instance m_0 failed for request r7: {body['error']}"
    assert (record["level"], record["model"], record["version"], record["instance"]) == ("error", "m", "1", "m_0")
    assert record["request_ids"] == ["r7"] and "traceback" not in record
    server.end()
    assert sum("returned output 'NOPE'" in each["message"] for each in server.log) == 1


# ---- the server's own end


def gone(processes) -> bool:
    return all(has_ended(each) for each in processes)


def test_an_idle_server_ends_at_once_and_leaves_nothing(serve, write_model):
    """Not after the hour that requests would have: `end` waits for a part of it."""
    write_model("m")
    server = serve(AN_HOUR).ready()
    family = server.family()
    with socket.create_connection(("127.0.0.1", server.port)):
        assert server.end() == 0
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []
    for text in ("Signal (15) received.", "Waiting for in-flight requests to complete.", "successfully unloaded 'm'"):
        server.says(text)


def test_a_killed_server_leaves_no_process_no_memory_no_folder(serve, write_model):
    write_model("m")
    server = serve().ready()
    family = server.family()
    assert len(family) >= 3
    mapped = {area.path for process in family for area in process.memory_maps()}
    assert not [path for path in mapped if path.startswith("/dev/shm")]  # nothing with a name, so nothing to leave
    server.end(signal.SIGKILL)
    until(lambda: gone(family), "all processes gone")
    until(lambda: list(server.scratch.iterdir()) == [], "the control directory gone")


@pytest.mark.parametrize("to_all", [False, True], ids=["server", "all processes"])
def test_a_request_in_flight_is_finished_and_new_connections_are_refused(serve, write_model, tmp_path, to_all):
    """systemd signals all of a unit, unless its KillMode says otherwise."""
    gate = tmp_path / "gate"
    write_model("m", with_gate(gate))
    server = serve().ready()
    answers: list[tuple[int, dict]] = []
    asker = in_background(lambda: answers.append(server.infer("m")))
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    family = server.family()
    for process in reversed(family if to_all else family[:1]):
        process.send_signal(signal.SIGTERM)
    server.says("Found 1 HTTP service connections")
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/v2/health/live")
    gate.touch()
    asker.join()
    assert answers[0][0] == 200
    assert server.ended() == 0
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []


def test_a_signal_to_all_processes_but_the_server_changes_nothing(serve, write_model):
    """As from `pkill -f` with the folder of the interpreter."""
    write_model("m")
    server = serve().ready()
    worker = server.worker("m_0")
    for process in server.family()[1:]:
        process.send_signal(signal.SIGTERM)
    assert server.infer("m")[0] == 200
    assert server.worker("m_0") == worker
    mark = len(server.log)
    os.kill(worker, signal.SIGKILL)
    server.says("instance m_0 is ready", after=mark)
    assert server.infer("m")[0] == 200


def test_the_countdown_ends_what_does_not_finish(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    write_model("m", with_gate(gate))
    server = serve("--exit-timeout-secs=1").ready()
    in_background(lambda: server.infer("m"))
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    family = server.family()
    assert server.end() == 1
    server.says("Exit timeout expired. Exiting immediately.")
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []


def test_a_second_signal_ends_the_server_at_once(serve, write_model, tmp_path):
    write_model("m", with_gate(tmp_path / "gate"))
    server = serve().ready()
    in_background(lambda: server.infer("m"))
    until(lambda: os.path.exists(f"{tmp_path / 'gate'}.seen"), "executing")
    family = server.family()
    server.process.send_signal(signal.SIGINT)
    server.says("Signal (2) received.")
    assert server.end(signal.SIGINT) == 1
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []


def test_a_signal_while_models_load_ends_the_server(serve, write_model):
    write_model("m", ADD_ONE + "\n    def initialize(self, args):\n        import time; time.sleep(3600)\n")
    server = serve(AN_HOUR)
    server.says("loading m:1")
    family = server.family()
    assert server.end() == 0
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []


def read_by_somebody(fifo) -> int | None:
    """A descriptor that keeps who reads it waiting; None while nobody does."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


# A configuration that is read without end, as in a network that is dead.
DEAD_FILE_SYSTEM = """
import os
opens = os.open
def open(path, *flags, **more):
    if str(path).endswith("hangs/config.pbtxt"):
        os.read(opens({dead!r}, os.O_RDONLY), 1)
    return opens(path, *flags, **more)
os.open = open
"""


def test_a_load_that_hangs_in_the_file_system_does_not_hold_up_the_end(serve, write_model, tmp_path):
    write_model("m")
    write_model("hangs", config="")
    dead = tmp_path / "dead"
    os.mkfifo(dead)
    fault = DEAD_FILE_SYSTEM.format(dead=str(dead))
    server = serve("--model-control-mode=explicit", "--load-model=m", AN_HOUR, fault=fault).ready()
    family = server.family()
    asker = in_background(lambda: server.ask("POST", "/v2/repository/models/hangs/load"))
    writer = until(lambda: read_by_somebody(dead), "somebody who reads it")
    assert server.end() == 0
    os.close(writer)
    asker.join()
    until(lambda: gone(family), "all processes gone")
    assert list(server.scratch.iterdir()) == []


def test_finalize_runs_at_the_end(serve, write_model):
    write_model("m", ADD_ONE + "\n    def finalize(self):\n        print('goodbye from finalize')\n")
    server = serve().ready()
    assert server.infer("m")[0] == 200
    assert server.end() == 0
    server.says("goodbye from finalize")


def test_a_taken_port_ends_the_start(serve, write_model):
    write_model("m")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = serve(f"--http-port={other.getsockname()[1]}")
        assert server.process.wait(SECONDS_MAX) == 1
    server.says("failed to start HTTP service: Unavailable - Socket '127.0.0.1:")


def test_listeners_open_only_when_models_are_loaded(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.005)\n"
    write_model("m", wait + ADD_ONE)
    port = closed_port()
    server = serve(f"--http-port={port}")
    server.says("loading m:1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    gate.touch()
    assert server.ready().port == port


def test_metrics_count_restarts_and_leave_the_machine_out_when_asked(serve, write_model):
    write_model("m")
    server = serve("--allow-cpu-metrics=false").ready()
    mark = len(server.log)
    os.kill(server.worker("m_0"), signal.SIGKILL)
    server.says("instance m_0 is ready", after=mark)
    ready = server.said(lambda r: r.get("event") == "ready", "ready")
    connection = http.client.HTTPConnection("127.0.0.1", ready["metrics_port"], timeout=SECONDS_MAX)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert 'tisfast_worker_restarts_total{model="m",version="1"} 1.0' in text
    assert "nv_cpu_" not in text and "nv_inference_count" in text
