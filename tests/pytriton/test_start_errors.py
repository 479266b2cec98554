"""Servers that do not start say it in PyTriton's classes and by its fields."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pytriton.served import add, model, server
from tests.waiting import wait_until
from tisfast.pytriton.exceptions import PyTritonRuntimeError, PyTritonValidationError


def test_a_port_that_is_taken_is_told_by_its_field(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = server(workspace=tmp_path / "work", http_address="127.0.0.1", http_port=taken.getsockname()[1])
        with pytest.raises(PyTritonRuntimeError, match=r"choose a port with TritonConfig\.http_port$"):
            made.run()
        made.stop()


def test_a_field_that_cannot_be_is_told_by_its_name(tmp_path):
    made = server(workspace=tmp_path / "work", metrics_interval_ms="often")
    with pytest.raises(PyTritonValidationError, match=r"TritonConfig\.metrics_interval_ms.*often"):
        made.run()
    made.stop()


def test_serve_may_look_as_rarely_as_it_likes(tmp_path):
    made = server(workspace=tmp_path / "work")
    made.bind(**model("m", add))
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(made.serve, float("inf"))
        wait_until(lambda: made.is_connected() or serving.done())
        made.stop()
        assert serving.result() is None
