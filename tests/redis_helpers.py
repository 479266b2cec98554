"""Debian's redis-server as a process: started on a free port, stopped, hung, killed, started again."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import redis

from perf.oracle.ports import held_ports
from tests.waiting import wait_until

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class RedisServer:
    """A context manager, whose port is its own before it, too.

    flags: of redis-server; options: of the client that looks whether it is up.
    """

    def __init__(self, folder: Path, *flags: str, **options) -> None:
        self._held = held_ports(1)
        [self.port] = self._held.__enter__()
        self._folder = folder
        self._flags = flags
        self._options = {"port": self.port, **options}
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._held.__exit__(None, None, None)

    def start(self) -> None:
        flags = ["--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder), *self._flags]
        if "--tls-port" not in self._flags:
            flags += ["--port", str(self.port)]
        self._process = subprocess.Popen(["redis-server", *flags], stdout=subprocess.DEVNULL)
        wait_until(self._answers, lambda: "redis-server starts")

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return client.ping()
            except redis.exceptions.ConnectionError:
                return False

    def client(self) -> redis.Redis:
        """A client of its own library, blocking."""
        return redis.Redis(host="127.0.0.1", **self._options)

    def hang(self) -> None:
        """It lives, and answers nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
