"""--backend-environments=auto: what a backend needs is installed once, where a model's framework is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.environments.wheels import write_wheel
from tests.system.helpers import ROOT, SECONDS_MAX, Server, index, until

INSTALL_SECONDS_MAX = 600  # ONNX Runtime and numpy, from an index, on a busy machine
GREETING = """
import greeting
import sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        told = {"word": greeting.WORD, "prefix": sys.prefix}
        return [pb_utils.InferenceResponse([], parameters=told) for _ in requests]
"""
CONFIG = 'backend: "greet"\ninput { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }\n'
AUTO = "--backend-environments=auto"


@pytest.fixture
def backends(tmp_path):
    """Of one backend, whose package is in no environment and on no index."""
    folder = tmp_path / "backends/greet"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(GREETING)
    (folder / "requirements.txt").write_text(f"--no-index\n{write_wheel(folder)}\n")
    return folder.parent


@pytest.fixture
def write(tmp_path):
    def model(name, more=""):
        folder = tmp_path / "models" / name
        (folder / "1").mkdir(parents=True)
        output = 'output { name: "B" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        (folder / "config.pbtxt").write_text(CONFIG + output + more)

    return model


@pytest.fixture
def start(serve, backends, tmp_path):
    def started(*flags):
        cache = f"--environment-cache-dir={tmp_path / 'cache'}"
        return serve(f"--backend-directory={backends}", cache, "--exit-on-error=false", *flags)

    return started


def told(server, model):
    status, answer = server.infer(model)
    assert status == 200, answer
    return answer["parameters"]


def test_all_models_of_a_backend_share_what_is_installed_once(start, write, tmp_path):
    for name in ("a", "b"):
        write(name)
    server = start(AUTO).ready()
    answers = [told(server, name) for name in ("a", "b")]
    assert answers[0] == answers[1] and answers[0]["word"] == "hello"
    assert answers[0]["prefix"].startswith(str(tmp_path / "cache"))
    assert sum("installing" in record["message"] for record in server.log) == 1
    assert len(list((tmp_path / "cache").glob("requirements-*/env"))) == 1
    assert server.end() == 0
    again = start(AUTO).ready()
    assert told(again, "a") == answers[0]
    assert not [record for record in again.log if "installing" in record["message"]]


def test_without_the_flag_the_error_says_what_would_help(start, write, backends):
    write("m")
    server = start("--strict-readiness=false").ready()
    until(lambda: index(server)["m"].get("reason"), "the index has a reason")
    reason = index(server)["m"]["reason"]
    assert "No module named 'greeting'" in reason and "or start the server with --backend-environments=auto" in reason
    assert str(backends / "greet/requirements.txt") in reason


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def test_a_model_may_say_so_for_itself(start, write):
    write("yes", parameter("BACKEND_ENVIRONMENT", "auto"))
    write("no")
    server = start("--strict-readiness=false").ready()
    assert told(server, "yes")["word"] == "hello"
    assert index(server)["no"]["state"] == "UNAVAILABLE"


def test_a_model_may_refuse_it(start, write):
    write("no", parameter("BACKEND_ENVIRONMENT", "off"))
    write("bad", parameter("BACKEND_ENVIRONMENT", "perhaps"))
    server = start(AUTO, "--strict-readiness=false").ready()
    assert "No module named 'greeting'" in index(server)["no"]["reason"]
    assert "BACKEND_ENVIRONMENT of bad is 'perhaps'; give auto, off" in index(server)["bad"]["reason"]


def test_an_environment_that_a_model_names_is_left_to_its_owner(start, write, tmp_path):
    venv.create(tmp_path / "own", symlinks=True)
    write("m", parameter("EXECUTION_ENV_PATH", tmp_path / "own"))
    server = start(AUTO, "--strict-readiness=false").ready()
    until(lambda: index(server)["m"].get("reason"), "the index has a reason")
    assert f"{tmp_path}/own/bin/python3 -m pip install greeting" in index(server)["m"]["reason"]
    assert "--backend-environments" not in index(server)["m"]["reason"]


def test_what_cannot_be_installed_is_told(start, write, backends):
    (backends / "greet/requirements.txt").write_text("--no-index\nno-such-package==7\n")
    write("m")
    server = start(AUTO, "--strict-readiness=false").ready()
    until(lambda: index(server)["m"].get("reason"), "the index has a reason")
    assert "could not be built" in index(server)["m"]["reason"] and "no-such-package" in index(server)["m"]["reason"]


def test_models_are_tried_where_they_would_be_served(write, backends, tmp_path):
    """`tisfast check --run`."""
    write("m")
    flags = (f"--backend-directory={backends}", f"--environment-cache-dir={tmp_path / 'cache'}")
    command = [sys.executable, "-m", "tisfast", "check", "--run", str(tmp_path / "models"), *flags]
    done = [
        subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        for more in ([], [AUTO])
    ]
    assert done[0].returncode == 1 and "No module named 'greeting'" in done[0].stdout
    assert done[1].returncode == 0 and "1 model(s) loaded and warmed up, no finding(s)" in done[1].stdout


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The cache with what ONNX Runtime needs, as an operator prepares it: from the pinned requirements."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")
    cache = tmp_path_factory.mktemp("cache")
    done = subprocess.run(
        [sys.executable, "-m", "tisfast", "env", "build", "--backend=onnxruntime", f"--environment-cache-dir={cache}"],
        cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{cache}/requirements-")
    return cache


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An interpreter with numpy and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    site = folder / f"lib/python3.{sys.version_info[1]}/site-packages"
    for path in Path(sysconfig.get_paths()["platlib"]).glob("numpy*"):
        (site / path.name).symlink_to(path)
    return folder / "bin/python"


@pytest.fixture
def serve_bare(bare, prepared, tmp_path, tmp_path_factory):
    """A server whose workers' own Python has no ONNX Runtime."""
    fault = "import functools, tisfast.cli as cli; settings = cli.WorkerSettings; "
    fault += f"cli.WorkerSettings = lambda **given: settings(**{{**given, 'interpreter': {str(bare)!r}}})"
    started = []

    def start(*flags):
        cache = f"--environment-cache-dir={prepared}"
        started.append(Server(tmp_path / "models", (cache, *flags), tmp_path_factory.mktemp("s"), fault))
        return started[-1]

    yield start
    for server in started:
        server.end()
        server.process.stdout.close()


