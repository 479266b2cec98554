"""An S3 server (moto), a bucket for each test, a harmful proxy before it, and Storage on a loop of its own."""

from __future__ import annotations

import asyncio
import http.client
import os
import uuid
from urllib.parse import quote

import pytest

from tests.storage.servers import Faults, contents, proxy_handler, serving
from tisfast.config.storage_settings import StorageSettings
from tisfast.storage.face import open_storage

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
REPO = {
    "add/config.pbtxt": 'backend: "python"',
    "add/1/model.py": "a = 1\n" * 1000,
    "sub/1/model.py": "b = 2\n" * 1000,
    "sub/1/weights.bin": "w" * 3_000_000,
}


@pytest.fixture(scope="session")
def s3_port():
    """moto's server, which speaks S3 (and so much of Google's XML API as listing and reading need)."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


class Objects:
    """A bucket of its own.  url: through the proxy, whose faults are `faults`."""

    def __init__(self, port: int, proxied: int, faults: Faults) -> None:
        self.name = f"b{uuid.uuid4().hex[:12]}"
        self.port = port
        self.faults = faults
        self.proxied = proxied
        self.url = f"s3://http://127.0.0.1:{proxied}/{self.name}"
        self._do("PUT", "")

    def _do(self, verb: str, path: str, data: bytes | None = None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(verb, f"/{self.name}/{quote(path)}", data, {"x-amz-acl": "public-read"})
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        connection.close()

    def put(self, path: str, text: str | bytes) -> None:
        """Make or replace an object."""
        self._do("PUT", path, text.encode() if isinstance(text, str) else text)

    def fill(self, files: dict[str, str]) -> None:
        """Several."""
        for path, text in files.items():
            self.put(path, text)

    def delete(self, path: str) -> None:
        """Remove one."""
        self._do("DELETE", path)


@pytest.fixture
def s3(s3_port, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "MLFLOW_", "HF_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    faults = Faults()
    with serving(proxy_handler(s3_port, faults)) as proxied:
        yield Objects(s3_port, proxied, faults)


class Synced:
    """A server's storage.  Each call runs the loop until it is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, urls: tuple[str, ...], settings: StorageSettings) -> None:
        self._loop = loop
        self.face = open_storage(urls, settings)
        self.urls = urls

    def refresh(self, names: list[str] | None = None):
        """What could not be had."""
        return dict(self._loop.run_until_complete(asyncio.wait_for(self.face.refresh(names), 60)))

    @property
    def seen(self) -> dict[str, str]:
        """The files that the server would see, of the first URL."""
        return contents(self.face.folder(self.urls[0]))


@pytest.fixture
def storage(tmp_path):
    """storage(url, ..., offline=...): servers that share one cache, one after the other or at one time."""
    loop = asyncio.new_event_loop()
    made: list[Synced] = []

    def make(*urls: str, variables: dict[str, str] | None = None, **settings) -> Synced:
        known = {"HOME": str(tmp_path), **KEYS, **(variables or {})}
        made.append(Synced(loop, urls, StorageSettings(str(tmp_path / "cache"), variables=known, **settings)))
        return made[-1]

    yield make
    for each in made:
        each.face.close()
    loop.close()
