"""Models that a load call gives: configurations and files in place of the repository's."""
# ruff: noqa: E501 - one case, one line

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.repo.sources import MODEL
from tisfast.config import schema
from tisfast.config.error_report import ConfigErrors
from tisfast.errors import Internal
from tisfast.repo.load_override import LoadOrder, find_overridden, remove_private
from tisfast.repo.scan import ScanOptions, scan
from tisfast.repo.scan_result import ModelSource

CODE = MODEL.encode()
PYTHON = '{"backend": "python"}'
FAILED = "failed to load 'm', failed to poll from model repository"


@pytest.fixture
def base(tmp_path):
    (tmp_path / "base").mkdir(mode=0o700)
    return tmp_path / "base"


def find(base, repo, name="m", **order):
    return find_overridden(LoadOrder(name, **order), [repo], ScanOptions(), base)


def test_a_configuration_in_place_of_the_file_s(repo, add, base):
    folder = add("m", {"config.pbtxt": "nonsense", "1/model.py": MODEL})
    source = find(base, repo, config='{"max_batch_size": "16", "parameters": {"a": {"string_value": "b"}}}')
    assert (source.folder, source.private, source.config.max_batch_size) == (folder, None, 16)
    assert source.config.parameters == {"a": "b"}
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{", "Invalid config override: 1:2: not JSON: Expecting property name enclosed in double quotes"),
        ("", "Invalid config override: 1:1: not JSON"),
        ("[]", "Invalid config override: the model configuration takes an object, found a list"),
        ('{"max_batch_sise": 1}', "Invalid config override: unknown key 'max_batch_sise' in the model configuration; did you mean 'max_batch_size'?"),
        ('{"input": [{"name": "A", "data_type": "FP32", "dims": [1]}]}', "Invalid config override: unknown value 'FP32' for 'data_type' at input[0].data_type; did you mean 'TYPE_FP32'?"),
        ('{"max_batch_size": -1}', "Invalid config override: max_batch_size"),
        ('{"name": "other"}', "Invalid config override: unexpected directory name 'm' for model 'other', directory name must equal model name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_configuration_is_said(config, reason, repo, add, base):
    add("m")
    error = find(base, repo, config=config)
    assert isinstance(error, Internal)
    assert error.message.startswith(FAILED)
    assert reason.split(": ", 1)[1] in error.message and "Invalid config override: " in error.message


def test_an_unknown_model_has_no_configuration_to_replace(repo, base):
    assert find(base, repo, config=PYTHON).message == FAILED


def test_files_in_place_of_the_folder(repo, add, base):
    add("m", {"config.pbtxt": "nonsense", "1/model.py": MODEL})
    source = find(base, repo, config=PYTHON, files={"7/model.py": CODE, "7/data/x.bin": b"\0\1", "labels.txt": b""})
    assert isinstance(source, ModelSource)
    assert [version.number for version in source.versions] == [7]
    assert source.private == source.repository and source.private.parent == base
    assert (source.folder / "7/data/x.bin").read_bytes() == b"\0\1"
    assert stat.S_IMODE(source.private.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in source.private.rglob("*.*")} == {0o600}
    remove_private(source)
    assert list(base.iterdir()) == []
    assert scan([repo]).failures[0].name == "m"  # the repository's own was not touched


def test_a_model_that_no_repository_has(repo, base):
    source = find(base, repo, "new", config=PYTHON, files={"1/model.py": CODE})
    assert (source.name, source.config.name) == ("new", "new")


def test_files_without_a_configuration_are_refused(repo, base):
    error = find(base, repo, files={"1/model.py": CODE})
    assert error.message == f"{FAILED}: Load parameter 'config' must be specified for model file override"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "with normalized path '../x' must stay within model directory."),
        ("1/../../x", "must stay within model directory."),
        ("..", "must stay within model directory."),
        ("/etc/x", "must stay within model directory."),
        ("//etc/x", "must stay within model directory."),
        ("1\\..\\x", "must stay within model directory."),
        ("1/\0", "must stay within model directory."),
        ("", "it names no file"),
        (".", "it names no file"),
        ("1/", "it names no file"),
        ("1/" + "n" * 300, "it cannot be written: File name too long"),
        ("d/" * 2000 + "x", "it lies 2001 folders deep, 32 are the limit"),
        ("./config.pbtxt", "the configuration is what parameter 'config' says"),
        ("1/model.py/x", "directory has been created as a file"),
        ("./1//model.py", "another parameter names the same file"),
        ("1", "directory has been created as a file"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_place_in_the_folder_is_refused(name, reason, repo, base):
    error = find(base, repo, config=PYTHON, files={"1/model.py": CODE, name: b"x"})
    assert isinstance(error, Internal)
    assert error.message.startswith(f"{FAILED}: Invalid file parameter 'file:")
    assert reason in error.message
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("name", ["..", "a/b", "n" * 300, "", "a\nb", "a\rb", "\x1b[31m"])
def test_names_that_are_none(name, repo, base):
    error = find(base, repo, name, config=PYTHON, files={"1/model.py": CODE})
    assert isinstance(error, Internal)
    assert "is no name of a model: it has 1 to 255 bytes that can be printed, and no '/'" in error.message
    assert list(base.iterdir()) == []


class Interrupted(dict):
    """Files of which the second one is written when the server has just ended, and its folder with it."""

    def __init__(self, base, files):
        super().__init__(files)
        self.base, self.read = base, 0

    def __getitem__(self, name):
        self.read += 1
        if self.read == 2:
            shutil.rmtree(self.base)
        return super().__getitem__(name)


@pytest.mark.parametrize(
    ("backend", "file"), [("sklearn", "model.joblib"), ("sklearn", "model.skops"), ("fil", "xgboost.json")]
)
@pytest.mark.parametrize("allowed", [True, False])
def test_files_that_can_run_code_are_taken_where_that_is_allowed(backend, file, allowed, repo, base):
    order = LoadOrder("m", config=json.dumps({"backend": backend}), files={f"1/{file}": b"x"})
    found = find_overridden(order, [repo], ScanOptions(allow_pickled=allowed), base)
    if allowed or backend == "fil":
        assert isinstance(found, ModelSource) and found.config.default_model_filename == file
    else:
        assert f"brings {file}, and files of backend 'sklearn' can run code when they are read" in str(found)
        assert not list(base.iterdir())


def test_files_are_not_written_when_the_server_has_ended(repo, base):
    files = Interrupted(base, {"1/a/model.py": CODE, "2/b/model.py": CODE})
    assert "cannot be written: No such file" in str(find(base, repo, config=PYTHON, files=files))
    assert not base.exists()


def test_a_failure_leaves_nothing(repo, base):
    error = find(base, repo, config=PYTHON, files={"readme": b""})
    assert "at least one version must be available under the version policy of model 'm'" in error.message
    assert list(base.iterdir()) == []


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(st.sampled_from("./1\\a\0é"), max_size=12), st.binary(max_size=4), min_size=1, max_size=4),
       st.text(st.sampled_from("./a\\m"), max_size=4))  # fmt: skip
def test_no_name_leads_out_of_the_base(files, name):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base")
        base.mkdir(mode=0o700)
        found = find_overridden(LoadOrder(name, PYTHON, files), [], ScanOptions(), base)
        if isinstance(found, ModelSource):
            remove_private(found)
        assert os.listdir(folder) == ["base"] and os.listdir(base) == []


KEYS = sorted(field.name for field in schema.model_config().DESCRIPTOR.fields) + ["dims", "name", "count", "kind", "x"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**65)
    | st.floats()
    | st.sampled_from(["", "m", "-1", "TYPE_FP32", "é"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A repository with a model whose configuration is replaced."""
    folder = tmp_path_factory.mktemp("repo")
    (folder / "m/1").mkdir(parents=True)
    (folder / "m/1/model.py").write_text(MODEL)
    return folder


@settings(max_examples=200, deadline=None)
@given(value=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3) | JSON)
def test_any_configuration_is_taken_or_refused_with_its_reason(value, model):
    found = find_overridden(LoadOrder("m", json.dumps(value)), [model], ScanOptions(), model)
    if isinstance(found, ModelSource):
        assert found.overridden and found.config.name == "m"
    else:
        assert isinstance(found, (Internal, ConfigErrors)) and found.message.removeprefix(FAILED)
