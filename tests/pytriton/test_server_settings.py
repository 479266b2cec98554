"""TritonConfig, security, workspaces and the settings of traces."""

import gc
from pathlib import Path

import pytest

from tisfast import flags
from tisfast.pytriton import server_config
from tisfast.pytriton.exceptions import PyTritonError, PyTritonUnrecoverableError, PyTritonValidationError
from tisfast.pytriton.proxy.telemetry import parse_trace_config, traced_span
from tisfast.pytriton.proxy.types import Request
from tisfast.pytriton.triton import TritonConfig, TritonLifecyclePolicy, TritonSecurityConfig, VertextAILifecyclePolicy
from tisfast.pytriton.utils.workspace import Workspace


def test_all_fields_are_flags_of_the_server():
    known = {flag.name for flag in (*flags.SERVED, *flags.UNSERVED)}
    assert len(TritonConfig().to_dict()) >= 50
    assert not [name for name in TritonConfig().to_dict() if name.replace("_", "-") not in known]


def test_fields_are_named():
    with pytest.raises(TypeError, match="TritonConfig initialization can't be used with positional arguments"):
        TritonConfig(8000)


def test_something_must_be_served():
    with pytest.raises(PyTritonValidationError, match="The `http` or `grpc` endpoint has to be allowed."):
        TritonConfig(allow_http=False, allow_grpc=False)


def test_a_dictionary_is_cast_to_the_types_of_fields(caplog):
    made = TritonConfig.from_dict({"http_port": "80", "log_file": "/x", "allow_http": "False", "unknown": 1})
    assert made == TritonConfig(http_port=80, log_file=Path("/x"), allow_http=False)
    assert "unknown" in caplog.text


def test_the_environment_gives_what_is_not_given(monkeypatch):
    for name, value in {
        "HTTP_PORT": "90",
        "GRPC_PORT": "91",
        "ALLOW_METRICS": "False",
        "CACHE_CONFIG_1": "second",
        "CACHE_CONFIG_0": "first",
    }.items():
        monkeypatch.setenv("PYTRITON_TRITON_CONFIG_" + name, value)
    made = server_config.merged(TritonConfig(http_port=80))
    assert made == TritonConfig(http_port=80, grpc_port=91, allow_metrics=False, cache_config=["first", "second"])
    assert server_config.flags_of(made) == [
        "--http-port=80",
        "--grpc-port=91",
        "--allow-metrics=false",
        "--cache-config=first",
        "--cache-config=second",
    ]


def test_an_environment_that_serves_nothing_may_be_overruled(monkeypatch):
    for name in ("HTTP", "GRPC"):
        monkeypatch.setenv(f"PYTRITON_TRITON_CONFIG_ALLOW_{name}", "false")
    assert server_config.merged(TritonConfig(allow_http=True)) == TritonConfig(allow_http=True, allow_grpc=False)
    with pytest.raises(PyTritonValidationError, match="has to be allowed"):
        server_config.merged(None)


def test_what_tells_or_changes_something_is_restricted_by_default():
    first, second = TritonSecurityConfig(), TritonSecurityConfig()
    assert first.restricted_endpoints == ["shared-memory", "model-repository", "statistics", "trace", "logging"]
    assert len(first.access_token) >= 32
    assert first.access_token != second.access_token


def test_without_restrictions_there_is_no_token():
    assert TritonSecurityConfig(restricted_endpoints=[]).access_token is None
    assert TritonSecurityConfig(access_token="mine").access_token == "mine"


def test_unknown_endpoints_are_refused():
    with pytest.raises(PyTritonValidationError, match="Invalid endpoint names: nope. Valid endpoints are: health, "):
        TritonSecurityConfig(restricted_endpoints=["health", "nope"])


def test_life_cycles():
    assert TritonLifecyclePolicy() == TritonLifecyclePolicy(launch_triton_on_startup=True, local_model_store=False)
    assert VertextAILifecyclePolicy == TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)


def test_errors_have_their_message():
    error = PyTritonUnrecoverableError("no memory")
    assert isinstance(error, PyTritonError)
    assert (error.message, str(error)) == ("no memory", "no memory")


def test_a_workspace_is_there_until_it_is_cleaned(tmp_path):
    workspace = Workspace(tmp_path / "work")
    assert workspace.exists()
    assert workspace.model_store_path.is_dir()
    assert not workspace.is_empty()
    workspace.model_store_path.rmdir()
    (workspace.path / ".hidden").touch()
    assert workspace.is_empty()
    workspace.clean()
    assert not workspace.exists()
    workspace.clean()


def test_a_workspace_of_a_given_path_is_new(tmp_path):
    with pytest.raises(FileExistsError):
        Workspace(tmp_path)


def test_a_temporary_workspace_goes_with_its_object(tmp_path, monkeypatch):
    monkeypatch.setattr("tisfast.pytriton.constants.PYTRITON_HOME", tmp_path / "home")
    workspace = Workspace()
    path = workspace.path
    assert path.parent == tmp_path / "home"
    assert path.exists()
    del workspace
    gc.collect()
    assert not path.exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "Only opentelemetry mode is supported"),
        (["mode=triton", "opentelemetry,url=x"], "Only opentelemetry mode is supported"),
        (["mode=opentelemetry"], "opentelemetry,url is required"),
        (["mode=opentelemetry", "opentelemetry,url=x", "opentelemetry,resource=a"], "KEY=VALUE"),
    ],
)
def test_traces_have_one_mode_and_a_collector(config, message):
    with pytest.raises(ValueError, match=message):
        parse_trace_config(config)


def test_a_span_of_a_request_that_is_not_traced_does_nothing():
    request = Request({})
    with request.traced_span("a"), traced_span(request, "b") as span:
        assert span is None
