"""Shared memory that the client chooses by itself, and that nothing is left of."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, place_of, read_request
from tests.system.helpers import ADD_ONE, CONFIG, ROOT
from tests.unused_ports import closed_port
from tests.waiting import wait_until
from tisfast import limits, tuning
from tisfast.client import AsyncClient, BadResponse, Cancelled, Client, ConnectFailed, TimedOut, Unsupported, regions

BIG = np.random.default_rng(3).random(150_000).astype(np.float32)
GROWING = ADD_ONE.replace("return a + 1", "self.n = getattr(self, 'n', 0) + 1; return np.tile(a, self.n)").replace(
    "import triton", "import numpy as np\nimport triton"
)


def files(pid: int = 0) -> list[str]:
    """Of this process, or another one; tests run beside each other."""
    return [path.name for path in Path("/dev/shm").glob(f"tisfast-{pid or os.getpid()}-*")]


def test_large_tensors_go_through_shared_memory_and_small_ones_do_not(client, place):
    model = client.model("identity_fp32")
    assert np.array_equal(model(BIG[:100_000]), BIG[:100_000]) and client.regions() == []
    for _ in range(3):
        assert np.array_equal(model(BIG), BIG)
    assert len(client.regions()) == 1 and files() == []
    client.close()
    with Client(place.http) as other:
        assert other.regions() == []


def test_answers_are_the_callers_own(client):
    model = client.model("add_one")
    found = [model(BIG + number) for number in range(4)]
    assert all(np.array_equal(each, BIG + number + 1) for number, each in enumerate(found))


def test_it_can_be_switched_off(url, connect):
    client = connect(url, shared_memory=False)
    for _ in range(2):
        assert np.array_equal(client.model("add_one")(BIG), BIG + 1)
    assert client.regions() == []


def test_several_inputs_and_outputs_of_several_sizes(client):
    model = client.model("types")
    values = {"IN_FP64": BIG.astype(np.float64), "IN_INT8": BIG.astype(np.int8), "IN_STRING": ["a" * 200_000, "b"]}
    for _ in range(3):
        found = model(**values)
        assert np.array_equal(found.OUT_FP64, values["IN_FP64"]) and np.array_equal(found.OUT_INT8, values["IN_INT8"])
        assert found.OUT_STRING.tolist() == [b"a" * 200_000, b"b"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_takes_no_regions(serve, write_model, connect, protocol):
    write_model("m")
    place = place_of(serve().ready())
    client = connect(getattr(place, protocol))
    for _ in range(2):
        assert np.array_equal(client.model("m")(BIG), BIG + 1)
    with pytest.raises(Unsupported, match="shared_memory=True, but the server takes no region: .*allow-client-shm"):
        connect(getattr(place, protocol), shared_memory=True).model("m")(BIG)
    assert files() == []
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_outputs_that_grow_are_asked_for_again_and_then_not_placed(serve, write_model, connect, protocol):
    write_model("m", GROWING)
    place = place_of(serve("--allow-client-shm=true").ready())
    model = connect(getattr(place, protocol)).model("m")
    sizes = [model(BIG).size // BIG.size for _ in range(5)]
    assert sizes[0] == 1 and sizes == sorted(sizes) and sizes[-1] <= 6
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_output_that_is_empty_where_it_was_large(serve, write_model, connect, protocol):
    code = "self.n = getattr(self, 'n', 0) + 1; return a[: -1 if self.n < 4 else 0]"
    write_model("m", ADD_ONE.replace("return a + 1", code))
    place = place_of(serve("--allow-client-shm=true").ready())
    model = connect(getattr(place, protocol)).model("m")
    assert [model(BIG).size for _ in range(5)] == [BIG.size - 1] * 3 + [0, 0]
    place.server.end()


OUTPUTS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(each.inputs()[0].as_numpy())) for each in requests]

    def outputs(self, a):
        return [pb_utils.Tensor(name, values) for name, values in (PAIRS)]
"""
TWO = CONFIG + 'output [ { name: "C" data_type: TYPE_FP32 dims: [ -1 ] } ]'
PARTIAL = OUTPUTS.replace("PAIRS", '[("B", a), ("C", a[:2])] if a[0] else [("B", a)]')
RENAMED = OUTPUTS.replace("PAIRS", '[("D", a)]')
TEXTS = OUTPUTS.replace("PAIRS", '[("B", np.array([b"text"], object))]')


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_output_that_the_first_answer_lacked_is_there_when_it_comes(serve, write_model, connect, protocol):
    write_model("m", PARTIAL, TWO)
    place = place_of(serve("--allow-client-shm=true").ready())
    model = connect(getattr(place, protocol)).model("m")
    none, all_ones = np.zeros_like(BIG), np.ones_like(BIG)
    assert [sorted(model.infer([each]).names) for each in (none, none, all_ones, none, all_ones)] == [
        ["B"], ["B"], ["B", "C"], ["B"], ["B", "C"],
    ]  # fmt: skip
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_that_is_loaded_again_with_other_outputs(serve, write_model, connect, protocol):
    folder = write_model("m")
    place = place_of(serve("--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=m").ready())
    client = connect(getattr(place, protocol))
    model = client.model("m")
    for _ in range(2):  # the second with a place for it
        assert model.infer([BIG]).names == ("B",)
    (folder / "1" / "model.py").write_text(RENAMED)
    (folder / "config.pbtxt").write_text(CONFIG.replace('"B"', '"D"'))
    client.load("m")
    for _ in range(3):
        assert np.array_equal(model.infer([BIG])["D"], BIG)
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_output_that_becomes_text_is_an_error_once(serve, write_model, connect, protocol):
    folder = write_model("m")
    place = place_of(serve("--allow-client-shm=true", "--model-control-mode=explicit", "--load-model=m").ready())
    client = connect(getattr(place, protocol))
    model = client.model("m")
    for _ in range(2):  # the second with a place for it
        assert model.infer([BIG]).names == ("B",)
    inputs, outputs = CONFIG.split("output")
    (folder / "1" / "model.py").write_text(TEXTS)
    (folder / "config.pbtxt").write_text(f"{inputs}output{outputs.replace('FP32', 'STRING')}")
    client.load("m")
    with pytest.raises(BadResponse, match="of BYTES and shape .* the model's outputs have changed"):
        model.infer([BIG])
    for _ in range(3):
        assert model.infer([BIG])["B"].tolist() == [b"text"]
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_has_started_again(serve, write_model, connect, protocol):
    write_model("m")
    port = closed_port()
    first = place_of(serve("--allow-client-shm=true", f"--{protocol}-port={port}").ready())
    address = getattr(first, protocol)
    model = connect(address).model("m")
    assert np.array_equal(model(BIG), BIG + 1)
    first.server.end()
    second = serve("--allow-client-shm=true", f"--{protocol}-port={port}").ready()
    for _ in range(3):
        assert np.array_equal(model(BIG), BIG + 1)
    second.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_region_of_the_server_that_has_started_again_is_unregistered_at_the_end(
    serve, write_model, connect, protocol, monkeypatch
):
    """Of two calls that hold regions of the server before, each is told that there is none; between them is a third."""
    write_model("m")
    port = closed_port()
    flags = "--allow-client-shm=true", f"--{protocol}-port={port}"
    first = place_of(serve(*flags).ready())
    client = connect(getattr(first, protocol))
    model, placed, within = client.model("m"), regions._placed, []

    def meanwhile(*arguments):
        found = placed(*arguments)
        if within:
            within.pop()()
        return found

    monkeypatch.setattr(regions, "_placed", meanwhile)
    within.append(lambda: model(BIG))
    model(BIG)
    assert len(client.regions()) == 2
    first.server.end()
    second = serve(*flags).ready()
    within.append(lambda: (model(BIG), model(BIG)))
    assert np.array_equal(model(BIG), BIG + 1)
    with connect(getattr(first, protocol)) as other:
        assert len(other.regions()) == 1
        client.close()
        assert other.regions() == []
    second.end()


