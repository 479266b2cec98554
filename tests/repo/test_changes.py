"""Looks at repositories, and what of them has changed and rests."""

import os
import shutil

import pytest

from tisfast.config.backend_flags import read_backends
from tisfast.repo.changes import Changes, Look, Looker
from tisfast.repo.difference import difference
from tisfast.repo.scan import ScanOptions, scan_model


@pytest.fixture
def repositories(tmp_path):
    found = [tmp_path / "one", tmp_path / "two"]
    for repository in found:
        repository.mkdir()
    return found


def write(repository, name, text="x", file="1/model.py"):
    path = repository / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def taken_twice(changes, looker):
    """Two looks: what the first sees moving, the second sees resting."""
    changes.take(looker.look())
    return changes.take(looker.look())


def test_a_look_sees_models_of_all_repositories(repositories):
    one, two = repositories
    write(one, "a")
    write(one, "both")
    write(two, "both")
    write(two, ".hidden")
    (one / "README").write_text("")
    look = Looker(repositories).look()
    assert {name: list(seen) for name, seen in look.seen.items()} == {"a": [one], "both": [one, two]}
    assert look.lost == {}


def test_a_look_at_some_models_sees_no_others(repositories):
    write(repositories[0], "a")
    write(repositories[0], "b")
    assert set(Looker(repositories).look({"b", "c"}).seen) == {"b"}


def test_nothing_has_changed_where_nothing_has(repositories):
    write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    assert taken_twice(changes, looker) == {}
    assert not changes.moving


def test_a_change_is_given_out_when_it_rests_and_once(repositories):
    model = write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    model.write_text("other")
    assert changes.take(looker.look()) == {}
    assert changes.moving == {"a"}
    assert changes.take(looker.look({"a"}), {"a"}) == {"a": "1/model.py changed"}
    assert not changes.moving
    assert taken_twice(changes, looker) == {}


def test_what_grows_is_not_given_out(repositories):
    looker = Looker(repositories)
    changes = Changes(looker.look())
    for size in range(1, 5):
        write(repositories[0], "a", "x" * size)
        assert changes.take(looker.look()) == {}
    assert changes.take(looker.look()) == {"a": f"is new in {repositories[0]}"}


def test_a_copy_under_a_temporary_name_is_waited_for(repositories):
    """As rsync does: what is complete rests, the file that is being copied is none of the model's."""
    looker = Looker(repositories)
    changes = Changes(looker.look())
    write(repositories[0], "a")
    for size in range(1, 4):
        part = write(repositories[0], "a", "x" * size, "1/.weights.bin.8sK2xq")
        assert changes.take(looker.look()) == {}
    part.rename(part.parent / "weights.bin")
    assert taken_twice(changes, looker) == {"a": f"is new in {repositories[0]}"}


def test_a_change_that_is_taken_back_is_none(repositories):
    model = write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    other = write(repositories[0], "a", file="2/model.py")
    changes.take(looker.look())
    other.unlink()
    other.parent.rmdir()
    assert changes.take(looker.look()) == {}
    assert not changes.moving
    assert model.exists()


def test_removed_and_added_again_within_two_looks_is_a_change(repositories):
    folder = write(repositories[0], "a").parents[1]
    looker = Looker(repositories)
    changes = Changes(looker.look())
    folder.rename(folder.parent / ".a")
    assert changes.take(looker.look()) == {}
    write(repositories[0], "a", "quite another")
    assert taken_twice(changes, looker) == {"a": "1/model.py changed"}


def test_a_removed_model_is_told_where_it_was(repositories):
    model = write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    model.unlink()
    model.parent.rmdir()
    model.parents[1].rmdir()
    assert taken_twice(changes, looker) == {"a": f"is gone from {repositories[0]}"}
    assert taken_twice(changes, looker) == {}


