"""One server for most tests of the client, asked over both protocols; and servers of a test's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.helpers import Place, place_of
from tests.client.models import write_models
from tests.system.conftest import serve, write_model  # noqa: F401 - fixtures
from tests.system.helpers import Server
from tisfast.client import Client


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """The server that the tests share, and where it is."""
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        repository = Path(scratch, "models")
        write_models(repository)
        flags = ("--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=*")
        server = Server(repository, flags, Path(scratch)).ready()
        try:
            yield place_of(server)
        finally:
            server.end()
            server.process.stdout.close()
            shutil.rmtree(repository)


@pytest.fixture(params=["http", "grpc"])
def url(request, place) -> str:
    """The server's URL for each protocol."""
    return getattr(place, request.param)


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make clients, closed in the end."""
    made: list[Client] = []

    def to(url: str, **options) -> Client:
        made.append(Client(url, **options))
        return made[-1]

    yield to
    for client in made:
        client.close()


@pytest.fixture
def client(url, connect) -> Client:
    return connect(url)
