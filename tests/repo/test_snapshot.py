"""Snapshots of model folders: equal while nothing that counts has changed, and able to say what has."""

import os
import pickle

import pytest

from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.repo.snapshot import FileEntry, in_words, snapshot


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text("max_batch_size: 8")
    (model / "1" / "model.py").write_text("class TritonPythonModel: pass")
    return model


def paths(taken):
    return [entry.path for entry in taken.entries]


def test_two_looks_at_one_folder_are_equal_and_of_one_hash(folder):
    assert snapshot(folder) == snapshot(folder)
    assert len({snapshot(folder), snapshot(folder)}) == 1
    assert paths(snapshot(folder)) == ["1/", "1/model.py", "config.pbtxt"]


def test_a_snapshot_is_a_frozen_value(folder):
    taken = snapshot(folder)
    assert pickle.loads(pickle.dumps(taken)) == taken
    with pytest.raises(AttributeError):
        taken.entries = ()


def rewrite_in_place(folder):
    (folder / "config.pbtxt").write_text("max_batch_size: 16")


def rewrite_as_long(folder):
    os.utime(folder / "config.pbtxt", ns=(1, 1))


def replace(folder):
    """As editors do, and with the old file's time."""
    old = (folder / "config.pbtxt").stat()
    (folder / "new").write_text("max_batch_size: 9")
    os.utime(folder / "new", ns=(old.st_atime_ns, old.st_mtime_ns))
    (folder / "new").rename(folder / "config.pbtxt")


@pytest.mark.parametrize("edit", [rewrite_in_place, rewrite_as_long, replace])
def test_a_changed_file_is_named(folder, edit):
    before = snapshot(folder)
    edit(folder)
    assert snapshot(folder) != before
    assert snapshot(folder).differences(before) == ("config.pbtxt changed",)


def test_new_and_lost_files_are_named(folder):
    before = snapshot(folder)
    (folder / "1" / "labels.txt").write_text("")
    (folder / "1" / "model.py").unlink()
    assert snapshot(folder).differences(before) == ("1/labels.txt is new", "1/model.py is gone")


def test_a_new_folder_speaks_for_all_that_it_holds(folder):
    before = snapshot(folder)
    (folder / "2" / "deep").mkdir(parents=True)
    (folder / "2" / "model.py").write_text("")
    (folder / "2" / "deep" / "weights").write_text("")
    after = snapshot(folder)
    assert after.differences(before) == ("2/ is new",)
    assert before.differences(after) == ("2/ is gone",)


def test_an_empty_version_folder_counts(folder):
    """That of an ensemble is empty."""
    before = snapshot(folder)
    (folder / "2").mkdir()
    assert snapshot(folder).differences(before) == ("2/ is new",)


def test_the_newest_file_of_a_kind(folder):
    os.utime(folder / "1" / "model.py", ns=(0, 1_500_000_000))
    assert snapshot(folder).newest(".py") == 1.5
    assert snapshot(folder).newest(".onnx") == 0


def test_a_log_line_names_some_and_counts_the_others():
    assert in_words(("a is new",)) == "a is new"
    said = limits.SNAPSHOT_DIFFERENCES_SAID
    words = tuple(f"{number} is new" for number in range(said + 3))
    assert in_words(words) == ", ".join(words[:said]) + ", and 3 more"


@pytest.mark.parametrize(
    "name", ["model.py~", "#model.py#", ".#model.py", ".model.py.swp", "4913", "model.py___jb_tmp___",
             ".model.onnx.Xa09zZ", "model.onnx.part", "model.onnx.tmp", ".nfs000000000000", "._model.py"]
)  # fmt: skip
def test_temporary_files_change_no_model_but_its_rest(folder, name):
    before = snapshot(folder)
    (folder / "1" / name).write_text("")
    after = snapshot(folder)
    assert after == before
    assert after.differences(before) == ()
    assert not after.rests_since(before)
    assert snapshot(folder).rests_since(after)


