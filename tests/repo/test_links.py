"""The repository of links to files that are served as they lie."""

from __future__ import annotations

import os

import pytest

from tisfast.config.backends import BackendInfo, Backends
from tisfast.config.served_files import read_files
from tisfast.repo.links import link_files

BACKENDS = Backends((
    BackendInfo("python", (), ("model.py",), served=True),
    BackendInfo("onnxruntime", (), ("model.onnx",), served=True, folders=True),
    BackendInfo("openvino", (), ("model.xml",), served=True),
))  # fmt: skip


@pytest.fixture
def links(tmp_path):
    """Serve these of some files: what the repository holds, and where its links lead to."""
    place = tmp_path / "place"

    def make(*served, there=()):
        place.mkdir()
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


def test_code_under_another_name_is_named_by_a_configuration(links, tmp_path):
    assert links("a/scale.py") == {"scale/1": "a"}
    assert 'default_model_filename: "scale.py"' in (tmp_path / "links/scale/config.pbtxt").read_text()


def test_the_repository_is_the_servers_own(links, tmp_path):
    links("x.onnx")
    assert os.stat(tmp_path / "links").st_mode & 0o777 == 0o700
