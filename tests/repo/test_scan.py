"""Scanning model repositories on a real file system."""
# ruff: noqa: E501 - one case, one line

import errno
import os
from pathlib import Path

import pytest

from tests.repo.sources import MODEL
from tisfast.errors import ConfigError, NotFound
from tisfast.repo import layout
from tisfast.repo.scan import ScanOptions, scan, scan_model

COMPLETE = MODEL + "    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
PYTHON = 'backend: "python"\n'


def only(found):
    assert len(found) == 1
    return found[0]


def failure_of(repo, **options):
    return only(scan([repo], ScanOptions(**options)).failures).reason


def test_a_model_without_config(repo, add):
    folder = add("m")
    model = only(scan([repo]).models)
    assert (model.name, model.repository, model.folder, model.environment) == ("m", repo, folder, None)
    version = only(model.versions)
    assert (version.number, version.folder, version.file) == (1, folder / "1", folder / "1" / "model.py")
    config = model.config
    assert (config.name, config.backend, config.default_model_filename) == ("m", "python", "model.py")
    assert not model.may_complete


def test_a_missing_config_is_an_error_without_auto_complete(repo, add):
    folder = add("m")
    expected = f"failed to open text file for read {folder}/config.pbtxt: No such file or directory"
    assert expected in failure_of(repo, auto_complete=False)


def test_files_are_told_from_a_config_as_written_too(repo, add):
    add("m", {"config.pbtxt": "max_batch_size: 4", "1/model.py": COMPLETE})
    model = only(scan([repo], ScanOptions(auto_complete=False)).models)
    assert model.config.backend == "python"
    assert not model.may_complete


def test_one_bad_model_does_not_hide_the_others(repo, add):
    add("bad", {"config.pbtxt": "nam: 1", "1/model.py": MODEL})
    add("worse", {})
    add("good")
    found = scan([repo])
    assert [model.name for model in found.models] == ["good"]
    assert [failure.name for failure in found.failures] == ["bad", "worse"]


def test_all_errors_of_a_model_come_together(repo, add):
    add("m", {"config.pbtxt": 'name: "other"\nmax_batch_size: -1\nversion_policy { specific { versions: 3 } }\n'
              'output { name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "no.txt" }\n'
              'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/nonexistent" } }',
              "1/model.py": MODEL})  # fmt: skip
    reason = failure_of(repo).splitlines()
    assert [line.split(": ")[0].split("config.pbtxt")[1] for line in reason] == [
        ":1:1",
        ":2:1",
        ":3:1",
        ":4:49",
        ":5:48",
    ]


@pytest.mark.parametrize(
    ("policy", "served"),
    [("", [10]), ("latest { num_versions: 2 }", [3, 10]), ("all { }", [1, 3, 10]), ("specific { versions: [ 1, 7 ] }", [1])],
)  # fmt: skip
def test_version_policies(repo, add, policy, served):
    files = {f"{number}/model.py": MODEL for number in (1, 3, 10)}
    add("m", files | {"config.pbtxt": f"version_policy: {{ {policy} }}"})
    assert [version.number for version in only(scan([repo]).models).versions] == served


def test_folders_that_are_no_versions(repo, add):
    names = ["01", "abc", "-1", "1abc", "warmup", "initial_state", "configs", ".git", "99999999999999999999", "2"]
    add("m", {f"{name}/model.py": MODEL for name in names})
    model = only(scan([repo]).models)
    assert [version.number for version in model.versions] == [2]
    assert sorted(note.split("'")[1] for note in model.notes) == ["-1", "01", "1abc", "99999999999999999999", "abc"]
    assert any("contains leading zeros" in note for note in model.notes)
    assert any("fails to convert to integral number" in note for note in model.notes)


def test_no_version_is_an_error_in_tritons_words(repo, add):
    add("m", {"config.pbtxt": PYTHON})
    assert "at least one version must be available under the version policy of model 'm'" in failure_of(repo)


def test_no_version_is_an_error_that_names_folders_that_are_none(repo, add):
    add("m", {"config.pbtxt": PYTHON, "00000123/model.py": MODEL})
    assert failure_of(repo).endswith(
        "ignore version directory '00000123' which contains leading zeros in its directory name"
    )