LEAVE = """
import sys, numpy as np
from tisfast.client import Client
client = Client(sys.argv[1])
client.model("add_one")(np.ones(150_000, np.float32))
assert len(client.regions()) >= 1
"""


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_program_that_ends_leaves_no_file_and_when_it_can_no_region(url, connect, end):
    with subprocess.Popen([sys.executable, "-c", LEAVE + end, url], cwd=ROOT) as program:
        assert program.wait(90) == (-signal.SIGKILL if end else 0)
    client = connect(url)
    left = client.regions()
    assert files(program.pid) == [] and len(left) == (1 if end else 0)
    client.unregister_region()


def test_a_client_that_nobody_closes_has_its_regions_unregistered(url, connect):
    client = Client(url)
    client.model("add_one")(BIG)
    other = connect(url)
    assert len(other.regions()) == 1
    del client
    gc.collect()
    wait_until(lambda: other.regions() == [])


def test_a_forked_child_leaves_its_parents_regions_alone(client):
    model = client.model("add_one")
    model(BIG)
    child = os.fork()
    if child == 0:
        good = np.array_equal(model(BIG), BIG + 1)
        client.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(client.regions()) == 1
    assert np.array_equal(model(BIG), BIG + 1)


class RegionServer:
    """An HTTP server of one model that adds one.

    register, unregister: what becomes of regions; False: the connection is closed.
    """

    def __init__(self, register, unregister=None) -> None:
        self._register = register
        self._unregister = unregister or taken
        self.inferred = 0
        self.registered: list[str] = []
        self.unregistered: list[str] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _start(self, target, *args) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # a client may go in the middle
            while request := read_request(connection):
                target = request.split(b" ", 2)[1].decode()
                name = target.split("/region/")[-1].split("/")[0]
                if target.endswith("/register"):
                    self.registered.append(name)
                    if not self._register(connection):
                        return
                elif target.endswith("/unregister"):
                    self.unregistered.append(name)
                    if not self._unregister(connection):
                        return
                elif target.endswith("/infer"):
                    self.inferred += 1
                    say(connection, ANSWER)
                else:
                    say(connection, METADATA)


