"""EXECUTION_ENV_PATH and EXECUTION_ENV_PYTHON in a model's parameters."""

from __future__ import annotations

import pytest

from tests.environments.packing import write_folder
from tisfast.errors import ConfigError
from tisfast.repo.environment_parameter import read_environment


@pytest.fixture
def env(tmp_path):
    return write_folder(tmp_path / "env")


def test_none_is_the_servers_own(tmp_path):
    assert read_environment({}, tmp_path) is None
    assert read_environment({"EXECUTION_ENV_PATH": ""}, tmp_path) is None


def test_the_model_folder_is_expanded(env, tmp_path):
    found = read_environment({"EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/../env"}, tmp_path / "m")
    assert found is not None and found.interpreter == env / "bin" / "python"
    (tmp_path / "r.txt").write_text("")
    parameters = {"EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/r.txt",
                  "EXECUTION_ENV_PYTHON": "$$TRITON_MODEL_DIRECTORY/env/bin/python"}  # fmt: skip
    found = read_environment(parameters, tmp_path)
    assert found is not None and found.python == str(env / "bin" / "python")


def test_what_is_wrong_names_the_parameter(tmp_path):
    with pytest.raises(ConfigError, match="Failed to get the canonical path for /nowhere."):
        read_environment({"EXECUTION_ENV_PATH": "/nowhere"}, tmp_path)
    with pytest.raises(ConfigError, match="EXECUTION_ENV_PYTHON '3.9' is for requirements, and there are no") as caught:
        read_environment({"EXECUTION_ENV_PYTHON": "3.9"}, tmp_path)
    assert caught.value.key == "EXECUTION_ENV_PYTHON"


def test_a_stub_of_the_models_own_is_refused_unless_an_environment_is_named(env, tmp_path):
    (tmp_path / "triton_python_backend_stub").write_text("")
    with pytest.raises(ConfigError, match="triton_python_backend_stub"):
        read_environment({}, tmp_path)
    assert read_environment({"EXECUTION_ENV_PATH": str(env)}, tmp_path) is not None
