"""Nurseries of models' environments: one for each, while a model uses it, and what models there are told."""

from __future__ import annotations

import os
import resource
import sys

import psutil
import pytest

from tests.environments.packing import pythons, write_tar
from tests.model_fixtures import CONFIG, MODEL
from tests.waiting import until
from tisfast.config.environments import EnvironmentSettings
from tisfast.config.settings import WorkerSettings
from tisfast.errors import TisError
from tisfast.models.lifecycle import LoadOrder


@pytest.fixture(scope="session")
def oldest_pack(tmp_path_factory):
    """A packed environment of the oldest interpreter there is, without numpy, and with a library of its own."""
    path = tmp_path_factory.mktemp("packs") / "env.tar"
    return write_tar(path, next(iter(pythons().values())), {"lib/libours.so": ""})


@pytest.fixture
def explicit(supervise, tmp_path):
    """A supervisor in mode explicit, with nothing loaded."""
    settings = EnvironmentSettings(str(tmp_path / ".cache"))
    return supervise(explicit=(), workers=WorkerSettings(sys.executable, environments=settings))


def in_environment(path: object) -> str:
    return CONFIG + f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'


def parents(supervisor) -> dict[str, int]:
    """Process ids of the nurseries that served models have, by model."""
    found = {}
    for each in supervisor.served:
        with open(f"/proc/{each.instances[0].pid}/stat") as stat:
            found[each.runtime.signature.name] = int(stat.read().rpartition(")")[2].split()[1])
    return found


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_models_of_one_environment_share_its_nursery_and_it_goes_with_the_last(explicit, write, run, oldest_pack):
    for name in ("a", "b"):
        write(name, config=in_environment(oldest_pack))
    write("own")
    for name in ("a", "b", "own"):
        run(explicit.lifecycle.load(LoadOrder(name)))
    found = parents(explicit)
    assert found["a"] == found["b"] != found["own"]
    run(explicit.lifecycle.unload("a"))
    run(until(lambda: len(explicit.served) == 2))
    assert not gone(found["b"])
    for name in ("b", "own"):
        run(explicit.lifecycle.unload(name))
    run(until(lambda: not explicit.served))
    run(until(lambda: gone(found["b"])))
    assert not gone(found["own"])


def test_another_content_of_an_archive_is_another_environment(explicit, write, run, oldest_pack, tmp_path):
    """The archive lies outside of the model's folder: the environment is looked at by itself."""
    pack = tmp_path / ".env.tar"
    pack.write_bytes(oldest_pack.read_bytes())
    write("m", config=in_environment(pack))
    run(explicit.lifecycle.load(LoadOrder("m")))
    before = parents(explicit)["m"]
    run(explicit.lifecycle.load(LoadOrder("m")))
    assert parents(explicit)["m"] == before
    newest = list(pythons().values())[-1]
    write_tar(pack, newest, {"lib/other.txt": "which tells it from the oldest where there is only one"})
    run(explicit.lifecycle.load(LoadOrder("m")))
    run(until(lambda: len(explicit.served) == 1))
    assert parents(explicit)["m"] != before
    run(until(lambda: gone(before)))


def test_a_failed_load_leaves_no_nursery(explicit, write, run, oldest_pack, registry):
    before = set(psutil.Process().children())
    write("m", "import no_such_module\n" + MODEL, in_environment(oldest_pack))
    with pytest.raises(TisError):
        run(explicit.lifecycle.load(LoadOrder("m")))
    run(until(lambda: set(psutil.Process().children()) <= before))
    [entry] = registry.models()
    assert (
        "ModuleNotFoundError: No module named 'no_such_module'; package 'no_such_module' is missing in the environment "
        f"of model 'm' (packed environment {oldest_pack}): install 'no_such_module' where"
    ) in entry.reason


def test_a_missing_package_of_the_server_s_own_python(explicit, write, run, registry):
    write("m", "from sklearn_no import svm\n" + MODEL)
    with pytest.raises(TisError, match=f"the server's own Python, {sys.executable}.*EXECUTION_ENV_PATH"):
        run(explicit.lifecycle.load(LoadOrder("m")))


def test_an_environment_without_numpy_is_said(explicit, write, run, oldest_pack, caplog):
    write("m", config=in_environment(oldest_pack))
    write("own")
    run(explicit.lifecycle.load(LoadOrder("m")))
    run(explicit.lifecycle.load(LoadOrder("own")))
    [line] = [record.getMessage() for record in caplog.records if "has no numpy" in record.getMessage()]
    assert line.startswith(f"the environment of model 'm' (packed environment {oldest_pack}) has no numpy: as_numpy()")


SURROUNDINGS = """
import os, sys
assert "PYTHONPATH" not in os.environ and "PYTHONHOME" not in os.environ, os.environ
assert not any(entry.startswith("/elsewhere") for entry in sys.path), sys.path
assert os.environ["PYTHONNOUSERSITE"] == "1" and sys.flags.no_user_site
assert os.environ["LD_LIBRARY_PATH"].split(":") == [sys.prefix + "/lib", "/elsewhere/lib"], os.environ
assert os.environ["PATH"].startswith(sys.prefix + "/bin:")
import subprocess
said = subprocess.run(["python", "-c", "import sys; print(sys.prefix)"], stdout=subprocess.PIPE, check=True).stdout
assert said.decode().strip() == sys.prefix, said
"""


def test_the_server_s_surroundings_do_not_mislead_another_python(explicit, write, run, oldest_pack, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere/packages")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere/lib")
    write("m", SURROUNDINGS + MODEL, in_environment(oldest_pack))
    run(explicit.lifecycle.load(LoadOrder("m")))


def test_a_broken_environment_is_the_model_s_own_failure(explicit, write, run, registry, tmp_path):
    (tmp_path / ".env.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    write("m", config=in_environment(tmp_path / ".env.zip"))
    write("own")
    with pytest.raises(TisError, match="holds no bin/python3 or bin/python"):
        run(explicit.lifecycle.load(LoadOrder("m")))
    run(explicit.lifecycle.load(LoadOrder("own")))


def test_a_server_with_many_open_files_starts_nurseries(supervise, write):
    """Their socket then has a number beyond 1023, where `select` ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > 2000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        write("m", MODEL, CONFIG)
        assert len(supervise().served) == 1
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