def test_a_second_one_of_a_name_is_a_change_and_so_is_its_end(repositories):
    one, two = repositories
    write(one, "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    second = write(two, "a").parents[1]
    assert taken_twice(changes, looker) == {"a": f"is new in {two}"}
    second.rename(two / ".a")
    assert taken_twice(changes, looker) == {"a": f"is gone from {two}"}


def test_busy_models_are_given_out_later(repositories):
    model = write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    model.write_text("other")
    changes.take(looker.look())
    assert changes.take(looker.look(), busy={"a"}) == {}
    assert changes.moving == {"a"}
    assert changes.take(looker.look()) == {"a": "1/model.py changed"}


# ---- repositories that are away


def test_models_of_a_lost_repository_stay_as_they_are(repositories):
    one, two = repositories
    write(one, "a")
    write(two, "b")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    one.rename(one.parent / "away")
    look = looker.look()
    assert look.lost == {one: "repository path is not a valid directory: No such file or directory"}
    assert changes.take(look) == {}
    assert taken_twice(changes, looker) == {}
    write(two, "c")
    assert set(taken_twice(changes, looker)) == {"c"}
    (one.parent / "away").rename(one)
    assert taken_twice(changes, looker) == {}


def test_an_emptied_repository_is_not_lost(repositories):
    folder = write(repositories[0], "a").parents[1]
    looker = Looker(repositories)
    changes = Changes(looker.look())
    folder.rename(repositories[0].parent / "a")
    assert list(taken_twice(changes, looker)) == ["a"]


def test_the_empty_place_of_a_file_system_that_is_gone_is_lost(repositories, tmp_path):
    """A link stands for the mount: /dev/shm is a file system of its own."""
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("one file system only")
    one, two = repositories
    link = tmp_path / "link"
    link.symlink_to(one)
    write(one, "a")
    looker = Looker([link])
    changes = Changes(looker.look())
    link.unlink()
    empty = f"/dev/shm/tisfast-test-{os.getpid()}"
    os.mkdir(empty)
    try:
        link.symlink_to(empty)
        assert looker.look().lost == {link: "it is empty, and no longer on the file system that it was on"}
        assert taken_twice(changes, looker) == {}
    finally:
        os.rmdir(empty)


def test_what_cannot_be_followed_hides_no_change_of_others(repositories):
    looker = Looker(repositories)
    changes = Changes(looker.look())
    (repositories[0] / "loop").symlink_to("loop")
    long = "x" * 300
    config = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "/{long}" }} }}'
    write(repositories[0], "bad", config, "config.pbtxt")
    write(repositories[0], "good")
    assert taken_twice(changes, looker) == dict.fromkeys(("bad", "good"), f"is new in {repositories[0]}")


def test_a_folder_that_cannot_be_looked_at_is_a_change_with_the_reason(repositories):
    model = write(repositories[0], "a")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    deep = model.parent.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (words,) = taken_twice(changes, looker).values()
    assert words.startswith("cannot be looked at: ")
    assert "lies deeper in the model folder than 32 folders" in words
    assert taken_twice(changes, looker) == {}
    (model.parent / "d").rename(repositories[0].parent / "d")
    assert taken_twice(changes, looker) == {"a": "can be looked at again"}


def test_a_look_is_a_value():
    assert Look({}, {}) == Look({}, {})


# ---- what lies outside of the models' folders


def names_environment(repository, path, file="config.pbtxt"):
    write(repository, "a")
    value = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'
    return write(repository, "a", value, file)


def test_an_environment_outside_is_a_part_of_the_model(repositories, tmp_path):
    archive = tmp_path / "env.tar.gz"
    archive.write_text("one")
    names_environment(repositories[0], archive)
    looker = Looker(repositories)
    changes = Changes(looker.look())
    assert taken_twice(changes, looker) == {}
    archive.write_text("another")
    assert changes.take(looker.look()) == {} and changes.moving == {"a"}
    archive.write_text("half copied")
    assert changes.take(looker.look()) == {}
    assert changes.take(looker.look()) == {"a": f"{archive} changed"}
    assert taken_twice(changes, looker) == {}


def test_an_environment_that_is_not_there_yet_is_waited_for(repositories, tmp_path):
    names_environment(repositories[0], tmp_path / "env.tar.gz")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    (tmp_path / "env.tar.gz").write_text("")
    assert taken_twice(changes, looker) == {"a": f"{tmp_path}/env.tar.gz changed"}


