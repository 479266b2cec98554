"""--model-load-gpu-limit, --model-memory-budget, --rate-limit-resource: texts to values."""

from __future__ import annotations

import pytest

from tisfast import limits
from tisfast.config.rate_limits import Grant, RateLimitSettings, read_grants
from tisfast.config.resource_flags import read_budget, read_gpu_limits
from tisfast.errors import ConfigError


def test_the_last_limit_of_a_gpu_counts():
    assert read_gpu_limits(["0:0.5", "1:1", "0:0.25"]) == ((0, 0.25), (1, 1.0))
    assert read_gpu_limits([]) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "option format is '<device_id>:<fraction>'. Got 0"),
        ("x:0.5", "'x' is no number"),
        ("0:half", "'half' is no number"),
        ("-1:0.5", "expects device ID >= 0, got -1"),
        ("0:1.5", "range [0.0, 1.0], got 1.500000"),
        ("0:-0.5", "range [0.0, 1.0], got -0.500000"),
        ("0:nan", "range [0.0, 1.0]"),
    ],
)
def test_a_limit_that_is_none_is_named(text, said):
    with pytest.raises(ConfigError) as caught:
        read_gpu_limits(["0:0.5", text])
    assert caught.value.key == "model-load-gpu-limit" and said in str(caught.value)


def test_there_are_not_more_limits_than_gpus_could_be():
    assert len(read_gpu_limits([f"{n}:1" for n in range(limits.GPU_LIMITS_MAX)])) == limits.GPU_LIMITS_MAX
    with pytest.raises(ConfigError, match="more than"):
        read_gpu_limits(["0:1"] * (limits.GPU_LIMITS_MAX + 1))


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


@pytest.mark.parametrize("text", ["", "much", "8 elephants", "-8GB", "8GB8", "1e9", "0"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ConfigError) as caught:
        read_budget(text)
    assert caught.value.key == "model-memory-budget" and "KiB" in caught.value.hint


def test_grants_are_of_all_devices_or_of_one():
    assert read_grants(["R:4", "R:2:1", "other name:0"]) == (
        Grant("R", 4, None),
        Grant("R", 2, 1),
        Grant("other name", 0, None),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("R", "it has no count"),
        ("R:1:2:3", "it has 4 parts"),
        ("R:", "its count '' is no number"),
        ("R:-1", "its count '-1' is no number"),
        ("R:two", "its count 'two' is no number"),
        ("R:²", "its count '²' is no number"),
        ("R:1:gpu", "its device 'gpu' is no number"),
        (f"R:{2**31}", "is no number from 0 to 2147483647"),
    ],
)
def test_a_grant_that_is_none_says_why(text, why):
    with pytest.raises(ConfigError, match="<resource_name>:<count>") as caught:
        read_grants([text])
    assert caught.value.key == "rate-limit-resource" and why in caught.value.hint


def test_executions_are_limited_where_the_mode_says_so():
    assert not RateLimitSettings().enabled and RateLimitSettings("execution_count").enabled
    with pytest.raises(ConfigError, match="must be one of off, execution_count, not 'on'"):
        RateLimitSettings("on")
