"""Backends that are a model.py for all their models, as Triton's for vLLM is: what they import, call and are told."""

from __future__ import annotations

import json
import queue
import shutil
import sys
import tarfile

import pytest
import tritonclient.grpc as grpcclient

from tests.system.helpers import SECONDS_MAX, Server, index, until
from tests.system.python_based_helpers import HERE, given

STORY = 'backend: "story"\n'
TELLING = """
import json
import sys
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        said = {**args, "dir": pb_utils.get_model_dir(), "path": sys.path, "module": __name__, "argv": sys.argv}
        said["prefix"] = sys.prefix
        raise RuntimeError("told " + json.dumps(said))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server of one model of the backend, for those that leave it as it is."""
    started = Server(HERE / "models", (f"--backend-directory={HERE}/",), tmp_path_factory.mktemp("s"))
    yield started.ready()
    assert started.end() == 0
    started.process.stdout.close()


def streamed(server, connect, model, inputs, **more):
    """The answers to one request of a stream: texts, or the error's message."""
    client, said = connect(server, grpcclient), queue.Queue()
    client.start_stream(lambda result, error: said.put((result, error)))
    client.async_stream_infer(model, inputs, enable_empty_final_response=True, **more)
    found = []
    while True:
        result, error = said.get(timeout=SECONDS_MAX)
        if error is not None:
            found.append(error.message())
            break
        found.append(result.as_numpy("text_output")[0].decode())
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    return found


def test_its_models_need_no_code_and_are_completed_by_it(server):
    config = server.ask("GET", "/v2/models/tale/config")[1]
    assert (config["backend"], config["max_batch_size"], config["runtime"]) == ("story", 0, "model.py")
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert [tensor["name"] for tensor in config["input"]] == ["text_input", "stream", "sampling_parameters"]
    assert [tensor["name"] for tensor in config["output"]] == ["text_output", "said"]


def test_a_stream_has_an_answer_for_each_word(server, connect):
    assert streamed(server, connect, "tale", given("once", stream=True)) == ["once", "upon", "a", "time"]
    words = given("once", stream=True, sampling='{"words": 2}')
    assert streamed(server, connect, "tale", words) == ["once", "upon"]
    assert streamed(server, connect, "tale", given("once", stream=True), parameters={"words": 3})[-1] == "a"


def test_without_a_stream_there_is_one_answer(server, connect):
    assert streamed(server, connect, "tale", given("once")) == ["once upon a time"]
    status, answer = server.ask("POST", "/v2/models/tale/generate", {"text_input": "once", "words": 3})
    assert (status, answer["text_output"]) == (200, "once upon a")


def test_what_its_engine_raises_is_the_clients_error(server, connect):
    said = streamed(server, connect, "tale", given("!", stream=True))
    assert said == ["Error in the stream: this word cannot be said"]
    assert streamed(server, connect, "tale", given("once")) == ["once upon a time"], "and it serves on"


def test_its_engine_reports_metrics(server, connect):
    streamed(server, connect, "tale", given("once"))

    def counted():
        lines = server.metrics().splitlines()
        return [line for line in lines if line.startswith('story:words_total{model="tale",version="1"}')]

    until(lambda: counted() and float(counted()[0].split()[-1]) >= 4, "four words are counted")
    assert 'story:word_letters_bucket{le="2",model="tale",version="1"}' in server.metrics()


@pytest.fixture
def backends(tmp_path):
    folder = tmp_path / "backends"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__", "models"))
    return folder


@pytest.fixture
def write(tmp_path):
    def model(name, config=STORY, data=""):
        folder = tmp_path / "models" / name
        (folder / "1").mkdir(parents=True)
        (folder / "config.pbtxt").write_text(config)
        if data:
            (folder / "1/model.json").write_text(data)
        return folder

    return model


def reason_of(serve, *flags, name="m"):
    server = serve(*flags, "--exit-on-error=false", "--strict-readiness=false").ready()
    until(lambda: index(server)[name].get("reason"), "the index has a reason")
    return index(server)[name]["reason"]


def test_an_engine_that_does_not_start_is_the_reason(serve, write, backends):
    write("m", data='{"words": [], "broken": true}')
    assert "the engine cannot start" in reason_of(serve, f"--backend-directory={backends}")


def test_a_model_without_its_data_is_told(serve, write, backends, tmp_path):
    write("m")
    said = reason_of(serve, f"--backend-directory={backends}")
    assert f"'model.json' must be provided in '{tmp_path / 'models/m/1'}'" in said


def test_an_engine_that_is_not_well_unloads_its_model(serve, write, backends, connect):
    write("m", data='{"words": []}')
    flags = ("--model-control-mode=explicit", "--load-model=m", f"--backend-directory={backends}")
    server = serve(*flags).ready()
    assert streamed(server, connect, "m", given("once")) == ["the engine is not well"]
    until(lambda: not server.model_ready("m"), "it is unloaded")
    server.says("the story ends")


def test_what_it_is_told(serve, write, backends, tmp_path):
    (backends / "story/model.py").write_text(TELLING)
    folder = write("m", STORY + 'output { name: "O" data_type: TYPE_FP32 dims: [ 1 ] }')
    (folder / "1/utils").mkdir()
    flags = [f"--backend-config={each}" for each in ("story,depth=2", "depth=1", "width=3", "other,depth=5")]
    said = reason_of(serve, f"--backend-directory={backends}", *flags)
    told = json.JSONDecoder().raw_decode(said.partition("told ")[2])[0]
    assert told["model_repository"] == str(folder) and told["dir"] == str(folder / "1")
    assert (told["model_name"], told["model_version"], told["model_instance_kind"]) == ("m", "1", "CPU")
    assert (told["model_instance_name"], told["model_instance_device_id"]) == ("m_0", "0")
    assert told["backend_config"] == '{"cmdline": {"depth": "2", "width": "3"}}'
    assert (told["module"], told["argv"]) == ("model", [str(backends / "story/model.py")])
    assert str(backends / "story") in told["path"] and str(folder / "1") not in told["path"]


def test_the_environment_beside_it_is_its_models(serve, write, backends, tmp_path):
    (backends / "story/model.py").write_text(TELLING)
    made = tmp_path / "env/bin"
    made.mkdir(parents=True)
    (made / "python3").symlink_to(sys.executable)
    with tarfile.open(backends / "story/pb_exec_env_model.py.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env", ".")
    write("m", STORY)
    server = serve(f"--backend-directory={backends}", "--exit-on-error=false", f"--environment-cache-dir={tmp_path}/c")
    server.says(f"environment {backends / 'story/pb_exec_env_model.py.tar.gz'}")


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("story", 'backend: "story" runtime: "model.py"', None),
        ("cee", 'backend: "cee"', "is a library in C for Triton's server"),
        ("cee", 'backend: "cee"', "cee/backend.py in its place"),
        ("cee", 'backend: "other" runtime: "model.py"', "backend library 'model.py' for model 'm', searched: "),
        ("onnxruntime", 'backend: "onnxruntime"', "model.onnx"),
    ],
)
def test_libraries_in_c_are_refused_by_name(serve, write, backends, name, config, said):
    """Beside a model.py they stay unused, and under the name of a backend of ours, that one serves."""
    (backends / name).mkdir(exist_ok=True)
    (backends / name / f"libtriton_{name}.so").write_bytes(b"\x7fELF")
    write("m", config, '{"words": ["a"]}')
    if said is None:
        assert serve(f"--backend-directory={backends}").ready().model_ready("m")
    else:
        assert said in reason_of(serve, f"--backend-directory={backends}")