def test_what_requirements_include_counts_from_when_they_do(repositories, tmp_path):
    """Those in the folder may include what is not."""
    names_environment(repositories[0], "$$TRITON_MODEL_DIRECTORY/requirements.txt")
    requirements = write(repositories[0], "a", "numpy", "requirements.txt")
    pins = tmp_path / "pins.txt"
    pins.write_text("")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    pins.write_text("numpy==1.26")
    assert taken_twice(changes, looker) == {}
    requirements.write_text(f"numpy\n-c {pins}")
    assert taken_twice(changes, looker) == {"a": f"{pins} is new, requirements.txt changed"}
    pins.write_text("numpy==1.25")
    assert taken_twice(changes, looker) == {"a": f"{pins} changed"}


def test_another_environment_is_another_part(repositories, tmp_path):
    for name in ("one.zip", "two.zip"):
        (tmp_path / name).write_text("")
    names_environment(repositories[0], tmp_path / "one.zip")
    looker = Looker(repositories)
    changes = Changes(looker.look())
    names_environment(repositories[0], tmp_path / "two.zip")
    words = taken_twice(changes, looker)["a"]
    assert f"{tmp_path}/one.zip is gone, {tmp_path}/two.zip is new" in words
    (tmp_path / "one.zip").write_text("changed")
    assert taken_twice(changes, looker) == {}


def test_environments_that_are_folders_and_broken_configurations_are_left_to_the_load(repositories, tmp_path):
    config = names_environment(repositories[0], tmp_path)
    looker = Looker(repositories)
    changes = Changes(looker.look())
    config.write_text("bakend: {")
    assert taken_twice(changes, looker) == {"a": "config.pbtxt changed"}


def test_the_configuration_of_another_name_is_the_one_that_counts(repositories, tmp_path):
    names_environment(repositories[0], tmp_path / "none.zip")
    names_environment(repositories[0], tmp_path / "b.zip", "configs/b.pbtxt")
    looker = Looker(repositories, config_name="b")
    changes = Changes(looker.look())
    (tmp_path / "none.zip").write_text("")
    assert taken_twice(changes, looker) == {}
    (tmp_path / "b.zip").write_text("")
    assert taken_twice(changes, looker) == {"a": f"{tmp_path}/b.zip changed"}


@pytest.fixture
def mlp(tmp_path):
    """The folder of a backend in --backend-directory, and the backends that there are then."""
    folder = tmp_path / "backends/mlp"
    folder.mkdir(parents=True)
    (folder / "backend.py").write_text("")
    return folder, read_backends(str(folder.parent), [])


def test_an_own_backend_is_a_part_of_its_models(repositories, mlp):
    folder, backends = mlp
    write(repositories[0], "a", 'backend: "mlp"', "config.pbtxt")
    write(repositories[0], "b")
    looker = Looker(repositories, backends=backends)
    changes = Changes(looker.look())
    (folder / "backend.py").write_text("changed")
    assert taken_twice(changes, looker) == {"a": f"{folder}/backend.py changed"}
    (folder / "helper.py").write_text("")
    assert taken_twice(changes, looker) == {"a": f"{folder}/helper.py is new"}
    assert taken_twice(changes, looker) == {}


def test_a_backend_that_is_gone_is_a_change(repositories, mlp):
    folder, backends = mlp
    write(repositories[0], "a", 'backend: "mlp"', "config.pbtxt")
    looker = Looker(repositories, backends=backends)
    changes = Changes(looker.look())
    shutil.rmtree(folder)
    assert taken_twice(changes, looker) == {"a": f"{folder}/backend.py changed"}
    folder.mkdir()
    (folder / "backend.py").write_text("again")
    assert taken_twice(changes, looker) == {"a": f"{folder}/backend.py changed"}


def test_a_load_sees_that_the_backend_has_changed(repositories, mlp):
    folder, backends = mlp
    tensors = 'input { name: "A" data_type: TYPE_FP32 dims: 1 } output { name: "B" data_type: TYPE_FP32 dims: 1 }'
    write(repositories[0], "a", f'backend: "mlp" {tensors}', "config.pbtxt")
    write(repositories[0], "a")
    looking = ScanOptions(backends=backends)
    before, same = (scan_model(repositories, "a", looking) for _ in range(2))
    (folder / "backend.py").write_text("changed")
    after = scan_model(repositories, "a", looking)
    assert difference(before, same).nothing
    assert [version.number for version in difference(before, after).fresh] == [1]
