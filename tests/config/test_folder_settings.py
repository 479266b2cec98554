"""Where environments, downloads and backends are kept: of flags and the environment."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
from tisfast import limits
from tisfast.config import backend_flags
from tisfast.config.backend_flags import read_backend_config, read_backends
from tisfast.config.backends import BUILT_IN
from tisfast.config.environments import EnvironmentSettings, read_environment_settings
from tisfast.config.storage_settings import StorageSettings, read_storage
from tisfast.errors import ConfigError

HOME = {"HOME": "/home/me"}
ASKED = {"storage_cache_dir": "", "storage_offline": "auto", "storage_verify": False, "storage_downloads": 8}


@pytest.mark.parametrize(
    ("flag", "environ", "folder"),
    [
        ("", HOME, "/home/me/.cache/tisfast/environments"),
        ("", {**HOME, "XDG_CACHE_HOME": "/cache"}, "/cache/tisfast/environments"),
        ("/mine", {**HOME, "XDG_CACHE_HOME": "/cache"}, "/mine"),
    ],
)
def test_the_flag_goes_before_the_cache_home_and_that_before_the_home(flag, environ, folder):
    assert read_environment_settings(flag, environ).folder() == folder


def test_without_a_home_there_are_environments_nowhere():
    found = read_environment_settings("", {})
    assert found == EnvironmentSettings()
    with pytest.raises(ConfigError, match="environments have no folder") as caught:
        found.folder()
    assert caught.value.key == "environment-cache-dir"


def test_pyenv_lies_where_it_says_or_at_home():
    assert read_environment_settings("", HOME).pyenv_root == "/home/me/.pyenv"
    assert read_environment_settings("", {**HOME, "PYENV_ROOT": "/pyenv"}).pyenv_root == "/pyenv"


def test_another_index_of_packages_is_another_environment():
    environ = {**HOME, "UV_INDEX": "b", "PIP_INDEX_URL": "a", "PIP_PRE": "", "PIP_TIMEOUT": "9"}
    assert read_environment_settings("", environ).index == (("PIP_INDEX_URL", "a"), ("UV_INDEX", "b"))


def test_downloads_lie_in_the_cache_unless_the_flag_says_where():
    assert read_storage(ASKED, HOME).cache_dir == "/home/me/.cache/tisfast/storage"
    assert read_storage(ASKED, {**HOME, "XDG_CACHE_HOME": "/cache"}).cache_dir == "/cache/tisfast/storage"
    assert read_storage({**ASKED, "storage_cache_dir": "/mine"}, HOME).cache_dir == "/mine"


def test_variables_of_stores_are_taken_and_no_others():
    environ = {**HOME, "AWS_REGION": "x", "AZURE_KEY": "", "MLFLOW_TRACKING_URI": "y", "PATH": "/bin"}
    assert read_storage(ASKED, environ).variables == {"AWS_REGION": "x", "MLFLOW_TRACKING_URI": "y", **HOME}
    assert "AWS_REGION" not in repr(read_storage(ASKED, environ))  # a log must not tell secrets


def test_triton_s_variables_name_folders_of_stores():
    environ = {**HOME, "TRITON_AWS_MOUNT_DIRECTORY": "/s3", "TRITON_GCS_MOUNT_DIRECTORY": ""}
    assert read_storage(ASKED, environ).mounts == {"s3": "/s3"}


@pytest.mark.parametrize("count", [0, -1, limits.STORAGE_DOWNLOADS_MAX + 1])
def test_downloads_at_one_time_are_bounded(count):
    with pytest.raises(ConfigError, match=f"must be 1 to {limits.STORAGE_DOWNLOADS_MAX}, not {count}"):
        StorageSettings(downloads=count)


def backend(folder, name):
    (folder / name).mkdir()
    (folder / name / "backend.py").touch()


def test_backends_of_a_folder_come_beside_ours(tmp_path):
    backend(tmp_path, "mlp")
    (tmp_path / "not_one").mkdir()
    found = read_backends(str(tmp_path), [])
    assert found.named("mlp").served and found.named("mlp").module == str(tmp_path / "mlp/backend.py")
    assert found.named("not_one") is None
    assert set(BUILT_IN.served) < set(found.served)
    assert found.named("python") == BUILT_IN.named("python") and found.told_to_workers("python")["module"] == ""


def test_a_backend_of_a_folder_takes_the_place_of_one_that_is_only_known(tmp_path):
    backend(tmp_path, "dali")
    assert not BUILT_IN.named("dali").served
    assert read_backends(str(tmp_path), []).named("dali").served


def test_a_folder_may_hold_a_model_file_for_all_models_or_a_library_of_tritons(tmp_path):
    for name, files in {
        "based": ["model.py"], "both": ["model.py", "libtriton_both.so"], "c": ["libtriton_c.so"],
        "pytorch": ["model.py", "libtriton_pytorch.so"], "onnxruntime": ["libtriton_onnxruntime.so"],
        "python": ["libtriton_python.so"], "first": ["backend.py", "model.py"],
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
    found = read_backends(f"{tmp_path}/", [])
    for name in ("based", "both"):
        assert found.named(name).python_based and found.named(name).module == str(tmp_path / name / "model.py")
    assert not found.named("c").served and found.named("c").library == str(tmp_path / "c/libtriton_c.so")
    assert not found.named("first").python_based and found.named("first").module.endswith("backend.py")
    for name in ("onnxruntime", "python"):
        assert found.named(name) == BUILT_IN.named(name)


def test_what_backends_are_told():
    told = read_backend_config(["mlp,a=1", "mlp,a=2", "a=0", "b=x,y=z", "mlp,c=p,q", "default-max-batch-size=7"])
    assert told == {"mlp": {"a": "2", "c": "p,q"}, "": {"a": "0", "default-max-batch-size": "7"}, "b=x": {"y": "z"}}
    assert BUILT_IN.told(told).settings_of("mlp") == {"a": "2", "c": "p,q", "default-max-batch-size": "7"}
    assert BUILT_IN.told(told).settings_of("python") == {"a": "0", "default-max-batch-size": "7"}


SETTINGS_REFUSED = [
    (
        "a",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got a",
    ),
    (
        "=1",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got =1",
    ),
    (
        "a=",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got a=",
    ),
    (
        ",a=1",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got ,a=1",
    ),
    (
        "mlp,a",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got mlp,a",
    ),
    (
        "mlp,=1",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got mlp,=1",
    ),
    (
        "mlp,a=",
        "backend-config | --backend-config option format is '<backend name>,<setting>=<value>' or "
        "'<setting>=<value>'. Got mlp,a=",
    ),
    (
        "default-max-batch-size=x",
        "backend-config | --backend-config=default-max-batch-size=x: 'x' is not a whole number from 0 to "
        "2147483647",
    ),
    (
        "python,default-max-batch-size=-1",
        "backend-config | --backend-config=python,default-max-batch-size=-1: '-1' is not a whole number from 0 to "
        "2147483647",
    ),
    (
        "default-max-batch-size=2147483648",
        "backend-config | --backend-config=default-max-batch-size=2147483648: '2147483648' is not a whole number "
        "from 0 to 2147483647",
    ),
    (
        "python,stub-timeout-seconds=soon",
        "backend-config | --backend-config=python,stub-timeout-seconds=soon: 'soon' is not a whole number from 0 "
        "to 2147483647",
    ),
    (
        "python,stub-timeout-seconds=1.5",
        "backend-config | --backend-config=python,stub-timeout-seconds=1.5: '1.5' is not a whole number from 0 to "
        "2147483647",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), SETTINGS_REFUSED)
def test_a_setting_that_is_none_is_refused_in_tritons_words(text, error):
    with pytest.raises(ConfigError) as caught:
        read_backend_config([text])
    assert shown(caught.value) == error


def test_triton_s_own_folder_is_passed_over_where_it_is_not(monkeypatch, tmp_path):
    monkeypatch.setattr(backend_flags, "TRITONS_DIRECTORY", str(tmp_path / "none"))
    notices: list[str] = []
    assert read_backends(str(tmp_path / "none"), notices) is BUILT_IN
    assert len(notices) == 1 and "has no effect here" in notices[0]


def test_without_the_flag_there_are_ours():
    assert read_backends("", []) is BUILT_IN


def test_platforms_and_files_tell_their_backend():
    python = BUILT_IN.named("python")
    assert all(BUILT_IN.of_platform(platform) is not None for platform in BUILT_IN.platforms)
    assert BUILT_IN.of_file("model.py") is python and "model.py" in BUILT_IN.files
    assert BUILT_IN.of_file("model.exe") is None and BUILT_IN.of_platform("abacus") is None
