"""Files on the command line: which backend's they are, and what they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tisfast.config.backends import BUILT_IN, BackendInfo, Backends
from tisfast.config.served_files import ServedFile, loose_file, read_files
from tisfast.errors import ConfigError

BACKENDS = Backends((
    BackendInfo("python", (), ("model.py",), served=True),
    BackendInfo("onnxruntime", (), ("model.onnx",), served=True, folders=True),
    BackendInfo("old", (), ("model.json",)),
    BackendInfo("fil", (), ("xgboost.json", "model.txt"), served=True),
    BackendInfo("tensorflow", (), ("model.savedmodel", "model.graphdef"), served=True, folders=True),
    BackendInfo("tensorrt", (), ("model.plan",)),
))  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Files and folders ("/" at the end) by their names, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def make(*names):
        for name in names:
            path = tmp_path / name
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.touch()
        return tmp_path

    return make


def read(*texts):
    return read_files(texts, BACKENDS)


@pytest.mark.parametrize(
    ("text", "there", "name", "backend", "file"),
    [
        ("resnet.onnx", (), "resnet", "onnxruntime", "model.onnx"),
        ("a/resnet50-v2.7.onnx", (), "resnet50-v2.7", "onnxruntime", "model.onnx"),
        ("mine=resnet.onnx", (), "mine", "onnxruntime", "model.onnx"),
        ("model.py", (), "model", "python", "model.py"),
        ("scale.py", (), "scale", "python", "model.py"),
        ("trees.json", (), "trees", "fil", "xgboost.json"),
        ("boost.txt", (), "boost", "fil", "model.txt"),
        ("flowers/", ("flowers/saved_model.pb",), "flowers", "tensorflow", "model.savedmodel"),
        ("flowers.savedmodel/", ("flowers.savedmodel/saved_model.pb",), "flowers", "tensorflow", "model.savedmodel"),
        ("large/", ("large/model.onnx", "large/weights"), "large", "onnxruntime", "model.onnx"),
        ("large.onnx/", ("large.onnx/model.onnx",), "large", "onnxruntime", "model.onnx"),
        ("a=b/x.onnx", ("a=b/x.onnx",), "x", "onnxruntime", "model.onnx"),
    ],
)
def test_a_file_is_known_by_its_ending(place, text, there, name, backend, file):
    folder = place(text.partition("=")[2] if text.startswith("mine") else text, *there)
    path = folder / text.removeprefix("mine=").rstrip("/")
    assert read(text.rstrip("/")) == ((ServedFile(name, path, backend, file),), ())


def test_the_table_of_backends_says_which_files_there_are(place):
    place("net.pt", "net.pt2", "net.onnx", "net.py")
    given = ["a=net.pt", "b=net.pt2", "c=net.onnx", "d=net.py"]
    found = [(file.backend, file.file) for file in read_files(given, BUILT_IN).files]
    assert found == [
        ("pytorch", "model.pt"), ("pytorch", "model.pt2"), ("onnxruntime", "model.onnx"), ("python", "model.py"),
    ]  # fmt: skip


def test_the_configuration_of_its_name_beside_it_is_its_own(place):
    folder = place("a.onnx", "a.pbtxt", "config.pbtxt", "model.py", "b.onnx")
    files = {file.name: file.config for file in read("a.onnx", "b.onnx", "model.py").files}
    assert files == {"a": str(folder / "a.pbtxt"), "b": "", "model": str(folder / "config.pbtxt")}


def test_a_file_in_a_repository_is_the_model_that_it_is_there(place):
    folder = place("models/scale/config.pbtxt", "models/scale/1/model.py")
    (file,) = read("models/scale/1/model.py").files
    assert (file.name, file.config) == ("scale", str(folder / "models/scale/config.pbtxt"))
    assert read("other=models/scale/1/model.py").files[0].name == "other"


def test_other_folders_are_repositories(place):
    place("models/scale/1/model.py", "a.onnx")
    found = read("models", "a.onnx")
    assert found.repositories == ("models",) and [file.name for file in found.files] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing.onnx", "unexpected argument 'nothing.onnx': there is no such file or folder"),
        ("words", "is no model that can be served: its name ends in none of .py, .onnx, .json, .txt, .savedmodel"),
        ("engine.plan", "is a model of backend 'tensorrt', which is not served yet"),
        ("x=models", "is no model that can be served"),
        (".hidden=words.onnx", "'.hidden' is no name of a model"),
    ],
)
def test_what_cannot_be_served_is_told(place, text, message):
    place("words", "engine.plan", "models/", ".onnx", "words.onnx")
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 300, "xxx..."),
        (f"{'y' * 300}=net.onnx", "has 300 bytes, more than 255; give it a shorter one"),
        (os.fsdecode(b"n\xe4t.onnx"), r"'n\udce4t' is no name of a model, as it is not UTF-8"),
        ("a\\b=net.onnx", "is no name of a model"),
    ],
)
def test_names_that_no_folder_can_have_are_told(place, text, message):
    place("net.onnx", *([text] if text.endswith("t.onnx") and "=" not in text else []))
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert message in str(caught.value)
    if len(text) == 300:
        assert "cannot be looked at: File name too long" in str(caught.value)


def test_a_folder_with_an_ending_may_be_a_repository(place):
    place("models.py/scale/1/model.py", "models.json/")
    assert read("models.py", "models.json") == ((), ("models.py", "models.json"))


def test_an_argument_that_ends_in_an_equals_sign_names_no_file(place):
    place("x.onnx")
    with pytest.raises(ConfigError, match="'x=' names no file; write NAME=FILE"):
        read("x=")


def test_a_model_file_that_lies_in_a_folder_is_found_for_a_hint(place):
    folder = place("notes.txt", "package.json", "a/x.onnx")
    assert loose_file(folder, BACKENDS) == loose_file(folder / "nowhere", BACKENDS) == ""
    place("y.onnx", "x.onnx")
    assert loose_file(folder, BACKENDS) == str(folder / "x.onnx")


def test_two_files_of_one_name_are_to_be_told_apart(place):
    folder = place("a/x.onnx", "b/x.onnx")
    with pytest.raises(ConfigError, match="would be one model, 'x'; name them: NAME=FILE") as caught:
        read("a/x.onnx", "b/x.onnx")
    assert str(folder / "a/x.onnx") in str(caught.value) and str(Path(os.path.abspath("b/x.onnx"))) in str(caught.value)
    assert [file.name for file in read("a/x.onnx", "y=b/x.onnx").files] == ["x", "y"]
