import pytest

from tisfast.errors import ConfigError, Unsupported
from tisfast.supervise import machine
from tisfast.supervise.environment import interpreter_of


def test_a_container_s_memory_counts(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("1048576\n")
    assert machine.memory_bytes((limit,)) == 1048576
    limit.write_text("max\n")
    assert machine.memory_bytes((limit, tmp_path / "absent")) > 1048576


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, (0, 1, 2)), ("2,0", (0, 1)), ("", ()), ("-1", ()), ("0,1,2,3,4", (0, 1, 2))]
)
def test_gpus_are_those_that_cuda_would_show(tmp_path, visible, expected):
    for bus in ("a", "b", "c"):
        (tmp_path / bus).mkdir()
    assert machine.gpus(visible, tmp_path) == expected


def test_no_driver_no_gpus(tmp_path):
    assert machine.gpus(None, tmp_path / "absent") == ()


def test_a_worker_s_gpu_is_named_as_the_server_s_variable_names_it():
    assert machine.device_name(1, "GPU-aa, GPU-bb") == "GPU-bb"
    assert machine.device_name(1, None) == "1"


def test_instances_share_the_cores():
    assert machine.threads_share(1) == machine.cores()
    assert machine.threads_share(10_000) == 1


def executable(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return str(path)


def test_the_environment_may_be_a_folder_or_an_interpreter(tmp_path):
    python = executable(tmp_path / "env" / "bin" / "python3")
    assert interpreter_of("", "/m", "own") == "own"
    assert interpreter_of(str(tmp_path / "env"), "/m", "own") == python
    assert interpreter_of(python, "/m", "own") == python


def test_the_environment_may_lie_in_the_model(tmp_path):
    python = executable(tmp_path / "env" / "bin" / "python")
    assert interpreter_of("$$TRITON_MODEL_DIRECTORY/env", str(tmp_path), "own") == python


def test_an_interpreter_is_not_resolved_through_links(tmp_path):
    real = executable(tmp_path / "real")
    link = tmp_path / "env" / "bin" / "python3"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert interpreter_of(str(tmp_path / "env"), "/m", "own") == str(link)


@pytest.mark.parametrize("name", ["nowhere", "folder"])
def test_an_environment_without_python_says_what_was_looked_at(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as error:
        interpreter_of(str(tmp_path / name), "/m", "own")
    assert str(tmp_path / name) in str(error.value)


def test_an_archive_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(Unsupported, match="conda-unpack"):
        interpreter_of("/m/env.tar.gz", "/m", "own")
