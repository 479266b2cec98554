"""--metrics-config."""

from __future__ import annotations

import pytest

from tisfast.config.metrics_settings import MetricsSettings, read_metrics_config
from tisfast.errors import ConfigError


def read(*entries):
    return MetricsSettings(**read_metrics_config(entries))


def test_defaults_are_tritons():
    settings = read()
    assert settings.counter_latencies
    assert not (settings.summary_latencies or settings.histogram_latencies)
    assert [share for share, _ in settings.quantiles] == [0.5, 0.9, 0.95, 0.99, 0.999]


def test_switches_and_quantiles():
    settings = read("counter_latencies=false", "summary_latencies=True", "summary_quantiles=0.5:0.05,0.75:0.01")
    assert (settings.counter_latencies, settings.summary_latencies) == (False, True)
    assert settings.quantiles == ((0.5, 0.05), (0.75, 0.01))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("x", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("a=", "KEY=VALUE"),
        ("bogus=1", "unknown setting 'bogus'"),
        ("counter_latencies=1", "'1' is neither true nor false"),
        ("summary_quantiles=0.5", "'0.5' has no colon"),
        ("summary_quantiles=a:b", "two numbers"),
        ("summary_quantiles=1.5:0.1", "from 0 to 1"),
        ("summary_quantiles=0.5:0.1,", "'' has no colon"),
        ("summary_quantiles=" + ",".join(["0.5:0.1"] * 33), "at most 32"),
    ],
)
def test_errors_name_the_flag_and_what_is_wrong(entry, says):
    with pytest.raises(ConfigError) as caught:
        read(entry)
    assert f"--metrics-config {entry}: " in str(caught.value)
    assert says in str(caught.value)
