"""Whom a server takes for a guest, whom a guest takes for a server, and what liars can do."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from tests.system.guest_scripts import ONE, descriptors, index
from tests.system.helpers import SECONDS_MAX, until
from tisfast.native.channel import abi_version

HEAD = struct.Struct("<IB")


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_a_folder_that_others_may_enter_is_refused_on_both_sides(serve, join, tmp_path, directory, mode):
    (tmp_path / "models").mkdir()
    directory.mkdir()
    directory.chmod(mode)
    server = serve(f"--guest-directory={directory}")
    assert server.ended() == 1
    assert f"has mode {mode:04o}" in server.text() and f"chmod 700 {directory}" in server.text()
    guest = join("try:\n    join(DIRECTORY)\nexcept GuestError as error:\n    say(error)\n")
    guest.says(f"has mode {mode:04o}")


def test_a_folder_has_one_server(serve_guests, serve, directory):
    serve_guests()
    second = serve(f"--guest-directory={directory}")
    assert second.ended() == 1 and "is another server's" in second.text()


def test_without_a_server_there_is_a_sentence_and_patience(serve_guests, join, directory):
    guest = join("try:\n    join(DIRECTORY)\nexcept GuestError as error:\n    say(error)\n")
    guest.says("start one there with `tisfast serve")
    directory.mkdir(mode=0o700)
    patient = join(f"server = join(DIRECTORY, patience={SECONDS_MAX})\nsay('in')\n")
    serve_guests()
    patient.says("in")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_is_refused(serve_guests, directory):
    server = serve_guests()
    code = """
import ctypes, os, socket, sys
os.seteuid(65534)
ctypes.CDLL(None).setfsuid(0)  # past the folder's mode, to see the second lock
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
sys.stdout.buffer.write(connection.recv(4096)[5:])
"""
    command = [sys.executable, "-c", code, str(directory / "guests.sock")]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=True)
    assert b"it runs as user 65534, and the server as 0" in done.stdout
    server.says("is refused: it runs as user 65534")


def connected(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS_MAX)
    connection.connect(str(directory / "guests.sock"))
    return connection


def frame(message: object) -> bytes:
    text = msgpack.packb(message)
    return HEAD.pack(len(text), 0) + text


def hello() -> bytes:
    return frame({"t": "guest", "abi": abi_version(), "name": "liar"})


def test_lies_end_the_liar_and_nothing_else(serve_guests, join, directory):
    server = serve_guests()
    guest = join(ONE.format(backend="Add(1)", gate=""))
    guest.says("serving")
    before = descriptors(server.process.pid)
    chance = random.Random(7)
    noise = [bytes(chance.randrange(256) for _ in range(chance.randrange(1, 300))) for _ in range(60)]
    lies = [
        HEAD.pack(1 << 31, 0), HEAD.pack(5000, 0), HEAD.pack(10, 3), HEAD.pack(3, 0) + b"\xc1\xc1\xc1",
        frame([1, 2]), frame({"t": 5}), frame({}), frame({"t": "serve", "n": 1, "name": "x"}), frame({"t": "guest"}),
        frame({"t": "guest", "abi": "6"}), frame({"t": "guest", "abi": abi_version() + 1}),
        hello() + frame({"t": "serve"}), hello() + frame({"t": "serve", "n": "1", "name": "x"}),
        hello() + frame({"t": "serve", "n": 1, "name": 7}), hello() + frame({"t": "what"}),
        hello() + frame({"t": "ready"}), hello() + HEAD.pack(1 << 30, 0), hello() + HEAD.pack(10, 1) + b"0123456789",
        hello() + frame({"t": "log", "id": 5}), *noise, *(hello() + each for each in noise),
    ]  # fmt: skip
    for lie in lies:
        with connected(directory) as connection:
            connection.sendall(lie)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
    assert server.infer("one")[0] == 200
    until(lambda: descriptors(server.process.pid) <= before, "what liars had is closed")
    assert not [record for record in server.log if record["level"] == "critical"], server.text()


def test_orders_that_lie_are_answered_and_the_guest_may_stay(serve_guests, directory):
    server = serve_guests()
    config = {"input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}]}
    orders = [
        {"name": "x"}, {"name": "", "config": "", "form": "json"}, {"name": "x", "config": 5, "form": "json"},
        {"name": "x", "config": "{", "form": "json"}, {"name": "x", "config": "", "form": "yaml"},
        {"name": "x" * 300, "config": "{}", "form": "json"}, {"name": "a\0b", "config": "{}", "form": "json"},
        {"name": "x", "config": json.dumps(config), "form": "json", "version": -1},
        {"name": "x", "config": json.dumps(config), "form": "json", "version": True},
        {"name": "x", "config": json.dumps(config), "form": "json", "instances": "many"},
        {"name": "x", "config": json.dumps(config), "form": "json", "instances": 1 << 60},
        {"name": "x", "config": json.dumps({**config, "name": "y"}), "form": "json"},
    ]  # fmt: skip
    with connected(directory) as connection, connection.makefile("rb") as stream:
        connection.sendall(hello())
        assert read(stream)["t"] == "welcome"
        for number, order in enumerate(orders):
            connection.sendall(frame({"t": "serve", "n": number, **order}))
            answer = read(stream)
            assert answer["t"] == "done" and answer["n"] == number and answer["error"], order
        connection.sendall(frame({"t": "leave", "n": 99, "name": "x"}))
        assert "is not served by this guest" in read(stream)["error"]
        # One that is seated, and then says nothing that is true.
        connection.sendall(frame({"t": "serve", "n": 100, "name": "x", "config": json.dumps(config), "form": "json"}))
        seat = read(stream)
        assert seat["t"] == "seat"
        for lie in ({"t": "ready"}, {"t": "calls", "n": []}, {"t": "context", "request": "x"}, {"t": "what"}):
            connection.sendall(frame({**lie, "id": seat["id"]}))
        connection.sendall(frame({"t": "hello", "id": seat["id"], "abi": abi_version() + 1}))
    until(lambda: index(server)["x"][0] == "UNAVAILABLE", "it is not served")
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert not [record for record in server.log if record["level"] == "critical"], server.text()


def read(stream) -> dict:
    nbytes, _ = HEAD.unpack(stream.read(HEAD.size))
    return msgpack.unpackb(stream.read(nbytes))


def test_a_hello_that_does_not_come_is_not_waited_for(serve_guests, directory):
    serve_guests()
    with connected(directory) as connection:
        assert b"no hello within" in connection.recv(4096)
