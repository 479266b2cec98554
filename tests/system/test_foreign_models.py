"""Models that were written for Triton: what they return, where they look, what they write, how they die."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.system.helpers import ADD_ONE, CONFIG, ROOT, SECONDS_MAX, until

AS_NUMPY_COMPUTES = ADD_ONE.replace("return a + 1", "return (a + 1).astype('f8').sum().reshape(1)")
TWO = CONFIG + "instance_group [ { kind: KIND_CPU count: 2 } ]\n"


def warnings(server):
    return [r for r in server.log if "its configuration says" in r["message"]]


def test_an_output_that_differs_is_sent_and_told_once_for_all_instances(write_model, serve):
    config = TWO.replace('"B" data_type: TYPE_FP32 dims: [ -1 ]', '"B" data_type: TYPE_FP32 dims: [ 2 ]')
    write_model("m", AS_NUMPY_COMPUTES, config)
    server = serve().ready()
    for _ in range(20):
        status, body = server.infer("m", [1, 2])
        assert (status, body["outputs"]) == (
            200, [{"name": "B", "datatype": "FP64", "shape": [1], "data": [5.0]}]
        )  # fmt: skip
    said = server.says("its configuration says")
    assert said["level"] == "warning" and said["model"] == "m"
    assert "returned output 'B' as FP64 [1], but its configuration says FP32 [2]" in said["message"]
    server.end()
    assert len(warnings(server)) == 1


@pytest.mark.parametrize(
    ("flags", "parameter", "status"),
    [
        (["--strict-outputs"], "", 500),
        ([], "true", 500),
        (["--strict-outputs=true"], "false", 200),
    ],
)
def test_strict_outputs(write_model, serve, flags, parameter, status):
    config = CONFIG
    if parameter:
        config += f'parameters {{ key: "STRICT_OUTPUTS" value {{ string_value: "{parameter}" }} }}\n'
    write_model("m", AS_NUMPY_COMPUTES, config)
    said, body = serve(*flags).ready().infer("m")
    assert said == status
    if status == 500:
        assert body["error"] == "model 'm' returned output 'B' with data type FP64, its config says FP32"


READS = """
import os
import triton_python_backend_utils as pb_utils
from c_python_backend_utils import InferenceRequest, InferenceResponse, Tensor

class TritonPythonModel:
    def initialize(self, args):
        with open("README.md") as file:  # of the folder that the server was started in
            self.first = file.readline()

    def execute(self, requests):
        assert isinstance(requests[0], InferenceRequest) and InferenceResponse is pb_utils.InferenceResponse
        name = requests[0].request_id()
        if name.startswith("import"):
            import nowhere_to_be_found
        if name:
            open(name)
        import c_python_backend_utils as c_utils
        import numpy as np
        free = c_utils.shared_memory.free_memory()
        return [InferenceResponse([Tensor("B", np.float32([len(self.first), free > 0]))])]
"""


def test_a_model_runs_in_the_servers_folder(write_model, serve):
    write_model("m", READS)
    server = serve().ready()
    assert server.infer("m")[1]["outputs"][0]["data"] == [len((ROOT / "README.md").read_text().splitlines()[0]) + 1, 1]
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}
    status, body = server.ask("POST", "/v2/models/m/infer", {"id": "data/x", "inputs": [tensor]})
    told = f"'data/x' was looked for in {ROOT}, where the server was started; the folder of the model's files is"
    assert status == 500 and told in body["error"]
    assert told in server.says("data/x")["message"]
    server.ask("POST", "/v2/models/m/infer", {"id": "import", "inputs": [tensor]})
    assert (
        "package 'nowhere_to_be_found' is missing in the environment of model 'm'"
        in (server.says("is missing")["message"])
    )


def test_a_missing_file_at_load(write_model, serve):
    write_model("m", READS.replace("README.md", "data/weights.txt"))
    server = serve()
    assert f"'data/weights.txt' was looked for in {ROOT}" in server.says("data/weights.txt")["message"]
    server.ended()


WRITES = """
import logging, sys
logging.getLogger("early").error("at import")

class Loud:
    def __del__(self): pass

