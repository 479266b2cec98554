"""Held ports are one holder's, and open to the server that asks for one by number."""

from __future__ import annotations

import socket

import pytest

from perf.oracle.ports import held_ports

MANY = 2_000  # of the 28,232 that Linux chooses among


def test_two_who_choose_at_once_get_different_ports() -> None:
    with held_ports(MANY) as ours, held_ports(MANY) as others:
        assert len({*ours, *others}) == 2 * MANY


def test_a_server_may_listen_on_a_held_port() -> None:
    with held_ports(1) as [port], socket.create_server(("0.0.0.0", port)) as server:
        with socket.create_connection(("localhost", port)) as client, server.accept()[0] as accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
        with pytest.raises(OSError, match="in use"), held_ports(1), socket.create_server(("0.0.0.0", port)):
            pass


def test_a_held_port_is_free_again_when_let_go() -> None:
    with held_ports(1) as [port]:
        pass
    with socket.socket() as without_the_option:
        without_the_option.bind(("127.0.0.1", port))
