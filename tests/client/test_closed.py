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


@pytest.fixture
def silent(monkeypatch):
    """A name server that says nothing until this event."""
    answered = threading.Event()

    def look_up(*_, **__):
        answered.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield answered
    answered.set()
    for thread in lookups():
        thread.join(60)


def lookups() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tisfast-client-name"]


@pytest.mark.parametrize("scheme", ["http", "grpc", "https"])
def test_a_name_that_no_server_tells_ends_with_the_call(silent, scheme):
    with Client(f"{scheme}://somewhere.invalid:1", retries=0, timeout=0.1) as client:
        with pytest.raises(ConnectFailed, match="no name server said in time where 'somewhere.invalid' is"):
            client.live()
        assert not silent.is_set()


def test_calls_that_give_a_name_up_leave_one_thread(silent):
    with Client("somewhere.invalid:1", retries=0, timeout=0.01) as client:
        for _ in range(20):
            with pytest.raises(ConnectFailed, match="no name server said in time"):
                client.live()
    assert len(lookups()) == 1


def test_a_forked_child_looks_a_name_up_itself(silent, monkeypatch):
    with Client("somewhere.invalid:1", retries=0, timeout=0.01) as client, pytest.raises(ConnectFailed):
        client.live()
    with answering(respond()) as address:
        port = int(address.rpartition(":")[2])
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        child = os.fork()
        if child == 0:
            try:
                monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
                os._exit(7 if Client("somewhere.invalid:1", retries=0, timeout=20).live() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_name_is_looked_up_where_no_thread_can_be_started(monkeypatch):
    """As in a program that ends, since Python 3.12."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with answering(respond()) as address:
        port = int(address.rpartition(":")[2])
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
        with monkeypatch.context() as patch, Client("somewhere.invalid:1", retries=0, timeout=20) as client:
            patch.setattr(threading.Thread, "start", refuse)
            assert client.live()


def test_each_call_is_told_that_a_name_is_unknown(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with Client("somewhere.invalid:1", retries=0, timeout=20) as client:
        for _ in range(2):
            with pytest.raises(ConnectFailed, match="Name or service not known"):
                client.live()


@pytest.mark.parametrize("name", [".x", "a" * 64, "a..b"])
@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_name_that_no_certificate_can_have_is_refused(make, name):
    with pytest.raises(BadRequest, match=r"server_name="):
        make("https://localhost:1", tls=Tls(server_name=name))