@pytest.mark.parametrize("config", [{}, {"config.pbtxt": 'backend: "tensorflow"'}])
@pytest.mark.parametrize("given", ["repo", "repo/half"])
def test_a_repository_of_tensorflow_serving_is_taken_for_what_it_is(repo, add, given, config):
    """It has the SavedModel where Triton has a folder that holds one."""
    folder = add("half", {"1/saved_model.pb": "x", "1/variables/variables.index": "x", **config})
    reason = failure_of(repo.parent / given)
    assert f"{folder}/1 is a SavedModel, as TensorFlow Serving has them" in reason
    assert f"`tisfast serve half={folder}/1`" in reason and "half/1/model.savedmodel of a repository" in reason


@pytest.mark.parametrize(
    ("files", "sign"),
    [
        ({"config.pbtxt": PYTHON, "1/model.py": MODEL, "notes/x": ""}, "a config.pbtxt"),
        ({"1/model.py": MODEL, "2/model.py": MODEL}, "only folders that are numbers"),
    ],
)
@pytest.mark.parametrize("auto_complete", [True, False])
def test_a_model_given_as_a_repository_is_taken_for_what_it_is(add, files, sign, auto_complete):
    folder = add("m", files)
    reasons = [failure.reason for failure in scan([folder], ScanOptions(auto_complete=auto_complete)).failures]
    assert reasons
    hint = f"{folder} has {sign}: it looks like a model; name the folder above it"
    assert all(reason.endswith(f"; {hint}") for reason in reasons)


def test_models_that_are_called_by_numbers_are_models(repo, add):
    add("1")
    add("2", {"7/model.py": MODEL, "config.pbtxt": "version_policy { specific { versions: 1 } }"})
    assert [model.name for model in scan([repo]).models] == ["1"]
    assert failure_of(repo).endswith("; policy specific { versions: [1] }, versions present: 7")


def test_each_served_version_needs_its_model_file(repo, add):
    add("m", {"config.pbtxt": "version_policy { all { } }", "1/model.py": MODEL, "2/other.py": MODEL, "3/x": "",
              "4/model.py": MODEL})  # fmt: skip
    lines = failure_of(repo).splitlines()
    assert len(lines) == 2
    assert 'm/2; default_model_filename: "other.py" would take that one' in lines[0]
    assert "m/3; put model.py there" in lines[1]


def test_default_model_filename(repo, add):
    folder = add("m", {"config.pbtxt": PYTHON + 'default_model_filename: "foo.py"', "1/foo.py": MODEL})
    assert only(only(scan([repo]).models).versions).file == folder / "1" / "foo.py"


@pytest.mark.parametrize("name", ["../../x.py", "/etc/passwd", "a/../../b.py"])
def test_a_model_file_outside_its_folder_is_refused(repo, add, name):
    add("m", {"config.pbtxt": PYTHON + f'default_model_filename: "{name}"', "1/model.py": MODEL})
    assert f"default_model_filename '{name}' leaves the version folder of m" in failure_of(repo)


def test_label_files(repo, add):
    text = 'output {{ name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "{}" }}'
    add("good", {"config.pbtxt": text.format("labels.txt"), "labels.txt": "a", "1/model.py": MODEL})
    add("lost", {"config.pbtxt": text.format("labels.txt"), "1/model.py": MODEL})
    add("out", {"config.pbtxt": text.format("../good/labels.txt"), "1/model.py": MODEL})
    found = scan([repo])
    assert [model.name for model in found.models] == ["good"]
    assert "failed to open text file for read" in found.failures[0].reason
    assert "leaves the folder of out" in found.failures[1].reason


def test_a_file_that_no_backend_takes(repo, add):
    add("m", {"1/weights.bin": ""})
    assert (
        "Could not determine backend for model 'm' with no backend in model configuration. Expected model name of the "
        "form 'model.<backend_name>'."
    ) in failure_of(repo)


