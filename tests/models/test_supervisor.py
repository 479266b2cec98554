"""Models, instances and workers as the server has them, without its fronts."""

import gc
import os
import signal
import sys

import pytest

from tests.model_fixtures import CONFIG, MODEL, descriptors, descriptors_are
from tests.waiting import until
from tisfast.config.settings import RepositorySettings, WorkerSettings
from tisfast.errors import TisError
from tisfast.models.supervisor import Supervisor
from tisfast.processes.clock import MachineClock
from tisfast.processes.instance import InstanceState
from tisfast.processes.worker import Worker


def state(registry, name: str) -> tuple[str, str]:
    entry = next(entry for entry in registry.models() if entry.name == name)
    return entry.state, entry.reason


def test_models_are_ready_when_all_instances_are(supervise, write, registry):
    write("m", config=CONFIG + "instance_group [ { count: 3 kind: KIND_CPU } ]")
    supervisor = supervise()
    assert registry.ready()
    names = [instance.name for instance in supervisor.served[0].instances]
    assert names == ["m_0_0", "m_0_1", "m_0_2"]
    assert len({instance.pid for instance in supervisor.served[0].instances}) == 3


def test_each_model_loads_or_fails_by_itself(supervise, write, registry):
    write("good")
    write("bad", "raise ValueError('no weights')")
    write("wrong", config='backend: "pyton"')
    supervise()
    assert state(registry, "good") == ("READY", "")
    assert state(registry, "bad") == ("UNAVAILABLE", "Internal: ValueError: no weights")
    assert state(registry, "wrong")[0] == "UNAVAILABLE" and "did you mean 'python'" in state(registry, "wrong")[1]
    assert not registry.ready()


def test_a_failing_version_takes_the_others_with_it(supervise, write, registry):
    config = CONFIG + "version_policy { all { } }"
    write("m", config=config)
    folder = write("other", config=config)
    (folder / "2").mkdir()
    (folder / "2" / "model.py").write_text("raise ValueError('two')")
    supervisor = supervise()
    assert [served.runtime.signature.name for served in supervisor.served] == ["m"]
    entries = [entry for entry in registry.models() if entry.name == "other"]
    assert [(entry.version, entry.state) for entry in entries] == [("1", "UNAVAILABLE"), ("2", "UNAVAILABLE")]


def test_auto_complete_config_has_its_say(supervise, write, registry):
    code = (
        MODEL
        + """
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        config.add_input({"name": "A", "data_type": "TYPE_INT32", "dims": [2]})
        config.add_output({"name": "B", "data_type": "TYPE_INT32", "dims": [2]})
        return config
"""
    )
    write("m", code, 'backend: "python"')
    supervise()
    signature = registry.resolve("m").signature
    assert signature.max_batch_size == 8
    assert [(tensor.name, tensor.datatype, tensor.dims) for tensor in signature.inputs] == [("A", "INT32", (2,))]


def test_a_failing_load_is_tried_again_when_asked(supervise, write, registry, tmp_path):
    marker = tmp_path / ".seen"
    fail_once = (
        f"import os\nif not os.path.exists({str(marker)!r}):\n    open({str(marker)!r}, 'w').close()\n    1 / 0\n"
    )
    write("m", fail_once + MODEL)
    supervise(retries=1)
    assert state(registry, "m") == ("READY", "")


def test_a_load_that_takes_too_long_is_ended(supervise, write, registry):
    write("m", "import threading; threading.Event().wait()\n" + MODEL)
    supervise(workers=WorkerSettings(sys.executable, load_seconds_max=0.3))
    assert "did not load the model within 0.3 s" in state(registry, "m")[1]


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "inf", "nan"])
def test_a_wrong_timeout_parameter_is_refused(supervise, write, registry, seconds):
    write(
        "m", config=CONFIG + f'parameters {{ key: "EXECUTION_TIMEOUT_SECONDS" value {{ string_value: "{seconds}" }} }}'
    )
    supervise()
    reason = state(registry, "m")[1]
    assert "EXECUTION_TIMEOUT_SECONDS" in reason and "config.pbtxt:" in reason


