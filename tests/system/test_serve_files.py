"""`tisfast serve model.onnx`: files served as they lie, again when they change, and nothing left behind."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess

import numpy as np
import pytest

from tests.system.helpers import ADD_ONE, CONFIG, until

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

from tests.system import onnx_models as made  # noqa: E402 - what it needs is there
from tests.system.file_helpers import CODE, ask, times, write  # noqa: E402 - it makes ONNX models


def test_a_file_is_served_under_its_name_and_again_when_it_changes(serve_files, tmp_path):
    write(tmp_path / "double.onnx", 2)
    server = serve_files(tmp_path / "double.onnx").ready()
    assert ask(server, "double", [1, 2]) == [2, 4]
    write(tmp_path / "double.onnx", 3)
    until(lambda: ask(server, "double", [1, 2]) == [3, 6], "the new file is served")


def test_the_line_that_it_prints_asks_it(serve_files, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    write(tmp_path / "double.onnx", 2)
    said = serve_files(tmp_path / "double.onnx").ready().says("An inference of zeros for each model")["message"]
    line = next(line for line in said.splitlines() if line.startswith("curl"))
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r'"name":"Y".*"data":\[0(\.0)?\]', done.stdout), done.stdout


def test_several_files_with_names_beside_a_repository(serve_files, write_model, tmp_path):
    write(tmp_path / "x.onnx", 2)
    write(tmp_path / "y.onnx", 5)
    write_model("add_one")
    server = serve_files(
        tmp_path / "x.onnx", "--reload", f"five={tmp_path / 'y.onnx'}", f"--model-repository={tmp_path / 'models'}"
    ).ready()
    assert ask(server, "x", [1]) == [2] and ask(server, "five", [1]) == [5]
    assert server.infer("add_one")[0] == 200


def test_a_folder_of_models_is_a_repository(serve_files, write_model, tmp_path):
    write_model("add_one")
    assert serve_files(tmp_path / "models").ready().infer("add_one")[0] == 200


def test_a_name_that_the_repository_has_too_is_refused(serve_files, write_model, tmp_path):
    write_model("x")
    write(tmp_path / "x.onnx", 2)
    server = serve_files(tmp_path / "x.onnx", f"--model-repository={tmp_path / 'models'}")
    server.says("model 'x' is not unique across all model repositories")
    assert server.ended() == 1


def test_code_finds_what_lies_beside_it(serve_files, tmp_path):
    (tmp_path / "helper.py").write_text("STEP = 1\n")
    (tmp_path / "plus.py").write_text("import helper\n" + CODE.replace("a + 1", "a + helper.STEP"))
    server = serve_files(tmp_path / "plus.py").ready()
    assert server.infer("plus", [1.0])[1]["outputs"][0]["data"] == [2]
    (tmp_path / "more.py").write_text("STEP = 10\n")
    (tmp_path / "plus.py").write_text("import more\n" + CODE.replace("a + 1", "a + more.STEP"))
    until(lambda: server.infer("plus", [1.0])[1]["outputs"][0]["data"] == [11], "the new code is served")


def test_a_file_of_a_repository_is_its_model(serve_files, write_model):
    folder = write_model("scale", ADD_ONE, CONFIG)
    server = serve_files(folder / "1/model.py").ready()
    assert server.infer("scale", [1.0])[1]["outputs"][0]["data"] == [2]


def test_a_configuration_beside_the_file_is_its_own(serve_files, tmp_path):
    write(tmp_path / "double.onnx", 2)
    (tmp_path / "double.pbtxt").write_text("max_batch_size: 9 instance_group [ { count: 2 } ]")
    server = serve_files(tmp_path / "double.onnx").ready()
    config = server.ask("GET", "/v2/models/double/config")[1]
    assert config["max_batch_size"] == 9 and config["instance_group"][0]["count"] == 2
    (tmp_path / "double.pbtxt").write_text("max_batch_size: 9 instance_group [ { count: 1 } ]")

    def count():
        return server.ask("GET", "/v2/models/double/config")[1]["instance_group"][0]["count"]

    until(lambda: count() == 1, "the new configuration is served")


def test_weights_in_a_file_beside_it(serve_files, tmp_path):
    graph = times(2)
    weights = tmp_path / "double.onnx.data"
    made.onnx.save_model(
        graph, str(tmp_path / "double.onnx"), save_as_external_data=True, location=weights.name, size_threshold=0
    )
    assert weights.exists()
    assert ask(serve_files(tmp_path / "double.onnx").ready(), "double", [1]) == [2]


def test_a_saved_estimator(serve_files, tmp_path):
    """Another backend's file, known by its ending as the table has it."""
    joblib = pytest.importorskip("joblib", reason="joblib saves estimators")
    linear = pytest.importorskip("sklearn.linear_model", reason="an estimator")
    fitted = linear.LinearRegression().fit(np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 3.0, 6.0]))
    joblib.dump(fitted, tmp_path / "triple.joblib")
    server = serve_files(tmp_path / "triple.joblib").ready()
    config = server.ask("GET", "/v2/models/triple/config")[1]
    assert config["backend"] == "sklearn" and config["input"][0]["name"] == "X"
    datatype = config["input"][0]["data_type"].removeprefix("TYPE_")
    tensor = {"name": "X", "shape": [2, 1], "datatype": datatype, "data": [1, 5]}
    status, answer = server.ask("POST", "/v2/models/triple/infer", {"inputs": [tensor]})
    assert status == 200 and np.allclose(answer["outputs"][0]["data"], [3, 15])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_and_nothing_is_lost(serve_files, tmp_path, number):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/model.py").write_text(CODE)
    write(tmp_path / "double.onnx", 2)
    server = serve_files(tmp_path / "code/model.py", tmp_path / "double.onnx").ready()
    assert list(server.scratch.glob("tisfast-*/*/files/double/1/model.onnx"))
    server.end(number)
    until(lambda: not list(server.scratch.glob("tisfast-*")), "the links are removed")
    assert (tmp_path / "code/model.py").exists() and (tmp_path / "double.onnx").exists()


def test_in_mode_explicit_files_are_loaded_and_can_be_unloaded(serve_files, tmp_path):
    write(tmp_path / "double.onnx", 2)
    server = serve_files(tmp_path / "double.onnx", "--model-control-mode=explicit").ready()
    assert ask(server, "double", [1]) == [2]
    assert server.ask("POST", "/v2/repository/models/double/unload", {})[0] == 200
    until(lambda: not server.model_ready("double"), "it is unloaded")
    write(tmp_path / "double.onnx", 3)
    assert server.ask("POST", "/v2/repository/models/double/load", {})[0] == 200
    assert ask(server, "double", [1]) == [3]


def test_a_broken_file_is_told_and_mended(serve_files, tmp_path):
    (tmp_path / "double.onnx").write_bytes(b"nothing of the kind")
    server = serve_files(tmp_path / "double.onnx", "--exit-on-error=false", "--strict-readiness=false").ready()
    server.says("failed to load 'double'")
    write(tmp_path / "double.onnx", 2)
    until(lambda: server.model_ready("double"), "the mended file is served")
    assert ask(server, "double", [1]) == [2]


def test_without_reload_it_stays(serve_files, tmp_path):
    write(tmp_path / "double.onnx", 2)
    server = serve_files("--reload=false", tmp_path / "double.onnx").ready()
    assert server.ask("GET", "/v2/models/double/config")[0] == 200
    write(tmp_path / "double.onnx", 3)
    assert ask(server, "double", [1]) == [2]
