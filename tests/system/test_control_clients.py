"""Models loaded, changed and unloaded through the real clients; who may; and what is left of files that they give."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.grpc import aio as grpcaio
from tritonclient.http import aio as httpaio
from tritonclient.utils import InferenceServerException

from tests.system.helpers import ADD_ONE, CONFIG, until

# tritonclient 2.73 leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ADD_TEN = ADD_ONE.replace("a + 1", "a + 10").encode()
JSON = json.dumps({
    "backend": "python",
    "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": ["-1"]}],
    "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}],
    "parameters": {"said": {"string_value": "by the call"}},
})  # fmt: skip
ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "m" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "X" } },
  { model_name: "other" model_version: -1 input_map { key: "A" value: "X" } output_map { key: "B" value: "B" } }
] }
"""
EXPLICIT = "--model-control-mode=explicit"


def grpc_port(server):
    return server.said(lambda record: record.get("event") == "ready", "ready")["grpc_port"]


def http_client(server):
    return httpclient.InferenceServerClient(f"127.0.0.1:{server.port}")


def grpc_client(server):
    return grpcclient.InferenceServerClient(f"127.0.0.1:{grpc_port(server)}")


def index(client):
    """The repository index, whatever the protocol."""
    found = client.get_model_repository_index()
    models = found if isinstance(found, list) else [
        {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason}
        for each in found.models
    ]  # fmt: skip
    return {(each["name"], each.get("version", "")): (each.get("state", ""), each.get("reason", "")) for each in models}


def config_of(client, name):
    """A parameter of the configuration in use."""
    found = client.get_model_config(name)
    if isinstance(found, dict):
        return {key: value["string_value"] for key, value in found["parameters"].items()}
    return {key: value.string_value for key, value in found.config.parameters.items()}


def asked(server, name):
    status, answer = server.infer(name, [1.0])
    assert status == 200, answer
    return answer["outputs"][0]["data"][0]


def overrides(server):
    """Folders of files that calls gave, which the server has now."""
    return sorted(Path(server.scratch).glob("tisfast-*/overrides/*"))


@pytest.fixture
def explicit(serve, write_model):
    """A server that loads what it is told to."""
    write_model("m")
    write_model("other")
    return serve(EXPLICIT, "--load-model=other").ready()


@pytest.mark.parametrize("connect", [http_client, grpc_client])
def test_a_model_lives_as_the_client_says(connect, explicit):
    with connect(explicit) as client:
        assert index(client) == {("m", ""): ("", ""), ("other", "1"): ("READY", "")}
        client.load_model("m")
        assert index(client)["m", "1"] == ("READY", "")
        assert asked(explicit, "m") == 2
        client.load_model("m", config=JSON)
        assert config_of(client, "m") == {"said": "by the call"}
        client.load_model("m")  # without it, the file counts again
        assert config_of(client, "m") == {}
        client.load_model("m", config=JSON, files={"file:7/model.py": ADD_TEN})
        assert asked(explicit, "m") == 11
        assert client.is_model_ready("m", "7")
        assert len(overrides(explicit)) == 1
        assert overrides(explicit)[0].stat().st_mode & 0o777 == 0o700
        client.load_model("m", config=JSON, files={"file:7/model.py": ADD_ONE.encode()})
        assert asked(explicit, "m") == 2
        until(lambda: len(overrides(explicit)) == 1, "the first files are gone")
        client.load_model("m")
        assert asked(explicit, "m") == 2
        until(lambda: not overrides(explicit), "all files are gone")
        client.unload_model("m", unload_dependents=True)
        assert not client.is_model_ready("m")
        until(lambda: index(client)["m", "1"] == ("UNAVAILABLE", "unloaded"), "unloaded")
        client.unload_model("nobody")


