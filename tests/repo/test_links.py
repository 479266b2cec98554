"""The repository of links to files that are served as they lie."""

from __future__ import annotations

import os

import pytest

from tests.repo.sources import MODEL
from tisfast.config.backends import BackendInfo, Backends, Completion
from tisfast.config.served_files import read_files
from tisfast.repo.check import check
from tisfast.repo.links import link_files
from tisfast.repo.scan import ScanOptions, scan

BACKENDS = Backends((
    BackendInfo("python", (), ("model.py",), Completion.ASKED, served=True),
    BackendInfo("onnxruntime", (), ("model.onnx",), served=True, folders=True),
    BackendInfo("openvino", (), ("model.xml",), served=True),
    BackendInfo("pytorch", (), ("model.pt",), served=True, companions=("sample.npz",)),
    BackendInfo("sklearn", (), ("model.joblib",), served=True, companions=("*.py",)),
))  # fmt: skip


@pytest.fixture
def links(tmp_path):
    """Serve these of some files: what the repository holds, and where its links lead to."""
    place = tmp_path / "place"

    def make(*served, there=()):
        place.mkdir(exist_ok=True)
        for name in (*there, *served):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).touch()
        files = read_files([str(place / name) for name in served], BACKENDS).files
        link_files(files, tmp_path / "links", BACKENDS)
        paths = [path for path in (tmp_path / "links").rglob("*") if path.is_symlink()]
        return {str(path.relative_to(tmp_path / "links")): str(path.readlink().relative_to(place)) for path in paths}

    return make


def test_a_file_has_the_name_that_its_backend_looks_for(links):
    assert links("resnet.onnx", there=["other.onnx", "notes", "resnet.pbtxt", "resnet_head.onnx"]) == {
        "resnet/config.pbtxt": "resnet.pbtxt", "resnet/1/model.onnx": "resnet.onnx",
    }  # fmt: skip


def test_files_that_begin_with_its_name_belong_to_it(links):
    found = links("net.xml", there=["net.bin", "net.onnx", "nets.bin", "net.xml.data", "net_weights"])
    del found["net/1/model.xml"]
    assert set(found.values()) == {"net.bin", "net.xml.data", "net_weights"}
    assert found["net/1/model.bin"] == found["net/1/net.bin"] == "net.bin"
    assert found["net/1/net_weights"] == "net_weights" and found["net/1/net.xml.data"] == "net.xml.data"


def test_code_lies_where_it_lies(links, tmp_path):
    assert links("a/model.py", there=["a/helper.py"]) == {"model/1": "a"}
    assert not (tmp_path / "links/model/config.pbtxt").exists()


def test_a_file_of_another_name_is_also_found_without_it(links):
    found = links("net.onnx", there=["net_labels.txt", "net.labels", "labels.txt"])
    assert found["net/labels.txt"] == found["net/1/labels.txt"] == found["net/net_labels.txt"] == "net_labels.txt"
    assert found["net/labels"] == "net.labels"


def test_links_that_lead_nowhere_belong_to_no_model(links, tmp_path):
    (tmp_path / "place").mkdir()
    for name in ("net.loop", "other"):
        (tmp_path / "place" / name).symlink_to(name)
    assert links("net.onnx") == {"net/1/model.onnx": "net.onnx"}


def test_a_backend_finds_what_it_looks_for_beside_any_file(links):
    found = links("net.pt", there=["sample.npz", "other.npz", "code.py"])
    assert found == {"net/1/model.pt": "net.pt", "net/1/sample.npz": "sample.npz"}


def test_modules_and_packages_beside_an_estimator(links):
    found = links("trees.joblib", there=["mine.py", "lib/__init__.py", "data/notes", "trees.csv"])
    assert {path: to for path, to in found.items() if to in ("mine.py", "lib", "data")} == {
        "trees/1/mine.py": "mine.py", "trees/1/lib": "lib",
    }  # fmt: skip


def test_what_lies_beside_the_versions_of_a_repositorys_model(links):
    there = ["scale/config.pbtxt", "scale/labels.txt", "scale/warmup/x", "scale/2/model.py", "scale/.hidden"]
    assert links("scale/1/model.py", there=there) == {
        "scale/config.pbtxt": "scale/config.pbtxt", "scale/1": "scale/1", "scale/labels.txt": "scale/labels.txt",
        "scale/warmup": "scale/warmup",
    }  # fmt: skip


@pytest.fixture
def one(tmp_path):
    """The links to one file, and its folder, "my files": one(name, {file: text})."""

    def make(name, files):
        place = tmp_path / "my files"
        place.mkdir()
        for each, text in files.items():
            (place / each).write_text(text)
        return link_files(read_files([str(place / name)], BACKENDS).files, tmp_path / "links", BACKENDS), place

    return make


def errors_of(linked):
    found = check([linked.repository], ScanOptions(backends=BACKENDS, files=linked.models), linked.check_tensors)
    return [linked.named(str(each)) for each in found]


def test_code_under_another_name_needs_no_configuration_that_names_it(one):
    tensors = 'output { name: "A" data_type: TYPE_FP32 dims: 1 }'
    linked, _ = one("scale.py", {"scale.py": MODEL, "model.py": "other", "scale.pbtxt": tensors})
    (model,) = scan([linked.repository], ScanOptions(backends=BACKENDS, files=linked.models)).models
    assert model.config.backend == "python" and model.versions[0].file.name == "scale.py"
    assert errors_of(linked) == []


def test_a_configuration_that_names_another_file_is_refused(one):
    linked, place = one("scale.py", {"scale.py": MODEL, "scale.pbtxt": '\n default_model_filename: "model.py"'})
    said = "default_model_filename is 'model.py', and the file that is served is 'scale.py'; remove it"
    assert f"{place}/scale.pbtxt:2:2: {said}" in errors_of(linked)


def test_a_configuration_may_name_the_file_as_it_is_called(one):
    linked, _ = one("net.onnx", {"net.onnx": "", "net.pbtxt": 'default_model_filename: "net.onnx"'})
    assert errors_of(linked) == []


@pytest.mark.parametrize("name", ["net.onnx", "scale.py"])
def test_errors_name_the_file_and_not_the_link(one, name):
    stem = name.partition(".")[0]
    linked, place = one(name, {name: MODEL, f"{stem}.pbtxt": "max_bach_size: 4"})
    (said,) = errors_of(linked)
    assert said.startswith(f"{place}/{stem}.pbtxt:1:1: unknown key 'max_bach_size'")


def test_a_file_that_is_gone_is_told(one):
    linked, place = one("net.onnx", {"net.onnx": ""})
    (place / "net.onnx").unlink()
    (said,) = errors_of(linked)
    assert f"model file 'model.onnx' of net is a link to {place}/net.onnx, which is not there" in said


def test_code_that_does_not_say_its_tensors_is_refused(one):
    linked, place = one("scale.py", {"scale.py": MODEL})
    (said,) = errors_of(linked)
    assert f"{place}/scale.py does not say which inputs and outputs model 'scale' has" in said


def test_the_repository_is_the_servers_own(links, tmp_path):
    links("x.onnx")
    assert os.stat(tmp_path / "links").st_mode & 0o777 == 0o700
