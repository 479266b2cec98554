"""Models of an MLflow registry: against what answers as it does, and with TISFAST_MLFLOW against the real server."""

from __future__ import annotations

import os
import uuid

import pytest

from tests.storage.mlflow_server import real_server, stand_in
from tests.storage.servers import Faults, proxy_handler, serving, web_handler
from tisfast import limits
from tisfast.errors import ConfigError
from tisfast.storage.http_source import Web
from tisfast.storage.mlflow_registry import LocalArtifacts, ProxiedArtifacts
from tisfast.storage.source import Changed, Refused, Unreachable

COMMAND = os.environ.get("TISFAST_MLFLOW", "")
FILES = {"MLmodel": "flavors: {}", "a/config.pbtxt": "x", "a/1/model.py": "y" * 300_000, "a/1/my file.txt": ""}
SEEN = {path: text for path, text in FILES.items() if path != "MLmodel"}


@pytest.fixture(scope="module", params=["stand-in", "real"] if COMMAND else ["stand-in"])
def tracking(request, tmp_path_factory):
    if request.param == "real":
        with real_server(COMMAND, tmp_path_factory.mktemp("mlflow")) as found:
            yield found
    else:
        with stand_in() as found:
            yield found


@pytest.fixture
def name(tracking):
    name = f"m{uuid.uuid4().hex[:8]}"
    tracking.register(name)
    return name


@pytest.fixture
def open_(tracking, storage, monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_DELAY_SECONDS_FIRST", 0.001)

    def make(url, **variables):
        return storage(url, variables={"MLFLOW_TRACKING_URI": tracking.uri, **variables})

    return make


def test_a_version_of_a_registered_model(tracking, name, open_):
    tracking.publish(name, FILES)
    server = open_(f"mlflow:/{name}/1")
    assert server.refresh() == {}
    assert server.seen == SEEN


def test_one_model_is_named_as_it_is_registered(tracking, name, open_):
    tracking.publish(name, {"config.pbtxt": "x", "1/model.py": "y"})
    server = open_(f"models:/{name}/latest")
    server.refresh()
    assert server.seen == {f"{name}/config.pbtxt": "x", f"{name}/1/model.py": "y"}


def test_an_alias_that_moves_brings_the_other_version(tracking, name, open_):
    for text in ("one", "two"):
        tracking.publish(name, {"config.pbtxt": "x", "1/model.py": text})
    tracking.alias(name, "champion", "1")
    server = open_(f"mlflow:/{name}@champion")
    server.refresh()
    assert server.seen[f"{name}/1/model.py"] == "one"
    tracking.alias(name, "champion", "2")
    server.refresh()
    assert server.seen[f"{name}/1/model.py"] == "two"


def test_a_stage(tracking, name, open_):
    for text in ("one", "two"):
        tracking.publish(name, {"config.pbtxt": "x", "1/model.py": text})
    with pytest.raises(Refused, match=f"model '{name}' has no version in stage 'Production'"):
        open_(f"mlflow:/{name}/Production").refresh()
    tracking.stage(name, "Production", "1")
    server = open_(f"mlflow:/{name}/Production")
    server.refresh()
    assert server.seen[f"{name}/1/model.py"] == "one"


def test_what_is_not_registered_is_named(tracking, name, open_):
    with pytest.raises(ConfigError, match="version=7. not found"):
        open_(f"mlflow:/{name}/7").refresh()
    with pytest.raises(ConfigError, match="nobody"):
        open_(f"mlflow:/{name}@nobody").refresh()


def test_files_in_an_object_store_come_from_there(tracking, name, open_, s3):
    s3.fill({"x/a/config.pbtxt": "x", "x/a/1/model.py": "y"})
    tracking.publish(name, {}, source=f"s3://{s3.name}/x")
    server = open_(f"mlflow:/{name}/1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{s3.proxied}")
    server.refresh()
    assert server.seen == {"a/config.pbtxt": "x", "a/1/model.py": "y"}


def test_a_download_that_breaks_off_is_whole_in_the_end(tracking, name, open_):
    tracking.publish(name, FILES)
    faults = Faults(cut=[200_000, 250_000])
    with serving(proxy_handler(tracking.port, faults)) as port:
        server = open_(f"mlflow:/{name}/1", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}")
        assert server.refresh() == {}
        assert server.seen == SEEN
        assert len(faults.gets("model.py")) == 3


def test_folders_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(limits, "STORAGE_FILES_MAX", 20)

    class Endless(web_handler({})):
        def do_GET(self):
            data = b'{"files": [{"path": "a", "is_dir": true}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with serving(Endless) as port:
        source = ProxiedArtifacts(Web(), f"http://127.0.0.1:{port}", "mlflow-artifacts:/1/m", "mlflow:/m/1")
        with pytest.raises(Refused, match="mlflow:/m/1 has more than 20 files and folders"):
            source.files()


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("x" * 1_000_000)
    source = LocalArtifacts(tmp_path, "mlflow:/m/1")
    (file,) = source.files()
    _, chunks = source.read(file, 0)
    next(chunks)
    path.write_text("y" * 1_000_000)
    with pytest.raises(Changed, match="model.py changed while it was read"):
        list(chunks)


def test_without_a_server_or_with_none_that_answers(open_, storage):
    with pytest.raises(Refused, match="MLFLOW_TRACKING_URI is '', not the URL of a server"):
        storage("mlflow:/m/1").refresh()
    with pytest.raises(Unreachable):
        open_("mlflow:/m/1", MLFLOW_TRACKING_URI="http://127.0.0.1:9").refresh()
    with pytest.raises(Refused, match="MLFLOW_TRACKING_SERVER_CERT_PATH"):
        open_("mlflow:/m/1", MLFLOW_TRACKING_INSECURE_TLS="true").refresh()


@pytest.mark.parametrize(
    ("variables", "sent"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "t"}, "Bearer t"),
        ({"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"}, "Basic dTpw"),
    ],
)
def test_credentials_are_sent(variables, sent, storage):
    with stand_in() as tracking:
        tracking.register("m")
        tracking.publish("m", FILES)
        heard: list[str] = []
        faults = Faults()
        handler = proxy_handler(tracking.port, faults)
        original = handler._pass

        class Listening(handler):
            def do_GET(self) -> None:
                heard.append(self.headers.get("Authorization", ""))
                original(self)

        with serving(Listening) as port:
            storage("mlflow:/m/1", variables={"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", **variables}).refresh()
        assert set(heard) == {sent}


def test_files_in_a_local_folder(tmp_path, storage):
    with stand_in() as tracking:
        (tmp_path / "kept/a/1").mkdir(parents=True)
        (tmp_path / "kept/a/1/model.py").write_text("y")
        tracking.register("m")
        tracking.publish("m", {}, source=f"file://{tmp_path}/kept")
        tracking.publish("m", {}, source=f"{tmp_path}/gone")
        tracking.publish("m", {}, source="dbfs:/x")
        server = storage("mlflow:/m/1", variables={"MLFLOW_TRACKING_URI": tracking.uri})
        server.refresh()
        assert server.seen == {"a/1/model.py": "y"}
        with pytest.raises(Refused, match="gone, which is not on this machine"):
            storage("mlflow:/m/2", variables={"MLFLOW_TRACKING_URI": tracking.uri}).refresh()
        with pytest.raises(ConfigError, match="dbfs:/x"):
            storage("mlflow:/m/3", variables={"MLFLOW_TRACKING_URI": tracking.uri}).refresh()
