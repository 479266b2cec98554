"""A file as a model folder, without trying anything."""

from __future__ import annotations

import os

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")

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


def written(folder):
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def test_what_the_file_needs_goes_along_and_nothing_else(tmp_path):
    onnx = pytest.importorskip("onnx")
    source = tmp_path / "source"
    source.mkdir()
    graph = onnx.load(network(tmp_path, "plain.onnx"))
    onnx.save(graph, source / "net.onnx", save_as_external_data=True, location="the.weights", size_threshold=0)
    for beside in ("net.npz", "net.npy", "net_old.bin", "other.weights", "net.py", "labels.txt", "net_labels.txt"):
        (source / beside).write_text("a\nb\nc\n")
    config = {"output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [3], "label_filename": "labels.txt"}]}
    folder = write_model(tmp_path / "repository", source / "net.onnx", config=config)
    assert written(folder) == ["1/model.onnx", "1/the.weights", "config.pbtxt", "labels.txt"]
    server = LocalServer([f"--model-repository={tmp_path / 'repository'}", *FLAGS])
    server.start()
    try:
        with Client(server.http_address) as client:
            x = np.random.default_rng(0).standard_normal((2, 8), np.float32)
            session = onnxruntime.InferenceSession(source / "net.onnx")
            assert np.array_equal(client.model("net").infer({"x": x}).y, session.run(["y"], {"x": x})[0])
    finally:
        server.stop()


def test_files_of_each_backend_go_along_under_its_names(tmp_path):
    for name in ("a.xml", "a.bin", "a.txt", "b.skops", "b.csv", "mine.py", "c.pt", "sample.npz", "c.npz"):
        (tmp_path / name).write_text(name)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    for file, needed in [
        ("a.xml", ["1/model.bin", "1/model.xml"]),
        ("b.skops", ["1/mine.py", "1/model.skops", "1/pack/__init__.py"]),
        ("c.pt", ["1/model.pt", "1/sample.npz"]),
    ]:
        folder = write_model(tmp_path / "repository", tmp_path / file, name=f"of-{file}")
        assert folder.name == f"of-{file}" and written(folder) == [*needed, "config.pbtxt"]


def test_weights_outside_of_the_folder_are_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(network(tmp_path, "plain.onnx"))
    (tmp_path / "source").mkdir()
    for each in graph.graph.initializer:
        (tmp_path / "w").write_bytes(each.raw_data)
        onnx.external_data_helper.set_external_data(each, "../w")
        each.ClearField("raw_data")
    (tmp_path / "source" / "net.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(BadRequest, match=r"names weights outside of its folder: \.\./w"):
        write_model(tmp_path / "repository", tmp_path / "source" / "net.onnx")


@pytest.mark.parametrize("value", ["/etc/hostname", "../secret", "a sentence " * 40, "secret"])
def test_metadata_is_no_name_of_weights(tmp_path, value):
    """Although its key is the one that tensors have for their files."""
    onnx = pytest.importorskip("onnx")
    (tmp_path / "source").mkdir()
    for each in (tmp_path / "secret", tmp_path / "source" / "secret"):
        each.touch()
    graph = onnx.load(network(tmp_path))
    for place in (graph, graph.graph, graph.graph.node[0], graph.graph.initializer[0]):
        entry = place.metadata_props.add()
        entry.key, entry.value = "location", value
    (tmp_path / "source" / "net.onnx").write_bytes(graph.SerializeToString())
    folder = write_model(tmp_path / "repository", tmp_path / "source" / "net.onnx")
    assert written(folder) == ["1/model.onnx", "config.pbtxt"]


def test_weights_with_a_long_name_go_along(tmp_path):
    """Its length, and that of the entry, have two bytes."""
    onnx = pytest.importorskip("onnx")
    for name in ("w" * 117, "w" * 128, "w\u00e9" * 80):
        source = tmp_path / name[:20] / str(len(name))
        source.mkdir(parents=True)
        graph = onnx.load(network(tmp_path))
        onnx.save(graph, source / "net.onnx", save_as_external_data=True, location=name, size_threshold=0)
        folder = write_model(tmp_path / "repository", source / "net.onnx")
        assert written(folder) == sorted(["1/model.onnx", f"1/{name}", "config.pbtxt"])


def test_what_cannot_be_is_a_sentence(tmp_path):
    source = network(tmp_path)
    (tmp_path / "net.csv").touch()
    for path, options, said in [
        (tmp_path / "nix.onnx", {}, f"^{tmp_path}/nix.onnx: there is no such file or folder$"),
        (tmp_path / "nix.onnx", {"name": "net"}, f"^{tmp_path}/nix.onnx: there is no such file or folder$"),
        (tmp_path, {}, "a folder without a model"),
        (tmp_path / "net.csv", {}, f"^{tmp_path}/net.csv is no model that can be served: its name ends in none of"),
        (source, {"version": 0}, "version is 0"),
        (source, {"config": {"max_batch": 1}}, "^config of 'net': .*max_batch"),
        (source, {"name": "a/b"}, "^name 'a/b' is no name of a model: .*repository says where"),
    ]:
        with pytest.raises(BadRequest, match=said):
            write_model(tmp_path / "repository", path, **options)
    assert not (tmp_path / "repository").exists()
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=f"version 1 of model 'net' could not be written .* into {tmp_path}/file"):
        write_model(tmp_path / "file", source)
