"""Models in environments of their own, in the real server: every CPython that there is, side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.environments.packing import pythons, write_tar
from tests.environments.wheels import write_wheel
from tests.system.helpers import CONFIG, until
from tests.waiting import has_ended

TELL = """
import sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = {"python": sys.version.split()[0], "prefix": sys.prefix}
        return [pb_utils.InferenceResponse([], parameters=told) for _ in requests]
"""


def environment(path: object, **more: str) -> str:
    parameters = {"EXECUTION_ENV_PATH": str(path), **more}
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in parameters.items()]
    return "\n".join([CONFIG, *lines])


@pytest.fixture(scope="session")
def packs(tmp_path_factory) -> dict[str, Path]:
    """The oldest packed as most are; packing the others would cost more than it tells."""
    folder = tmp_path_factory.mktemp("packs")
    kinds = ["tar.gz", *["tar"] * (len(pythons()) - 1)]
    found = zip(pythons().items(), kinds, strict=True)
    return {version: write_tar(folder / f"{version}.{kind}", python) for (version, python), kind in found}


def told(server, model: str) -> dict[str, str]:
    status, answer = server.infer(model)
    assert status == 200, answer
    return answer["parameters"]


def test_every_python_serves_beside_the_others(serve, write_model, packs, tmp_path):
    cache = tmp_path / "cache"
    for version, pack in packs.items():
        write_model("python_" + version.replace(".", "_"), TELL, environment(pack))
    write_model("own", TELL)
    server = serve(f"--environment-cache-dir={cache}").ready()
    for version in packs:
        answer = told(server, "python_" + version.replace(".", "_"))
        assert answer["python"].startswith(version + "."), answer
        assert answer["prefix"].startswith(str(cache)), answer
    assert not told(server, "own")["prefix"].startswith(str(cache))
    assert server.end() == 0
    again = serve(f"--environment-cache-dir={cache}").ready()
    assert told(again, "own") and not [r for r in again.log if "reading" in r["message"]]


def test_requirements_are_installed_and_what_they_lack_is_named(serve, write_model, tmp_path):
    """Written once, in the model's folder; the second model needs what is not in them."""
    code = "import greeting\n" + TELL.replace('"prefix": sys.prefix', '"prefix": greeting.WORD')
    version = list(pythons())[-1]
    config = environment("$$TRITON_MODEL_DIRECTORY/requirements.txt", EXECUTION_ENV_PYTHON=version)
    for name, line in (("good", "./greeting-1.0-py3-none-any.whl"), ("poor", "")):
        folder = write_model(name, code, config)
        write_wheel(folder)
        (folder / "requirements.txt").write_text(f"--no-index\n{line}\n")
    server = serve(f"--environment-cache-dir={tmp_path}/cache", "--exit-on-error=false").ready()
    answer = told(server, "good")
    assert answer["prefix"] == "hello" and answer["python"].startswith(f"{version}.")
    reason = server.says("failed to load 'poor'")["message"]
    assert "ModuleNotFoundError: No module named 'greeting'; package 'greeting' is missing in the environment" in reason
    assert f"add 'greeting' to {tmp_path}/models/poor/requirements.txt and load the model again" in reason
    assert "has no numpy" in server.says("the environment of model 'good'")["message"]


def test_polling_sees_environments_outside_of_models_folders(serve, write_model, tmp_path):
    """Archive and requirements: the old environment serves until the new one is there."""
    version = list(pythons())[-1]
    requirements, wheel = tmp_path / "requirements.txt", write_wheel(tmp_path)
    requirements.write_text(f"--no-index\n{wheel}\n")
    code = "import greeting\n" + TELL.replace('"prefix": sys.prefix', '"prefix": greeting.WORD')
    write_model("m", code, environment(requirements, EXECUTION_ENV_PYTHON=version))
    poll = ("--model-control-mode=poll", "--repository-poll-secs=0.2")
    server = serve(*poll, f"--environment-cache-dir={tmp_path}/cache").ready()
    assert told(server, "m")["prefix"] == "hello"
    wheel.unlink()
    again = write_wheel(tmp_path, version="2.0", code="WORD = 'goodbye'\n")
    requirements.write_text(f"--no-index\n{again}\n")
    until(lambda: told(server, "m")["prefix"] == "goodbye", "the new environment")


def test_a_server_that_dies_takes_what_it_prepares_with_it(serve, write_model, tmp_path):
    """Its orders end with its life; what is half made is nobody's environment."""
    waits = {"bin/conda-unpack": "import time\ntime.sleep(600)\n"}
    pack = write_tar(tmp_path / "slow.tar", Path(sys.executable), waits)
    write_model("m", TELL, environment(pack))
    server = serve(f"--environment-cache-dir={tmp_path}/cache")
    server.says("reading")
    until(lambda: "conda-unpack" in str(server.of_family(psutil.Process.cmdline)), "unpacking")
    family = server.family()
    server.process.kill()
    _, alive = psutil.wait_procs(family, 30)
    assert all(has_ended(process) for process in alive)
    assert not list((tmp_path / "cache").glob("*/ready.json"))
