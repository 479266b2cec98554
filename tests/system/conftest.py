"""The real server as a process, for tests that look at it from outside."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tritonclient.http as httpclient

from tests.system.backend_fixtures import backends, weights, write_weights  # noqa: F401 - fixtures
from tests.system.guest_scripts import GuestProcess
from tests.system.helpers import ADD_ONE, CONFIG, Server, until
from tests.system.tensorrt_plans import driver_libraries, gpu_stand_in, write_plan  # noqa: F401 - fixtures


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    """tritonclient's clients of a server, of HTTP or of the module that is given; closed in the end."""
    clients: list[Any] = []

    def to(server: Server, kind: Any = httpclient) -> Any:
        port = server.port if kind is httpclient else server.says("is ready after")["grpc_port"]
        clients.append(kind.InferenceServerClient(f"127.0.0.1:{port}"))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


@pytest.fixture
def ask(connect):
    """Ask over gRPC, arrays by name in and out: ask(server, model, {input: data type}, input=array)."""
    import tritonclient.grpc as grpcclient  # noqa: PLC0415 - most tests ask over HTTP

    def asked(server: Server, name: str, types: dict[str, str] | None = None, **arrays: Any) -> dict[str, Any]:
        tensors = []
        for each, array in arrays.items():
            dtype = (types or {}).get(each) or grpcclient.np_to_triton_dtype(array.dtype)
            tensors.append(grpcclient.InferInput(each, list(array.shape), dtype))
            tensors[-1].set_data_from_numpy(array)
        answer = connect(server, grpcclient).infer(name, tensors)
        return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}

    return asked


@pytest.fixture
def write_model(tmp_path):
    """Write one model into the test's repository: write_model(name, code, config=...)."""

    def write(name: str, code: str = ADD_ONE, config: str = CONFIG, version: str = "1") -> Path:
        folder = tmp_path / "models" / name
        (folder / version).mkdir(parents=True)
        (folder / version / "model.py").write_text(code)
        if config:
            (folder / "config.pbtxt").write_text(config)
        return folder

    return write


@contextmanager
def servers(default: Path | None) -> Iterator[Callable[..., Server]]:
    """Start servers, on the default repository where none is named; they are ended with the block."""
    started: list[Server] = []
    # Not below tmp_path: the path of a Unix socket may have 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:

        def start(*flags: str, repository: Path | None = default, fault: str = "") -> Server:
            server = Server(repository or default, flags, Path(scratch), fault)
            started.append(server)
            return server

        yield start
        for server in started:
            if server.process.poll() is None:
                server.end(signal.SIGKILL)
            server.process.stdout.close()


@pytest.fixture
def serve(tmp_path):
    """Start servers on the test's repository; what they leave behind is looked for at the end."""
    with servers(tmp_path / "models") as start:
        yield start


@pytest.fixture(scope="module")
def serve_once():
    """Start servers for all tests of a file, which disturb each other in nothing, on a repository that is named."""
    with servers(None) as start:
        yield start


@pytest.fixture
def serve_files(tmp_path):
    """Serve files, without a repository; afterwards nothing is left in the server's temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        started = []

        def start(*arguments):
            started.append(Server(None, tuple(map(str, arguments)), Path(scratch)))
            return started[-1]

        yield start
        for server in started:
            if server.process.poll() is None:
                server.end(signal.SIGKILL)
            server.process.stdout.close()
        until(lambda: not list(Path(scratch).glob("tisfast-*")), "the links are removed")


@pytest.fixture
def directory():
    """A path that is short enough for a socket; pytest's own may not be."""
    short = Path(tempfile.gettempdir(), f"tg-{os.urandom(4).hex()}")
    yield short
    shutil.rmtree(short, ignore_errors=True)  # a server that was killed has left its socket


@pytest.fixture
def serve_guests(serve, tmp_path, directory):
    """Start a server that welcomes guests in `directory`."""
    (tmp_path / "models").mkdir(exist_ok=True)

    def start(*flags: str):
        return serve(f"--guest-directory={directory}", *flags).ready()

    return start


@pytest.fixture
def join(directory):
    """Start a script as a guest: join(code)."""
    started: list[GuestProcess] = []

    def start(code: str) -> GuestProcess:
        started.append(GuestProcess(directory, code))
        return started[-1]

    yield start
    for guest in started:
        guest.end()
        guest.process.stdin.close()
        guest.process.stdout.close()
