"""--model-load-gpu-limit, --model-memory-budget, --rate-limit-resource: texts to values."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
from tisfast import limits
from tisfast.config.rate_limits import Grant, RateLimitSettings, read_grants
from tisfast.config.resource_flags import read_budget, read_cuda_pools, read_gpu_limits
from tisfast.errors import ConfigError


def test_the_last_limit_of_a_gpu_counts():
    assert read_gpu_limits(["0:0.5", "1:1", "0:0.25"]) == ((0, 0.25), (1, 1.0))
    assert read_gpu_limits([]) == ()


GPU_LIMITS_REFUSED = [
    (
        "0",
        "model-load-gpu-limit | --model-load-gpu-limit option format is '<device_id>:<fraction>'. Got 0 | 0:0.6 "
        "lets nothing be loaded on GPU 0 while more than 60 % of its memory is in use",
    ),
    (":0.5", "model-load-gpu-limit | --model-load-gpu-limit=:0.5: '' is no number | the format is DEVICE:FRACTION"),
    (
        "x:0.5",
        "model-load-gpu-limit | --model-load-gpu-limit=x:0.5: 'x' is no number | the format is DEVICE:FRACTION",
    ),
    (
        "0:half",
        "model-load-gpu-limit | --model-load-gpu-limit=0:half: 'half' is no number | the format is DEVICE:FRACTION",
    ),
    ("0:", "model-load-gpu-limit | --model-load-gpu-limit=0:: '' is no number | the format is DEVICE:FRACTION"),
    (
        "1.5:0.5",
        "model-load-gpu-limit | --model-load-gpu-limit=1.5:0.5: '1.5' is no number | the format is DEVICE:FRACTION",
    ),
    ("-1:0.5", "model-load-gpu-limit | --model-load-gpu-limit expects device ID >= 0, got -1"),
    (
        "0:1.5",
        "model-load-gpu-limit | --model-load-gpu-limit expects limit fraction to be in range [0.0, 1.0], got "
        "1.500000",
    ),
    (
        "0:-0.5",
        "model-load-gpu-limit | --model-load-gpu-limit expects limit fraction to be in range [0.0, 1.0], got "
        "-0.500000",
    ),
    (
        "0:nan",
        "model-load-gpu-limit | --model-load-gpu-limit expects limit fraction to be in range [0.0, 1.0], got nan",
    ),
    (
        "0:inf",
        "model-load-gpu-limit | --model-load-gpu-limit expects limit fraction to be in range [0.0, 1.0], got inf",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), GPU_LIMITS_REFUSED)
def test_a_limit_that_is_none_is_told_with_its_value(text, error):
    with pytest.raises(ConfigError) as caught:
        read_gpu_limits(["0:0.5", text])
    assert shown(caught.value) == error


def test_there_are_not_more_limits_than_gpus_could_be():
    assert len(read_gpu_limits([f"{n}:1" for n in range(limits.GPU_LIMITS_MAX)])) == limits.GPU_LIMITS_MAX
    with pytest.raises(ConfigError, match="more than"):
        read_gpu_limits(["0:1"] * (limits.GPU_LIMITS_MAX + 1))


def test_the_last_pool_of_a_gpu_counts():
    assert read_cuda_pools(["0:1", "1023:1099511627776", "0:0008"]) == ((0, 8), (1023, 1 << 40))


CUDA_POOL = "cuda-memory-pool-byte-size | --cuda-memory-pool-byte-size"
CUDA_POOLS_REFUSED = [
    (text, f"{CUDA_POOL} option format is '<GPU>:<bytes>'. Got {text} | 0:268435456 has the server lend 256 MiB of GPU "
     "0 to models; 0:0 none")
    for text in ("0", "0:", ":1", "0:-1", "0:1:1", "0:64MB", "x:1")
] + [
    ("0:99999999999999999", f"{CUDA_POOL}=0:99999999999999999: bytes is 99999999999999999, may be 0 to 1099511627776"),
    ("0:1099511627777", f"{CUDA_POOL}=0:1099511627777: bytes is 1099511627777, may be 0 to 1099511627776"),
    ("1024:1", f"{CUDA_POOL}=1024:1: GPU is 1024, may be 0 to 1023"),
    ("0:" + "9" * 5000, f"{CUDA_POOL}=0:{'9' * 58}: bytes is {'9' * 30}, may be 0 to 1099511627776"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), CUDA_POOLS_REFUSED)
def test_a_pool_that_is_none_is_told_with_its_value_and_what_may_be(text, error):
    with pytest.raises(ConfigError) as caught:
        read_cuda_pools(["0:1", text])
    assert shown(caught.value) == error


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (None, 0),
        ("8000000000", 8_000_000_000),
        ("8GB", 8_000_000_000),
        (" 8 gb ", 8_000_000_000),
        ("7.5GiB", 15 << 29),
        ("2g", 2 << 30),
        ("1048576B", 1 << 20),
        ("1M", 1 << 20),
        ("1TiB", 1 << 40),
        ("2KiB", None),  # below the least
    ],
)
def test_memory_is_given_in_bytes_or_units(text, nbytes):
    if nbytes is None:
        with pytest.raises(ConfigError, match="no amount of memory of 1048576 bytes or more"):
            read_budget(text)
    else:
        assert read_budget(text) == nbytes


NO_AMOUNTS = ["", "much", "8 elephants", "-8GB", "8GB8", "1e9", "0", "1048575", "1023KiB", "0.9M", ".5GB", "9" * 400]


@pytest.mark.parametrize("text", NO_AMOUNTS)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        read_budget(text)
    assert shown(caught.value) == (
        f"model-memory-budget | --model-memory-budget={text[:60]} is no amount of memory of 1048576 bytes or more | "
        "give bytes, or a number with KB, MB, GB, TB (powers of ten), KiB, MiB, GiB or TiB"
    )


@pytest.mark.parametrize(("unit", "nbytes"), [
    ("M", 1 << 20), ("MI", 1 << 20), ("MiB", 1 << 20), ("mb", 10**6), ("G", 1 << 30), ("Gi", 1 << 30), ("GIB", 1 << 30),
    ("GB", 10**9), ("T", 1 << 40), ("Ti", 1 << 40), ("TiB", 1 << 40), ("TB", 10**12),
])  # fmt: skip
def test_each_unit_of_memory(unit, nbytes):
    assert read_budget(f"3{unit}") == 3 * nbytes
    assert read_budget(f"2.5 {unit}") == 5 * nbytes // 2


@pytest.mark.parametrize(("unit", "nbytes"), [
    ("", 1), ("B", 1), ("K", 1 << 10), ("Ki", 1 << 10), ("KiB", 1 << 10), ("KB", 1000),
])  # fmt: skip
def test_each_small_unit_of_memory(unit, nbytes):
    assert read_budget(f"8000000{unit}") == 8_000_000 * nbytes


def test_grants_are_of_all_devices_or_of_one():
    assert read_grants(["R:4", "R:2:1", "other name:0"]) == (
        Grant("R", 4, None),
        Grant("R", 2, 1),
        Grant("other name", 0, None),
    )


GRANTS_REFUSED = [
    (
        "R",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R | it has no count",
    ),
    (
        "R:1:2:3",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:1:2:3 | it has 4 parts",
    ),
    (
        "R:",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R: | its count '' is no number from 0 to 2147483647",
    ),
    (
        "R:-1",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:-1 | its count '-1' is no number from 0 to 2147483647",
    ),
    (
        "R:two",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:two | its count 'two' is no number from 0 to 2147483647",
    ),
    (
        "R:²",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:² | its count '²' is no number from 0 to 2147483647",
    ),
    (
        "R:1:gpu",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:1:gpu | its device 'gpu' is no number from 0 to 2147483647",
    ),
    (
        "R:1:",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:1: | its device '' is no number from 0 to 2147483647",
    ),
    (
        "R:1.5",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:1.5 | its count '1.5' is no number from 0 to 2147483647",
    ),
    (
        "R:2147483648",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:2147483648 | its count '2147483648' is no number from 0 to 2147483647",
    ),
    (
        "R:1:2147483648",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:1:2147483648 | its device '2147483648' is no number from 0 to 2147483647",
    ),
    (
        "R:999999999999999999999999999999",
        "rate-limit-resource | --rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got R:999999999999999999999999999999 | its count "
        "'999999999999999999999999999999' is no number from 0 to 2147483647",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), GRANTS_REFUSED)
def test_a_grant_that_is_none_says_why(text, error):
    with pytest.raises(ConfigError) as caught:
        read_grants([text])
    assert shown(caught.value) == error


def test_executions_are_limited_where_the_mode_says_so():
    assert not RateLimitSettings().enabled and RateLimitSettings("execution_count").enabled
    with pytest.raises(ConfigError, match="must be one of off, execution_count, not 'on'"):
        RateLimitSettings("on")
