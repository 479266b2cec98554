"""Shared memory that the client chooses by itself, and that nothing is left of."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.client.helpers import place_of
from tests.system.helpers import ADD_ONE, ROOT
from tests.waiting import wait_until
from tisfast.client import Client, Unsupported

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


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_has_started_again(serve, write_model, connect, protocol):
    write_model("m")
    first = place_of(serve("--allow-client-shm=true").ready())
    address = getattr(first, protocol)
    model = connect(address).model("m")
    assert np.array_equal(model(BIG), BIG + 1)
    first.server.end()
    port = address.rpartition(":")[2]
    second = serve("--allow-client-shm=true", f"--{protocol}-port={port}").ready()
    for _ in range(3):
        assert np.array_equal(model(BIG), BIG + 1)
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
