"""RemoteTriton: models for a server that runs already."""

import subprocess
import sys

import pytest

from tests.pytriton.served import ONE, A, add, grpc, http, model
from tests.unused_ports import closed_port
from tests.waiting import wait_until
from tisfast.local_server import LocalServer
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientInvalidUrlError, PyTritonClientTimeoutError
from tisfast.pytriton.exceptions import PyTritonRuntimeError
from tisfast.pytriton.triton import RemoteTriton

pytestmark = pytest.mark.filterwarnings("ignore::tisfast.pytriton.client.warnings.NotSupportedTimeoutWarning")


def ask(url, name):
    with ModelClient(url, name, init_timeout_s=60) as client:
        return client.infer_sample(ONE)["o"].tolist()


@pytest.mark.parametrize("url", [http, grpc])
def test_a_remote_program_serves_until_it_stops(triton, tmp_path, url):
    server = triton(model("own", add))
    remote = RemoteTriton(url(server), workspace=tmp_path / "remote")
    assert remote.is_alive()
    remote.bind(**model("m", add))
    assert not remote.is_alive()
    with remote:
        assert (remote.is_alive(), remote.is_connected()) == (True, True)
        assert ask(http(server), "m") == [1]
    assert not remote.is_connected()
    assert server.is_alive()
    assert ask(http(server), "own") == [1]
    with pytest.raises(PyTritonClientTimeoutError), ModelClient(http(server), "m") as client:
        client.wait_for_model(0.2)


def test_a_model_that_is_bound_later_is_loaded_at_once(triton, tmp_path):
    server = triton()
    with RemoteTriton(http(server), workspace=tmp_path / "remote") as remote:
        remote.bind(**model("m", add))
        assert ask(http(server), "m") == [1]


def constant(number):
    """A callable that always answers it."""
    return lambda requests: [{"o": 0 * request["a"] + number} for request in requests]


def test_a_name_goes_to_who_serves_it_last_and_its_first_program_goes_on(triton, tmp_path):
    server = triton(model("m", constant(1)), model("other", constant(2)))
    url = http(server)
    first, second = (RemoteTriton(url, workspace=tmp_path / name) for name in ("first", "second"))
    with first, second:
        first.bind(**model("m", constant(10)))
        assert ask(url, "m") == [10]
        second.bind(**model("m", constant(20), model_version=2))
        assert ask(url, "m") == [20]
        assert (server.is_alive(), first.is_alive(), second.is_alive()) == (True, True, True)
        first.stop()
        assert ask(url, "m") == [20]
    assert server.is_alive()
    assert ask(url, "other") == [2]
    with pytest.raises(PyTritonClientTimeoutError), ModelClient(url, "m") as client:
        client.wait_for_model(0.2)


def test_a_name_that_could_not_be_taken_over_stays_where_it_is(triton, tmp_path):
    server = triton(model("m", add))
    with RemoteTriton(http(server), workspace=tmp_path / "remote") as remote:
        with pytest.raises(PyTritonRuntimeError, match="'m' was not loaded: .*'a' is declared more than once"):
            remote.bind(**model("m", add, [A, A]))
        assert ask(http(server), "m") == [1]
        assert (server.is_alive(), remote.is_alive()) == (True, True)


def test_the_end_of_the_server_is_the_end_of_remote_models(triton, tmp_path):
    server = triton()
    with RemoteTriton(http(server), workspace=tmp_path / "remote") as remote:
        remote.bind(**model("m", add))
        assert remote.is_alive()
        server.stop()
        wait_until(lambda: not remote.is_connected())
        assert not remote.is_alive()


def test_a_server_that_takes_no_guests_says_what_to_do(tmp_path):
    (tmp_path / "models").mkdir()
    port = closed_port()
    command = "import sys; from tisfast.cli import main; sys.exit(main())"
    arguments = [f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"]
    arguments.append(f"--model-repository={tmp_path / 'models'}")
    with subprocess.Popen([sys.executable, "-c", command, "serve", *arguments], stderr=subprocess.DEVNULL) as process:
        try:
            with pytest.raises(PyTritonRuntimeError, match="--guest-directory"):
                RemoteTriton(f"localhost:{port}", workspace=tmp_path / "remote").connect()
        finally:
            process.terminate()


def test_a_server_of_somebody_else_in_the_same_process(tmp_path):
    server = LocalServer(["--http-port=0", "--grpc-port=0", "--metrics-port=0"])
    server.start()
    try:
        with RemoteTriton(server.http_address, workspace=tmp_path / "remote") as remote:
            remote.bind(**model("m", add))
            assert ask(server.http_address, "m") == [1]
    finally:
        server.stop()


def test_what_is_no_url_is_refused():
    with pytest.raises(PyTritonClientInvalidUrlError):
        RemoteTriton("ftp://host")
