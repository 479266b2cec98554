"""A bucket of a test's own, and a server's storage."""

from __future__ import annotations

import asyncio
import http.client
import uuid
from urllib.parse import quote

from tests.storage.servers import Faults, contents
from tisfast.config.storage_settings import StorageSettings
from tisfast.storage.face import open_storage

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
REPO = {
    "add/config.pbtxt": 'backend: "python"',
    "add/1/model.py": "a = 1\n" * 1000,
    "sub/1/model.py": "b = 2\n" * 1000,
    "sub/1/weights.bin": "w" * 3_000_000,
}


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
