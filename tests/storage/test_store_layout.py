"""Which files make which models."""

from __future__ import annotations

import pytest

from tisfast.errors import ConfigError
from tisfast.storage.store_layout import check_paths, models_of


def grouped(*paths, model="", last="last", wrapped=False):
    return models_of({path: path for path in paths}, model=model, last=last, wrapped=wrapped, shown="s3://b")


def test_a_repository_has_a_folder_for_each_model():
    found = grouped("a/config.pbtxt", "a/1/model.py", "b/1/model.onnx", "README.md", ".git/config")
    assert found == {
        "a": {"config.pbtxt": "a/config.pbtxt", "1/model.py": "a/1/model.py"},
        "b": {"1/model.onnx": "b/1/model.onnx"},
    }


@pytest.mark.parametrize("paths", [("config.pbtxt", "1/model.py"), ("1/model.onnx",), ("config.pbtxt", "labels.txt")])
def test_the_folder_of_one_model_is_that_model(paths):
    assert grouped(*paths) == {"last": {path: path for path in paths}}


def test_a_model_whose_name_is_a_number_is_no_version():
    assert list(grouped("7/config.pbtxt", "7/1/model.py")) == ["7"]


def test_a_name_makes_anything_one_model():
    assert grouped("a/1/x", "b", model="mine") == {"mine": {"a/1/x": "a/1/x", "b": "b"}}


def test_an_archive_may_have_one_folder_more():
    assert list(grouped("models/a/config.pbtxt", "models/b/1/model.py", wrapped=True)) == ["a", "b"]
    assert list(grouped("models/a/config.pbtxt", "models/b/1/model.py")) == ["models"]
    assert grouped("a/1/model.py", wrapped=True) == {"a": {"1/model.py": "a/1/model.py"}}


def test_nothing_and_no_folders_are_refused():
    with pytest.raises(ConfigError, match="not a valid directory: s3://b has no files"):
        grouped()
    with pytest.raises(ConfigError, match="no model repository and no model: it has MLmodel, model.pkl; a repository"):
        grouped("MLmodel", "model.pkl")


@pytest.mark.parametrize("path", ["../x", "a/../x", "/x", "a//b", "a/./b", "a\\b", "a/\0", ""])
def test_paths_that_leave_their_folder_are_refused(path):
    with pytest.raises(ConfigError, match="cannot be a file's path"):
        check_paths(["good", path], "s3://b")


def test_a_file_cannot_be_a_folder_too():
    with pytest.raises(ConfigError, match="'a' is a file, and a folder of 'a/b/c'"):
        check_paths(["a", "a/b/c"], "s3://b")
