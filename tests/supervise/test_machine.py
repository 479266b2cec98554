import pytest

from tisfast.supervise import machine


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
