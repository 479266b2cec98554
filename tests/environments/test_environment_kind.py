"""What kind of environment a path names."""

from __future__ import annotations

import pytest

from tests.environments.packing import write_folder
from tisfast.environments.environment import Environment
from tisfast.environments.environment_kind import REFUSED, recognise
from tisfast.errors import ConfigError


@pytest.fixture
def env(tmp_path):
    return write_folder(tmp_path / "env")


def test_a_folder(env):
    found = recognise(env, "env")
    assert (found.kind, found.interpreter, found.stamp) == ("folder", env / "bin/python", ())
    (env / "bin" / "python3").symlink_to("python")
    assert recognise(env, "env").interpreter == env / "bin/python3"
    assert recognise(env.rename(env.with_name("env.tar.gz")), "env").kind == "folder"


def test_an_interpreter_keeps_its_links(env, tmp_path):
    (tmp_path / "python3.9").symlink_to(env / "bin/python")
    path = tmp_path / "python3.9"
    found = recognise(path, "x")
    assert (found.kind, found.path, found.interpreter) == ("interpreter", path, path)


@pytest.mark.parametrize("name", ["e.tar.gz", "e.tgz", "E.TAR", "e.tar.bz2", "e.tar.xz", "e.tar.zst", "e.zip"])
def test_archives(tmp_path, name):
    (tmp_path / name).write_text("1")
    before = recognise(tmp_path / name, name)
    assert before.kind == "archive" and before.interpreter is None and before == recognise(tmp_path / name, name)
    (tmp_path / name).write_text("12")
    assert recognise(tmp_path / name, name) != before


@pytest.mark.parametrize("name", ["requirements.txt", "gpu.TXT", "pylock.toml", "pylock.gpu.toml"])
def test_requirements(tmp_path, name):
    (tmp_path / name).write_text("numpy\n")
    before = recognise(tmp_path / name, name, "3.9")
    assert (before.kind, before.python) == ("requirements", "3.9")
    assert before != recognise(tmp_path / name, name)
    (tmp_path / name).write_text("numpy<2\n")
    assert recognise(tmp_path / name, name, "3.9") != before


def test_another_included_file_is_another_environment(tmp_path):
    (tmp_path / "r.txt").write_text("-r s.txt\n")
    (tmp_path / "s.txt").write_text("")
    before = recognise(tmp_path / "r.txt", "")
    (tmp_path / "s.txt").write_text("numpy\n")
    assert recognise(tmp_path / "r.txt", "") != before


@pytest.mark.parametrize("python", ["3", "3.9", "3.9.18", "/usr/bin/python3"])
def test_pythons_to_build_with(tmp_path, python):
    (tmp_path / "r.txt").write_text("")
    assert recognise(tmp_path / "r.txt", "", python).python == python


@pytest.mark.parametrize("python", ["2.7", "3.9.1.2", "python3", "bin/python", "3."])
def test_what_is_no_python_is_refused(tmp_path, python):
    (tmp_path / "r.txt").write_text("")
    with pytest.raises(ConfigError, match="EXECUTION_ENV_PYTHON '.*' is neither a version nor the path"):
        recognise(tmp_path / "r.txt", "", python)


def test_a_python_is_for_requirements_only(env):
    with pytest.raises(ConfigError, match="has its own; remove EXECUTION_ENV_PYTHON") as caught:
        recognise(env, "env", "3.9")
    assert caught.value.key == "EXECUTION_ENV_PYTHON"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_descriptions_are_refused_by_name(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=f"{name} is not served; .+"):
        recognise(tmp_path / name, name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "Failed to get the canonical path for SHOWN."),
        ("nowhere.tar.gz", "Failed to get the canonical path for SHOWN."),
        ("empty", "'SHOWN' holds no bin/python3 or bin/python that can be run; make one: python3 -m venv"),
        ("data.rar", "'SHOWN' is neither environment, interpreter, archive nor requirements; name the folder"),
    ],
)
def test_what_is_none(tmp_path, name, why):
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.rar").write_text("")
    with pytest.raises(ConfigError) as caught:
        recognise(tmp_path / name, "SHOWN")
    assert why in str(caught.value)


def test_how_a_package_is_added(tmp_path):
    folder = Environment("folder", tmp_path, interpreter=tmp_path / "bin/python")
    assert folder.remedy("six") == f"{tmp_path}/bin/python -m pip install six"
    assert Environment("requirements", tmp_path / "r.txt").remedy("six").startswith(f"add 'six' to {tmp_path}/r.txt")
    assert "where e.zip was packed" in Environment("archive", tmp_path / "e.zip").remedy("six")