def test_onnx_models_run_in_what_was_prepared(serve_bare, prepared, tmp_path):
    from tests.system import onnx_models as made

    for name in ("one", "two"):
        made.save(made.add_sub(), tmp_path / "models" / name)
    server = serve_bare(AUTO).ready()
    for name in ("one", "two"):
        tensor = {"shape": [1, 16], "datatype": "FP32", "data": np.arange(16).tolist()}
        inputs = [{"name": each, **tensor} for each in ("INPUT0", "INPUT1")]
        status, answer = server.ask("POST", f"/v2/models/{name}/infer", {"inputs": inputs})
        assert status == 200 and answer["outputs"][0]["data"] == (2 * np.arange(16)).tolist()
        server.says(f"model '{name}': there is no onnxruntime, which runs this model; it is loaded in the")
    assert len(list(prepared.glob("requirements-*/env"))) == 1
    assert not [record for record in server.log if "installing" in record["message"]]


def test_without_the_flag_an_onnx_model_says_what_to_type(serve_bare, tmp_path):
    from tests.system import onnx_models as made

    made.save(made.add_sub(), tmp_path / "models/one")
    server = serve_bare("--exit-on-error=false", "--strict-readiness=false").ready()
    reason = index(server)["one"]["reason"]
    assert re.search(r"bin/python -m pip install 'tisfast\[onnx\]', or give the model an environment", reason)
    assert "or start the server with --backend-environments=auto" in reason