@pytest.mark.parametrize(
    ("files", "config", "platform", "chosen"),
    [
        (["model.savedmodel/saved_model.pb"], "", "tensorflow_savedmodel", "model.savedmodel"),
        (["model.graphdef"], "", "tensorflow_graphdef", "model.graphdef"),
        (["model.graphdef"], 'backend: "tensorflow"', "tensorflow_graphdef", "model.graphdef"),
        (["model.savedmodel/saved_model.pb", "model.graphdef"], 'platform: "tensorflow_graphdef"',
         "tensorflow_graphdef", "model.graphdef"),
        (["flowers/saved_model.pb"], 'backend: "tensorflow" default_model_filename: "flowers"',
         "tensorflow_savedmodel", "flowers"),
    ],
)  # fmt: skip
def test_models_of_tensorflow_have_a_platform_by_what_is_there(repo, add, files, config, platform, chosen):
    add("m", {f"1/{file}": "x" for file in files} | ({"config.pbtxt": config} if config else {}))
    config = only(scan([repo], ScanOptions(gpus=(0,))).models).config
    assert (config.backend, config.message.platform, config.default_model_filename) == ("tensorflow", platform, chosen)
    assert [group.kind for group in config.instance_groups] == ["CPU"], "also where there is a GPU"


@pytest.mark.parametrize(
    ("files", "config", "chosen"),
    [
        (["xgboost.ubj"], "", "xgboost.ubj"),
        (["model.txt"], 'backend: "fil"', "model.txt"),
        (["xgboost.json", "model.txt"], 'backend: "fil" parameters { key: "model_type" value { string_value: '
                                        '"lightgbm" } }', "model.txt"),
        (["xgboost.json", "other.json"], 'backend: "fil" default_model_filename: "other.json"', "other.json"),
    ],
)  # fmt: skip
def test_a_forest_s_file_is_told_by_what_is_there_or_by_its_type(repo, add, files, config, chosen):
    add("m", {f"1/{file}": "x" for file in files} | ({"config.pbtxt": config} if config else {}))
    config = only(scan([repo], ScanOptions(gpus=(0,))).models).config
    assert (config.backend, config.default_model_filename) == ("fil", chosen)
    assert [group.kind for group in config.instance_groups] == ["CPU"], "also where there is a GPU"


def test_a_name_in_two_repositories_is_served_from_none(tmp_path, add):
    add("m", repository="a")
    add("m", repository="b")
    add("n", repository="b")
    found = scan([tmp_path / "a", tmp_path / "b"])
    assert [model.name for model in found.models] == ["n"]
    assert "not unique across all model repositories" in only(found.failures).reason


def test_a_repository_that_is_no_folder_raises(tmp_path):
    with pytest.raises(ConfigError, match="repository path is not a valid directory"):
        scan([tmp_path / "nowhere"])


def test_a_folder_whose_name_cannot_be_sent_is_no_model(repo, add):
    """One such name would keep the whole index from being written."""
    add("m")
    os.mkdir(os.fsencode(repo) + b"/\xff")
    found = scan([repo])
    assert [model.name for model in found.models] == ["m"] and not found.failures
    assert "\\udcff: a folder whose name is not UTF-8 is no model" in only(found.notes)


def test_a_link_that_cannot_be_followed_is_no_model_and_hides_none(repo, add):
    add("m")
    (repo / "loop").symlink_to("loop")
    found = scan([repo])
    assert [model.name for model in found.models] == ["m"] and not found.failures
    assert only(found.notes).startswith(f"{repo}/loop: what cannot be followed is no folder: ")
    with pytest.raises(NotFound):
        scan_model([repo], "loop")


def test_a_link_that_cannot_be_followed_is_no_version(repo, add):
    folder = add("m")
    (folder / "2").symlink_to("2")
    model = only(scan([repo]).models)
    assert [version.number for version in model.versions] == [1]
    assert f"{folder}/2: what cannot be followed is no folder" in only(model.notes)


def test_a_folder_that_cannot_be_looked_at_counts_as_one():
    """As none, a model that serves would be unloaded whenever its file system is away."""

    class Away:
        def is_dir(self):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    assert layout.is_folder(Away(), [])


