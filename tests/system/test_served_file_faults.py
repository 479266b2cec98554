"""`tisfast serve FILE`, when something is wrong: errors name the files, odd names work, what is lost is told."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest

from tests.system.helpers import ADD_ONE, index, until

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

from tests.system.file_helpers import CODE, ask, write  # noqa: E402 - needs onnxruntime

STAYS = ("--exit-on-error=false", "--strict-readiness=false")


def reason(server, name):
    until(lambda: index(server)[name].get("reason"), "the index has a reason")
    return index(server)[name]["reason"]


def test_a_broken_file_is_named_as_the_user_knows_it(serve_files, tmp_path):  # noqa: F811
    (tmp_path / "double.onnx").write_bytes(b"nothing of the kind")
    server = serve_files(tmp_path / "double.onnx", *STAYS).ready()
    said = reason(server, "double")
    assert f"{tmp_path}/double.onnx" in said and str(server.scratch) not in said


def test_a_file_that_is_removed_serves_on_and_is_told(serve_files, tmp_path):  # noqa: F811
    write(tmp_path / "double.onnx", 2)
    server = serve_files(tmp_path / "double.onnx").ready()
    os.remove(tmp_path / "double.onnx")
    said = server.says("failed to load 'double'")["message"]
    assert f"is a link to {tmp_path}/double.onnx, which is not there" in said
    assert ask(server, "double", [1]) == [2]
    write(tmp_path / "double.onnx", 3)
    until(lambda: ask(server, "double", [1]) == [3], "the new file is served")


def test_code_that_does_not_say_its_tensors_is_refused(serve_files, tmp_path):  # noqa: F811
    (tmp_path / "plus.py").write_text(ADD_ONE)
    server = serve_files(tmp_path / "plus.py")
    server.says(f"{tmp_path}/plus.py does not say which inputs and outputs model 'plus' has, so nobody could ask it")
    assert server.ended() == 1


@pytest.mark.parametrize("name", ["mein Modell ä'", "100%", "a+b&c", 'q"uote', "#1"])
def test_odd_names_are_served_and_their_lines_ask_them(serve_files, tmp_path, name):  # noqa: F811
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    folder = tmp_path / "Ordner mit ä"
    folder.mkdir()
    write(folder / f"{name}.onnx", 2)
    (folder / f"{name} code.py").write_text(CODE)
    server = serve_files(folder / f"{name}.onnx", folder / f"{name} code.py").ready()
    said = server.says("An inference of zeros for each model")["message"]
    lines = [line for line in said.splitlines() if line.startswith("curl")]
    done = [subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=60, check=True) for line in lines]
    answers = [each.stdout for each in done]
    assert len(answers) == 2 and all(re.search(r'"data":\[[01](\.0)?\]', answer) for answer in answers), answers


def test_a_backend_that_changes_is_loaded_anew(serve, write_weights, backends):  # noqa: F811
    write_weights("m")
    server = serve(f"--backend-directory={backends}", "--reload").ready()
    file = backends / "mlp/backend.py"
    file.write_text(file.read_text().replace('("Y", "FP32"', '("Z", "FP32"').replace('{"Y":', '{"Z":'))
    until(lambda: server.ask("GET", "/v2/models/m")[1]["outputs"][0]["name"] == "Z", "the new backend is loaded")
    server.says(f"model 'm' has changed: {file} changed")


def test_a_load_call_takes_a_backend_that_has_changed(serve, write_weights, backends):  # noqa: F811
    write_weights("m")
    flags = (f"--backend-directory={backends}", "--model-control-mode=explicit", "--load-model=m")
    server = serve(*flags).ready()
    file = backends / "mlp/backend.py"
    file.write_text(file.read_text().replace('("Y", "FP32"', '("Z", "FP32"').replace('{"Y":', '{"Z":'))
    assert server.ask("POST", "/v2/repository/models/m/load", {})[0] == 200
    assert server.ask("GET", "/v2/models/m")[1]["outputs"][0]["name"] == "Z"


@pytest.mark.parametrize("place", ["", "1/"])
def test_a_c_library_in_the_models_folder_is_refused_by_name(serve, write_weights, tmp_path, place):  # noqa: F811
    write_weights("m", 'backend: "cee"')
    (tmp_path / f"models/m/{place}libtriton_cee.so").write_bytes(b"\x7fELF")
    said = reason(serve(*STAYS).ready(), "m")
    assert f"is a library in C for Triton's server ({tmp_path}/models/m/{place}libtriton_cee.so)" in said
    assert "write DIRECTORY/cee/backend.py with --backend-directory=DIRECTORY" in said


def test_a_file_that_a_call_brought_is_named_as_the_call_named_it(serve, tmp_path):
    (tmp_path / "models").mkdir()
    server = serve("--model-control-mode=explicit").ready()
    order = {"config": '{"backend": "onnxruntime"}', "file:1/model.onnx": "bm90aGluZw=="}
    status, answer = server.ask("POST", "/v2/repository/models/m/load", {"parameters": order})
    assert status == 400 and "Load model from m/1/model.onnx failed" in answer["error"]
    assert str(server.scratch) not in answer["error"]