def test_a_killed_instance_makes_the_model_unready_until_it_is_back(supervise, write, registry, run):
    write("m", config=CONFIG + "instance_group [ { count: 2 kind: KIND_CPU } ]")
    supervisor = supervise()
    first, second = supervisor.served[0].instances
    runtime = supervisor.served[0].runtime
    dead = first.pid
    os.kill(dead, signal.SIGKILL)
    run(until(lambda: first.state is InstanceState.DEAD))
    assert not runtime.ready and "m_0_0 was killed by signal 9 (SIGKILL)" in runtime.reason
    assert second.state is InstanceState.READY
    assert not registry.ready()
    run(until(lambda: first.state is InstanceState.READY))
    assert first.pid not in (0, dead) and first.restarts == 1
    assert registry.ready()


def test_a_worker_that_cannot_come_back_is_tried_on_and_on(supervise, write, registry, run, tmp_path):
    broken = tmp_path / ".broken"
    write("m", f"import os\nif os.path.exists({str(broken)!r}): raise ValueError('weights moved')\n{MODEL}")
    supervisor = supervise()
    instance = supervisor.served[0].instances[0]
    broken.touch()
    os.kill(instance.pid, signal.SIGKILL)
    run(until(lambda: instance.restarts >= 2 and instance.state is InstanceState.BROKEN))
    assert "weights moved" in supervisor.served[0].runtime.reason
    broken.unlink()
    run(until(lambda: instance.state is InstanceState.READY))
    assert registry.ready()


def test_a_bug_in_a_start_does_not_end_the_keeping_of_an_instance(supervise, write, run, monkeypatch, caplog):
    write("m")
    instance = supervise().served[0].instances[0]
    with monkeypatch.context() as bug:
        bug.setattr(Worker, "start", lambda *_: 1 / 0)
        os.kill(instance.pid, signal.SIGKILL)
        run(until(lambda: instance.state is InstanceState.BROKEN))
        assert "unexpected ZeroDivisionError" in instance.reason
    run(until(lambda: instance.state is InstanceState.READY))
    [said] = [record for record in caplog.records if "could not be restarted" in record.message][:1]
    assert said.exc_info[0] is ZeroDivisionError


def test_instances_under_another_interpreter(supervise, write, registry, tmp_path):
    """A virtual environment: its interpreter is a link, and its packages are not ours."""
    import venv

    venv.create(tmp_path / ".env", symlinks=True, with_pip=False)
    code = f"import sys\nassert sys.prefix == {str(tmp_path / '.env')!r}, sys.prefix\n" + MODEL
    environment = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{tmp_path}/.env" }} }}'
    write("m", code, CONFIG + environment)
    supervise()
    assert state(registry, "m") == ("READY", "")


def test_stopping_finalizes_and_leaves_no_process(supervise, write, run, tmp_path):
    said = tmp_path / ".finalized"
    write("m", MODEL + f"\n    def finalize(self):\n        open({str(said)!r}, 'w').close()\n")
    supervisor = supervise()
    pid = supervisor.served[0].instances[0].pid
    run(supervisor.stop(10))
    assert said.exists() and supervisor.live == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_instance_that_does_not_stop_is_killed(supervise, write, run, caplog):
    write("m", MODEL + "\n    def finalize(self):\n        import threading; threading.Event().wait()\n")
    supervisor = supervise()
    pid = supervisor.served[0].instances[0].pid
    run(supervisor.stop(0.2))
    assert (
        "instance m_0 did not finalize within 0.2 s and is killed: it may take 10 s when its model is unloaded, and "
        "what is left of --exit-timeout-secs when the server ends"
    ) in caplog.messages
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_many_lives_leave_no_descriptors_and_no_processes(supervise, write, run):
    write("m")
    supervisor = supervise()
    instance = supervisor.served[0].instances[0]

    def kill_once() -> None:
        os.kill(instance.pid, signal.SIGKILL)
        run(until(lambda: instance.state is InstanceState.DEAD))
        run(until(lambda: instance.state is InstanceState.READY))

    kill_once()
    gc.collect()  # what earlier tests left to it must not go while we count
    before = run(descriptors())
    for _ in range(4):
        kill_once()
    run(descriptors_are(before))


def test_a_repository_that_is_none_is_told(loop, registry, tmp_path):
    supervisor = Supervisor(
        RepositorySettings((str(tmp_path / "nowhere"),)), WorkerSettings(sys.executable), registry, MachineClock(), loop
    )
    with pytest.raises(TisError, match="not a valid directory"):
        supervisor.find()
