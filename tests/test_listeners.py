import asyncio
import socket

import pytest

from tests.loops import fresh_loop
from tisfast.config.settings import ListenSettings
from tisfast.errors import ConfigError, Unavailable
from tisfast.listeners import Listener


def settings(port: int = 0, address: str = "127.0.0.1", reuse: bool = False) -> ListenSettings:
    return ListenSettings("HTTP", "http", True, address, port, reuse)


def test_a_taken_port_is_told_in_triton_s_words():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Unavailable) as error:
            Listener(settings(port))
    text = f"failed to start HTTP service: Unavailable - Socket '127.0.0.1:{port}' already in use"
    assert str(error.value).startswith(text)
    assert "--http-port" in str(error.value)


def test_an_address_that_is_not_ours_is_told():
    with pytest.raises(ConfigError, match="cannot be opened.*--http-address"):
        Listener(settings(address="203.0.113.1"))
    with pytest.raises(ConfigError, match="cannot be opened"):
        Listener(settings(address="no.such.host.invalid"))


def test_it_refuses_before_it_is_opened_and_after_it_is_closed():
    async def connect(port: int) -> str:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return "refused"
        word = (await reader.read(2)).decode()
        writer.close()
        return word

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"hi")
            transport.close()

    async def scenario() -> list[str]:
        listener = Listener(settings())
        words = [await connect(listener.port)]
        await listener.open(Greeter)
        words.append(await connect(listener.port))
        listener.close()
        await asyncio.sleep(0)
        return [*words, await connect(listener.port)]

    with fresh_loop() as loop:
        assert loop.run_until_complete(asyncio.wait_for(scenario(), 60)) == ["refused", "hi", "refused"]


def test_two_servers_may_share_a_port_when_both_say_so():
    one = Listener(settings(reuse=True))
    other = Listener(settings(one.port, reuse=True))
    assert one.where == other.where == f"127.0.0.1:{one.port}"
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("address", "reachable"), [("0.0.0.0", "localhost"), ("127.0.0.1", "127.0.0.1"), ("ipv6:[::1]", "[::1]")]
)
def test_what_a_client_here_should_call(address, reachable):
    listener = Listener(settings(address=address))
    assert listener.reachable == f"{reachable}:{listener.port}"
    listener.close()
