"""A closed client stays closed, and what cannot be looked up or encrypted says so."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from tests.client.helpers import answering, respond
from tisfast.client import AsyncClient, BadRequest, Client, ClientClosed, ConnectFailed, Tls


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_closed_client_stays_closed_in_a_next_event_loop(scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = AsyncClient(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", retries=0, timeout=5)
        asyncio.run(client.close())
        with pytest.raises(ClientClosed):
            asyncio.run(client.live())


def test_a_closed_client_stays_closed_in_a_forked_child():
    with answering(respond()) as address:
        client = Client(address, retries=0, timeout=5)
        assert client.live()
        client.close()
        child = os.fork()
        if child == 0:
            try:
                client.live()
            except ClientClosed:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("scheme", ["http", "grpc", "https"])
def test_a_name_that_no_server_tells_ends_with_the_call(monkeypatch, scheme):
    answered = threading.Event()

    def silent(*_, **__):
        answered.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with Client(f"{scheme}://somewhere.invalid:1", retries=0, timeout=0.1) as client:
        with pytest.raises(ConnectFailed, match="no name server said in time where 'somewhere.invalid' is"):
            client.live()
        assert not answered.is_set()
        answered.set()


@pytest.mark.parametrize("name", [".x", "a" * 64, "a..b"])
@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_name_that_no_certificate_can_have_is_refused(make, name):
    with pytest.raises(BadRequest, match=r"server_name="):
        make("https://localhost:1", tls=Tls(server_name=name))