@pytest.mark.parametrize("name", [".env", ".settings.json", "model.py", "weights.bin", "tmp", "49130", "#1"])
def test_other_files_count_hidden_or_not(folder, name):
    (folder / "1" / "model.py").unlink()
    before = snapshot(folder)
    (folder / "1" / name).write_text("")
    assert snapshot(folder) != before


@pytest.mark.parametrize("name", ["__pycache__", ".git", ".ipynb_checkpoints", "..data"])
def test_folders_that_change_by_themselves_are_left_out(folder, name):
    before = snapshot(folder)
    (folder / "1" / name).mkdir()
    (folder / "1" / name / "model.cpython-311.pyc").write_text("")
    assert snapshot(folder).rests_since(before)


# ---- links


def test_a_link_stands_for_the_file_behind_it(folder, tmp_path):
    (tmp_path / "weights").write_text("1")
    (folder / "1" / "weights").symlink_to(tmp_path / "weights")
    before = snapshot(folder)
    (tmp_path / "weights").write_text("22")
    assert snapshot(folder).differences(before) == ("1/weights changed",)


def test_a_model_folder_may_be_a_link_itself(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert snapshot(tmp_path / "link") == snapshot(folder)


def test_a_linked_folder_is_looked_into_once(folder, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "weights").write_text("1")
    (folder / "1" / "assets").symlink_to(tmp_path / "shared")
    (folder / "2").mkdir()
    (folder / "2" / "assets").symlink_to(tmp_path / "shared")
    taken = paths(snapshot(folder))
    assert [path for path in taken if path.endswith("weights")] == ["2/assets/weights"]
    assert {"1/assets/", "2/assets/"} <= set(taken)


def test_links_that_lead_back_end(folder):
    (folder / "1" / "up").symlink_to(folder)
    (folder / "1" / "here").symlink_to(folder / "1")
    assert {"1/up/", "1/here/"} <= set(paths(snapshot(folder)))


def test_a_link_to_nothing_is_there(folder, tmp_path):
    (folder / "1" / "weights").symlink_to(tmp_path / "nothing")
    before = snapshot(folder)
    assert FileEntry("1/weights", -1, 0, 0) in before.entries
    (tmp_path / "nothing").write_text("")
    assert snapshot(folder).differences(before) == ("1/weights changed",)


# ---- environments


@pytest.mark.parametrize(
    ("mark", "package"),
    [
        ("pyvenv.cfg", "lib/python3.11/site-packages/numpy-2.0.dist-info"),
        ("conda-meta/history", "conda-meta/numpy.json"),
    ],
)
def test_an_environment_in_the_folder_counts_by_its_packages(folder, mark, package):
    (folder / "env" / mark).parent.mkdir(parents=True)
    (folder / "env" / mark).write_text("")
    (folder / "env" / "bin").mkdir()
    before = snapshot(folder)
    assert [path for path in paths(before) if path.startswith("env")] == ["env/"]
    (folder / "env" / "bin" / "tool").write_text("")
    assert snapshot(folder) == before
    (folder / "env" / package).mkdir(parents=True)
    assert snapshot(folder).differences(before) == ("env/ changed",)


# ---- bounds and errors


def test_a_folder_that_is_none_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"m: model folder cannot be read: No such file or directory"):
        snapshot(tmp_path / "m")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: model folder cannot be read: Not a directory"):
        snapshot(tmp_path / "file")


def test_too_deep_a_folder_is_an_error(folder):
    deep = folder
    for _ in range(limits.SNAPSHOT_DEPTH_MAX + 1):
        deep /= "d"
    deep.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"lies deeper in the model folder than 32 folders"):
        snapshot(folder)


def test_too_many_files_are_an_error_that_says_what_to_do(folder):
    big = folder / "1" / "images"
    big.mkdir()
    for number in range(10):
        (big / str(number)).write_text("")
    assert len(snapshot(folder, entries_max=14).entries) == 14
    with pytest.raises(ConfigError) as caught:
        snapshot(folder, entries_max=12)
    assert "m: model folder has more than 12 files and folders (counted up to '1/images/')" in str(caught.value)
    assert "move what is no part of the model elsewhere" in str(caught.value)
