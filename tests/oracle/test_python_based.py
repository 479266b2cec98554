"""Python-based backends in both servers: what they are told, where they find their files, what their clients see."""

from __future__ import annotations

import http.client
import json
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import tritonclient.grpc as grpcclient

from perf.oracle.install import install
from perf.oracle.server import Kind, Server
from tests.system.python_based_helpers import HERE, given

SECONDS_MAX: Final = 60
TELLING: Final = """
import json
import os
import sys
import numpy as np
import triton_python_backend_utils as pb_utils
import beside

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_output({"name": "B", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
        return config

    def initialize(self, args):
        config = json.loads(args.pop("model_config"))
        args.pop("backend_config", None)  # tisfast's own
        here = os.path.dirname(os.path.abspath(__file__))
        self.told = {
            **args, "dir": pb_utils.get_model_dir(), "module": __name__, "beside": beside.WORD,
            "on_path": here in sys.path, "model_on_path": pb_utils.get_model_dir() in sys.path,
            "runtime": config["runtime"], "file": config["default_model_filename"],
        }

    def execute(self, requests):
        told = pb_utils.Tensor("B", np.array([json.dumps(self.told)], np.object_))
        return [pb_utils.InferenceResponse([told]) for _ in requests]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Backends, the real Triton's Python backend among them, and models of them."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(install() / "backends/python", folder / "backends/python")
    shutil.copytree(HERE / "story", folder / "backends/story")
    shutil.copytree(HERE / "models", folder / "models")
    (folder / "backends/tell").mkdir()
    (folder / "backends/tell/model.py").write_text(TELLING)
    (folder / "backends/tell/beside.py").write_text("WORD = 'found'\n")
    (folder / "models/told/1").mkdir(parents=True)
    (folder / "models/told/config.pbtxt").write_text('backend: "tell"')
    return folder


@pytest.fixture(scope="module")
def servers(place: Path) -> Iterator[dict[Kind, Server]]:
    flags = [f"--backend-directory={place / 'backends'}", "--backend-config=tell,depth=2"]
    with Server("triton", [place / "models"], flags) as real, Server("tisfast", [place / "models"], flags) as ours:
        yield {"triton": real, "tisfast": ours}


def ask(server: Server, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("localhost", server.http, timeout=SECONDS_MAX)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def both(servers: dict[Kind, Server], question: Any) -> Any:
    """The answer of both, which are one."""
    answers = [question(servers[kind]) for kind in ("triton", "tisfast")]
    assert answers[1] == answers[0]
    return answers[0]


def test_what_a_backend_is_told_and_where_it_finds_its_files(servers, place):
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}

    def told(server: Server) -> Any:
        return json.loads(ask(server, "POST", "/v2/models/told/infer", {"inputs": [tensor]})["outputs"][0]["data"][0])

    found = both(servers, told)
    assert found["dir"] == str(place / "models/told/1") and found["beside"] == "found"
    assert (found["module"], found["on_path"], found["model_on_path"]) == ("model", True, False)


@pytest.mark.parametrize("model", ["told", "tale"])
def test_how_it_completes_a_configuration(servers, model):
    keys = ("backend", "runtime", "default_model_filename", "max_batch_size", "input", "output", "instance_group")

    def config(server: Server) -> Any:
        whole = ask(server, "GET", f"/v2/models/{model}/config")
        return {key: whole.get(key) for key in (*keys, "model_transaction_policy")}

    assert both(servers, config)["runtime"] == "model.py"


@pytest.mark.parametrize(
    ("text", "stream", "sampling", "more", "texts"),
    [
        ("once", True, "", {}, ["once", "upon", "a", "time"]),
        ("once", True, '{"words": 2}', {}, ["once", "upon"]),
        ("once", True, "", {"parameters": {"words": 3}}, ["once", "upon", "a"]),
        ("once", None, "", {}, ["once upon a time"]),
        ("!", True, "", {}, ["Error in the stream: this word cannot be said"]),
    ],
)
def test_what_clients_of_an_engine_in_its_own_loop_see(servers, text, stream, sampling, more, texts):
    def answers(server: Server) -> list[str]:
        said: queue.Queue[Any] = queue.Queue()
        with grpcclient.InferenceServerClient(server.grpc_address) as client:
            client.start_stream(lambda result, error: said.put((result, error)))
            inputs = given(text, stream, sampling)
            client.async_stream_infer("tale", inputs, enable_empty_final_response=True, **more)
            found = []
            while True:
                result, error = said.get(timeout=SECONDS_MAX)
                if error is not None:
                    return [*found, error.message()]
                found.append(result.as_numpy("text_output")[0].decode())
                if result.get_response().parameters["triton_final_response"].bool_param:
                    return found

    assert both(servers, answers) == texts
