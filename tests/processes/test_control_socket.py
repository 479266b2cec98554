import tempfile

import msgpack
import pytest
import zmq

from tests.waiting import until
from tisfast.processes.control_directory import ControlDirectory
from tisfast.processes.control_socket import ControlSocket

TOKEN = b"t" * 16


@pytest.fixture
def control(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = ControlDirectory()
    made = ControlSocket(directory, loop)
    made.open()
    yield made
    made.close()
    directory.remove()


@pytest.fixture
def peer(control):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(control.endpoint)
    yield socket
    socket.close()
    context.term()


def say(peer, **message) -> None:
    peer.send(msgpack.packb(message))


def test_messages_reach_their_worker_after_hello(control, peer, run):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    say(peer, t="hello", id="w", token=TOKEN)
    say(peer, t="log", n=1)
    run(until(lambda: len(heard) == 2))
    assert heard[1] == {"t": "log", "n": 1}


def test_messages_behind_one_that_meets_a_bug_are_heard(control, peer, run, caplog):
    heard: list[int] = []

    def hear(message):
        heard.append(message["n"])
        if message["n"] == 1:
            raise RuntimeError("a bug")

    control.expect("w", TOKEN, hear)
    for number in range(4):
        say(peer, t="hello" if number == 0 else "log", id="w", token=TOKEN, n=number)
    run(until(lambda: len(heard) == 4))
    assert heard == [0, 1, 2, 3]
    (record,) = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert record.getMessage() == "a control message 'log' met a bug of the server"


def test_answers_go_to_the_peer_that_said_hello(control, peer, run):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    assert not control.send("w", {"t": "stop"})
    say(peer, t="hello", id="w", token=TOKEN)
    run(until(lambda: heard))
    assert control.send("w", {"t": "is_ready", "n": 7})
    assert msgpack.unpackb(peer.recv()) == {"t": "is_ready", "n": 7}


@pytest.mark.parametrize(
    "intruder",
    [
        {"t": "hello", "id": "w", "token": b"wrong"},
        {"t": "hello", "id": "w", "token": "text"},
        {"t": "hello", "id": "other", "token": TOKEN},
        {"t": "hello", "id": ["w"], "token": TOKEN},
        {"t": "hello"},
        {"t": "ready", "id": "w", "token": TOKEN},
        {"no": "type"},
        ["a", "list"],
    ],
)
def test_peers_without_the_token_are_not_heard(control, peer, run, intruder):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    peer.send(msgpack.packb(intruder))
    peer.send(b"\xc1 not msgpack")
    say(peer, t="ready")
    say(peer, t="hello", id="w", token=TOKEN)
    run(until(lambda: heard))
    assert heard == [{"t": "hello", "id": "w", "token": TOKEN}]


def test_a_second_peer_cannot_take_over_an_id(control, peer, run):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    say(peer, t="hello", id="w", token=TOKEN)
    run(until(lambda: heard))
    with zmq.Context() as context, context.socket(zmq.DEALER) as second:
        second.connect(control.endpoint)
        say(second, t="hello", id="w", token=TOKEN)
        say(second, t="from the second")
        say(peer, t="from the first")
        run(until(lambda: len(heard) == 2))
        second.close(linger=0)
    assert heard[1] == {"t": "from the first"}


def test_a_forgotten_worker_is_not_heard(control, peer, run):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    say(peer, t="hello", id="w", token=TOKEN)
    run(until(lambda: heard))
    control.forget("w")
    say(peer, t="late")
    assert not control.send("w", {"t": "stop"})
    control.expect("w", TOKEN, heard.append)
    say(peer, t="hello", id="w", token=TOKEN)
    run(until(lambda: len(heard) == 2))
    assert heard[1]["t"] == "hello"


def test_many_messages_are_all_heard(control, peer, run):
    heard: list[dict] = []
    control.expect("w", TOKEN, heard.append)
    say(peer, t="hello", id="w", token=TOKEN)
    for n in range(500):
        say(peer, t="n", n=n)
    run(until(lambda: len(heard) == 501))
    assert [message["n"] for message in heard[1:]] == list(range(500))
