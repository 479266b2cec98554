"""MLflow's tracking server with its model registry: the real one where there is one, and what we ask of it besides.

`TISFAST_MLFLOW` names the real one's command (`make test-mlflow` makes it); the tests are the same.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from perf.oracle.ports import held_ports
from tests.storage.servers import serving
from tests.waiting import wait_until

API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"


class Tracking:
    """A client of a tracking server, for tests: REST, as MLflow's own client speaks it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.uri = f"http://127.0.0.1:{port}"

    def _ask(self, verb: str, path: str, body: bytes | None = None) -> dict:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(verb, path, body, {"Content-Type": "application/json"} if verb == "POST" else {})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, (path, text)
            return json.loads(text or b"{}")

    def _post(self, path: str, **body: object) -> dict:
        return self._ask("POST", API + path, json.dumps(body).encode())

    def register(self, name: str) -> None:
        self._post("/registered-models/create", name=name)

    def publish(self, name: str, files: dict[str, str], source: str = "") -> str:
        """A new version with these files; source: where they are, if not on the server."""
        run = self._post("/runs/create", experiment_id="0")["run"]["info"]
        folder = run["artifact_uri"].removeprefix("mlflow-artifacts:/")
        for path, text in files.items():
            self._ask("PUT", f"{ARTIFACTS}/{folder}/model/{quote(path)}", text.encode())
        source = source or f"{run['artifact_uri']}/model"
        version = self._post("/model-versions/create", name=name, source=source, run_id=run["run_id"])
        return version["model_version"]["version"]

    def alias(self, name: str, alias: str, version: str) -> None:
        self._post("/registered-models/alias", name=name, alias=alias, version=version)

    def stage(self, name: str, stage: str, version: str) -> None:
        self._post("/model-versions/transition-stage", name=name, stage=stage, version=version,
                   archive_existing_versions=False)  # fmt: skip


@contextlib.contextmanager
def real_server(command: str, folder: Path) -> Iterator[Tracking]:
    """The real one."""
    flags = [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "artifacts"),
    ]
    with held_ports(1) as [port], open(folder / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [command, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *flags],
            stdout=log, stderr=log, cwd=folder, env={**os.environ, "MLFLOW_TRACKING_URI": ""}, start_new_session=True,
        )  # fmt: skip
        try:
            said = (folder / "log").read_text
            wait_until(lambda: process.poll() is not None or _answers(port), lambda: said()[-2000:])
            assert process.poll() is None, said()[-2000:]
            yield Tracking(port)
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    return False


@contextlib.contextmanager
def stand_in() -> Iterator[Tracking]:
    """What we ask of it, answered as it answers (2.22 and 3.17 were asked)."""
    with serving(_handler(_State())) as port:
        yield Tracking(port)


class _State:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.versions: dict[str, list[dict]] = {}
        self.aliases: dict[tuple[str, str], str] = {}
        self.runs = 0
        self.authorization: list[str] = []


def _handler(state: _State) -> type[http.server.BaseHTTPRequestHandler]:
    class Api(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _json(self, value: object, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _missing(self, text: str) -> None:
            self._json({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": text}, 404)

        def do_PUT(self) -> None:
            path = unquote(self.path.removeprefix(ARTIFACTS + "/"))
            state.files[path] = self.rfile.read(int(self.headers["Content-Length"]))
            self._json({})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers = {
                "/registered-models/create": lambda: state.versions.setdefault(asked["name"], []) and None,
                "/runs/create": self._run,
                "/model-versions/create": lambda: self._version(asked),
                "/registered-models/alias": lambda: self._alias(asked),
                "/model-versions/transition-stage": lambda: self._stage(asked),
                "/registered-models/get-latest-versions": lambda: self._latest(asked),
            }  # fmt: skip
            self._json(answers[self.path.removeprefix(API)]() or {})

        def _run(self) -> dict:
            state.runs += 1
            uri = f"mlflow-artifacts:/0/run{state.runs}/artifacts"
            return {"run": {"info": {"run_id": f"run{state.runs}", "artifact_uri": uri}}}

        def _version(self, asked: dict) -> dict:
            versions = state.versions[asked["name"]]
            versions.append({"version": str(len(versions) + 1), "source": asked["source"], "current_stage": "None"})
            return {"model_version": versions[-1]}

        def _alias(self, asked: dict) -> None:
            state.aliases[asked["name"], asked["alias"]] = asked["version"]

        def _stage(self, asked: dict) -> None:
            state.versions[asked["name"]][int(asked["version"]) - 1]["current_stage"] = asked["stage"]

        def _latest(self, asked: dict) -> dict:
            versions = state.versions.get(asked["name"], [])
            stages = asked.get("stages") or [version["current_stage"] for version in versions]
            newest = {version["current_stage"]: version for version in versions if version["current_stage"] in stages}
            return {"model_versions": list(newest.values())} if newest else {}

        def do_GET(self) -> None:
            state.authorization.append(self.headers.get("Authorization", ""))
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == ARTIFACTS:
                self._json(self._list(asked["path"]))
            elif parts.path.startswith(ARTIFACTS + "/"):
                self._chunked(state.files[unquote(parts.path.removeprefix(ARTIFACTS + "/"))])
            elif parts.path == f"{API}/registered-models/alias":
                version = state.aliases.get((asked["name"], asked["alias"]))
                if version is None:
                    self._missing(f"Registered model alias {asked['alias']} not found.")
                else:
                    self._json({"model_version": {"version": version}})
            else:
                number = int(asked["version"])
                versions = state.versions.get(asked["name"], [])
                if number > len(versions):
                    self._missing(f"Model Version (name={asked['name']}, version={number}) not found")
                else:
                    self._json({"artifact_uri": versions[number - 1]["source"]})

        def _list(self, folder: str) -> dict:
            found: dict[str, dict] = {}
            for path, data in state.files.items():
                if path.startswith(folder + "/"):
                    name, more, _ = path[len(folder) + 1 :].partition("/")
                    found[name] = {"path": name, "is_dir": True} if more else {"path": name, "file_size": len(data)}
            return {"files": list(found.values())} if found else {}

        def _chunked(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(data), 65536):
                chunk = data[start : start + 65536]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    Api.state = state
    return Api