def say(connection: socket.socket, body: bytes, status: str = "200 OK") -> bool:
    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return True


def taken(connection: socket.socket) -> bool:
    return say(connection, b"{}")


def silent(connection: socket.socket) -> bool:
    """Until the client closes it."""
    return connection.recv(1) != b""


class InTurn:
    """Behaviours for one request after the other, and then `taken`.  begun: the first one has."""

    def __init__(self, *behaviours) -> None:
        self._behaviours = iter(behaviours)
        self.begun = threading.Event()

    def __call__(self, connection: socket.socket) -> bool:
        self.begun.set()
        return next(self._behaviours, taken)(connection)


def lost(_: socket.socket) -> bool:
    return False


def test_a_registration_that_is_lost_is_made_good_and_the_request_goes_through_the_socket():
    with RegionServer(lost) as server, Client(server.address) as client:
        model = client.model("m")
        for _ in range(3):
            assert model(BIG).tolist() == [2]
        client.close()
        assert sorted(server.unregistered) == sorted(server.registered) and len(server.registered) == 3


def test_a_registration_that_takes_too_long_is_taken_back_later():
    with RegionServer(silent) as server, Client(server.address) as client:
        model = client.model("m")
        model.metadata()
        with pytest.raises(TimedOut):
            model(BIG, timeout=1)  # by then the registration is on its way
        client.close()
        wait_until(lambda: server.unregistered == server.registered != [])


def test_a_cancelled_registration_is_taken_back_later():
    register = InTurn(silent)

    async def main():
        async with AsyncClient(server.address) as client:
            model = client.model("m")
            await model.metadata()
            task = asyncio.ensure_future(model(BIG))
            await asyncio.to_thread(register.begun.wait, 60)
            task.cancel()
            await asyncio.wait([task])

    with RegionServer(register) as server:
        asyncio.run(main())
        assert server.unregistered == server.registered != []


