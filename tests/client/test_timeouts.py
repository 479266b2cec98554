"""What is said of a call that took too long: which model, which server, how many seconds, what to do."""

from __future__ import annotations

import asyncio
import re
import socket

import numpy as np
import pytest

from tests.client.helpers import METADATA, answering, in_turn, respond
from tisfast.client import AsyncClient, Client, TimedOut

A = np.ones(1, np.float32)
SECONDS = 0.25
HINT = "a longer timeout=, of the call or of the client, gives it more time"


def stall(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def of_model(url: str) -> str:
    return re.escape(f"(model 'm' at {url}, timeout={SECONDS} seconds; {HINT})")


@pytest.mark.parametrize("scheme", ["http", "grpc"])
@pytest.mark.parametrize("own", [True, False])
def test_a_first_call_names_its_model_and_all_its_time(scheme, own):
    with answering(stall) as address:
        url = f"{scheme}://{address}"
        with Client(url, **({} if own else {"timeout": SECONDS})) as client:
            options = {"timeout": SECONDS} if own else {}
            with pytest.raises(TimedOut, match=f"^no answer came in time {of_model(url)}$"):
                client.model("m")(A, **options)


def test_a_later_call_does_too():
    with answering(in_turn(respond(METADATA), stall), stall) as address, Client(address, timeout=SECONDS) as client:
        model = client.model("m")
        model.metadata()
        with pytest.raises(TimedOut, match=of_model(f"http://{address}")):
            model(A)
        with pytest.raises(TimedOut, match=of_model(f"http://{address}")):
            model.submit(A).result(60)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_calls_that_are_awaited_do_too(scheme):
    async def main(url):
        async with AsyncClient(url) as client:
            with pytest.raises(TimedOut, match=f"^no answer came in time {of_model(url)}$"):
                await client.model("m")(A, timeout=SECONDS)

    with answering(stall) as address:
        asyncio.run(main(f"{scheme}://{address}"))


@pytest.mark.parametrize("ask", [Client.live, Client.ready, Client.metadata])
def test_calls_of_the_server_name_the_server(ask):
    with answering(stall) as address, Client(address, timeout=SECONDS) as client:
        said = re.escape(f"(http://{address}, timeout={SECONDS} seconds; {HINT})")
        with pytest.raises(TimedOut, match=said):
            ask(client)


def test_a_model_that_is_asked_whether_it_is_ready_is_named():
    with (
        answering(stall) as address,
        Client(address, timeout=SECONDS) as client,
        pytest.raises(TimedOut, match=of_model(f"http://{address}")),
    ):
        client.model("m").ready()


def test_a_stream_names_its_model(place, connect):
    model = connect(place.grpc).model("repeat_int32")
    with pytest.raises(TimedOut, match=rf"\(model 'repeat_int32' at {place.grpc}, timeout=0.5 seconds"):
        list(model.stream([1, 2], [0, 60_000], [0], timeout=0.5))


def test_a_time_that_the_server_says_is_over_has_no_advice_of_the_client():
    late = respond(b'{"error":"Request timeout expired"}', "504 Gateway Timeout")
    with answering(in_turn(respond(METADATA), late)) as address, Client(address, timeout=60) as client:
        said = rf"^Request timeout expired \(model 'm' at http://{address}, timeout=60 seconds\)$"
        with pytest.raises(TimedOut, match=said):
            client.model("m")(A)
