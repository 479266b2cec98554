"""Numbers of the command line that nothing could hold or nobody wait for are refused, by flag and limit."""

from __future__ import annotations

import pytest

from tisfast.bench.arguments import read
from tisfast.bench.number_flags import MOST
from tisfast.errors import ConfigError

HUGE = "99999999999999999999"
LONG = "9" * 5000
"""More digits than Python reads."""


@pytest.mark.parametrize("flag", MOST)
def test_twenty_digits_are_too_many(flag):
    with pytest.raises(ConfigError, match=rf"{flag}\. The value must be at most \d+, it is {HUGE}"):
        read(["-m", "x", flag, HUGE])


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--sequence-id-range", LONG], "Failed to parse --sequence-id-range"),
        (["--sequence-id-range", f"1:{HUGE}"], "1 <= START < END <= 4294967296"),
        (["-i", "grpc", "--request-parameter", f"a:{LONG}:int"], "write NAME:VALUE:TYPE"),
        (["-i", "grpc", "--request-parameter", "a:--5:int"], "--request-parameter a:--5:int: write NAME:VALUE:TYPE"),
        (["-i", "grpc", "--request-parameter", "a:\u00b2:int"], "write NAME:VALUE:TYPE"),
        (["--periodic-concurrency-range", f"1:{LONG}"], "does not match <start:end:step>"),
        (["-t", HUGE], "Failed to parse -t. The value must be at most 65536"),
        (["-t", "1", "-c", HUGE], "Failed to parse -c. The value must be at most 65536"),
        (["--request-rate-range", "1e300"], "1e300: that is a rate of 1e+300 requests/s"),
        (["--request-rate-range", "1,1e300"], "that is a rate of 1e+300 requests/s"),
        (["--request-rate-range", "1e-300"], "that is a rate of 1e-300 requests/s; it can be from 1.7e-06"),
        (["--request-rate-ramp", "0:1e300:1"], "that is a rate of 1e+300 requests/s"),
        (["--request-rate-ramp", "0:1:1e18"], "it takes 604800 s at most"),
        (["--request-rate-range", "0.0001", "--request-count", "1000"], "0.0001 requests/s they take 1e+07 s"),
    ],
)
def test_what_would_never_end_is_refused(typed, said):
    with pytest.raises(ConfigError) as refused:
        read(["-m", "x", *typed])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LONG, "line 1 is '9999"),
        ("0\n" * 1000 + "1\n", "that is a rate of 1.001e+09 requests/s"),
        ("86400000000\n", "--request-count 8: at 1.15741e-05 requests/s they take 6.912e+05 s"),
    ],
)
def test_intervals_that_nobody_can_keep_are_refused(tmp_path, text, said):
    path = tmp_path / "intervals"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read(["-m", "x", "--request-intervals", str(path), "--request-count", "8"])
    assert said in str(refused.value)


def test_intervals_of_a_device_without_an_end_are_refused():
    with pytest.raises(ConfigError, match="/dev/zero: the file has more than 200000000 bytes"):
        read(["-m", "x", "--request-intervals", "/dev/zero"])
