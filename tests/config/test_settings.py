"""Settings are checked when they are built: each error names its flag, the value and what it may be."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from tisfast import limits
from tisfast.config.settings import (
    CodecSettings,
    GrpcSettings,
    HttpSettings,
    LifeSettings,
    ListenSettings,
    LogSettings,
    RepositorySettings,
    Settings,
    TlsSettings,
    WorkerSettings,
)
from tisfast.errors import ConfigError

HTTP = ListenSettings("HTTP", "http", True, "0.0.0.0", 8000)
GRPC = ListenSettings("GRPC", "grpc", True, "0.0.0.0", 8001)
METRICS = ListenSettings("metrics", "metrics", True, "0.0.0.0", 8002)
MODELS = RepositorySettings(("/models",))
WORKERS = WorkerSettings("python3")


def settings(http=HTTP, grpc=GRPC, metrics=METRICS):
    return Settings(MODELS, WORKERS, http, grpc, metrics)


@pytest.mark.parametrize(
    ("of", "given", "key"),
    [
        (HTTP, {"port": -1}, "http-port"),
        (HTTP, {"port": 65536}, "http-port"),
        (HttpSettings(), {"max_input_bytes": 0}, "http-max-input-size"),
        (GrpcSettings(), {"keepalive_time_ms": 0}, "grpc-keepalive-time"),
        (GrpcSettings(), {"keepalive_timeout_ms": 2**31}, "grpc-keepalive-timeout"),
        (GrpcSettings(), {"max_pings_without_data": -1}, "grpc-http2-max-pings-without-data"),
        (GrpcSettings(), {"min_ping_interval_ms": -1}, "grpc-http2-min-recv-ping-interval-without-data"),
        (GrpcSettings(), {"max_ping_strikes": -1}, "grpc-http2-max-ping-strikes"),
        (GrpcSettings(), {"max_connection_age_ms": -1}, "grpc-max-connection-age"),
        (GrpcSettings(), {"max_connection_age_grace_ms": -1}, "grpc-max-connection-age-grace"),
        (LogSettings(), {"verbose": -1}, "log-verbose"),
        (MODELS, {"paths": ()}, "model-repository"),
        (MODELS, {"load_concurrency": 0}, "model-load-thread-count"),
        (MODELS, {"load_retries": -1}, "model-load-retry-count"),
        (MODELS, {"control_mode": "some"}, "model-control-mode"),
        (MODELS, {"load_models": ("m",)}, "load-model"),
        (MODELS, {"control_mode": "explicit", "load_models": ("*", "m")}, "load-model"),
        (MODELS, {"control_mode": "explicit", "watch": True}, "reload"),
        (MODELS, {"control_mode": "poll", "poll_seconds": limits.POLL_SECONDS_MIN / 2}, "repository-poll-secs"),
        (MODELS, {"control_mode": "poll", "poll_seconds": limits.POLL_SECONDS_MAX + 1}, "repository-poll-secs"),
        (MODELS, {"config_name": ".hidden"}, "model-config-name"),
        (MODELS, {"config_name": "a/b"}, "model-config-name"),
        (WORKERS, {"execution_seconds_max": 0}, "execution-timeout-secs"),
        (WORKERS, {"load_seconds_max": 0}, "backend-config=python,stub-timeout-seconds"),
        (WORKERS, {"spin_us": limits.SPIN_US_MAX + 1}, "spin-us"),
        (CodecSettings(), {"processes_max": limits.CODEC_PROCESSES_LIMIT + 1}, "codec-processes"),
        (CodecSettings(), {"bytes_min": -1}, "codec-bytes-min"),
        (LifeSettings(), {"exit_timeout_seconds": -1}, "exit-timeout-secs"),
        (LifeSettings(), {"drain_delay_seconds": limits.DRAIN_DELAY_SECONDS_MAX + 1}, "drain-delay-secs"),
    ],
)  # fmt: skip
def test_what_cannot_be_names_its_flag_and_its_value(of, given, key):
    with pytest.raises(ConfigError) as caught:
        replace(of, **given)
    assert caught.value.key == key and key in str(caught.value)


@pytest.mark.parametrize(
    ("of", "given"),
    [
        (HTTP, {"port": 0}),
        (HTTP, {"port": 65535}),
        (GrpcSettings(), {"max_pings_without_data": 0, "max_ping_strikes": 0, "keepalive_time_ms": 2**31 - 1}),
        (MODELS, {"control_mode": "explicit", "load_models": ("*",)}),
        (MODELS, {"control_mode": "explicit", "load_models": ("a", "b")}),
        (MODELS, {"control_mode": "poll", "poll_seconds": 0}),
        (MODELS, {"control_mode": "none", "poll_seconds": -1.0}),  # nobody polls
        (MODELS, {"control_mode": "poll", "watch": True, "config_name": "big"}),
        (WORKERS, {"spin_us": 0}),
        (CodecSettings(), {"processes_max": 0, "bytes_min": 0}),
        (LifeSettings(), {"exit_timeout_seconds": 0, "drain_delay_seconds": 0.5}),
    ],
)
def test_the_ends_of_what_may_be(of, given):
    made = replace(of, **given)
    assert all(getattr(made, name) == value for name, value in given.items())


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({"key": "k"}, "cert"),
        ({"cert": "c"}, "key"),
        ({"client_ca": "a"}, "cert"),
        ({"key": "k", "client_ca": "a"}, "cert"),
    ],
)
def test_tls_wants_all_its_files_and_names_the_one_that_lacks(files, missing):
    names = {"cert": "http-ssl-cert", "key": "http-ssl-key"}
    with pytest.raises(ConfigError) as caught:
        TlsSettings(**files)
    assert caught.value.key == names[missing] and "must be given with" in str(caught.value)


def test_tls_is_on_where_there_is_a_certificate():
    assert not TlsSettings().enabled
    assert TlsSettings("c", "k").enabled and TlsSettings("c", "k", "a").enabled


def test_services_share_no_address():
    with pytest.raises(ConfigError, match="HTTP requests and GRPC requests at the same address and port 0.0.0.0:8000"):
        settings(grpc=replace(GRPC, port=8000))
    with pytest.raises(ConfigError) as caught:
        settings(metrics=replace(METRICS, port=8001))
    assert caught.value.key == "metrics-port" and caught.value.hint == "give --metrics-port another value"


@pytest.mark.parametrize(
    "other",
    [
        replace(GRPC, port=8000, enabled=False),
        replace(GRPC, port=8000, address="127.0.0.1"),
        replace(GRPC, port=0),
    ],
)
def test_what_is_off_elsewhere_or_still_open_takes_no_address(other):
    assert settings(grpc=other).grpc is other


def test_ports_that_the_system_chooses_are_never_the_same():
    made = settings(*(replace(each, port=0) for each in (HTTP, GRPC, METRICS)))
    assert made.http.where == "0.0.0.0:0"


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        settings().http.port = 1
