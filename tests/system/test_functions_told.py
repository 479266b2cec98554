"""What users are told by `tisfast.serve` in its own words, and exported functions without a server."""

import asyncio
import socket
from typing import Annotated

import numpy as np
import pytest
from numpy.typing import NDArray

import tisfast
from tests.unused_ports import closed_port
from tisfast import Shape
from tisfast.client.testing import LocalModel
from tisfast.errors import BadRequest, Unavailable

F = np.float32
X = np.arange(4, dtype=F)


def double(x: NDArray[F]) -> NDArray[F]:
    return x * 2


async def later(x: NDArray[F]) -> NDArray[F]:
    await asyncio.sleep(0)
    return x * 3


def totals(x: Annotated[NDArray[F], Shape(4)]) -> Annotated[NDArray[F], Shape(1)]:
    return x.sum(1, keepdims=True)


class Scale:
    """An object is set up and torn down."""

    def setup(self) -> None:
        self.by = 4

    def predict(self, x: NDArray[F]) -> NDArray[F]:
        return x * self.by


def counting(n: int) -> int:
    yield from range(n)


def test_what_export_writes_runs_without_a_server(tmp_path):
    for function, factor in ((double, 2), (later, 3), (Scale, 4)):
        with LocalModel(tisfast.export(function, tmp_path)) as model:
            assert model(X).tolist() == (X * factor).tolist(), function
    with LocalModel(tisfast.export(totals, tmp_path, batch=8)) as model:
        assert model(np.ones((3, 4), F)).tolist() == [[4], [4], [4]]
    with LocalModel(tisfast.export(counting, tmp_path)) as model:
        assert [int(each["output"][0]) for each in model.stream(3)] == [0, 1, 2]


def test_a_port_that_is_taken_is_told_by_its_option():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match="choose a port with grpc_port=$"):
            tisfast.serve(double, http_port=0, grpc_port=taken.getsockname()[1])


def test_a_flag_that_cannot_be_is_the_caller_s_fault():
    with pytest.raises(BadRequest, match="unrecognized option '--no-such-flag'"):
        tisfast.serve(double, http_port=0, grpc_port=None, flags=["--no-such-flag=1"])


def test_serving_again_with_another_option_of_the_server_names_it():
    port = closed_port()
    with tisfast.serve(double, http_port=port, grpc_port=None) as server:
        told = f"a server at port {port} already, .* with no log=, and now there is log=True: stop\\(\\) that one"
        with pytest.raises(BadRequest, match=told):
            tisfast.serve(double, http_port=port, grpc_port=None, log=True)
        assert server.client()(X).tolist() == (X * 2).tolist()
