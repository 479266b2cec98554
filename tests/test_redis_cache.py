"""Answers in a real Redis: found, kept, and done without when it is gone, hung or unwilling."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import trustme

from perf.oracle.ports import held_ports
from tests.redis_helpers import RedisServer, needs_redis
from tests.waiting import until
from tisfast import limits
from tisfast.config.cache_flags import RedisSettings, RedisTls
from tisfast.redis_cache import RedisStore

pytestmark = needs_redis
ROOT = Path(__file__).parents[1]


class Asker:
    """A store on a loop, asked from outside of it.

    What is in Redis is found however busy the machine is: a lookup may take longer than the server's default, unless a
    test says how long.
    """

    def __init__(self, **settings):
        self.loop = asyncio.new_event_loop()
        self.settings = RedisSettings(**{"host": "127.0.0.1", "socket_timeout_ms": 10_000, **settings})
        self.store = RedisStore(self.settings, self.loop)
        self.run(self.store.open())

    def run(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def _look(self, key):
        found = self.loop.create_future()
        if not self.store.look(key, found.set_result):
            return "skipped"
        return await found

    def look(self, key):
        return self.run(self._look(key))

    def keep(self, key, value):
        async def kept():
            self.store.keep(key, value)
            await settled(self)

        self.run(kept())

    async def _until(self, up):
        await until(lambda: self.store.up == up)

    def until(self, up):
        self.run(self._until(up))

    def close(self):
        self.run(self.store.close())
        self.loop.close()


@pytest.fixture
def server(tmp_path):
    with RedisServer(tmp_path) as running:
        yield running


@pytest.fixture
def connect():
    made = []

    def make(**settings):
        made.append(Asker(**settings))
        return made[-1]

    yield make
    for asker in made:
        asker.close()


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, "tisfast.cache")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "tisfast.cache"]


def test_what_is_kept_is_found_by_all(server, connect):
    one, other = connect(port=server.port), connect(port=server.port)
    value = os.urandom(1 << 20)
    assert one.look(b"k") is None
    one.keep(b"k", value)
    assert one.look(b"k") == other.look(b"k") == value
    with server.client() as client:
        assert client.get("k") == value


def test_many_at_once(server, connect):
    asker = connect(port=server.port, pool_size=2, wait_timeout_ms=20_000)
    asker.keep(b"k", b"v")

    async def all_of_them():
        return await asyncio.gather(*(asker._look(b"k") for _ in range(200)))

    assert asker.run(all_of_them()) == [b"v"] * 200


def test_a_lookup_that_finds_no_connection_is_a_miss_and_no_death(server, connect, logged):
    asker = connect(port=server.port, pool_size=1, wait_timeout_ms=1)
    asker.keep(b"k", bytes(50 << 20))

    async def both():
        return await asyncio.gather(asker._look(b"k"), asker._look(b"k"))

    assert None in asker.run(both())
    asker.run(settled(asker))
    assert asker.store.up and len(logged()) == 1


async def settled(asker):
    while asker.store._tasks:
        await asyncio.wait(list(asker.store._tasks))


def test_lookups_are_bounded(server, connect):
    asker = connect(port=server.port)
    server.hang()

    async def too_many():
        taken = [asker.store.look(b"k", lambda value: None) for _ in range(limits.REDIS_LOOKUPS_MAX + 3)]
        return taken.count(False)

    assert asker.run(too_many()) == 3
    assert asker.store.skipped == 3
    server.go_on()


def test_inserts_are_bounded_in_bytes(server, connect):
    asker = connect(port=server.port)
    assert asker.store.has_room(limits.REDIS_VALUE_BYTES_MAX)
    assert not asker.store.has_room(limits.REDIS_VALUE_BYTES_MAX + 1)
    server.hang()

    async def hold():
        for _ in range(4):
            asker.store.keep(b"k", bytes(limits.REDIS_INSERTS_BYTES_MAX // 4))
        return asker.store.has_room(1)

    assert not asker.run(hold())
    server.go_on()
    asker.run(settled(asker))  # a busy machine sends as much in more time than `close` has


def test_an_answer_that_is_given_up_leaves_no_connection_behind(server, connect, monkeypatch):
    """Redis hangs in the middle of it: what is not sent yet does not wait in memory until it goes on."""
    asker = connect(port=server.port)
    asker.keep(b"k", b"v")
    server.hang()
    monkeypatch.setattr(limits, "REDIS_STORE_SECONDS_MAX", 1)

    async def given_up():
        asker.store.keep(b"k", bytes(64 << 20))
        await until(lambda: asker.store.has_room(limits.REDIS_INSERTS_BYTES_MAX))

    assert connections(server) == 2
    asker.run(given_up())
    assert connections(server) == 1  # of the ping


def connections(server):
    """Sockets of this process."""
    found = psutil.Process().net_connections("tcp4")
    return sum(bool(each.raddr) and each.raddr.port == server.port for each in found)


def test_a_redis_that_hangs_delays_one_lookup_by_its_timeout_and_no_further_one(server, connect, logged):
    asker = connect(port=server.port, socket_timeout_ms=150)
    with server.client() as client:
        client.set("k", "v")
    server.hang()
    began = time.monotonic()
    assert asker.look(b"k") is None
    assert time.monotonic() - began >= 0.15
    assert asker.look(b"k") == "skipped"  # it is answered without a turn of the loop
    asker.until(False)
    server.go_on()
    asker.until(True)
    while asker.look(b"k") != b"v":  # a busy machine may take longer than 150 ms
        asker.until(True)
    assert [text for text in logged() if "does not answer: no answer within 150 ms" in text]
    assert [text for text in logged() if "answers again after" in text]


def test_one_slow_answer_is_no_death(server, connect):
    asker = connect(port=server.port, socket_timeout_ms=5)
    with server.client() as client:
        client.set("k", bytes(200 << 20))
    assert asker.look(b"k") is None  # late
    asker.run(settled(asker))
    if not asker.store.up:  # the machine was so busy that the ping was late as well
        asker.until(True)
    assert asker.look(b"nobody") is None


def test_a_redis_that_dies_and_comes_back(server, connect, logged):
    asker = connect(port=server.port)
    asker.keep(b"k", b"v")
    server.kill()
    assert asker.look(b"k") is None
    asker.until(False)
    for _ in range(100):
        assert asker.look(b"k") == "skipped"
    assert not asker.store.has_room(1)
    server.start()
    asker.until(True)
    assert asker.look(b"k") is None
    asker.keep(b"k", b"w")
    assert asker.look(b"k") == b"w"
    assert len(logged()) == 3  # found, gone, back
    assert "100 requests were executed without it" in logged()[-1]


def test_a_redis_that_is_not_there_at_the_start(tmp_path, connect, logged):
    server = RedisServer(tmp_path)
    asker = connect(port=server.port)
    assert asker.look(b"k") == "skipped"
    assert len(logged()) == 1 and "does not answer" in logged()[0]
    with server:
        asker.until(True)
        assert asker.look(b"k") is None


def test_what_redis_refuses_is_said_once(tmp_path, connect, logged):
    with RedisServer(tmp_path, "--maxmemory", "2mb", "--maxmemory-policy", "noeviction") as server:
        asker = connect(port=server.port)
        for i in range(5):
            asker.keep(b"%d" % i, bytes(2 << 20))
        assert asker.store.up
        assert asker.look(b"0") is not None or asker.look(b"4") is None
    assert len([text for text in logged() if "used memory > 'maxmemory'" in text]) == 1


def test_a_connection_that_redis_closed_while_it_was_idle_is_made_anew(server, connect, logged):
    asker = connect(port=server.port)
    asker.keep(b"k", b"v")
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert asker.look(b"k") == b"v"
    assert len(logged()) == 1


def test_user_password_and_database(tmp_path, connect, logged):
    flags = ("--user", "default", "off", "--user", "tis", "on", ">secret", "~*", "+@all")
    with RedisServer(tmp_path, *flags, username="tis", password="secret") as server:
        asker = connect(port=server.port, user="tis", password="secret", db=3)
        asker.keep(b"k", b"v")
        assert asker.look(b"k") == b"v"
        wrong = connect(port=server.port, user="tis", password="public")
        assert wrong.look(b"k") == "skipped"
    assert any("invalid username-password pair" in text for text in logged())
    assert not any("secret" in text or "public" in text for text in logged())


def test_tls_with_certificates_of_both_sides(tmp_path, connect, logged):
    authority = trustme.CA()
    files = {"ca": tmp_path / "ca.pem", "cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    authority.cert_pem.write_to_path(str(files["ca"]))
    issued = authority.issue_cert("redis.example")
    issued.private_key_pem.write_to_path(str(files["key"]))
    for i, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(str(files["cert"]), append=i > 0)
    with held_ports(1) as [port]:
        flags = ["--port", "0", "--tls-port", str(port), "--tls-cert-file", str(files["cert"]), "--tls-key-file",
                 str(files["key"]), "--tls-ca-cert-file", str(files["ca"])]  # fmt: skip
        options = {"ssl": True, "ssl_certfile": str(files["cert"]), "ssl_keyfile": str(files["key"]),
                   "ssl_ca_certs": str(files["ca"]), "ssl_check_hostname": False, "port": port}  # fmt: skip
        with RedisServer(tmp_path, *flags, **options):
            tls = RedisTls(str(files["cert"]), str(files["key"]), str(files["ca"]), "", "redis.example")
            asker = connect(port=port, tls=tls, connect_timeout_ms=5000)
            asker.keep(b"k", b"v")
            assert asker.look(b"k") == b"v"
            misnamed = RedisTls(str(files["cert"]), str(files["key"]), str(files["ca"]))
            assert connect(port=port, tls=misnamed, connect_timeout_ms=5000).look(b"k") == "skipped"
    assert any("CERTIFICATE_VERIFY_FAILED" in text for text in logged())


def test_without_redis_py_the_error_says_what_to_install(tmp_path):
    (tmp_path / "redis.py").write_text("raise ImportError('no redis here')")
    code = (
        "import asyncio; from tisfast.config.cache_flags import RedisSettings;"
        "from tisfast.redis_cache import RedisStore;"
        "RedisStore(RedisSettings('h', 1), asyncio.new_event_loop())"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert "no redis here" in done.stderr
    assert "pip install 'tisfast[redis]'" in done.stderr
