"""One line for each request, when it is over: into a file, or into the verbose log.  Layer 4 (telemetry).

The loop notes facts; a thread words and writes them, so that no request waits for a disk.  What the thread cannot keep
up with is counted, and said.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from io import FileIO
from typing import Final, NamedTuple
from urllib.parse import unquote

from tisfast import limits, tuning
from tisfast.errors import ConfigError
from tisfast.native.memory import now_ns

log = logging.getLogger("tisfast.access")
HTTP_CLIENT_LEFT: Final = 499
"""The usual status of a request whose client did not wait for the answer."""


class Access(NamedTuple):
    """The facts of one request.

    method: HTTP's, "" of a call; target: path, or service and RPC; status: of HTTP, or gRPC's code; began_ns, ended_ns:
    of now_ns; ended: of time.time; client: the socket's peer name.
    """

    method: str
    target: str
    model: str
    status: int
    began_ns: int
    ended_ns: int
    ended: float
    received_bytes: int
    sent_bytes: int
    client: object
    id: str

    @property
    def milliseconds(self) -> float:
        """From its head to the end of the answer, as far as the kernel takes it."""
        return round((self.ended_ns - self.began_ns) / 1e6, 3)

    @property
    def facts(self) -> dict[str, object]:
        """The fields of its JSON form."""
        facts: dict[str, object] = {
            "protocol": "HTTP" if self.method else "gRPC",
            "method": self.method,
            "target": self.target,
            "model": self.model or _model_of(self.target),
            "status": self.status,
            "milliseconds": self.milliseconds,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "client": _address(self.client),
            "id": self.id,
        }
        return {name: value for name, value in facts.items() if value != ""}

    @property
    def line(self) -> str:
        """Its text: fields by name, in this order; what could hold a space is JSON."""
        facts = self.facts
        for name in {"target", "model", "id"} & facts.keys():
            facts[name] = json.dumps(facts[name])
        return " ".join(f"{name}={value}" for name, value in facts.items())


class AccessLog:
    """The lines of one server.  Event-loop thread only, but for the writer.

    path: of the file, "" for none; as_json: an object a line; waiting_max: lines that are not written yet.  Raises
    ConfigError for a file that cannot be opened.
    """

    def __init__(self, path: str, *, as_json: bool, waiting_max: int = limits.ACCESS_LINES_WAITING_MAX) -> None:
        self._path, self._as_json, self._waiting_max = path, as_json, waiting_max
        self._waiting: deque[Access] = deque()
        self._lost = 0
        self._news = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._file: FileIO | None = self._open() if path else None

    @property
    def wanted(self) -> bool:
        """Whether anybody reads lines now; the level of the log can change."""
        return bool(self._path) or log.isEnabledFor(logging.DEBUG)

    def note(  # noqa: PLR0913, PLR0917 - the facts
        self,
        method: str,
        target: str,
        model: str,
        status: int,
        began_ns: int,
        received_bytes: int,
        sent_bytes: int,
        client: object,
        request_id: str,
    ) -> None:
        """A request is over.  Never blocks."""
        if len(self._waiting) >= self._waiting_max:
            self._lost += 1
            return
        self._waiting.append(
            Access(
                method, target, model, status, began_ns, now_ns(), time.time(), received_bytes, sent_bytes, client,
                request_id,
            )
        )  # fmt: skip
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
            self._thread.start()
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        """Write what there is, for a bounded time."""
        if self._thread is not None:
            self._ending = True
            self._news.set()
            self._thread.join(limits.ACCESS_CLOSE_SECONDS_MAX)
        if self._file is not None and (self._thread is None or not self._thread.is_alive()):
            self._file.close()

    def _run(self) -> None:
        while not self._ending or self._waiting:
            self._news.wait()
            self._news.clear()
            while self._waiting:
                count = min(len(self._waiting), tuning.ACCESS_LINES_PORTION_MAX)
                self._write([self._waiting.popleft() for _ in range(count)])
            lost, self._lost = self._lost, 0
            if lost:
                log.warning("%d requests are not in the access log: they came faster than they could be written", lost)

    def _write(self, portion: Iterable[Access]) -> None:
        if self._file is None:
            for each in portion:
                log.debug("%s", each.line, extra={"facts": each.facts})
            return
        try:
            self._reopen_if_moved()
            text = memoryview("".join(map(self._worded, portion)).encode())
            while text:
                text = text[self._file.write(text) :]
        except OSError as error:
            log.error("lines of --access-log=%s are lost: %s", self._path, error.strerror)

    def _worded(self, each: Access) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each.ended))
        stamp = f"{at}.{int(each.ended * 1e6) % 1_000_000:06d}Z"
        if self._as_json:
            return json.dumps({"time": stamp, **each.facts}) + "\n"
        return f"{stamp} {each.line}\n"

    def _reopen_if_moved(self) -> None:
        """Open the file again when a log rotation has moved it."""
        assert self._file is not None
        try:
            there = os.stat(self._path)
            same = os.path.samestat(there, os.fstat(self._file.fileno()))
        except FileNotFoundError:
            same = False
        if not same:
            old, self._file = self._file, _appended(self._path)
            old.close()

    def _open(self) -> FileIO:
        try:
            return _appended(self._path)
        except OSError as error:
            raise ConfigError(
                f"cannot open --access-log={self._path}: {error.strerror}", key="access-log", hint="name another file"
            ) from None


def _appended(path: str) -> FileIO:
    """The file, without a buffer: what could not be written is lost at once, and closing writes nothing."""
    return open(path, "ab", buffering=0)


def _model_of(target: str) -> str:
    """The model in a path of HTTP."""
    parts = target.partition("?")[0].split("/")
    named = parts[:3] == ["", "v2", "models"] and len(parts) > 4 or parts[2:4] == ["repository", "models"]
    return unquote(parts[3 if parts[2] == "models" else 4]) if named and len(parts) > 4 else ""


def _address(peer: object) -> str:
    """HOST:PORT of a socket's peer name."""
    if not isinstance(peer, tuple) or len(peer) < 2:
        return ""
    return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
