"""Settings are checked when they are built: each error names its flag, the value and what it may be."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from tests.config.loading import shown
from tisfast import limits
from tisfast.config.served_files import ServedFile
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
    ("of", "given", "error"),
    [
        (HTTP, {"port": -1}, "http-port | --http-port must be 0 to 65535, not -1"),
        (HTTP, {"port": 65536}, "http-port | --http-port must be 0 to 65535, not 65536"),
        (HttpSettings(), {"max_input_bytes": 0},
         "http-max-input-size | --http-max-input-size must be more than 0 bytes, not 0"),
        (GrpcSettings(), {"keepalive_time_ms": 0},
         "grpc-keepalive-time | --grpc-keepalive-time must be 1 to 2147483647, not 0"),
        (GrpcSettings(), {"keepalive_timeout_ms": 2**31},
         "grpc-keepalive-timeout | --grpc-keepalive-timeout must be 1 to 2147483647, not 2147483648"),
        (GrpcSettings(), {"max_pings_without_data": -1},
         "grpc-http2-max-pings-without-data | --grpc-http2-max-pings-without-data must be 0 to 2147483647, not -1"),
        (GrpcSettings(), {"min_ping_interval_ms": -1},
         "grpc-http2-min-recv-ping-interval-without-data | --grpc-http2-min-recv-ping-interval-without-data must "
         "be 0 to 2147483647, not -1"),
        (GrpcSettings(), {"max_ping_strikes": -1},
         "grpc-http2-max-ping-strikes | --grpc-http2-max-ping-strikes must be 0 to 2147483647, not -1"),
        (GrpcSettings(), {"max_connection_age_ms": -1},
         "grpc-max-connection-age | --grpc-max-connection-age must be 0 to 2147483647, not -1"),
        (GrpcSettings(), {"max_connection_age_grace_ms": -1},
         "grpc-max-connection-age-grace | --grpc-max-connection-age-grace must be 0 to 2147483647, not -1"),
        (LogSettings(), {"verbose": -1}, "log-verbose | --log-verbose must be 0 or more, not -1"),
        (MODELS, {"paths": ()},
         "model-repository | --model-repository must be given: the folder that holds the models; or name files: "
         "tisfast serve FILE"),
        (MODELS, {"load_concurrency": 0},
         "model-load-thread-count | --model-load-thread-count must be 1 or more, not 0"),
        (MODELS, {"load_retries": -1}, "model-load-retry-count | --model-load-retry-count must be 0 or more, not -1"),
        (MODELS, {"control_mode": "some"},
         "model-control-mode | --model-control-mode must be one of none, explicit, poll, not 'some'"),
        (MODELS, {"load_models": ("m",)},
         "load-model | Use of '--load-model' requires setting '--model-control-mode=explicit' as well."),
        (MODELS, {"control_mode": "explicit", "load_models": ("*", "m")},
         "load-model | Wildcard model name '*' must be the ONLY startup model if specified at all: --load-model "
         "also names m"),
        (MODELS, {"control_mode": "explicit", "watch": True},
         "reload | --reload does not go with --model-control-mode=explicit, where models are loaded by order only"),
        (MODELS, {"control_mode": "poll", "poll_seconds": limits.POLL_SECONDS_MIN / 2},
         "repository-poll-secs | --repository-poll-secs must be 0.1 to 604800, or 0 for no second look, not 0.05"),
        (MODELS, {"control_mode": "poll", "poll_seconds": limits.POLL_SECONDS_MAX + 1},
         "repository-poll-secs | --repository-poll-secs must be 0.1 to 604800, or 0 for no second look, not 604801"),
        (MODELS, {"config_name": ".hidden"},
         "model-config-name | --model-config-name must be the name of a file in the folder configs, without "
         "'.pbtxt', not '.hidden'"),
        (MODELS, {"config_name": "a/b"},
         "model-config-name | --model-config-name must be the name of a file in the folder configs, without "
         "'.pbtxt', not 'a/b'"),
        (WORKERS, {"execution_seconds_max": 0},
         "execution-timeout-secs | --execution-timeout-secs must be more than 0, not 0"),
        (WORKERS, {"load_seconds_max": 0},
         "backend-config=python,stub-timeout-seconds | --backend-config=python,stub-timeout-seconds must be more "
         "than 0, not 0"),
        (WORKERS, {"spin_us": limits.SPIN_US_MAX + 1}, "spin-us | --spin-us must be 0 to 10000, not 10001"),
        (CodecSettings(), {"processes_max": limits.CODEC_PROCESSES_LIMIT + 1},
         "codec-processes | --codec-processes must be from 0 to 256, not 257"),
        (CodecSettings(), {"bytes_min": -1},
         "codec-bytes-min | --codec-bytes-min must be from 0 to 1099511627776, not -1"),
        (LifeSettings(), {"exit_timeout_seconds": -1},
         "exit-timeout-secs | --exit-timeout-secs must be 0 or more, not -1"),
        (LifeSettings(), {"drain_delay_seconds": limits.DRAIN_DELAY_SECONDS_MAX + 1},
         "drain-delay-secs | --drain-delay-secs must be 0 to 86400, not 86401"),
    ],
)  # fmt: skip
def test_what_cannot_be_names_its_flag_and_its_value(of, given, error):
    with pytest.raises(ConfigError) as caught:
        replace(of, **given)
    assert shown(caught.value) == error


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


def test_defaults_of_the_server():
    made = settings()
    assert (made.http.where, made.grpc.where, made.metrics.where) == ("0.0.0.0:8000", "0.0.0.0:8001", "0.0.0.0:8002")
    assert (made.cache, made.access_log, made.allow_client_shm) == (None, "", False)
    assert (made.life.server_id, made.life.server_version, made.life.strict_readiness) == ("triton", "", True)
    assert (made.log.verbose, made.log.file) == (0, "") and made.log.info and made.log.warning and made.log.error
    assert (made.repository.control_mode, made.repository.poll_seconds) == ("none", 15.0)
    assert (made.repository.load_concurrency, made.repository.default_max_batch_size) == (4, 4)
    assert not made.rate_limit.enabled and made.trace.trigger.levels == ()


def test_defaults_of_grpc_are_tritons():
    grpc = GrpcSettings()
    assert (grpc.keepalive_time_ms, grpc.keepalive_timeout_ms) == (7_200_000, 20_000)
    assert (grpc.max_pings_without_data, grpc.min_ping_interval_ms, grpc.max_ping_strikes) == (2, 300_000, 2)
    assert (grpc.max_connection_age_ms, grpc.max_connection_age_grace_ms, grpc.compression) == (0, 0, "none")


@pytest.mark.parametrize("given", [{"paths": ("/a",)}, {"paths": (), "may_be_none": True}])
def test_models_come_from_somewhere(given):
    assert replace(MODELS, **given).paths == given["paths"]


def test_files_have_no_namespace():
    file = ServedFile("m", Path("/m.onnx"), "onnxruntime", "model.onnx")
    assert replace(MODELS, paths=(), files=(file,)).files == (file,)
    with pytest.raises(ConfigError) as caught:
        replace(MODELS, files=(file,), namespacing=True)
    assert shown(caught.value) == (
        "model-namespacing | --model-namespacing does not go with files, which lie in no repository: give "
        "--model-repository"
    )


def test_guests_have_no_namespace():
    guests = replace(WORKERS, guest_directory="/guests")
    assert Settings(MODELS, guests, HTTP, GRPC, METRICS).workers.guest_directory == "/guests"
    with pytest.raises(ConfigError) as caught:
        Settings(replace(MODELS, namespacing=True), guests, HTTP, GRPC, METRICS)
    assert shown(caught.value) == (
        "guest-directory | --guest-directory does not go with --model-namespacing: a guest's model has no repository, "
        "and so no namespace"
    )


def test_models_of_guests_need_a_folder_where_guests_come():
    with pytest.raises(ConfigError) as caught:
        replace(WORKERS, guest_models=("m", "n"))
    assert shown(caught.value) == "guest-model | --guest-model m: no guest can come; give --guest-directory, too"


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a\0b", ".a", "..", "/"])
def test_the_name_of_a_configuration_is_that_of_a_file(name):
    with pytest.raises(ConfigError) as caught:
        replace(MODELS, config_name=name)
    assert shown(caught.value) == (
        "model-config-name | --model-config-name must be the name of a file in the folder configs, without '.pbtxt', "
        f"not {name!r}"
    )


def test_a_long_value_is_not_repeated_as_a_whole():
    with pytest.raises(ConfigError) as caught:
        replace(MODELS, control_mode="x" * 1000)
    assert shown(caught.value) == (
        f"model-control-mode | --model-control-mode must be one of none, explicit, poll, not '{'x' * 59}"
    )


@pytest.mark.parametrize("text", ["nan", "-inf"])
@pytest.mark.parametrize(
    ("of", "name"),
    [(WORKERS, "execution_seconds_max"), (WORKERS, "load_seconds_max"), (LifeSettings(), "drain_delay_seconds")],
)
def test_what_is_no_number_is_no_time(of, name, text):
    with pytest.raises(ConfigError, match=f"not {text}"):
        replace(of, **{name: float(text)})


@pytest.mark.parametrize(("one", "other"), [("http", "grpc"), ("http", "metrics"), ("grpc", "metrics")])
def test_two_services_at_one_address_are_both_named(one, other):
    ports = {"http": HTTP, "grpc": GRPC, "metrics": METRICS}
    ports[other] = replace(ports[other], port=ports[one].port)
    with pytest.raises(ConfigError) as caught:
        settings(**ports)
    assert shown(caught.value) == (
        f"{other}-port | The server cannot listen to {ports[one].service} requests and {ports[other].service} requests "
        f"at the same address and port {ports[one].where} | give --{other}-port another value"
    )