def test_a_path_that_cannot_be_looked_at_counts_as_a_folder(monkeypatch):
    """Path.is_dir() itself says no from CPython 3.14 on."""

    def away(path, **_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(Path, "stat", away)
    assert layout.is_folder(Path("/models/m"), [])
    with pytest.raises(OSError, match="Stale"):
        layout.is_file(Path("/models/m/config.pbtxt"))
    with pytest.raises(OSError, match="Stale"):
        layout.exists(Path("/models/m/config.pbtxt"))


@pytest.mark.parametrize("config", [
    f'default_model_filename: "{"x" * 300}"',
    f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "/{"x" * 300}" }} }}',
])  # fmt: skip
def test_a_file_that_cannot_be_looked_at_fails_its_model_alone(repo, add, config):
    add("bad", {"config.pbtxt": PYTHON + config, "1/model.py": MODEL})
    add("good")
    found = scan([repo])
    assert [model.name for model in found.models] == ["good"]
    assert "File name too long" in only(found.failures).reason


def test_what_python_makes_beside_code_is_no_model(repo, add):
    add("m")
    add("__pycache__", {"m.pyc": ""})
    assert [model.name for model in scan([repo]).models] == ["m"] and scan([repo]).failures == ()


def test_files_and_hidden_folders_are_no_models(repo, add):
    (repo / "README.md").write_text("")
    add(".git")
    found = scan([repo])
    assert not found.models
    assert not found.failures
    assert ".git" in only(found.notes)


@pytest.mark.parametrize(("data", "expected"), [
    (b"\xef\xbb\xbf# a BOM\n", None), (b"a\nbc \xff", "config.pbtxt:2:4: the file is not UTF-8: byte 0xff"),
])  # fmt: skip
def test_bytes_of_the_config(repo, add, data, expected):
    (add("m") / "config.pbtxt").write_bytes(data)
    if expected is None:
        assert scan([repo]).models
    else:
        assert expected in failure_of(repo)


def test_a_config_that_cannot_be_read(repo, add):
    os.mkdir(add("m") / "config.pbtxt")
    assert "failed to open text file for read" in failure_of(repo)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        (MODEL, False),
        (COMPLETE, True),
        ("from base import Base\nclass TritonPythonModel(Base):\n    pass\n", True),
        ("from base import TritonPythonModel\n", True),
        ("class TritonPythonModel(object):\n    pass\n", False),
    ],
)
def test_models_that_must_be_asked_for_their_config(repo, add, source, asked):
    add("m", {"1/model.py": source})
    model = only(scan([repo]).models)
    assert model.may_complete is asked
    assert model.config.partial is asked


def test_types_may_be_missing_when_the_model_will_be_asked(repo, add):
    add("asked", {"config.pbtxt": 'input { name: "A" }', "1/model.py": COMPLETE})
    add("not_asked", {"config.pbtxt": 'input { name: "A" }', "1/model.py": MODEL})
    found = scan([repo])
    assert only(found.models).config.inputs[0].dtype == 0
    assert "must specify 'data_type'" in only(found.failures).reason


def test_one_model_by_name(repo, add):
    add("m")
    assert scan_model([repo], "m").name == "m"


@pytest.mark.parametrize("name", ["", ".", "..", "../m", "a/b", "a\\b", "m\0", "nowhere", "n" * 300])
def test_names_that_are_none(repo, add, name):
    add("m")
    with pytest.raises(NotFound):
        scan_model([repo], name)


def test_a_named_configuration_is_taken_where_a_model_has_it(repo, add):
    add("m", {"config.pbtxt": "max_batch_size: 1", "configs/big.pbtxt": "max_batch_size: 8", "1/model.py": MODEL})
    add("n", {"config.pbtxt": "max_batch_size: 2", "1/model.py": MODEL})
    assert [model.config.max_batch_size for model in scan([repo], ScanOptions(config_name="big")).models] == [8, 2]
    assert [model.config.max_batch_size for model in scan([repo]).models] == [1, 2]


def test_errors_of_a_named_configuration_have_its_path(repo, add):
    folder = add("m", {"configs/big.pbtxt": "max_batch_sise: 8", "1/model.py": MODEL})
    assert failure_of(repo, config_name="big").startswith(f"{folder}/configs/big.pbtxt:1:1: ")