log = logging.getLogger("lib")
""" + ADD_ONE.replace(
    "        return a + 1",
    """        print("to stdout")
        print("to stderr", file=sys.stderr)
        print("ERROR:root:by its word", file=sys.stderr)
        print("2026-01-01 00:00:00 DEBUG fine", file=sys.stderr)
        log.error("through logging")
        log.warning("a warning")
        return a + 1""",
)  # fmt: skip


def test_what_a_model_writes_keeps_its_level_and_is_not_lost(write_model, serve):
    write_model("m", WRITES)
    server = serve().ready()
    quiet = {"log_info": False, "log_warning": True, "log_error": True, "log_verbose_level": 0}
    assert server.ask("POST", "/v2/logging", quiet)[0] == 200
    assert server.infer("m")[0] == 200
    wanted = {
        "m_0: to stdout": "info",
        "m_0: to stderr": "warning",
        "m_0: ERROR:root:by its word": "error",
        "m_0: 2026-01-01 00:00:00 DEBUG fine": "verbose",
        "through logging": "error",
        "a warning": "warning",
    }
    assert {text: server.says(text)["level"] for text in wanted} == wanted
    assert server.says("through logging")["file"] == "model.py"


def test_a_class_without_execute_is_served_as_triton_serves_it_and_warned_of(write_model, serve):
    write_model("m", "class TritonPythonModel:\n    pass\n")
    server = serve().ready()
    assert server.says("does not implement execute, so each of its requests will be an error")["level"] == "warning"
    status, body = server.infer("m")
    assert status == 500 and "does not implement `execute` method" in body["error"]


DIES = ADD_ONE.replace("return a + 1", "import os; os._exit(3) if a[0] < 0 else None; return a + 1")


def test_who_kills_each_worker_is_told_so(write_model, serve):
    write_model("m", DIES)
    server = serve().ready()
    told = [server.infer("m", [value])[1].get("error", "") for value in (-1, -1, -2, -1)]
    assert ["retrying is safe" in text for text in told] == [True, False, True, False]
    assert "a request with these inputs was executing each of the 2 times, so it may be what ends the worker" in told[1]
    assert "each of the 3 times" in told[3]
    assert server.infer("m", [1])[0] == 200


def test_a_module_on_pythonpath_is_told_as_that(write_model, serve):
    """The server of these tests has the root on it, with the folder `perf`; the model's current folder has it, too."""
    write_model("m", "import os; os.chdir('/')\nimport perf\n" + ADD_ONE)
    said = serve("--exit-on-error=false").says("on the server's PYTHONPATH")["message"]
    assert f"module 'perf' lies in {ROOT}" in said and "pip install" not in said


ANSWERS_FIRST = """
import os
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("B", a + 1)])
            request.get_response_sender().send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        with open(os.path.join(pb_utils.get_model_dir(), "gate")) as gate:
            if gate.read():
                raise ValueError("after the answer")
"""


def test_a_model_that_answers_first_and_works_then(write_model, serve):
    gate = write_model("m", ANSWERS_FIRST) / "1/gate"
    os.mkfifo(gate)
    server = serve().ready()
    for word in ("", "raise"):
        status, body = server.infer("m", [1])  # execute has not returned
        assert (status, body["outputs"][0]["data"]) == (200, [2.0])
        gate.write_text(word)
    assert "ValueError: after the answer" in server.says("after the answer")["message"]

    def executions():
        return server.ask("GET", "/v2/models/m/stats")[1]["model_stats"][0]["execution_count"]

    until(lambda: executions() == 2, "the second execution, whose error was told before it ended, is counted")


ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "odd" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "%s" } }
  %s
] }
"""
STEP = '{ model_name: "m" model_version: -1 input_map { key: "A" value: "X" } output_map { key: "B" value: "B" } }'


def test_an_ensemble_gives_what_differs_to_clients_and_to_no_model(write_model, serve):
    write_model("odd", AS_NUMPY_COMPUTES)
    write_model("m")
    write_model("last", "", ENSEMBLE % ("B", ""))
    write_model("between", "", ENSEMBLE % ("X", "," + STEP))
    server = serve().ready()
    assert server.infer("last", [1, 2])[1]["outputs"][0]["datatype"] == "FP64"
    status, body = server.infer("between", [1, 2])
    assert status == 400 and "inference input 'A' data-type is 'FP64', but model 'm' expects 'FP32'" in body["error"]


WARM = """
model_warmup [ { name: "one" batch_size: 1
  inputs { key: "A" value: { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } } } ]
"""


def check(folder, *flags):
    command = [sys.executable, "-m", "tisfast", "check", "--run", *flags, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def test_check_run_tells_before_the_first_request(write_model, tmp_path):
    write_model("good", ADD_ONE, CONFIG + WARM)
    done = check(tmp_path / "models")
    told = "1 model(s), no errors\n1 model(s) loaded and warmed up, no finding(s)\n"
    assert (done.returncode, done.stdout) == (0, told), done
    write_model("odd", AS_NUMPY_COMPUTES, CONFIG + WARM)
    write_model("bad", ADD_ONE.replace("a + 1", "a + b"), CONFIG + WARM)
    write_model("worse", "import nowhere_to_be_found\n" + ADD_ONE, CONFIG)
    done = check(tmp_path / "models")
    assert done.returncode == 1 and done.stdout.endswith("2 model(s) loaded and warmed up, 4 finding(s)\n"), done.stdout
    for text in (
        "warning: model 'odd' returned output 'B' as FP64 [1], but its configuration says FP32 [-1]",
        "name 'b' is not defined",
        "package 'nowhere_to_be_found' is missing in the environment of model 'worse'",
    ):
        assert text in done.stdout
