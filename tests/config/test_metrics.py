"""--metrics-config."""

from __future__ import annotations

import pytest

from tests.config.loading import shown
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


REFUSED = [
    (
        "x",
        "metrics-config | --metrics-config x: is not of the form KEY=VALUE | for instance summary_latencies=true",
    ),
    (
        "=1",
        "metrics-config | --metrics-config =1: is not of the form KEY=VALUE | for instance summary_latencies=true",
    ),
    (
        "a=",
        "metrics-config | --metrics-config a=: is not of the form KEY=VALUE | for instance summary_latencies=true",
    ),
    (
        "bogus=1",
        "metrics-config | --metrics-config bogus=1: unknown setting 'bogus' | known: counter_latencies, "
        "summary_latencies, histogram_latencies, summary_quantiles",
    ),
    ("counter_latencies=1", "metrics-config | --metrics-config counter_latencies=1: '1' is neither true nor false"),
    (
        "summary_latencies=yes",
        "metrics-config | --metrics-config summary_latencies=yes: 'yes' is neither true nor false",
    ),
    (
        "histogram_latencies=",
        "metrics-config | --metrics-config histogram_latencies=: is not of the form KEY=VALUE | for instance "
        "summary_latencies=true",
    ),
    (
        "summary_quantiles=0.5",
        "metrics-config | --metrics-config summary_quantiles=0.5: '0.5' has no colon | a list of QUANTILE:ERROR, "
        "for instance 0.5:0.05,0.9:0.01",
    ),
    (
        "summary_quantiles=a:b",
        "metrics-config | --metrics-config summary_quantiles=a:b: 'a:b' is not of the form QUANTILE:ERROR with "
        "two numbers",
    ),
    (
        "summary_quantiles=0.5:",
        "metrics-config | --metrics-config summary_quantiles=0.5:: '0.5:' is not of the form QUANTILE:ERROR with "
        "two numbers",
    ),
    (
        "summary_quantiles=1.5:0.1",
        "metrics-config | --metrics-config summary_quantiles=1.5:0.1: '1.5:0.1': quantile and error are numbers "
        "from 0 to 1",
    ),
    (
        "summary_quantiles=0.5:-0.1",
        "metrics-config | --metrics-config summary_quantiles=0.5:-0.1: '0.5:-0.1': quantile and error are numbers "
        "from 0 to 1",
    ),
    (
        "summary_quantiles=nan:0.1",
        "metrics-config | --metrics-config summary_quantiles=nan:0.1: 'nan:0.1': quantile and error are numbers "
        "from 0 to 1",
    ),
    (
        "summary_quantiles=0.5:0.1,",
        "metrics-config | --metrics-config summary_quantiles=0.5:0.1,: '' has no colon | a list of "
        "QUANTILE:ERROR, for instance 0.5:0.05,0.9:0.01",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), REFUSED)
def test_what_cannot_be_shown_is_told_with_the_flag_and_the_value(text, error):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert shown(caught.value) == error


def test_quantiles_are_bounded():
    assert len(read("summary_quantiles=" + ",".join(["0.5:0.1"] * 32)).quantiles) == 32
    with pytest.raises(ConfigError, match="33 quantiles; at most 32 are served"):
        read("summary_quantiles=" + ",".join(["0.5:0.1"] * 33))


@pytest.mark.parametrize("name", ["counter_latencies", "summary_latencies", "histogram_latencies"])
@pytest.mark.parametrize(("word", "on"), [("true", True), ("TRUE", True), ("false", False), ("False", False)])
def test_each_switch(name, word, on):
    assert getattr(read(f"{name}={word}"), name) is on


def test_the_last_value_of_a_setting_counts():
    assert not read("summary_latencies=true", "summary_latencies=false").summary_latencies


@pytest.mark.parametrize(("text", "pair"), [("0:0", (0.0, 0.0)), ("1:1", (1.0, 1.0)), ("1e-1:.5", (0.1, 0.5))])
def test_the_ends_of_a_quantile(text, pair):
    assert read(f"summary_quantiles={text}").quantiles == (pair,)


@pytest.mark.parametrize("interval", [-1.0, float("nan"), float("inf")])
def test_an_interval_that_is_none_is_refused(interval):
    with pytest.raises(ConfigError) as caught:
        MetricsSettings(interval_ms=interval)
    assert shown(caught.value) == (
        f"metrics-interval-ms | --metrics-interval-ms must be a number of milliseconds from 0, not {interval:g}"
    )


def test_an_interval_of_nothing_reads_each_time():
    assert MetricsSettings(interval_ms=0.0).interval_ms == 0
