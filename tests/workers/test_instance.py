"""One instance from its load to its end."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.waiting import Gate, wait_until
from tests.workers.driver import FP32
from tests.workers.models import ANSWER, FINAL, both, model


def test_initialize_gets_its_arguments_and_finalize_runs(serve, router):
    more = """
    def initialize(self, args):
        self.args = args
    def finalize(self):
        print("finalized")
        raise ValueError("late")
"""
    instance = serve(
        model(
            "import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(self.args)))]",
            more,
        )
    )
    args = json.loads(instance.ask([1], [2]).text)
    assert args == {
        "model_config": instance.load["config"],
        "model_instance_kind": "CPU",
        "model_instance_name": "m_0_0",
        "model_instance_device_id": "0",
        "model_repository": instance.load["repository"],
        "model_version": "1",
        "model_name": "m",
    }
    instance.stop()
    logged = router.receive()
    assert logged["level"] == "ERROR" and "ValueError: late" in logged["msg"]
    assert router.receive() == {"t": "stopped"} and instance.exit_status() == 0 and instance.printed() == "finalized\n"


def test_stop_finishes_what_submit_holds(serve, router, tmp_path):
    gate = Gate(tmp_path / "gate")
    instance = serve(model(f"{gate.wait}; return [answer(arr(r))]"))
    for _ in range(4):
        instance.plane.push([instance.record([1], [0])])
    instance.stop()
    gate.open()
    assert [instance.plane.next().kind for _ in range(4)] == [ANSWER] * 4
    assert router.until("stopped")


@both
@pytest.mark.parametrize(
    ("source", "kind", "error", "message"),
    [
        (
            "import nosuchmodule\n",
            "import",
            "ModuleNotFoundError: No module named 'nosuchmodule'",
            "\n\nAt:\n  MODEL(1): <module>\n",
        ),
        ("class TritonPythonModel\n", "import", "SyntaxError: ", ""),
        (
            "x = 1\n",
            "import",
            "AttributeError: module '1.model' has no attribute 'TritonPythonModel'; give its class that name",
            "",
        ),
        ("import sys; sys.exit(3)\n", "import", "SystemExit: 3", "\n\nAt:\n  MODEL(1): <module>\n"),
        (
            model("pass", "    def initialize(self, args): raise ValueError('no weights')\n"),
            "init",
            "ValueError: no weights",
            "\n\nAt:\n  MODEL(11): initialize\n",
        ),
        (
            model("pass", "    def __init__(self): raise ValueError('ctor')\n"),
            "init",
            "ValueError: ctor",
            "\n\nAt:\n  MODEL(11): __init__\n",
        ),
    ],
)
def test_failures_to_load(load, source, kind, error, message):
    instance, reply = load(source)
    assert (reply["t"], reply["kind"]) == ("failed", kind) and reply["error"].startswith(error)
    path = os.path.join(instance.load["version_dir"], "model.py")
    assert reply["message"] == reply["error"] + message.replace("MODEL", path)
    assert os.WEXITSTATUS(instance.exit_status()) == 1


def test_auto_complete(load):
    more = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [4]})
        return config
    def initialize(self, args):
        raise ValueError("not for completing")
"""
    instance, reply = load(model("pass", more), "complete")
    assert reply["t"] == "completed" and json.loads(reply["config"])["input"][0]["name"] == "A"
    assert instance.exit_status() == 0
    assert json.loads(load(model("pass"), "complete")[1]["config"])["name"] == "m"
    _, reply = load(model("pass", "    @staticmethod\n    def auto_complete_config(c): pass\n"), "complete")
    assert reply["kind"] == "complete"
    assert reply["error"].endswith(
        "auto_complete_config function in model 'm' must return a valid pb.ModelConfig object."
    )


def test_the_model_sees_its_folders_and_its_siblings(serve, tmp_path):
    (tmp_path / "m/1").mkdir(parents=True)
    (tmp_path / "m/1/sibling.py").write_text("where = 'version'\n")
    (tmp_path / "m/backends.py").write_text("where = 'model'\n")
    body = """
import sibling, backends
from . import sibling as relative
said = [__name__, sibling.where, backends.where, relative.where, sys.path[-4:], os.getcwd(), pb_utils.get_model_dir()]
import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(said)))]
"""
    instance = serve(model(body))
    name, sibling, backends, relative, path, current, folder = json.loads(instance.ask([1], [2]).text)
    assert (name, sibling, backends, relative) == ("1.model", "version", "model", "version")
    assert path[:2] == [instance.load["version_dir"], instance.load["repository"]] and path[2].endswith("workers")
    assert (path[3], current) == ("", os.getcwd()), "the server's folder comes last"
    assert folder == instance.load["version_dir"]


@both
@pytest.mark.parametrize("lately", [True, False])
def test_bytecode_of_what_may_be_saved_again_at_once_is_not_kept(serve, lately):
    """Python tells bytecode from its source by whole seconds and size."""
    instance = serve(model("pass"), saved_lately=lately)
    assert os.path.exists(os.path.join(instance.load["version_dir"], "__pycache__")) is not lately


def test_variables_threads_and_random_numbers_are_the_instances_own(serve):
    body = """
names = "OMP_NUM_THREADS", "MODEL_VARIABLE", "MKL_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT"
said = [os.environ.get(n) for n in names] + [np.random.random()]
import json; return [pb_utils.InferenceResponse([], error=pb_utils.TritonError(json.dumps(said)))]
"""
    env = {"MODEL_VARIABLE": "1", "MKL_NUM_THREADS": "7"}
    first, second = (json.loads(serve(model(body), env=env, threads=3).ask([1], [2]).text) for _ in range(2))
    assert first[:4] == second[:4] == ["3", "1", "7", "20"]
    assert first[4] != second[4]


