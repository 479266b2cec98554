"""A file as a model folder, without trying anything."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import network  # noqa: E402
from tisfast.client import Client  # noqa: E402
from tisfast.convert import write_model  # noqa: E402
from tisfast.errors import BadRequest, Unavailable  # noqa: E402
from tisfast.local_server import LocalServer  # noqa: E402

FLAGS = ("--http-port=0", "--allow-grpc=false", "--allow-metrics=false", "--log-info=false")


def test_versions_of_a_model_are_written_and_served(tmp_path):
    repository = tmp_path / "repository"
    options = {"max_batch_size": 16, "version_policy": {"all": {}}}
    write_model(repository, network(tmp_path))
    assert write_model(repository, network(tmp_path), version=2, config=options) == repository / "net"
    assert sorted(os.listdir(repository / "net")) == ["1", "2", "config.pbtxt"]
    server = LocalServer([f"--model-repository={repository}", *FLAGS])
    server.start()
    try:
        with Client(server.http_address) as client:
            assert client.model("net").config()["max_batch_size"] == 16
            assert {each["version"] for each in client.models(ready=True)} == {"1", "2"}
    finally:
        server.stop()


def test_files_that_belong_to_it_go_along(tmp_path):
    (tmp_path / "a.xml").write_text("<net/>")
    (tmp_path / "a.bin").write_text("weights")
    folder = write_model(tmp_path / "repository", tmp_path / "a.xml", name="other")
    assert folder.name == "other" and (folder / "1" / "model.bin").read_text() == "weights"
    assert 'backend: "openvino"' in (folder / "config.pbtxt").read_text()


def test_what_cannot_be_is_a_sentence(tmp_path):
    source = network(tmp_path)
    for path, options, said in [
        (tmp_path / "nix.onnx", {}, "there is no such file"),
        (tmp_path, {}, "a folder without a model"),
        (source, {"version": 0}, "version is 0"),
        (source, {"config": {"max_batch": 1}}, "max_batch"),
        (source, {"name": "a/b"}, "no such file"),
    ]:
        with pytest.raises(BadRequest, match=said):
            write_model(tmp_path / "repository", path, **options)
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="could not be written"):
        write_model(tmp_path / "file", source)