def test_a_region_whose_end_is_cancelled_is_unregistered_by_a_later_call():
    """The first registration is lost, so the next call has that region unregistered, and is cancelled meanwhile."""
    register, unregister = InTurn(lost), InTurn(silent)

    async def main():
        async with AsyncClient(server.address, retries=0) as client:
            model = client.model("m")
            await model(BIG)
            task = asyncio.ensure_future(model(BIG))
            assert await asyncio.to_thread(unregister.begun.wait, 60)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await model(BIG)
            assert server.unregistered == [server.registered[0]] * 2

    with RegionServer(register, unregister) as server:
        asyncio.run(main())


def test_a_future_is_cancelled_while_a_region_of_an_earlier_call_is_unregistered(monkeypatch):
    monkeypatch.setattr(tuning, "CLIENT_CANCEL_SECONDS", 600)  # by the cancel, and not by this
    register, unregister = InTurn(lost), InTurn(silent)
    with RegionServer(register, unregister) as server, Client(server.address, retries=0) as client:
        model = client.model("m")
        model(BIG)
        future = model.submit(BIG)
        assert unregister.begun.wait(60) and future.cancel()
        assert isinstance(future.exception(60), Cancelled)
        model(BIG)
        assert server.unregistered == [server.registered[0]] * 2


def test_regions_whose_end_was_lost_have_a_bound_and_those_in_use_do_not_count(monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_REGIONS_LEFT_MAX", 1)
    monkeypatch.setattr(tuning, "CLIENT_REGION_BYTES_MIN", BIG.nbytes)
    bigger = np.tile(BIG, 3)
    with (
        RegionServer(InTurn(taken, lost), InTurn(*[lost] * 2)) as server,
        Client(server.address, retries=0) as client,
    ):
        model = client.model("m")
        model(BIG)  # its region is kept
        for _ in range(3):  # lost, and so are two attempts to have it unregistered
            model(bigger)
        assert len(server.registered) == 2 and server.unregistered == [server.registered[1]] * 2
        model(bigger)
        assert len(server.registered) == 3


@pytest.mark.parametrize("must", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_call_whose_registration_took_all_its_time_is_not_sent(awaited, must):
    shared = True if must else "auto"

    async def main():
        async with AsyncClient(server.address, shared_memory=shared) as client:
            model = client.model("m")
            await model.metadata()
            with pytest.raises(TimedOut):
                await model(BIG, timeout=1)  # by then the registration is on its way

    with RegionServer(silent) as server:
        if awaited:
            asyncio.run(main())
        else:
            with Client(server.address, shared_memory=shared) as client:
                client.model("m").metadata()
                with pytest.raises(TimedOut):
                    client.model("m")(BIG, timeout=1)
    assert server.registered and server.inferred == 0


def test_a_request_that_is_interrupted_while_it_is_copied_keeps_no_region(monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_REGION_BYTES_MAX", tuning.CLIENT_REGION_BYTES_MIN)  # for one region

    def interrupted(*_):
        raise KeyboardInterrupt

    with RegionServer(taken) as server, Client(server.address) as client:
        model = client.model("m")
        with monkeypatch.context() as patched:
            patched.setattr(regions, "_placed", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model(BIG)
        model(BIG)
        assert len(server.registered) == 2 and server.unregistered == server.registered[:1]


def test_registrations_that_fail_use_up_no_memory(monkeypatch):
    monkeypatch.setattr(limits, "CLIENT_REGION_BYTES_MAX", 4 << 20)  # the bound itself would take 512 failures
    with RegionServer(InTurn(*[lost] * 5)) as server, Client(server.address) as client:
        model = client.model("m")
        for _ in range(7):
            model(BIG)
        assert len(server.registered) == 6  # the sixth was kept


def test_a_region_that_cannot_be_had_where_it_is_a_must_is_no_lost_request():
    with (
        RegionServer(lost) as server,
        Client(server.address, shared_memory=True, retries=0) as client,
        pytest.raises(ConnectFailed, match="shared_memory=True, but no region could be registered"),
    ):
        client.model("m")(BIG)