def test_control_goes_on_while_the_model_works(serve, router, tmp_path):
    """Both ways: it says what it does, and hears that it may say more."""
    gate = tmp_path / "gate"
    wait = f"while not os.path.exists({str(gate)!r}): pb_utils.Logger.log_verbose('heard'); time.sleep(0)\n"
    body = f"pb_utils.Logger.log_info('busy'); import time\n{wait}return [answer(arr(r))]"
    instance = serve(model(body))
    instance.plane.push([instance.record([1], [0])])
    logged = router.receive()
    assert (logged["level"], logged["msg"], logged["file"]) == ("INFO", "busy", "model.py") and logged["line"] == 14
    router.send(instance.id, {"t": "verbose", "level": 1})
    assert router.receive()["msg"] == "heard"
    gate.touch()
    assert instance.plane.next().kind == ANSWER


def test_verbose_records_are_for_verbose_servers(serve, router):
    body = "pb_utils.Logger.log_verbose('small'); pb_utils.Logger.log_error('large'); return [answer(arr(r))]"
    serve(model(body)).ask([1], [0])
    assert router.receive()["msg"] == "large"
    serve(model(body), log_verbose=1).ask([1], [0])
    assert router.receive()["level"] == "VERBOSE"


def test_a_flood_of_log_records_never_blocks(serve, router):
    body = "[pb_utils.Logger.log_info('x' * 1000) for _ in range(20000)]; return [answer(arr(r))]"
    instance = serve(model(body), outputs=[["X", FP32, [-1], None]])
    assert instance.ask([1], [0]).kind == ANSWER  # nobody has read the control socket yet
    received, dropped = 0, 0
    while received + dropped < 20000:
        message = router.receive()
        if "were dropped" in message["msg"]:
            dropped += int(message["msg"].split()[0])
        else:
            received += 1
    assert received + dropped == 20000


def test_what_a_model_prints_comes_out_in_whole_lines(serve, router):
    instance = serve(
        model("print('é', arr(r)); print('to err', file=sys.stderr); os.write(1, b'raw\\n'); return [answer(arr(r))]")
    )
    instance.ask([1], [0])
    instance.stop()
    instance.exit_status()
    assert instance.printed() == "é [1.]\nto err\nraw\n"


def test_a_signal_ends_an_instance_at_once(serve):
    instance = serve(model("import threading; threading.Event().wait()"))
    instance.plane.push([instance.record([1], [0])])
    os.kill(instance.pid, signal.SIGQUIT)
    assert os.WTERMSIG(instance.exit_status()) == signal.SIGQUIT


def test_what_is_sent_to_all_processes_of_a_server_ends_no_execution(serve, tmp_path):
    gate, seen = Gate(tmp_path / "gate"), tmp_path / "seen"
    instance = serve(model(f"open({str(seen)!r}, 'w').close(); {gate.wait}; return [answer(arr(r))]"))
    instance.plane.push([instance.record([1], [0])])
    wait_until(seen.exists)
    for number in 2 * (signal.SIGTERM, signal.SIGINT):
        os.kill(instance.pid, number)
    gate.open()
    assert instance.plane.next().flags == FINAL
    os.kill(instance.pid, signal.SIGTERM)  # while it waits for requests
    assert instance.ask([1], [0]).flags == FINAL


STARTS = {
    "put back": "import signal; put = signal.signal; put(15, put(15, signal.SIG_IGN)); "
    "child = subprocess.Popen(['sleep', '1000']); child.terminate(); code = child.wait()",
    "subprocess": "child = subprocess.Popen(['sleep', '1000']); child.terminate(); code = child.wait()",
    "fork": "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,)); child.start(); "
    "child.terminate(); child.join(); code = child.exitcode",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_processes_that_a_model_starts_are_ended_by_a_sigterm(serve, start):
    """Also a fork, which has what the instance does with signals."""
    instance = serve(model(f"import multiprocessing, subprocess, time; {start}; print(code); return [answer(arr(r))]"))
    instance.ask([1], [0])
    instance.stop()
    instance.exit_status()
    assert instance.printed() == f"{-signal.SIGTERM}\n"


def test_the_thread_that_hears_the_server_is_told_before_anything_is_loaded(nursery, router, tmp_path):
    """A process that ends at once is known by it."""
    from tests.workers.driver import Instance

    instance = Instance(nursery, router, tmp_path, "import os; os._exit(3)")
    router.send(instance.id, {"t": "load", "role": "serve", "model": instance.load})
    assert os.WEXITSTATUS(instance.exit_status()) == 3
    with pytest.raises(TimeoutError):
        router.receive(1)
    assert router.threads[router.peers[instance.id]] != instance.pid


@pytest.mark.parametrize(
    "message",
    [{"t": "nonsense"}, {"t": "load", "role": "serve", "model": {"name": "m"}}, {"t": "load", "role": "other"}],
)
def test_a_broken_load_message_ends_the_worker_with_a_reason(load, router, nursery, tmp_path, message):
    from tests.workers.driver import Instance

    instance = Instance(nursery, router, tmp_path, "")
    router.send(instance.id, message)
    assert os.WEXITSTATUS(instance.exit_status()) == 1
    assert "WireError" in instance.printed()