@pytest.mark.parametrize("connect", [http_client, grpc_client])
def test_what_cannot_be_loaded_leaves_what_serves(connect, explicit):
    with connect(explicit) as client:
        client.load_model("m", config=JSON, files={"file:1/model.py": ADD_TEN})
        for options, text in (
            ({"config": '{"max_batch_sise": 1}'}, "Invalid config override: unknown key 'max_batch_sise' in the model"),
            ({"config": JSON, "files": {"file:../../m/1/model.py": b"x"}}, "must stay within model directory."),
            ({"config": JSON, "files": {"file:1/" + "n" * 256: b"x"}}, "failed to poll from model repository"),
            ({"config": JSON, "files": {"file:1/model.py": b"raise OSError('broken')"}}, "OSError: broken"),
            ({"files": {"file:1/model.py": ADD_ONE.encode()}}, "Load parameter 'config' must be specified for model"),
        ):
            with pytest.raises(InferenceServerException) as caught:
                client.load_model("m", **options)
            assert text in caught.value.message()
            assert asked(explicit, "m") == 11
        assert index(client)["m", "1"][0] == "READY"
        until(lambda: len(overrides(explicit)) == 1, "only the files of what serves are kept")
        with pytest.raises(InferenceServerException, match="failed to load 'nobody', failed to poll"):
            client.load_model("nobody")


def test_an_ensemble_keeps_a_step_as_a_call_gave_it(explicit, write_model, tmp_path):
    folder = tmp_path / "models/both"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(ENSEMBLE)
    with http_client(explicit) as client:
        client.load_model("m", config=JSON, files={"file:1/model.py": ADD_TEN})
        client.load_model("both")
        assert asked(explicit, "both") == 12
        client.load_model("m")  # only this takes it back to the disk, and the ensemble follows
        assert asked(explicit, "both") == 3
        client.load_model("m", config=JSON)
        client.load_model("both")
        assert config_of(client, "m") == {"said": "by the call"}


def test_a_model_that_no_repository_has(explicit):
    with http_client(explicit) as client:
        client.load_model("new", config=JSON, files={"file:1/model.py": ADD_TEN})
        assert asked(explicit, "new") == 11
        client.unload_model("new")
        until(lambda: not overrides(explicit), "its files are gone")
        with pytest.raises(InferenceServerException, match="failed to load 'new', failed to poll"):
            client.load_model("new")


def test_the_asyncio_clients(explicit):
    async def over_http():
        async with httpaio.InferenceServerClient(f"127.0.0.1:{explicit.port}") as client:
            await client.load_model("m", config=JSON, files={"file:1/model.py": ADD_TEN})
            assert {each["name"] for each in await client.get_model_repository_index()} == {"m", "other"}
            assert await client.is_model_ready("m")
            await client.unload_model("m")
            assert not await client.is_model_ready("m")

    async def over_grpc():
        async with grpcaio.InferenceServerClient(f"127.0.0.1:{grpc_port(explicit)}") as client:
            await asyncio.gather(client.load_model("m"), client.load_model("m"), client.load_model("other"))
            assert {each.name for each in (await client.get_model_repository_index()).models} == {"m", "other"}
            await client.unload_model("m")
            assert not await client.is_model_ready("m")

    asyncio.run(over_http())
    asyncio.run(over_grpc())


def test_an_unchanged_model_is_left_alone_unless_forced(explicit):
    explicit.ask("POST", "/v2/repository/models/m/load")
    first = explicit.worker("m_0")
    explicit.ask("POST", "/v2/repository/models/m/load")
    assert asked(explicit, "m") == 2 and explicit.worker("m_0") == first
    explicit.ask("POST", "/v2/repository/models/m/load", {"parameters": {"force": True}})
    until(lambda: explicit.worker("m_0") != first, "another worker")


