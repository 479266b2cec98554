"""An S3 server (moto), a bucket for each test, a harmful proxy before it, and Storage on a loop of its own."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.storage.helpers import KEYS, Objects, Synced
from tests.storage.servers import Faults, proxy_handler, serving
from tisfast.config.storage_settings import StorageSettings


@pytest.fixture(scope="session")
def s3_port():
    """moto's server, which speaks S3 (and so much of Google's XML API as listing and reading need)."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


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
