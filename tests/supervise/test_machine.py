from tisfast.supervise import machine


def test_a_container_s_memory_counts(tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("1048576\n")
    assert machine.memory_bytes((limit,)) == 1048576
    limit.write_text("max\n")
    assert machine.memory_bytes((limit, tmp_path / "absent")) > 1048576


def test_gpus_without_the_management_library(tmp_path):
    for bus in ("a", "b", "c"):
        (tmp_path / bus).mkdir()
    assert machine.driver_gpus(tmp_path) == 3
    assert machine.driver_gpus(tmp_path / "absent") == 0


def test_the_kernel_counts_what_it_killed_for_memory(tmp_path):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 12\noom_kill 7\nnuma_hit 1\n")
    assert machine.oom_kills(vmstat) == 7
    vmstat.write_text("nr_free_pages 12\n")
    assert machine.oom_kills(vmstat) == machine.oom_kills(tmp_path / "absent") == 0
    assert machine.oom_kills() >= 0


def test_instances_share_the_cores():
    assert machine.threads_share(1) == machine.cores()
    assert machine.threads_share(10_000) == 1