def test_a_large_model_is_given_while_others_are_asked(explicit):
    large = ADD_TEN + b"#" + os.urandom(1 << 20).hex().encode() * 10
    with http_client(explicit) as client:
        client.load_model("m", config=JSON, files={"file:1/model.py": large})
    with grpc_client(explicit) as client:
        client.load_model("m", config=JSON, files={"file:1/model.py": large + b"1"})
    assert asked(explicit, "m") == 11 and asked(explicit, "other") == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_files_are_left_behind_by_a_server(number, explicit):
    with http_client(explicit) as client:
        client.load_model("m", config=JSON, files={"file:1/model.py": ADD_TEN})
    (folder,) = overrides(explicit)
    assert (folder / "m/1/model.py").read_bytes() == ADD_TEN
    explicit.end(number)
    until(lambda: not list(Path(explicit.scratch).glob("tisfast-*")), "the control directory is gone")


# ---- who may


def refused(server, headers, path="/v2/repository/models/m/load"):
    """Status and text of a POST."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text)["error"] if text else ""
    finally:
        connection.close()


def test_tokens_of_a_file_that_changes(serve, write_model, tmp_path):
    write_model("m")
    file = tmp_path / "tokens"
    file.write_text("first\n")
    server = serve(EXPLICIT, f"--model-control-token-file={file}").ready()
    given = {"Authorization": "Bearer first"}
    with http_client(server) as client, grpc_client(server) as grpc:
        client.load_model("m", headers=given)
        grpc.unload_model("m", headers={"authorization": "Bearer first"})
        with pytest.raises(InferenceServerException) as caught:
            grpc.load_model("m", headers={"authorization": "Bearer second"})
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        assert refused(server, {})[0] == 401
        assert client.get_model_repository_index() and client.is_server_live()
        file.write_text("# rotated\nsecond\n")
        assert refused(server, given)[0] == 401
        grpc.load_model("m", headers={"authorization": "Bearer second"})
        assert asked(server, "m") == 2


def test_without_tokens_proxies_and_browsers_are_refused(explicit):
    for header, whose in (("X-Forwarded-For", "a proxy"), ("Origin", "a browser")):
        status, text = refused(explicit, {header: "x"})
        assert status == 403 and whose in text
    assert refused(explicit, {}) == (200, "")


def test_restricted_apis_decide(serve, write_model):
    write_model("m")
    flags = ("--http-restricted-api=model-repository:key=secret", "--grpc-restricted-protocol=health:key=x")
    server = serve(EXPLICIT, *flags).ready()
    assert refused(server, {"X-Forwarded-For": "x"}) == (403, "This API is restricted, expecting header 'key'")
    assert refused(server, {"X-Forwarded-For": "x", "key": "secret"}) == (200, "")
    with grpc_client(server) as client, pytest.raises(InferenceServerException) as caught:  # that port has not decided
        client.load_model("m", headers={"x-forwarded-for": "x"})
    assert caught.value.status() == "StatusCode.PERMISSION_DENIED"


def test_a_token_file_that_cannot_be_used_ends_the_start(serve, write_model, tmp_path):
    write_model("m")
    server = serve(EXPLICIT, f"--model-control-token-file={tmp_path / 'nobody'}")
    server.says(f"--model-control-token-file={tmp_path / 'nobody'} cannot be read: No such file or directory")
    assert server.ended() == 1


def test_a_named_configuration(serve, write_model):
    folder = write_model("m")
    (folder / "configs").mkdir()
    (folder / "configs/big.pbtxt").write_text(CONFIG + 'parameters { key: "size" value { string_value: "big" } }')
    write_model("other")
    server = serve("--model-config-name=big").ready()
    assert server.ask("GET", "/v2/models/m/config")[1]["parameters"] == {"size": {"string_value": "big"}}
    assert server.ask("GET", "/v2/models/other/config")[1]["parameters"] == {}
    tensor = httpclient.InferInput("A", [1], "FP32").set_data_from_numpy(np.array([1], np.float32))
    with http_client(server) as client:
        assert client.infer("m", [tensor]).as_numpy("B") == 2
