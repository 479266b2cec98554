"""EXECUTION_ENV_PATH."""

import pytest

from tisfast.errors import ConfigError
from tisfast.repo.environment import interpreter


@pytest.fixture
def env(tmp_path):
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = tmp_path / "env" / "bin" / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return tmp_path / "env"


def test_none_is_the_servers_own(tmp_path):
    assert interpreter("", tmp_path) is None


def test_a_folder(env, tmp_path):
    assert interpreter(str(env), tmp_path) == env / "bin" / "python"


def test_the_model_folder_is_expanded(env, tmp_path):
    assert interpreter("$$TRITON_MODEL_DIRECTORY/../env", tmp_path / "m") == env / "bin" / "python"


def test_python3_comes_first_and_links_are_kept(env, tmp_path):
    (env / "bin" / "python3").symlink_to("python")
    assert interpreter(str(env), tmp_path) == env / "bin" / "python3"


def test_an_interpreter_itself(env, tmp_path):
    assert interpreter(str(env / "bin" / "python"), tmp_path) == env / "bin" / "python"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/x/env.tar.gz", "unpacking archives is not served yet; unpack it"),
        ("/nowhere", "Failed to get the canonical path for /nowhere."),
        ("$$TRITON_MODEL_DIRECTORY", "holds no bin/python3 or bin/python"),
        ("$$TRITON_MODEL_DIRECTORY/file", "is neither a folder nor an interpreter"),
    ],
)
def test_what_is_wrong_with_it(tmp_path, value, expected):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        interpreter(value, tmp_path)
    assert expected in str(caught.value)


def test_a_stub_of_the_models_own_is_refused_unless_an_environment_is_named(env, tmp_path):
    (tmp_path / "triton_python_backend_stub").write_text("")
    with pytest.raises(ConfigError, match="triton_python_backend_stub"):
        interpreter("", tmp_path)
    assert interpreter(str(env), tmp_path) is not None
